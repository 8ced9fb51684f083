"""An informer: one kind (or a selection of it), listed once, watched for ever, readable without a request.

Watch lines go through a reflector into a store; handlers are told of each change; readers read. Several
controllers share one informer (see :class:`~cfo.runtime.cache.cache.Cache`, which makes them).

Handlers are told *that* something changed, not each change: what happened while a watch was down arrives
as one update, a deletion that was missed comes with ``final_state_unknown``, and one that happened while
the process was down does not come at all. What must not be missed needs a finalizer.

An informer outlives its kind: it waits for a CRD that is not there yet, and when a CRD is removed its
objects are deleted from the store and the informer waits for it to come back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import random as default_random
from typing import Any, Self

import anyio
import structlog

from cfo.runtime.cache.entry import Entry, EntryDecoder, Meta, OwnerReference
from cfo.runtime.cache.reflector import Backoff, Reflector
from cfo.runtime.cache.selectors import FieldSelector, LabelSelector
from cfo.runtime.cache.store import Event, EventType, IndexFunction, Store
from cfo.runtime.client.errors import APIError, TransportError, UnknownKind
from cfo.runtime.client.transport import Transport
from cfo.runtime.clock import Clock, SystemClock, sleep_unless
from cfo.runtime.discovery import DiscoveryIncomplete, Resource, RESTMapper
from cfo.runtime.objects import GVK, NamespacedName, Object

__all__ = [
    "Entry",
    "Event",
    "EventType",
    "Handler",
    "IndexFunction",
    "Informer",
    "Meta",
    "OwnerReference",
    "Reader",
]

_log = structlog.get_logger(__name__)

Handler = Callable[[Event], None]
"""Is told of each change, within the delivery: it must neither wait nor take long (it queues a request)."""


class Reader:
    """Reads what an informer knows; makes no request. Objects are decoded anew: the caller owns them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __len__(self) -> int:
        return len(self._store)

    @property
    def size(self) -> int:
        """The bytes of JSON of all objects; adds them up, so it is for metrics."""
        return sum(len(entry.raw) for entry in self._store.entries())

    def get(self, key: NamespacedName) -> Object | None:
        """The object, or ``None``. (Of a metadata-only informer: apiVersion, kind and metadata.)"""
        entry = self._store.get(key)
        return entry.object() if entry is not None else None

    def entry(self, key: NamespacedName) -> Entry | None:
        """The object as it is stored, not decoded."""
        return self._store.get(key)

    def meta(self, key: NamespacedName) -> Meta | None:
        """The object's metadata, without the rest being decoded."""
        entry = self._store.get(key)
        return entry.meta if entry is not None else None

    def contains(self, key: NamespacedName) -> bool:
        """Whether there is such an object."""
        return key in self._store

    def entries(
        self,
        namespace: str = "",
        selector: str | Mapping[str, Any] | LabelSelector = "",
        *,
        index: tuple[str, str] | None = None,
    ) -> list[Entry]:
        """The objects that match, not decoded.

        ``selector`` is a label selector; ``index`` the name of an index and the value to look up in it. Raises
        :class:`KeyError` when there is no such index, and
        :class:`~cfo.runtime.cache.selectors.SelectorError`.
        """
        chosen = LabelSelector.of(selector)
        if index is None:
            found = self._store.entries(namespace)
        else:
            found = [entry for entry in self._store.indexed(*index) if not namespace or entry.namespace == namespace]
        return [entry for entry in found if chosen.matches(entry.meta.labels)] if chosen else found

    def keys(self, index: str, value: str) -> Collection[NamespacedName]:
        """The names of the objects that ``index`` has under ``value``.

        Raises :class:`KeyError` when there is no such index.
        """
        return [entry.key for entry in self._store.indexed(index, value)]

    def list(
        self,
        namespace: str = "",
        selector: str | Mapping[str, Any] | LabelSelector = "",
        *,
        index: tuple[str, str] | None = None,
    ) -> list[Object]:
        """The objects that match; see :meth:`entries`."""
        return [entry.object() for entry in self.entries(namespace, selector, index=index)]


