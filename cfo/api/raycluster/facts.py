"""The facts of one RayCluster, which a reconcile or a review derives once and passes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cfo.api.raycluster import cluster as fields
from cfo.api.raycluster import naming
from cfo.api.raycluster.ports import Role, ports_of, service_port_of
from cfo.api.raycluster.responsibility import REQUESTS, Actor, Concern, Request, Responsibility

__all__ = ["RayClusterFacts"]

_T = TypeVar("_T")


def _fact(derive: Callable[[Mapping[str, Any]], _T]) -> naming.Derived[_T]:
    return naming.Derived(lambda facts: derive(facts.cluster))


@dataclass(frozen=True, eq=False)
class RayClusterFacts:
    """What follows from one version of a RayCluster, each fact derived when it is first read.

    ``cluster`` must not be modified in the fields from which facts were read.
    """

    cluster: dict[str, Any]

    names = _fact(naming.names_of)
    groups = _fact(fields.pod_groups_of)
    head_service = _fact(naming.head_service_name)
    ports = _fact(ports_of)
    is_suspended = _fact(fields.is_suspended)
    is_managed_by_multikueue = _fact(fields.is_managed_by_multikueue)
    uses_kuberay_tls = _fact(fields.uses_kuberay_tls)
    uses_kuberay_auth = _fact(fields.uses_kuberay_auth)
    requests_ray_token = _fact(fields.requests_ray_token)
    has_injected_tls = _fact(fields.has_injected_tls)
    has_injected_auth_proxy = _fact(fields.has_injected_auth_proxy)
    _requests = _fact(lambda cluster: tuple(request for request in REQUESTS if request.is_set(cluster)))

    def service_port(self, role: Role) -> int:
        """Return the number of the port of ``role`` on the head's Service."""
        return service_port_of(self.cluster, role, lambda: self.ports)

    def responsibility(self, active_features: Collection[str]) -> Responsibility:
        """Return who provides each concern.

        ``active_features`` are the :data:`~cfo.api.raycluster.responsibility.FEATURES` that are known to be active: by
        configuration, or because the caller observed what the feature does for this cluster.
        """
        if self.is_managed_by_multikueue:
            return _MULTIKUEUE
        if not self._requests:
            return _OPERATOR
        active = [request for request in self._requests if request.feature in active_features]
        return Responsibility(
            *(
                next((request.actor for request in active if concern in request.concerns), Actor.OPERATOR)
                for concern in Concern
            )
        )

    def actor(self, concern: Concern, active_features: Collection[str]) -> Actor:
        """Return who provides ``concern``."""
        actor: Actor = getattr(self.responsibility(active_features), concern.value)
        return actor

    def unconfirmed_request(self, concern: Concern, active_features: Collection[str]) -> Request | None:
        """Return the setting that requests another actor although its feature is not known to be active.

        ``None`` if there is no such setting, or if another actor provides ``concern``.
        """
        if self.actor(concern, active_features) is not Actor.OPERATOR:
            return None
        return next((request for request in self._requests if concern in request.concerns), None)


_OPERATOR = Responsibility(*(Actor.OPERATOR for _ in Concern))
_MULTIKUEUE = Responsibility(*(Actor.MULTIKUEUE for _ in Concern))
