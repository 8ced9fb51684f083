"""The webhook of RayClusters answers every review, and what it stores passes its own validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock
from unittest.mock import AsyncMock

import pytest
from hypothesis import strategies as st

from cfo.api.raycluster.cluster import PROXY_CONTAINER, has_injected_tls
from cfo.api.raycluster.names import RAY_CLUSTER, VERSION_ANNOTATION, names_of
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.runtime.objects.unstructured import Object, is_deleting, key_of
from cfo.runtime.webhook.review_handlers import DefaultingHandler, ValidatingHandler
from cfo.webhooks.raycluster import RayClusterWebhook
from cfo.webhooks.raycluster.injection_plan import Images
from test.fuzz.mutations import mutated
from test.fuzz.profiles import fuzz
from test.fuzz.reviews import Reviewer, encoded, review_of
from test.fuzz.seeds import Corpus

CORPUS = Corpus(kind="RayCluster")
CLUSTERS = mutated(CORPUS)


def webhook(*, openshift: bool) -> Reviewer:
    async def is_openshift() -> bool:
        return openshift

    async def ingress_domain() -> str:
        return "apps.test"

    admission = RayClusterWebhook(
        settings_of=AsyncMock(return_value=ProfileTable(KubeRayConfiguration()).strictest()),
        version="v1",
        images=Images(),
        has_oauth_server=is_openshift,
        ingress_domain=ingress_domain,
    )
    return Reviewer(
        DefaultingHandler(admission, RAY_CLUSTER), ValidatingHandler(admission, RAY_CLUSTER)
    )


WEBHOOKS = {openshift: webhook(openshift=openshift) for openshift in (False, True)}


@pytest.fixture(autouse=True, scope="module")
def _same_generated_names() -> Iterator[None]:
    with mock.patch("cfo.webhooks.raycluster.webhook.secrets.choice", lambda alphabet: alphabet[0]):
        yield


@fuzz(0.3, CLUSTERS, st.booleans(), st.data())
def test_each_creation_and_update_is_answered(
    cluster: Any, openshift: bool, data: st.DataObject
) -> None:
    reviewer = WEBHOOKS[openshift]
    stored = reviewer.admit(cluster)
    if stored is None:
        return
    assert_protected(stored, openshift=openshift)
    update = data.draw(mutated(CORPUS, only=stored))
    changed = reviewer.admit(update, stored)
    if changed is not None and key_of(changed) == key_of(stored) and not is_deleting(changed):
        assert_protected(changed, openshift=openshift)


def assert_protected(cluster: Object, *, openshift: bool) -> None:
    """Assert that Ray requires TLS and, on OpenShift, that the dashboard is behind the proxy, with its own account."""
    assert has_injected_tls(cluster)
    assert cluster["metadata"]["annotations"][VERSION_ANNOTATION] == "v1"
    if openshift:
        pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
        (proxy,) = [item for item in pod["containers"] if item.get("name") == PROXY_CONTAINER]
        assert proxy["image"] == Images().oauth_proxy
        assert pod["serviceAccountName"] == names_of(cluster).proxy_service_account


@fuzz(0.05, CLUSTERS, CLUSTERS)
def test_each_update_of_an_object_that_was_not_admitted_is_answered(old: Any, new: Any) -> None:
    """The webhooks were absent, or another version of them admitted the old object."""
    WEBHOOKS[True].admit(new, old)


@fuzz(0.05, CLUSTERS, st.data())
def test_each_review_is_answered(cluster: Any, data: st.DataObject) -> None:
    old = data.draw(st.sampled_from([None, CORPUS.objects[0]]))
    review = data.draw(mutated(CORPUS, only=review_of(cluster, old)))
    reviewer = WEBHOOKS[False]
    for handler in (reviewer.defaulting, reviewer.validating):
        reviewer.respond(handler, encoded(review))


@pytest.mark.parametrize("spec", ["x", ["x"], {"workerGroupSpecs": 1}, {"workerGroupSpecs": "xy"}])
def test_old_object_of_any_type_does_not_fail_the_review(spec: Any) -> None:
    cluster = next(filter(None, map(WEBHOOKS[False].admit, CORPUS.objects)))
    WEBHOOKS[False].admit(cluster, {**cluster, "spec": spec})
