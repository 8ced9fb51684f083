"""Decides who provides NetworkPolicies, mutual TLS, authentication and exposure of a RayCluster.

This operator is not the only one that can: KubeRay 1.7 has ``networkPolicy``, ``tlsOptions``, ``authOptions`` and
``ingressOptions`` (which ``enableIngress`` turns on), Open Data Hub's fork of KubeRay has the annotation
:data:`SECURE_TRUSTED_NETWORK` and ``networkIsolation``, and a RayCluster that MultiKueue manages runs in another
Kubernetes cluster. For each concern exactly one actor acts. All controllers and webhooks ask :func:`responsibility_of`.

A tenant can set each of these fields, and KubeRay ignores or rejects most of them while the feature is inactive.
Therefore a field takes effect only if its feature is known to be active: the configuration lists it
(``kuberay.kubeRayFeatures``), or the caller observed what the feature does. ``managedBy`` needs no confirmation: each
KubeRay that has the field stops acting on the RayCluster.

Sources: ``raycluster_types.go``, ``features.go``, ``validation.go`` and ``networkpolicy_controller.go`` of KubeRay
1.7.0; ``networkpolicy_controller.go``, ``authentication_controller.go`` and ``raycluster_mtls_controller.go`` of
opendatahub-io/kuberay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from cfo.api.raycluster.authentication import requests_ray_token
from cfo.api.raycluster.cluster import uses_kuberay_tls
from cfo.runtime import annotations_of

__all__ = [
    "FEATURES",
    "MULTIKUEUE_CONTROLLER",
    "SECURE_TRUSTED_NETWORK",
    "Actor",
    "Concern",
    "Responsibility",
    "event_of",
    "is_managed_by_multikueue",
    "responsibility_of",
    "unconfirmed_request",
]

MULTIKUEUE_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
"""The value of ``spec.managedBy`` with which MultiKueue runs a RayCluster in another Kubernetes cluster."""

SECURE_TRUSTED_NETWORK: Final = "odh.ray.io/secure-trusted-network"
"""The annotation with which Open Data Hub's KubeRay secures a RayCluster (only the value ``true``)."""


class Actor(Enum):
    """Who provides a concern of a RayCluster."""

    OPERATOR = "the operator"
    KUBERAY = "KubeRay"
    OPEN_DATA_HUB = "Open Data Hub"
    MULTIKUEUE = "MultiKueue"


class Concern(Enum):
    """What one actor provides for a RayCluster; the value is the field's name in :class:`Responsibility`."""

    NETWORK_POLICY = "network_policy"
    MTLS = "mtls"
    AUTHENTICATION = "authentication"
    EXPOSURE = "exposure"


@dataclass(frozen=True, slots=True)
class Responsibility:
    """Who provides each concern of one RayCluster."""

    network_policy: Actor
    mtls: Actor
    authentication: Actor
    exposure: Actor

    def of(self, concern: Concern) -> Actor:
        """Return who provides ``concern``."""
        actor: Actor = getattr(self, concern.value)
        return actor


@dataclass(frozen=True, slots=True)
class _Request:
    """A setting of a RayCluster that requests another actor, which acts if ``feature`` is active."""

    concern: Concern
    actor: Actor
    feature: str
    setting: str
    is_set: Callable[[Mapping[str, Any]], bool]


