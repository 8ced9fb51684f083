"""Which Events say that another actor provides a concern, or that it cannot be relied on to do so."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.cluster import SECURE_TRUSTED_NETWORK
from cfo.api.raycluster.facts import KUBERAY_FEATURES, Actor, Concern, RayClusterFacts
from cfo.controllers.raycluster.concern import Decision
from cfo.controllers.raycluster.responsibility import find_actor
from test.support.decisions import reasons, stored_cluster

TLS = {"tlsOptions": {"enabled": True}}
TOKEN = {"authOptions": {"mode": "token"}}
MULTIKUEUE = {"managedBy": "kueue.x-k8s.io/multikueue"}


def found(
    concern: Concern, active: tuple[str, ...], *, kept: str = "", fork: bool = False, **spec: Any
) -> tuple[Actor, list[str]]:
    """Return who provides ``concern``, and the reasons of the Events."""
    cluster = stored_cluster(**spec)
    if fork:
        cluster["metadata"]["annotations"] = {SECURE_TRUSTED_NETWORK: "true"}
    decision = Decision(cluster=cluster)
    actor = find_actor(decision, RayClusterFacts(cluster), concern, active, kept)
    return actor, reasons(decision)


@pytest.mark.parametrize(
    ("concern", "spec", "actor", "reason"),
    [
        (Concern.NETWORK_POLICY, {}, Actor.OPERATOR, ""),
        (Concern.NETWORK_POLICY, {"networkPolicy": {}}, Actor.KUBERAY, "NetworkPolicyByKubeRay"),
        (Concern.NETWORK_POLICY, MULTIKUEUE, Actor.MULTIKUEUE, "ManagedByMultiKueue"),
        (Concern.MTLS, TLS, Actor.KUBERAY, "MTLSByKubeRay"),
        (Concern.MTLS, MULTIKUEUE, Actor.MULTIKUEUE, ""),
        (Concern.AUTHENTICATION, TOKEN, Actor.KUBERAY, "OAuthByKubeRay"),
    ],
)
def test_event_names_the_actor_unless_it_is_the_operator(
    concern: Concern, spec: dict[str, Any], actor: Actor, reason: str
) -> None:
    assert found(concern, KUBERAY_FEATURES, **spec) == (actor, [reason] * bool(reason))


@pytest.mark.parametrize(
    ("concern", "reason"),
    [
        (Concern.MTLS, "MTLSByOpenDataHub"),
        (Concern.AUTHENTICATION, "OAuthByOpenDataHub"),
        (Concern.EXPOSURE, "ExposedByOpenDataHub"),
    ],
)
def test_fork_of_open_data_hub_precedes_the_fields_of_kuberay(
    concern: Concern, reason: str
) -> None:
    actor, events = found(concern, KUBERAY_FEATURES, fork=True, **TLS, **TOKEN)
    assert (actor, events) == (Actor.OPEN_DATA_HUB, [reason])


@pytest.mark.parametrize(
    ("spec", "kept", "events"),
    [
        (TLS, "mutual TLS", ["KubeRayFeatureUnconfirmed"]),
        (TLS, "", []),
        ({}, "mutual TLS", []),
    ],
    ids=["requested", "nothing is kept", "not requested"],
)
def test_feature_that_is_not_known_to_be_active_leaves_the_concern_to_the_operator(
    spec: dict[str, Any], kept: str, events: list[str]
) -> None:
    assert found(Concern.MTLS, (), kept=kept, **spec) == (Actor.OPERATOR, events)
