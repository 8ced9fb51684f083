"""The detected properties of the cluster that the operator runs in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from cfo.api.raycluster.kinds import AUTHENTICATION_CONFIG, DSC_INITIALIZATION, INGRESS_CONFIG, ROUTE
from cfo.api.raycluster.naming import CLUSTER_LABEL
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import MAX_CACHED_BYTES
from cfo.controllers.raycluster.dashboard_access import DashboardAccess
from cfo.controllers.raycluster.gateway_kinds import GatewayKinds
from cfo.controllers.raycluster.platform import IngressDomain, OptionalKind, Platform
from cfo.controllers.raycluster.profiles import Profiles
from cfo.runtime import Clock, Manager

__all__ = ["Environment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The platform, ingress domain, optional kinds and profiles; controllers and webhooks share one instance."""

    clock: Clock
    platform: Platform
    access: DashboardAccess
    domain: IngressDomain
    routes: OptionalKind
    """The Routes that have a cluster label."""
    dsc_initializations: OptionalKind
    profiles: Profiles
    gateway_kinds: GatewayKinds

    @classmethod
    def detect(cls, manager: Manager, config: KubeRayConfiguration) -> Self:
        """Register the optional kinds with ``manager``, which detects whether they are served while it runs."""
        # The manager checks kinds in registration order, so settings are registered before the controllers that use
        # them
        dsc_initializations = OptionalKind(manager, DSC_INITIALIZATION)
        ingress_config = OptionalKind(manager, INGRESS_CONFIG, field_selector="metadata.name=cluster")
        routes = OptionalKind(manager, ROUTE, label_selector=CLUSTER_LABEL, max_bytes=MAX_CACHED_BYTES)
        authentication = OptionalKind(manager, AUTHENTICATION_CONFIG, field_selector="metadata.name=cluster")
        platform = Platform(manager.mapper, routes, authentication)
        return cls(
            clock=manager.clock,
            platform=platform,
            access=DashboardAccess.create(manager, config, platform),
            domain=IngressDomain(config, ingress_config, manager.clock),
            routes=routes,
            dsc_initializations=dsc_initializations,
            profiles=Profiles(manager, config),
            gateway_kinds=GatewayKinds.detect(manager, config),
        )
