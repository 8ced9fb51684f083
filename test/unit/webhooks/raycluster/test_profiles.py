"""Tests of profiles in the webhook: what a user sends does not weaken them."""

from __future__ import annotations

import copy

import pytest
from msgspec.structs import replace

from cfo.api.raycluster.cluster import SECURE_TRUSTED_NETWORK
from cfo.api.raycluster.facts import Concern
from cfo.webhooks.raycluster.defaulting import default
from cfo.webhooks.raycluster.injection_plan import InjectionSettings
from cfo.webhooks.raycluster.validation import create_errors
from test.support.ray_clusters import (
    OAUTH_AND_MTLS,
    Cluster,
    default_on_create,
    head_pod,
    ray_cluster,
    worker,
    worker_pod,
)

ALL_CONCERNS = frozenset({Concern.NETWORK_POLICY, Concern.MTLS, Concern.AUTHENTICATION})
ENFORCED = replace(OAUTH_AND_MTLS, profile="strict", enforced=ALL_CONCERNS)
ENFORCED_WITH_KUBERAY = replace(ENFORCED, kuberay_features=frozenset({"tlsOptions", "authOptions"}))
WEAK: Cluster = {
    "tlsOptions": {"enabled": False},
    "authOptions": {"mode": "disabled"},
    "networkPolicy": {"mode": "DenyAllIngress", "head": {"ingressRules": [{}]}},
}


def test_profile_writes_fields_of_kuberay_and_injects_nothing() -> None:
    created = default_on_create(ray_cluster(worker()), ENFORCED_WITH_KUBERAY)
    strong = {"tlsOptions": {"enabled": True}, "authOptions": {"mode": "token"}}
    assert created.cluster["spec"] == {**ray_cluster(worker())["spec"], **strong}
    assert created.warnings == ()
    assert create_errors(created.cluster, ENFORCED_WITH_KUBERAY) == []


@pytest.mark.parametrize("spec", [{}, {"spec": None}], ids=["missing", "null"])
def test_profile_is_enforced_in_a_cluster_without_spec(spec: Cluster) -> None:
    cluster = {key: value for key, value in ray_cluster().items() if key != "spec"} | spec
    created = default_on_create(cluster, ENFORCED_WITH_KUBERAY)
    assert created.cluster["spec"] == {
        "tlsOptions": {"enabled": True},
        "authOptions": {"mode": "token"},
    }


@pytest.mark.parametrize("settings", [ENFORCED, ENFORCED_WITH_KUBERAY], ids=["injected", "kuberay"])
def test_options_of_user_do_not_weaken_profile_on_creation_and_update(
    settings: InjectionSettings,
) -> None:
    strong = default_on_create(ray_cluster(worker()), settings).cluster
    weak = default_on_create(ray_cluster(worker(), **WEAK), settings)
    policy = {"networkPolicy": {"mode": "DenyAllIngress", "head": {}}}
    if settings is ENFORCED:
        assert weak.cluster["spec"] == {
            **strong["spec"],
            **WEAK,
            **policy,
        }  # KubeRay's options have no effect
    else:
        assert weak.cluster["spec"] == {**strong["spec"], **policy}
    fields = [warning.partition(":")[0] for warning in weak.warnings]
    assert "spec.networkPolicy.head.ingressRules" in fields
    assert ("spec.tlsOptions.enabled" in fields) is (settings is ENFORCED_WITH_KUBERAY)
    assert all("profile strict of this namespace" in warning for warning in weak.warnings)
    update = copy.deepcopy(strong)
    update["spec"] |= copy.deepcopy(WEAK)
    update["metadata"]["annotations"][SECURE_TRUSTED_NETWORK] = "true"
    stored = default(update, strong, settings).cluster
    assert stored["spec"] == weak.cluster["spec"]
    assert default(stored, strong, settings).cluster == stored
    removed = copy.deepcopy(strong)
    for name in ("tlsOptions", "authOptions"):
        removed["spec"].pop(name, None)
    for pod in (head_pod(removed), worker_pod(removed)):
        pod.pop("initContainers", None)
    assert default(removed, strong, settings).cluster == strong


def test_change_by_later_webhook_is_refused_with_its_path() -> None:
    created = default_on_create(ray_cluster(worker()), ENFORCED_WITH_KUBERAY).cluster
    created["spec"]["tlsOptions"] = {"enabled": False}
    errors = [str(error) for error in create_errors(created, ENFORCED_WITH_KUBERAY)]
    assert errors[0].startswith("spec.tlsOptions.enabled: Forbidden: ")
    assert "profile strict" in errors[0]


def test_profile_does_not_inject_into_stored_cluster_without_parts() -> None:
    stored = ray_cluster(worker(), version="v1")
    new = copy.deepcopy(stored)
    new["metadata"]["labels"] = {"touched": "yes"}
    assert default(new, stored, ENFORCED).cluster == new
    assert default(new, stored, ENFORCED_WITH_KUBERAY).cluster == new
