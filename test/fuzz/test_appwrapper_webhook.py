"""The webhook of AppWrappers answers every review, and never changes its verdict about what it has defaulted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

from hypothesis import strategies as st

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import Resource, UnknownKind
from cfo.runtime.objects.unstructured import GVK, Object
from cfo.runtime.webhook.review_handlers import DefaultingHandler, ValidatingHandler
from cfo.webhooks.appwrapper import AppWrapperWebhook
from cfo.webhooks.raycluster import RayClusterWebhook
from cfo.webhooks.raycluster.injection_plan import Images
from test.fuzz.mutations import mutated
from test.fuzz.profiles import fuzz
from test.fuzz.reviews import Reviewer, encoded, review_of
from test.fuzz.seeds import Corpus

CORPUS = Corpus(kind="AppWrapper")
WRAPPERS = mutated(CORPUS)
VERBS = frozenset({"create", "delete", "get"})


class FakeClient:
    """An API server that serves all kinds but ``Thing``; the tenant is not allowed to create Deployments."""

    @property
    def mapper(self) -> Any:
        return SimpleNamespace(resource=self._resource)

    async def _resource(self, gvk: GVK) -> Resource:
        if gvk.kind == "Thing":
            raise UnknownKind(gvk)
        return Resource(
            gvk=gvk, plural=f"{gvk.kind.lower()}s", namespaced=gvk.kind != "Namespace", verbs=VERBS
        )

    async def create(self, review: Object) -> Object:
        attributes = review["spec"]["resourceAttributes"]
        return {"status": {"allowed": attributes["resource"] != "deployments"}}


async def is_openshift() -> bool:
    return True


async def ingress_domain() -> str:
    return "apps.test"


def webhook() -> Reviewer:
    clusters = RayClusterWebhook(
        settings_of=AsyncMock(return_value=ProfileTable(KubeRayConfiguration()).strictest()),
        version="v1",
        images=Images(),
        has_oauth_server=is_openshift,
        ingress_domain=ingress_domain,
    )
    config = AppWrapperConfiguration(default_queue_name="default")
    admission = AppWrapperWebhook(
        cast("Client", FakeClient()), config, {RAY_CLUSTER: clusters.submission_errors}
    )
    return Reviewer(
        DefaultingHandler(admission, APPWRAPPER), ValidatingHandler(admission, APPWRAPPER)
    )


REVIEWER = webhook()


@fuzz(0.2, WRAPPERS, st.data())
def test_each_creation_and_update_is_answered(wrapper: Any, data: st.DataObject) -> None:
    stored = REVIEWER.admit(wrapper)
    if stored is None:
        return
    changed = data.draw(mutated(CORPUS, only=stored))
    REVIEWER.admit(changed, stored)


@fuzz(0.03, WRAPPERS, WRAPPERS)
def test_each_update_of_an_object_that_was_not_admitted_is_answered(old: Any, new: Any) -> None:
    REVIEWER.admit(new, old)


@fuzz(0.02, WRAPPERS, st.data())
def test_each_review_is_answered(wrapper: Any, data: st.DataObject) -> None:
    old = data.draw(st.sampled_from([None, CORPUS.objects[0]]))
    review = data.draw(mutated(CORPUS, only=review_of(wrapper, old)))
    for handler in (REVIEWER.defaulting, REVIEWER.validating):
        REVIEWER.respond(handler, encoded(review))
