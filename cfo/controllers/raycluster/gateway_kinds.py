"""The kinds of the Gateway API that the RayCluster controllers read and write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from cfo.api.gateway import BACKEND_TLS_POLICIES, GROUP, HTTP_ROUTE, TLS_ROUTES
from cfo.api.raycluster.naming import CLUSTER_LABEL
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import MAX_CACHED_BYTES
from cfo.controllers.raycluster.platform import OptionalKind
from cfo.runtime import CONFIG_MAP, READ, Informer, Manager, Rule

__all__ = ["GatewayKinds"]

_RESOURCES = ("httproutes", "tlsroutes", "backendtlspolicies")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKinds:
    """The optional kinds of the Gateway API.

    All clients' routes are read, because any of them may have the host of a RayCluster; policies only with a cluster
    label.
    """

    rules = (Rule(GROUP, _RESOURCES, READ),)
    write_rules = (
        Rule(GROUP, _RESOURCES, ("create", "patch", "delete")),
        Rule("", "configmaps", (*READ, "create", "patch", "delete")),
    )

    http_routes: OptionalKind
    tls_routes: OptionalKind
    backend_tls_policies: OptionalKind
    config_maps: OptionalKind | None
    """ConfigMaps with a cluster label; ``None`` unless a Gateway and the operator's own proxies are configured."""

    @classmethod
    def detect(cls, manager: Manager, config: KubeRayConfiguration) -> Self:
        """Register the kinds with ``manager``, which detects whether they are served while it runs."""
        config_maps = None
        if config.gateway.enabled and config.authentication.enabled:
            config_maps = OptionalKind(manager, CONFIG_MAP, label_selector=CLUSTER_LABEL, max_bytes=MAX_CACHED_BYTES)
        return cls(
            http_routes=OptionalKind(manager, HTTP_ROUTE, max_bytes=MAX_CACHED_BYTES),
            tls_routes=OptionalKind(manager, *TLS_ROUTES, max_bytes=MAX_CACHED_BYTES),
            backend_tls_policies=OptionalKind(
                manager, *BACKEND_TLS_POLICIES, label_selector=CLUSTER_LABEL, max_bytes=MAX_CACHED_BYTES
            ),
            config_maps=config_maps,
        )

    def routes(self) -> Iterator[Informer]:
        """Yield the informers of the kinds of routes that are served at the moment."""
        for kind in (self.http_routes, self.tls_routes):
            if kind.served is not None:
                yield kind.served
