"""The facts of one RayCluster, which a reconcile or a review derives once and passes on, and who provides what for it.

This operator is not the only one that can: KubeRay 1.7 has ``networkPolicy``, ``tlsOptions``, ``authOptions`` and
``ingressOptions`` (which ``enableIngress`` turns on), Open Data Hub's fork of KubeRay has the annotation
:data:`~cfo.api.raycluster.cluster.SECURE_TRUSTED_NETWORK` and ``networkIsolation``, and a RayCluster that MultiKueue
manages runs in another Kubernetes cluster. For each concern exactly one actor acts. All controllers and webhooks ask
:meth:`RayClusterFacts.actor`.

A tenant can set each of these fields, and KubeRay ignores or rejects most of them while the feature is inactive.
Therefore a field takes effect only if its feature is known to be active: the configuration lists it
(``kuberay.kubeRayFeatures``), or the caller observed what the feature does. ``managedBy`` needs no confirmation: each
KubeRay that has the field stops acting on the RayCluster.

Sources: ``raycluster_types.go``, ``features.go``, ``validation.go`` and ``networkpolicy_controller.go`` of KubeRay
1.7.0; ``networkpolicy_controller.go``, ``authentication_controller.go`` and ``raycluster_mtls_controller.go`` of
opendatahub-io/kuberay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from cfo.api.raycluster import cluster as fields
from cfo.api.raycluster.names import Derived, head_service_name, names_of
from cfo.api.raycluster.ports import ports_of


class Actor(Enum):
    """Who provides a concern of a RayCluster."""

    OPERATOR = "the operator"
    KUBERAY = "KubeRay"
    OPEN_DATA_HUB = "Open Data Hub"
    MULTIKUEUE = "MultiKueue"


class Concern(Enum):
    """What one actor provides for a RayCluster; the value is its name in the configuration."""

    NETWORK_POLICY = "network_policy"
    MTLS = "mtls"
    AUTHENTICATION = "authentication"
    EXPOSURE = "exposure"


class Delegation(msgspec.Struct, frozen=True):
    """A setting with which a RayCluster delegates ``concerns`` to another actor, which acts if ``feature`` is active.

    ``setting`` is the name of the setting in Events.
    """

    setting: str
    is_set: Callable[[Mapping[str, Any]], bool]
    actor: Actor
    feature: str
    concerns: tuple[Concern, ...]


# In order of precedence: the fork adds its proxy and certificates regardless of KubeRay's own fields.
DELEGATIONS: Final = (
    Delegation(
        "spec.networkIsolation",
        fields.uses_network_isolation,
        Actor.OPEN_DATA_HUB,
        "networkIsolation",
        (Concern.NETWORK_POLICY,),
    ),
    Delegation(
        "spec.networkPolicy",
        fields.restricts_ingress,
        Actor.KUBERAY,
        "networkPolicy",
        (Concern.NETWORK_POLICY,),
    ),
    Delegation(
        f"the annotation {fields.SECURE_TRUSTED_NETWORK}",
        fields.uses_secure_trusted_network,
        Actor.OPEN_DATA_HUB,
        "secureTrustedNetwork",
        (Concern.MTLS, Concern.AUTHENTICATION, Concern.EXPOSURE),
    ),
    Delegation(
        "spec.tlsOptions", fields.uses_kuberay_tls, Actor.KUBERAY, "tlsOptions", (Concern.MTLS,)
    ),
    Delegation(
        "spec.authOptions",
        fields.requests_ray_token,
        Actor.KUBERAY,
        "authOptions",
        (Concern.AUTHENTICATION,),
    ),
    Delegation(
        "spec.headGroupSpec.enableIngress",
        fields.enables_ingress,
        Actor.KUBERAY,
        "ingressOptions",
        (Concern.EXPOSURE,),
    ),
)

KUBERAY_FEATURES: Final = tuple(delegation.feature for delegation in DELEGATIONS)
"""The features of other actors that can be active; the values of ``kuberay.kubeRayFeatures``."""

_T = TypeVar("_T")


def _fact(derive: Callable[[Mapping[str, Any]], _T]) -> Derived[_T]:
    return Derived(lambda facts: derive(facts.cluster))


def _groups_by_key(facts: RayClusterFacts) -> dict[tuple[bool, str], fields.PodGroup]:
    return {group.key: group for group in reversed(facts.groups)}


def _delegations_of(cluster: Mapping[str, Any]) -> tuple[Delegation, ...]:
    return tuple(delegation for delegation in DELEGATIONS if delegation.is_set(cluster))


class RayClusterFacts(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What follows from one version of a RayCluster, each fact derived when it is first read.

    ``cluster`` must not be modified in the fields from which facts were read.
    """

    cluster: dict[str, Any]

    names = _fact(names_of)
    groups = _fact(fields.pod_groups_of)
    groups_by_key = Derived(_groups_by_key)
    """The groups by :attr:`~cfo.api.raycluster.cluster.PodGroup.key`; of several with one key the first."""
    head_service = _fact(head_service_name)
    ports = _fact(ports_of)
    is_suspended = _fact(fields.is_suspended)
    is_managed_by_multikueue = _fact(fields.is_managed_by_multikueue)
    uses_kuberay_tls = _fact(fields.uses_kuberay_tls)
    uses_kuberay_auth = _fact(fields.uses_kuberay_auth)
    requests_ray_token = _fact(fields.requests_ray_token)
    has_injected_tls = _fact(fields.has_injected_tls)
    has_injected_auth_proxy = _fact(fields.has_injected_auth_proxy)
    _delegations = _fact(_delegations_of)

    def actor(self, concern: Concern, active_features: Collection[str]) -> Actor:
        """Return who provides ``concern``.

        ``active_features`` are the :data:`KUBERAY_FEATURES` that are known to be active: by configuration,
        or because the caller observed what the feature does for this cluster.
        """
        if self.is_managed_by_multikueue:
            return Actor.MULTIKUEUE
        for delegation in self._delegations:
            if concern in delegation.concerns and delegation.feature in active_features:
                return delegation.actor
        return Actor.OPERATOR

    def unconfirmed_delegation(
        self, concern: Concern, active_features: Collection[str]
    ) -> Delegation | None:
        """Return the setting that delegates to another actor although its feature is not known to be active.

        ``None`` if there is no such setting, or if another actor provides ``concern``.
        """
        if self.actor(concern, active_features) is not Actor.OPERATOR:
            return None
        for delegation in self._delegations:
            if concern in delegation.concerns:
                return delegation
        return None

    def lacks_tls(self, enforced: Collection[Concern], active_features: Collection[str]) -> bool:
        """Return whether mutual TLS is ``enforced`` for a stored RayCluster, and no one provides it.

        No other concern can be missing: mutual TLS needs parts of the pod template, but the operator's policies do not
        depend on the RayCluster, and without the parts of a proxy, the dashboard cannot be reached through it.
        """
        if Concern.MTLS not in enforced:
            return False
        is_ours = self.actor(Concern.MTLS, active_features) is Actor.OPERATOR
        return is_ours and not self.has_injected_tls
