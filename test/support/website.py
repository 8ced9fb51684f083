"""A kind with two versions, for the tests of typed resources."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from cfo.runtime import (
    APIModel,
    CELRule,
    ConditionList,
    CustomResource,
    Duration,
    Int32,
    PrinterColumn,
    validations,
)
from cfo.runtime.objects import SET, Scale, list_map


class Port(APIModel):
    """A port of the pods."""

    name: str
    number: Int32 = Field(gt=0, le=65535)


AT_LEAST_A_SECOND = validations(
    CELRule(rule="self >= duration('1s')", message="must be at least 1s")
)


class WebsiteSpec(
    APIModel, validations=[CELRule(rule="self.replicas < 10", message="too many replicas")]
):
    """The desired state of a Website."""

    html: Annotated[str, validations(CELRule(rule="self == oldSelf", message="is immutable"))]
    replicas: Int32 = Field(default=1, ge=0)
    hosts: Annotated[list[str], SET] = Field(default_factory=list)
    ports: Annotated[list[Port], list_map("name")] = Field(default_factory=list)
    note: str | None = None
    interval: Annotated[Duration, AT_LEAST_A_SECOND] = timedelta(minutes=5)


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


class WebsiteBeta(
    Website,
    group="example.com",
    version="v1beta1",
    kind="Website",
    short_names=["ws"],
    categories=["all"],
    storage=False,
    deprecation_warning="example.com/v1beta1 Website is deprecated; use v1",
):
    """A page in its former version, which has the same schema."""
