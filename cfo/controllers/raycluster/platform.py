"""Detects whether the cluster is OpenShift, which optional kinds it serves, and the domain of the hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Unpack

import structlog

from cfo.api.raycluster.names import AUTHENTICATION_CONFIG, INGRESS_CONFIG, ROUTE
from cfo.api.raycluster.openshift_login import uses_oauth_server
from cfo.config.kuberay import KubeRayConfiguration
from cfo.runtime import (
    GVK,
    READ,
    Channel,
    Client,
    Clock,
    Controller,
    DiscoveryIncomplete,
    EventHandler,
    Forbidden,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Predicate,
    Request,
    RESTMapper,
    Rule,
    UnknownKind,
)
from cfo.runtime.controller import Kind
from cfo.runtime.manager import SelectionKeywords

UNKNOWN_RETRY_SECONDS = 5.0
"""How long a reconcile waits before it retries discovery that was incomplete."""

_CLUSTER = NamespacedName("", "cluster")
_DOMAIN_CACHE_SECONDS = 300.0

_log = structlog.get_logger("cfo.controllers.raycluster")


class OptionalKind:
    """A kind that may or may not be served.

    A controller that needs events of its objects subscribes; the source starts when the kind is served. A kind that the
    operator is not allowed to list does not delay any controller. Of several versions (``gvks``, the preferred one
    first), the first one that is served is used until the operator restarts.
    """

    def __init__(
        self, manager: Manager, *gvks: GVK, **selection: Unpack[SelectionKeywords]
    ) -> None:
        self._manager = manager
        self._selection = selection
        self._callbacks: list[Callable[[Informer], None]] = []
        self._informer: Informer | None = None
        self._channels: list[tuple[Channel, Callable[[], Iterable[Request]]]] = []
        self._is_lost = False
        for gvk in gvks:
            manager.when_available(gvk, partial(self._on_available, gvk))

    @property
    def informer(self) -> Informer | None:
        """The informer; ``None`` until the kind is served for the first time."""
        return self._informer

    @property
    def served(self) -> Informer | None:
        """The informer, unless the kind is not served at the moment."""
        return None if self._is_lost else self._informer

    def subscribe(
        self, controller: Controller, handler: EventHandler, *predicates: Predicate
    ) -> None:
        """Feed ``controller`` with the events of the kind that pass ``predicates``, once the kind is served."""

        def attach(informer: Informer) -> None:
            controller.watch(
                Kind(informer, handler, *predicates, mapper=self._manager.mapper, optional=True)
            )

        self.when_served(attach)

    def enqueue_when_served(
        self, controller: Controller, requests: Callable[[], Iterable[Request]]
    ) -> None:
        """Enqueue the requests that ``requests`` returns once the kind is served, and each time it is served again."""
        channel = Channel()
        controller.watch(channel)
        self._channels.append((channel, requests))
        if self._informer is not None:
            channel.enqueue(requests())

    def when_served(self, callback: Callable[[Informer], None]) -> None:
        """Call ``callback`` with the informer once the kind is served, possibly immediately."""
        if self._informer is not None:
            callback(self._informer)
        else:
            self._callbacks.append(callback)

    def mark_lost(self) -> None:
        """Record that the kind is no longer served (a write failed with ``UnknownKind``), until it is served again."""
        if self._informer is not None and not self._is_lost:
            self._is_lost = True
            self._manager.when_available(self._informer.gvk, self._on_available_again)

    def _on_available_again(self, _: Manager) -> None:
        self._is_lost = False
        self._enqueue()

    def _enqueue(self) -> None:
        for channel, requests in self._channels:
            channel.enqueue(requests())

    def _on_available(self, gvk: GVK, manager: Manager) -> None:
        if self._informer is not None:
            return  # a preferred version is served
        self._informer = manager.cache.informer(gvk, **self._selection)
        for callback in self._callbacks:
            callback(self._informer)
        self._callbacks.clear()
        self._enqueue()


class Platform:
    """Distinguishes OpenShift from vanilla Kubernetes: OpenShift serves the API group of Routes.

    A cluster detected as OpenShift is never downgraded: while the API is temporarily unavailable, treating the cluster
    as vanilla Kubernetes would expose dashboards through Ingresses. Discovery is queried once; ``routes`` reports when
    Routes become available later.
    """

    rules = (Rule(AUTHENTICATION_CONFIG.group, "authentications", ("list", "watch")),)

    def __init__(
        self, mapper: RESTMapper, routes: OptionalKind, authentication: OptionalKind
    ) -> None:
        self._mapper = mapper
        self._routes = routes
        self.authentication = authentication
        self._openshift: bool | None = None

    async def is_openshift(self) -> bool:
        """Return whether the cluster is OpenShift.

        Raises :class:`~cfo.runtime.client.discovery.DiscoveryIncomplete` while this is unknown.
        """
        if self._routes.informer is not None:
            self._openshift = True
        elif self._openshift is None:
            self._openshift = await self._mapper.serves_group(ROUTE.group)
        return self._openshift

    async def has_oauth_server(self) -> bool:
        """Return whether the cluster is OpenShift, and OpenShift's own OAuth server logs users in.

        It does not if ``authentications.config.openshift.io/cluster`` has the type ``OIDC`` or ``None``. It is assumed
        if this object does not exist, or the operator is not allowed to read it, as with the roles of older releases.
        Raises :class:`~cfo.runtime.client.discovery.DiscoveryIncomplete` while this is unknown.
        """
        if not await self.is_openshift():
            return False
        informer = self.authentication.informer
        if informer is None or informer.is_forbidden:
            return True
        if not informer.has_synced:
            raise DiscoveryIncomplete(f"{AUTHENTICATION_CONFIG.kind} is not listed yet")
        return uses_oauth_server(informer.reader.get(_CLUSTER))


class IngressDomain:
    """The configured domain or, if unset, the domain in OpenShift's ``ingresses.config.openshift.io/cluster``.

    ``settings`` watches that one object. If the operator is not allowed to watch it (the Go operator's role only allows
    ``get``) or the kind is not served yet (``settings`` notices when it is), the object is read when the domain is
    needed, and the result is cached for five minutes. If ``get`` is forbidden as well, the domain is treated as
    unset.
    """

    rules = (Rule(INGRESS_CONFIG.group, "ingresses", READ),)

    def __init__(self, config: KubeRayConfiguration, settings: OptionalKind, clock: Clock) -> None:
        self._configured = config.ingress_domain
        self.settings = settings
        self._clock = clock
        self._cached = ""
        self._cached_until = 0.0
        self._warned = False

    def current(self) -> str:
        """Return the domain, without a leading dot, if it is known without a request; otherwise an empty string."""
        informer = self.settings.informer
        if self._configured or informer is None:
            return self._configured
        return _domain_in(informer.reader.get(_CLUSTER)) if informer.has_synced else self._cached

    async def read(self, client: Client) -> str:
        """Return the domain; read OpenShift's setting with ``client`` if it is not watched.

        Raises the errors of the read, except :class:`~cfo.runtime.client.errors.Forbidden`.
        """
        informer = self.settings.informer
        if self._configured or (informer is not None and informer.has_synced):
            return self.current()
        is_unwatched = informer is None or informer.is_forbidden
        if is_unwatched and self._clock.monotonic() < self._cached_until:
            return self._cached
        domain = await self._fetch(client)
        if is_unwatched:
            self._cached = domain
            self._cached_until = self._clock.monotonic() + _DOMAIN_CACHE_SECONDS
        return domain

    async def _fetch(self, client: Client) -> str:
        try:
            return _domain_in(await client.get(INGRESS_CONFIG, _CLUSTER, live=True))
        except UnknownKind:
            return ""
        except Forbidden as error:
            if not self._warned:
                _log.warning(
                    "Permission denied, cannot read the ingress domain; set kuberay.ingressDomain",
                    missing_rule=f'{{apiGroups: ["{INGRESS_CONFIG.group}"], resources: ["ingresses"], verbs: ["get"]}}',
                    cause=error.message,
                )
                self._warned = True
            return ""


def missing_domain_message(kind: str) -> str:
    """Return the message of the Event that no object of this kind is created, because its domain is unknown."""
    return (
        f"No {kind} is created, because kuberay.ingressDomain is not set in the operator's configuration, "
        "and ingresses.config.openshift.io/cluster does not define a domain"
    )


def _domain_in(settings: Object | None) -> str:
    return str(((settings or {}).get("spec") or {}).get("domain") or "")
