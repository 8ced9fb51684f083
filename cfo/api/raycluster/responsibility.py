"""Decides who provides NetworkPolicies, mutual TLS, authentication and exposure of a RayCluster.

This operator is not the only one that can: KubeRay 1.7 has ``networkPolicy``, ``tlsOptions``, ``authOptions`` and
``ingressOptions`` (which ``enableIngress`` turns on), Open Data Hub's fork of KubeRay has the annotation
:data:`~cfo.api.raycluster.cluster.SECURE_TRUSTED_NETWORK` and ``networkIsolation``, and a RayCluster that MultiKueue
manages runs in another Kubernetes cluster. For each concern exactly one actor acts. All controllers and webhooks ask
:meth:`~cfo.api.raycluster.facts.RayClusterFacts.responsibility`.

A tenant can set each of these fields, and KubeRay ignores or rejects most of them while the feature is inactive.
Therefore a field takes effect only if its feature is known to be active: the configuration lists it
(``kuberay.kubeRayFeatures``), or the caller observed what the feature does. ``managedBy`` needs no confirmation: each
KubeRay that has the field stops acting on the RayCluster.

Sources: ``raycluster_types.go``, ``features.go``, ``validation.go`` and ``networkpolicy_controller.go`` of KubeRay
1.7.0; ``networkpolicy_controller.go``, ``authentication_controller.go`` and ``raycluster_mtls_controller.go`` of
opendatahub-io/kuberay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from cfo.api.raycluster.cluster import (
    SECURE_TRUSTED_NETWORK,
    enables_ingress,
    requests_ray_token,
    restricts_ingress,
    uses_kuberay_tls,
    uses_network_isolation,
    uses_secure_trusted_network,
)

__all__ = [
    "FEATURES",
    "REQUESTS",
    "Actor",
    "Concern",
    "Request",
    "Responsibility",
]


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


@dataclass(frozen=True, slots=True)
class Request:
    """A setting with which a RayCluster requests ``concerns`` of another actor, which acts if ``feature`` is active.

    ``setting`` is the name of the setting in Events.
    """

    setting: str
    is_set: Callable[[Mapping[str, Any]], bool]
    actor: Actor
    feature: str
    concerns: tuple[Concern, ...]


# In order of precedence: the fork adds its proxy and certificates regardless of KubeRay's own fields.
REQUESTS: Final = (
    Request(
        "spec.networkIsolation",
        uses_network_isolation,
        Actor.OPEN_DATA_HUB,
        "networkIsolation",
        (Concern.NETWORK_POLICY,),
    ),
    Request("spec.networkPolicy", restricts_ingress, Actor.KUBERAY, "networkPolicy", (Concern.NETWORK_POLICY,)),
    Request(
        f"the annotation {SECURE_TRUSTED_NETWORK}",
        uses_secure_trusted_network,
        Actor.OPEN_DATA_HUB,
        "secureTrustedNetwork",
        (Concern.MTLS, Concern.AUTHENTICATION, Concern.EXPOSURE),
    ),
    Request("spec.tlsOptions", uses_kuberay_tls, Actor.KUBERAY, "tlsOptions", (Concern.MTLS,)),
    Request("spec.authOptions", requests_ray_token, Actor.KUBERAY, "authOptions", (Concern.AUTHENTICATION,)),
    Request("spec.headGroupSpec.enableIngress", enables_ingress, Actor.KUBERAY, "ingressOptions", (Concern.EXPOSURE,)),
)

FEATURES: Final = tuple(request.feature for request in REQUESTS)
"""The features of other actors that can be active; the values of ``kuberay.kubeRayFeatures``."""
