"""Detects whether the cluster is OpenShift, and which optional kinds it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from cfo.api.raycluster.kinds import AUTHENTICATION_CONFIG, ROUTE
from cfo.runtime import (
    GVK,
    Channel,
    Controller,
    DiscoveryIncomplete,
    EventHandler,
    Informer,
    Manager,
    NamespacedName,
    Predicate,
    Request,
    RESTMapper,
    Rule,
)
from cfo.runtime.controller import Kind

__all__ = ["UNKNOWN_RETRY_SECONDS", "OptionalKind", "Platform"]

UNKNOWN_RETRY_SECONDS = 5.0
"""How long a reconcile waits before it retries discovery that was incomplete."""


class OptionalKind:
    """A kind that may or may not be served.

    A controller that needs events of its objects subscribes; the source starts when the kind is served. A kind that the
    operator is not allowed to list does not delay any controller. Of several versions (``gvks``, the preferred one
    first), the first one that is served is used until the operator restarts.
    """

    def __init__(
        self, manager: Manager, *gvks: GVK, label_selector: str = "", field_selector: str = "", max_bytes: int = 0
    ) -> None:
        self._manager = manager
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._max_bytes = max_bytes
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

    def subscribe(self, controller: Controller, handler: EventHandler, *predicates: Predicate) -> None:
        """Feed ``controller`` with the events of the kind that pass ``predicates``, once the kind is served."""

        def attach(informer: Informer) -> None:
            controller.watch(Kind(informer, handler, *predicates, mapper=self._manager.mapper, optional=True))

        self.when_served(attach)

    def enqueue_when_served(self, controller: Controller, requests: Callable[[], Iterable[Request]]) -> None:
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
        self._informer = manager.cache.informer(
            gvk,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            max_bytes=self._max_bytes,
        )
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

    def __init__(self, mapper: RESTMapper, routes: OptionalKind, authentication: OptionalKind) -> None:
        self._mapper = mapper
        self._routes = routes
        self._authentication = authentication
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
        informer = self._authentication.informer
        if informer is None or informer.is_forbidden:
            return True
        if not informer.has_synced:
            raise DiscoveryIncomplete(f"{AUTHENTICATION_CONFIG.kind} is not listed yet")
        settings = informer.reader.get(NamespacedName("", "cluster")) or {}
        return (settings.get("spec") or {}).get("type") not in _EXTERNAL_LOGIN

    def subscribe(self, controller: Controller, handler: EventHandler) -> None:
        """Feed ``controller`` with the events of OpenShift's login settings."""
        self._authentication.subscribe(controller, handler)


_EXTERNAL_LOGIN = ("OIDC", "None")
