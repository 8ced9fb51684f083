"""A kind with two versions, for the tests of typed resources."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cfo.runtime import APIModel, CELRule, ConditionList, CustomResource, Int32, PrinterColumn, validations
from cfo.runtime.objects import SET, Conversions, Scale, list_map


class Port(APIModel):
    """A port of the pods."""

    name: str
    number: Int32 = Field(gt=0, le=65535)


class WebsiteSpec(APIModel, validations=[CELRule(rule="self.replicas < 10", message="too many replicas")]):
    """The desired state of a Website."""

    html: Annotated[str, validations(CELRule(rule="self == oldSelf", message="is immutable"))]
    replicas: Int32 = Field(default=1, ge=0)
    hosts: Annotated[list[str], SET] = Field(default_factory=list)
    ports: Annotated[list[Port], list_map("name")] = Field(default_factory=list)
    note: str | None = None


class WebsiteStatus(APIModel):
    """The observed state of a Website."""

    ready_replicas: Int32 = 0
    conditions: ConditionList = Field(default_factory=list)


class Website(
    CustomResource,
    group="example.com",
    version="v1",
    short_names=["ws"],
    categories=["all"],
    printer_columns=[PrinterColumn("Ready", ".status.readyReplicas", "integer")],
    scale=Scale(spec_replicas=".spec.replicas", status_replicas=".status.readyReplicas"),
):
    """A page and the pods that serve it."""

    spec: WebsiteSpec
    status: WebsiteStatus = Field(default_factory=WebsiteStatus)


class BetaSpec(APIModel):
    """The desired state of a Website in v1beta1."""

    page: str


class WebsiteBeta(
    CustomResource,
    group="example.com",
    version="v1beta1",
    kind="Website",
    short_names=["ws"],
    categories=["all"],
    storage=False,
    deprecation_warning="example.com/v1beta1 Website is deprecated; use v1",
):
    """A page."""

    spec: BetaSpec


REPLICAS = "example.com/replicas"


def website_of_beta(old: WebsiteBeta) -> Website:
    replicas = int(old.metadata.annotations.get(REPLICAS, "1"))
    return Website(spec=WebsiteSpec(html=old.spec.page, replicas=replicas))


def beta_of_website(new: Website) -> WebsiteBeta:
    old = WebsiteBeta(spec=BetaSpec(page=new.spec.html))
    old.metadata.annotations = {**new.metadata.annotations, REPLICAS: str(new.spec.replicas)}
    return old


conversions = Conversions(Website)
conversions.add(WebsiteBeta, to_hub=website_of_beta, from_hub=beta_of_website)
