"""The detected properties of the cluster that the operator runs in, and the settings of its namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import msgspec
import structlog

from cfo.api.gateway import BACKEND_TLS_POLICIES, GROUP, HTTP_ROUTE, TLS_ROUTES
from cfo.api.raycluster.names import (
    AUTHENTICATION_CONFIG,
    DSC_INITIALIZATION,
    INGRESS_CONFIG,
    ROUTE,
)
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings, ProfileTable
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.host_claims import OTHER_NAMESPACES
from cfo.controllers.left_out import all_keys
from cfo.controllers.raycluster.dashboard_access import DashboardAccess, may_expose
from cfo.controllers.raycluster.platform import IngressDomain, OptionalKind, Platform
from cfo.controllers.raycluster.watches import LABELED
from cfo.runtime import (
    CONFIG_MAP,
    NAMESPACE,
    READ,
    Client,
    Controller,
    EnqueueRequestsFromMapFunc,
    Entry,
    Forbidden,
    Informer,
    Manager,
    NamespacedName,
    Rule,
    labels_of,
)
from cfo.runtime.controller import Kind, from_functions


class ClusterEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The platform, ingress domain, optional kinds and profiles; controllers and webhooks share one instance."""

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
        ingress_config = OptionalKind(
            manager, INGRESS_CONFIG, field_selector="metadata.name=cluster"
        )
        routes = OptionalKind(manager, ROUTE, **LABELED)
        authentication = OptionalKind(
            manager, AUTHENTICATION_CONFIG, field_selector="metadata.name=cluster"
        )
        platform = Platform(manager.mapper, routes, authentication)
        return cls(
            platform=platform,
            access=DashboardAccess.create(manager, config, platform),
            domain=IngressDomain(config, ingress_config, manager.clock),
            routes=routes,
            dsc_initializations=dsc_initializations,
            profiles=Profiles(manager, config),
            gateway_kinds=GatewayKinds.detect(manager, config),
        )


_RESOURCES = ("httproutes", "tlsroutes", "backendtlspolicies")


class GatewayKinds(msgspec.Struct, frozen=True, kw_only=True):
    """The optional kinds of the Gateway API.

    All clients' routes are read, because any of them may have the host of a RayCluster; policies only with a cluster
    label. ``other_routes`` are the routes outside the namespaces of an operator for some.
    """

    rules = (Rule(GROUP, _RESOURCES, READ),)
    write_rules = (
        Rule(GROUP, _RESOURCES, ("create", "patch", "delete")),
        Rule("", "configmaps", (*READ, "create", "patch", "delete")),
    )

    http_routes: OptionalKind
    tls_routes: OptionalKind
    other_routes: tuple[OptionalKind, ...]
    backend_tls_policies: OptionalKind
    config_maps: OptionalKind | None
    """ConfigMaps with a cluster label; ``None`` unless a Gateway and the operator's own proxies are configured."""

    @classmethod
    def detect(cls, manager: Manager, config: KubeRayConfiguration) -> Self:
        """Register the kinds with ``manager``, which detects whether they are served while it runs."""
        config_maps = None
        if config.gateway.enabled and config.authentication.enabled:
            config_maps = OptionalKind(manager, CONFIG_MAP, **LABELED)
        other_routes: tuple[OptionalKind, ...] = ()
        if manager.cache.is_restricted and may_expose(config):
            other_routes = (
                OptionalKind(manager, HTTP_ROUTE, **OTHER_NAMESPACES),
                OptionalKind(manager, *TLS_ROUTES, **OTHER_NAMESPACES),
            )
        return cls(
            http_routes=OptionalKind(manager, HTTP_ROUTE, max_bytes=MAX_CACHED_BYTES),
            tls_routes=OptionalKind(manager, *TLS_ROUTES, max_bytes=MAX_CACHED_BYTES),
            other_routes=other_routes,
            backend_tls_policies=OptionalKind(manager, *BACKEND_TLS_POLICIES, **LABELED),
            config_maps=config_maps,
        )

    def routes(self) -> Iterator[Informer]:
        """Yield the informers of the kinds of routes that are served at the moment."""
        return _served(self.http_routes, self.tls_routes)

    def routes_elsewhere(self) -> Iterator[Informer]:
        """Yield the informers of :attr:`other_routes` whose kinds are served at the moment."""
        return _served(*self.other_routes)


def _served(*kinds: OptionalKind) -> Iterator[Informer]:
    for kind in kinds:
        if kind.served is not None:
            yield kind.served


_log = structlog.get_logger("cfo.controllers.raycluster")

_LABELS_CHANGED = from_functions(
    create=lambda _: False,
    update=lambda old, new: old.meta.labels != new.meta.labels,
    delete=lambda _: False,
)
"""A new namespace has no RayClusters yet, and those of a deleted one are deleted, too."""


class Profiles:
    """The settings for each namespace; controllers and webhooks share one instance.

    While the operator is not allowed to read Namespaces, everything that any profile enforces is enforced in all
    namespaces.
    """

    rules = (Rule("", "namespaces", READ),)

    def __init__(self, manager: Manager, config: KubeRayConfiguration) -> None:
        self._table = ProfileTable(config)
        self._default = self._table.of_labels({})
        self._mapper = manager.mapper
        self._namespaces = (
            manager.cache.informer(NAMESPACE, metadata_only=True) if config.profiles else None
        )
        self._is_reported = False

    async def settings(self, client: Client, namespace: str) -> NamespaceSettings:
        """Return the settings for a namespace; read it with ``client`` if it is not in the cache yet.

        Raises the errors of the read, except :class:`~cfo.runtime.client.errors.Forbidden`.
        """
        if self._namespaces is None:
            return self._default
        key = NamespacedName("", namespace)
        meta = self._namespaces.reader.meta(key)
        if meta is not None:
            return self._table.of_labels(meta.labels)
        try:
            found = await client.get(NAMESPACE, key, live=True)
        except Forbidden as error:
            if not self._is_reported:
                _log.warning(
                    "Permission denied, cannot read namespaces; all profiles apply",
                    cause=error.message,
                )
                self._is_reported = True
            return self._table.strictest()
        return self._table.of_labels(labels_of(found or {}))

    def subscribe(self, controller: Controller, clusters: Informer) -> None:
        """Enqueue the RayClusters of a namespace whose labels changed."""
        if self._namespaces is None:
            return

        def clusters_in(namespace: Entry) -> list[NamespacedName]:
            return all_keys(clusters, namespace.key.name)

        source = Kind(
            self._namespaces,
            EnqueueRequestsFromMapFunc(clusters_in),
            _LABELS_CHANGED,
            mapper=self._mapper,
            optional=True,
        )
        controller.watch(source)