class Informer:
    """Follows one kind; made and shared by a :class:`~cfo.runtime.cache.cache.Cache`.

    ``namespaces`` are listed and watched one by one; ``("",)`` is everything at once. ``metadata_only`` fetches and
    keeps the metadata alone. ``field_managers`` are ours: their managedFields entries are kept.
    ``random`` returns numbers in [0, 1).
    """

    def __init__(
        self,
        transport: Transport,
        mapper: RESTMapper,
        gvk: GVK,
        *,
        label_selector: str | Mapping[str, Any] | LabelSelector = "",
        field_selector: str | FieldSelector = "",
        namespaces: Collection[str] = ("",),
        metadata_only: bool = False,
        field_managers: Collection[str] = (),
        clock: Clock | None = None,
        random: Callable[[], float] = default_random,
        page_size: int = 500,
        idle_seconds: float = 75.0,
    ) -> None:
        self.gvk = gvk
        self.label_selector = LabelSelector.of(label_selector)
        self.field_selector = FieldSelector.of(field_selector)
        self.namespaces = tuple(namespaces)
        self.metadata_only = metadata_only
        self._transport = transport
        self._mapper = mapper
        self._clock = clock or SystemClock()
        self._random = random
        self._page_size = page_size
        self._idle_seconds = idle_seconds
        self._decoder = EntryDecoder(gvk, field_managers=field_managers, metadata_only=metadata_only)
        self._store = Store(
            emit=self._deliver,
            clock=self._clock,
            label_selector=self.label_selector,
            field_selector=self.field_selector,
        )
        self.reader = Reader(self._store)
        self._handlers: list[Handler] = []
        self._resource: Resource | None = None
        self._reflectors: list[Reflector] = []
        self._problem = "not started"
        self._changed = anyio.Event()
        self._woken = anyio.Event()

    # What users of an informer use.

    @property
    def has_synced(self) -> bool:
        """Whether the store is complete: a list was taken in, and the kind is still served."""
        return bool(self._store.feeds) and all(feed.synced for feed in self._store.feeds.values())

    @property
    def problem(self) -> str:
        """Why the informer does not follow its kind right now; empty when it does. For humans and health checks."""
        errors = [reflector.error for reflector in self._reflectors if reflector.error]
        return self._problem or "; ".join(errors)

    @property
    def is_forbidden(self) -> bool:
        """Whether the API server says that the right to list or watch is missing; it is asked again now and then."""
        return any(reflector.forbidden for reflector in self._reflectors)

    async def wait_for_sync(self, *, unless_forbidden: bool = False) -> None:
        """Returns when :attr:`has_synced` is true; waits for ever for a kind that is never served.

        ``unless_forbidden``: returns also when :attr:`is_forbidden` is.
        """
        while not (self.has_synced or (unless_forbidden and self.is_forbidden)):
            await self._changed.wait()

    def add_handler(self, handler: Handler) -> None:
        """Tells ``handler`` of every change from now on, and at once of all objects there are (as ``initial``)."""
        self._handlers.append(handler)
        for feed in self._store.feeds.values():
            if feed.synced:
                for entry in self._store.entries(feed.namespace):
                    self._tell(handler, Event(EventType.ADDED, entry.key, None, entry, initial=True))

    def remove_handler(self, handler: Handler) -> None:
        """Tells ``handler`` nothing more; raises :class:`ValueError` when it was not added."""
        self._handlers.remove(handler)

    def add_index(self, name: str, function: IndexFunction) -> Self:
        """Adds an index (filled at once) by which :attr:`reader` finds objects.

        The same function may be added again; raises :class:`ValueError` when another one has that name.
        """
        self._store.add_index(name, function)
        return self

    def wake(self) -> None:
        """Asks at once whether the kind is served, if that is what the informer is waiting for."""
        self._woken.set()

    # What the cache uses.

    def holds(self, namespace: str) -> bool:
        """Whether objects of the namespace are within what is listed and watched."""
        return "" in self._store.feeds or namespace in self._store.feeds

    def wrote(self, answer: bytes) -> None:
        """Takes in an API server's answer to a write: a whole object. See :mod:`cfo.runtime.cache.store`.

        Raises :class:`msgspec.DecodeError` when it is none.
        """
        entry = self._decoder.decode(answer)
        feed = self._store.feed_of(entry.key)
        if feed is not None:
            feed.wrote(entry)

    def deleted(self, key: NamespacedName, uid: str) -> None:
        """Takes in that the object of this uid is gone."""
        feed = self._store.feed_of(key)
        if feed is not None:
            feed.deleted(key, uid)

    async def run(self) -> None:
        """Follows the kind until it is cancelled."""
        try:
            while True:
                resource = await self._resolve()
                if resource != self._resource:
                    self._open(resource)
                async with anyio.create_task_group() as tasks:
                    for reflector in self._reflectors:
                        tasks.start_soon(self._reflect, reflector, tasks.cancel_scope)
                self._mapper.invalidate()
        finally:
            self._problem = "stopped"
            self._notify()

    # How it works.

    async def _reflect(self, reflector: Reflector, scope: anyio.CancelScope) -> None:
        await reflector.run()
        scope.cancel()

    async def _resolve(self) -> Resource:
        """The resource of the kind, waiting until there is one."""
        backoff = Backoff(self._clock, self._random)
        while True:
            self._woken = anyio.Event()
            try:
                resource = await self._mapper.resource(self.gvk)
            except UnknownKind:
                self._vanished()
                self._report(f"{self.gvk} is not served (yet)")
            except (DiscoveryIncomplete, APIError, TransportError) as error:
                self._report(f"discovery of {self.gvk}: {error}")
            else:
                self._report("")
                return resource
            backoff.failed()
            await sleep_unless(self._clock, backoff.seconds(), self._woken)

    def _open(self, resource: Resource) -> None:
        self._resource = resource
        self._store.open(self.namespaces if resource.namespaced else ("",))
        self._reflectors = [
            Reflector(
                self._transport,
                resource,
                feed,
                self._decoder,
                clock=self._clock,
                label_selector=str(self.label_selector),
                field_selector=str(self.field_selector),
                metadata_only=self.metadata_only,
                changed=self._notify,
                random=self._random,
                page_size=self._page_size,
                idle_seconds=self._idle_seconds,
            )
            for feed in self._store.feeds.values()
        ]

    def _vanished(self) -> None:
        if self._resource is not None:
            _log.warning("a kind is not served any more, forgetting its objects", kind=str(self.gvk))
            self._store.close()
            self._resource = None
            self._reflectors = []

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            if problem:
                _log.info("informer waits", kind=str(self.gvk), cause=problem)
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _deliver(self, event: Event) -> None:
        for handler in list(self._handlers):
            self._tell(handler, event)

    def _tell(self, handler: Handler, event: Event) -> None:
        try:
            handler(event)
        except Exception:  # noqa: BLE001 - logged; a handler is somebody else's code
            _log.exception("a handler failed; the others are told", kind=str(self.gvk), object=str(event.key))