def _spec(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = cluster.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def is_managed_by_multikueue(cluster: Mapping[str, Any]) -> bool:
    """Return whether MultiKueue runs ``cluster`` in another Kubernetes cluster (``spec.managedBy``)."""
    return _spec(cluster).get("managedBy") == MULTIKUEUE_CONTROLLER


def _uses_secure_trusted_network(cluster: Mapping[str, Any]) -> bool:
    return annotations_of(cluster).get(SECURE_TRUSTED_NETWORK) == "true"


def _uses_network_isolation(cluster: Mapping[str, Any]) -> bool:
    """Return whether ``spec.networkIsolation`` is set; the fork restricts ingress in each of its modes."""
    return _spec(cluster).get("networkIsolation") is not None


def _restricts_ingress(cluster: Mapping[str, Any]) -> bool:
    """Return whether ``spec.networkPolicy`` restricts ingress; its mode can be for egress only."""
    policy = _spec(cluster).get("networkPolicy")
    return isinstance(policy, Mapping) and policy.get("mode") in (None, "DenyAll", "DenyAllIngress")


def _enables_ingress(cluster: Mapping[str, Any]) -> bool:
    """Return whether KubeRay exposes the dashboard: it reads ``ingressOptions`` only with ``enableIngress``."""
    head = _spec(cluster).get("headGroupSpec")
    return isinstance(head, Mapping) and head.get("enableIngress") is True


_ANNOTATION = f"the annotation {SECURE_TRUSTED_NETWORK}"

# In order of precedence: the fork adds its proxy and certificates regardless of KubeRay's own fields.
_REQUESTS: Final = (
    _Request(
        Concern.NETWORK_POLICY,
        Actor.OPEN_DATA_HUB,
        "networkIsolation",
        "spec.networkIsolation",
        _uses_network_isolation,
    ),
    _Request(Concern.NETWORK_POLICY, Actor.KUBERAY, "networkPolicy", "spec.networkPolicy", _restricts_ingress),
    _Request(Concern.MTLS, Actor.OPEN_DATA_HUB, "secureTrustedNetwork", _ANNOTATION, _uses_secure_trusted_network),
    _Request(Concern.MTLS, Actor.KUBERAY, "tlsOptions", "spec.tlsOptions", uses_kuberay_tls),
    _Request(
        Concern.AUTHENTICATION, Actor.OPEN_DATA_HUB, "secureTrustedNetwork", _ANNOTATION, _uses_secure_trusted_network
    ),
    _Request(Concern.AUTHENTICATION, Actor.KUBERAY, "authOptions", "spec.authOptions", requests_ray_token),
    _Request(Concern.EXPOSURE, Actor.OPEN_DATA_HUB, "secureTrustedNetwork", _ANNOTATION, _uses_secure_trusted_network),
    _Request(Concern.EXPOSURE, Actor.KUBERAY, "ingressOptions", "spec.headGroupSpec.enableIngress", _enables_ingress),
)

FEATURES: Final = tuple(dict.fromkeys(request.feature for request in _REQUESTS))
"""The features of other actors that can be active; the values of ``kuberay.kubeRayFeatures``."""


def _requests(cluster: Mapping[str, Any], concern: Concern) -> Iterator[_Request]:
    return (request for request in _REQUESTS if request.concern is concern and request.is_set(cluster))


def responsibility_of(cluster: Mapping[str, Any], active_features: Collection[str]) -> Responsibility:
    """Return who provides each concern of ``cluster``.

    ``active_features`` are the :data:`FEATURES` that are known to be active: by configuration, or because the caller
    observed what the feature does for this cluster.
    """
    if is_managed_by_multikueue(cluster):
        return Responsibility(*(Actor.MULTIKUEUE for _ in Concern))
    return Responsibility(
        *(
            next(
                (request.actor for request in _requests(cluster, concern) if request.feature in active_features),
                Actor.OPERATOR,
            )
            for concern in Concern
        )
    )


def unconfirmed_request(
    cluster: Mapping[str, Any], concern: Concern, active_features: Collection[str]
) -> tuple[str, str] | None:
    """Return the setting that requests another actor for ``concern`` although its feature is not known to be active.

    The result is the setting, as Events and warnings name it, and its feature; ``None`` if there is no such setting, or
    if another actor provides the concern.
    """
    if responsibility_of(cluster, active_features).of(concern) is not Actor.OPERATOR:
        return None
    return next(((request.setting, request.feature) for request in _requests(cluster, concern)), None)


_EVENTS: Final[Mapping[tuple[Concern, Actor], tuple[str, str]]] = {
    (Concern.NETWORK_POLICY, Actor.KUBERAY): (
        "NetworkPolicyByKubeRay",
        "The RayCluster uses KubeRay's networkPolicy, so the operator creates no NetworkPolicies for it",
    ),
    (Concern.NETWORK_POLICY, Actor.OPEN_DATA_HUB): (
        "NetworkPolicyByOpenDataHub",
        "The RayCluster uses networkIsolation of Open Data Hub's KubeRay: the operator creates none for it",
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
        "Open Data Hub's KubeRay authenticates the users of the RayCluster: the operator creates no OAuth objects",
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


def event_of(concern: Concern, actor: Actor) -> tuple[str, str] | None:
    """Return the reason and message of the Event that says that ``actor`` provides ``concern``.

    ``None`` if no Event is needed: for the operator itself, and for MultiKueue, which provides all concerns, except for
    the first one.
    """
    return _EVENTS.get((concern, actor))
