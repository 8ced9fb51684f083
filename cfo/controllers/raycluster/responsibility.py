"""Reports which actor provides a concern of a RayCluster, if that is not the operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.controllers.raycluster.concern import Decision

ACTOR_EVENTS: Final[Mapping[tuple[Concern, Actor], tuple[str, str]]] = {
    (Concern.NETWORK_POLICY, Actor.KUBERAY): (
        "NetworkPolicyByKubeRay",
        "The RayCluster uses KubeRay's networkPolicy, so the operator creates no NetworkPolicies for it",
    ),
    (Concern.NETWORK_POLICY, Actor.OPEN_DATA_HUB): (
        "NetworkPolicyByOpenDataHub",
        "The RayCluster uses networkIsolation of Open Data Hub's KubeRay, so the operator creates no NetworkPolicies",
    ),
    (Concern.NETWORK_POLICY, Actor.MULTIKUEUE): (
        "ManagedByMultiKueue",
        "MultiKueue runs the RayCluster in another Kubernetes cluster, so the operator creates nothing for it here",
    ),
    (Concern.MTLS, Actor.KUBERAY): (
        "MTLSByKubeRay",
        "The RayCluster uses KubeRay's tlsOptions, so the operator maintains no CA for it",
    ),
    (Concern.MTLS, Actor.OPEN_DATA_HUB): (
        "MTLSByOpenDataHub",
        "Open Data Hub's KubeRay provides mutual TLS for the RayCluster, so the operator maintains no CA for it",
    ),
    (Concern.AUTHENTICATION, Actor.KUBERAY): (
        "OAuthByKubeRay",
        "The RayCluster uses KubeRay's authOptions, so the operator does not create OAuth objects for it",
    ),
    (Concern.AUTHENTICATION, Actor.OPEN_DATA_HUB): (
        "OAuthByOpenDataHub",
        "Open Data Hub's KubeRay authenticates the users of the RayCluster, so the operator creates no OAuth objects",
    ),
    (Concern.EXPOSURE, Actor.KUBERAY): (
        "ExposedByKubeRay",
        "The RayCluster sets enableIngress, so KubeRay exposes its dashboard and the operator does not",
    ),
    (Concern.EXPOSURE, Actor.OPEN_DATA_HUB): (
        "ExposedByOpenDataHub",
        "Open Data Hub's KubeRay exposes the RayCluster through its Gateway, so the operator does not",
    ),
}
"""The reason and message of the Event that says that another actor provides a concern.

MultiKueue provides all concerns, so only NETWORK_POLICY, which is always decided, has an Event.
"""


def find_actor(
    decision: Decision,
    facts: RayClusterFacts,
    concern: Concern,
    active_features: Collection[str],
    kept: str = "",
) -> Actor:
    """Return who provides ``concern`` of the cluster, and record an Event if that is not the operator.

    If the cluster requests another actor whose feature is not known to be active, a Warning Event says that the
    operator's own ``kept`` stays; an empty ``kept`` records nothing.
    """
    actor = facts.actor(concern, active_features)
    event = ACTOR_EVENTS.get((concern, actor))
    if event is not None:
        decision.inform(*event)
    if not kept:
        return actor
    delegation = facts.unconfirmed_delegation(concern, active_features)
    if delegation is not None:
        decision.warn(
            "KubeRayFeatureUnconfirmed",
            f"The RayCluster sets {delegation.setting}, but kuberay.kubeRayFeatures in the operator's configuration "
            f"does not contain {delegation.feature}: the operator's own {kept} stays active. If KubeRay's feature is "
            "active, ask the administrator to add it",
        )
    return actor
