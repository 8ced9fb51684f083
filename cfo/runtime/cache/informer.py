"""The informer: lists and watches one kind (or a selection of its objects), and serves reads from memory.

Watch lines go through a reflector into a store. Event handlers are called for each change, and readers read the store.
Several controllers share one informer (see :class:`~cfo.runtime.cache.cache.Cache`, which creates them).

Handlers are notified *that* something changed, not of every single change. Changes during an interrupted watch arrive
as one update. A missed deletion arrives with ``final_state_unknown``. Deletions while the process was not running are
never reported. Use a finalizer for cleanup that must not be missed.

An informer keeps working when its kind is removed: it waits for a CRD that does not exist yet, and if a CRD is deleted,
the informer deletes its objects from the store and waits until the CRD is recreated.

Readers of an informer that was removed from the cache raise :class:`LookupError`: an empty answer would look like
deleted objects.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, NoReturn, Self, cast

import anyio
import orjson
import structlog

from cfo.runtime.cache.budget import ByteBudget
from cfo.runtime.cache.entry import Entry, EntryDecoder, Meta
from cfo.runtime.cache.feed import Feeds
from cfo.runtime.cache.index import IndexFunction
from cfo.runtime.cache.last_state import last_state
from cfo.runtime.cache.reflector import Reflector, ReflectorOptions
from cfo.runtime.cache.selectors import MAX_BYTES, LabelSelector, Selection
from cfo.runtime.cache.store import (
    NAMESPACE_TOO_LARGE,
    Event,
    EventType,
    LeftOut,
    LeftOutNumber,
    Store,
)
from cfo.runtime.cache.unavailable_namespaces import UnavailableNamespaces
from cfo.runtime.client.discovery import DiscoveryIncomplete, Resource, RESTMapper
from cfo.runtime.client.errors import APIError, TransportError, UnknownKind
from cfo.runtime.client.ratelimit import Backoff
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    TypedObject,
    key_of,
    labels_of,
    require_key,
    require_namespace,
    to_object,
)
from cfo.runtime.process import function_errors
from cfo.runtime.process.arguments import require_plain_function, require_type, truth_of
from cfo.runtime.process.clock import Clock, SystemClock, sleep_unless
from cfo.runtime.process.large_objects import call_uncounted
from cfo.runtime.process.logged_stacks import LoggedStacks
from cfo.runtime.process.printable import described, printable

_log = structlog.get_logger(__name__)

Handler = Callable[[Event], None]
"""An event handler, called synchronously for every change; it must return quickly and must not block.

Typically it adds a request to a work queue.
"""


_MAX_ERROR_SHOWN: Final = 300
"""The maximum number of characters of a condition's error in a timeout."""


class WaitTimeoutError(TimeoutError):
    """Raised by :meth:`Informer.wait_for`.

    ``summary`` is the first line of its message, and ``last`` the object as it was last seen (``None``: it did not
    exist), which the other lines describe.
    """

    def __init__(self, summary: str, last: Object | None) -> None:
        super().__init__(summary + last_state(last))
        self.summary = summary
        self.last = last


class _DroppedStore:
    """Replaces the store of a dropped informer: every read raises :class:`LookupError`."""

    def __init__(self, gvk: GVK) -> None:
        self._gvk = gvk

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error()

    def __contains__(self, key: object) -> NoReturn:
        raise self._error()

    def __len__(self) -> int:
        return 0

    def _error(self) -> LookupError:
        return LookupError(f"{self._gvk}: the informer was removed from the cache")


class Reader:
    """Reads the objects of an informer without requests. Each read decodes a copy, which the caller owns.

    All methods raise :class:`LookupError` after the informer was removed from the cache.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def drop(self, gvk: GVK) -> None:
        """Forget the store of an informer that was removed."""
        self._store = cast("Store", _DroppedStore(gvk))

    def __len__(self) -> int:
        return len(self._store)

    @property
    def size(self) -> int:
        """The total size of the JSON of all objects in bytes; iterates over all of them, for metrics only."""
        return sum(len(entry.raw) for entry in self._store.entries())

    def get(self, key: NamespacedName) -> Object | None:
        """Return the object or ``None``; a metadata-only informer returns apiVersion, kind and metadata."""
        require_key("Reader.get", key)
        entry = self._store.get(key)
        return entry.object() if entry is not None else None

    def entry(self, key: NamespacedName) -> Entry | None:
        """Return the stored entry of the object, not decoded."""
        require_key("Reader.entry", key)
        return self._store.get(key)

    def meta(self, key: NamespacedName) -> Meta | None:
        """Return the metadata of the object without decoding the rest."""
        require_key("Reader.meta", key)
        entry = self._store.get(key)
        return entry.meta if entry is not None else None

    def contains(self, key: NamespacedName) -> bool:
        """Return whether the object exists."""
        require_key("Reader.contains", key)
        return key in self._store

    def may_exist(self, key: NamespacedName, /) -> bool:
        """Return whether the object exists, or may be one of those of its namespace that are left out.

        Of each namespace, 1,000 objects that are left out because of their sizes are known by name.
        """
        require_key("Reader.may_exist", key)
        return self._store.may_exist(key)

    def selects(self, obj: Object | TypedObject, /) -> bool:
        """Return whether an object is in the selection; field selectors count as far as a client can evaluate them."""
        return self._store.selection.matches(key_of(obj), labels_of(obj))

    def is_complete(self, namespace: str, /) -> bool:
        """Return whether no object of the namespace (empty: of any) is left out, because of sizes or their number."""
        require_namespace("Reader.is_complete", namespace)
        return self._store.is_complete(namespace)

    def has_all_left_out_keys(self, namespace: str = "", /) -> bool:
        """Return whether :meth:`left_out_keys` returns all objects that are left out of a namespace (empty: of any)."""
        require_namespace("Reader.has_all_left_out_keys", namespace)
        return self._store.has_all_left_out_keys(namespace)

    def left_out_keys(self, namespace: str = "", /) -> builtins.list[NamespacedName]:
        """Return the objects of a namespace (empty: of all) that are left out because of their sizes.

        At most 1,000 of each namespace; see :meth:`has_all_left_out_keys`.
        """
        require_namespace("Reader.left_out_keys", namespace)
        return self._store.left_out_keys(namespace)

    def left_out_numbers(self) -> dict[str, LeftOutNumber]:
        """Return how many objects are left out of each namespace that is not complete."""
        return self._store.left_out_numbers()

    @property
    def unindexed(self) -> Collection[str]:
        """The namespaces with objects that an index does not contain, so that a read by ``index`` can miss some.

        Those are objects that are left out, except for up to 1,000 of a namespace in indexes with ``left_out``, and
        objects for which an index function raised an error. A validator that allows what it finds no reason against
        must deny it then.
        """
        return self._store.unindexed

    def entries(
        self,
        namespace: str = "",
        selector: str | Mapping[str, Any] | LabelSelector = "",
        *,
        index: tuple[str, str] | None = None,
    ) -> list[Entry]:
        """Return the entries of the objects that match, not decoded.

        ``selector`` is a label selector; ``index`` is the name of an index and the value to look up in it. Raises
        :class:`KeyError` if there is no such index, and :class:`~cfo.runtime.cache.selectors.SelectorError`.
        """
        require_namespace("Reader", namespace)
        parsed = LabelSelector.of(selector)
        if index is None:
            found = self._store.entries(namespace)
        else:
            found = [
                entry
                for entry in self._store.indexed(*index)
                if not namespace or entry.namespace == namespace
            ]
        if not parsed:
            return found
        return [entry for entry in found if parsed.matches(entry.meta.labels)]

    def keys(self, index: str, value: str) -> Collection[NamespacedName]:
        """Return the keys of the objects that ``index`` contains under ``value``.

        Raises :class:`KeyError` if there is no such index.
        """
        return [entry.key for entry in self._store.indexed(index, value)]

    def list(
        self,
        namespace: str = "",
        selector: str | Mapping[str, Any] | LabelSelector = "",
        *,
        index: tuple[str, str] | None = None,
    ) -> list[Object]:
        """Return the objects that match; the parameters are the same as for :meth:`entries`."""
        return [entry.object() for entry in self.entries(namespace, selector, index=index)]


def require_wait_arguments(key: object, condition: object, timeout: object) -> None:
    """Raise :class:`TypeError` for what no wait for an object can use."""
    require_key("wait_for", key)
    require_plain_function(
        "wait_for: condition", condition, "a function of the object", can_be_class=True
    )
    require_type("wait_for: timeout", timeout, int | float | None, "a number of seconds, or None")


class Informer:
    """Lists and watches one kind; created and shared by a :class:`~cfo.runtime.cache.cache.Cache`.

    ``selection`` limits the objects to list and watch (default: all objects of the kind). ``field_managers`` are our
    own field managers, whose managedFields entries are stored. ``options`` are settings of list and watch. ``budget``
    is the budget of bytes that the informers of a cache share, and ``unavailable`` the namespaces that they leave out.
    """

    def __init__(
        self,
        transport: Transport,
        mapper: RESTMapper,
        gvk: GVK,
        selection: Selection | None = None,
        *,
        field_managers: Collection[str] = (),
        clock: Clock | None = None,
        options: ReflectorOptions | None = None,
        report_left_out: Callable[[GVK, LeftOut], None] = lambda gvk, found: None,
        report_restore: Callable[[], None] = lambda: None,
        budget: ByteBudget | None = None,
        unavailable: UnavailableNamespaces | None = None,
    ) -> None:
        require_plain_function("report_left_out", report_left_out, "a function")
        require_plain_function("report_restore", report_restore, "a function")
        self.gvk = gvk
        self.selection = selection or Selection()
        self.is_partial: Final = bool(self.selection.metadata_only or self.selection.fields)
        """Whether the stored objects lack fields."""
        self.is_selective: Final = bool(
            self.selection.field_selector or self.selection.max_bytes < MAX_BYTES
        )
        """Whether objects can exist that its label selector matches, but that it does not hold."""
        self._transport = transport
        self._mapper = mapper
        self._clock = clock or SystemClock()
        self._options = options or ReflectorOptions()
        self._report_left_out = report_left_out
        self._report_restore = report_restore
        self._budget = budget or ByteBudget()
        # Not "or": one without namespaces is false.
        self._unavailable = UnavailableNamespaces() if unavailable is None else unavailable
        self._decoder = EntryDecoder(
            gvk,
            field_managers=field_managers,
            metadata_only=self.selection.metadata_only,
            fields=self.selection.fields,
        )

        self.store = self._new_store()
        self.reader = Reader(self.store)
        self._feeds = Feeds(self.store)
        self._handlers: list[Handler] = []
        self._stacks = LoggedStacks()
        self._state_handlers: list[Callable[[], None]] = []

        self._resource: Resource | None = None
        self._reflectors: list[Reflector] = []
        self._by_namespace: dict[str, Reflector] = {}
        self._unanswered: set[str] = set()
        """The namespaces of reflectors that have neither a list nor a denied one."""
        self._denied: dict[str, str] = {}
        """The namespaces of reflectors that lack a permission, and the missing RBAC rule."""
        self._problem = "not started"
        self._is_not_served = False
        self._changed = anyio.Event()
        self._woken = anyio.Event()
        self._is_dropped = False
        self._handler_errors = 0

    # For users of the informer.

    @property
    def function_errors(self) -> int:
        """How often predicates, event handlers and index functions raised an error, which was logged."""
        return self._handler_errors + self.store.index_errors

    def count_error(self) -> None:
        """Count an error of a predicate or handler, because of which an event is dropped."""
        self._handler_errors += 1

    @property
    def has_synced(self) -> bool:
        """Whether a list was committed and the kind is still served.

        The store has all objects then, except for those for which :meth:`Reader.is_complete` is false, as in the
        namespaces that are left out because a permission is missing only there.
        """
        feeds = self._feeds.values()
        if not all(feed.synced or feed.namespace in self._denied for feed in feeds):
            return False
        return any(feed.synced for feed in feeds)

    @property
    def problem(self) -> str:
        """The reason why the informer is not watching its kind, for messages and health checks; empty if it is."""
        return self._problem or self.request_error

    @property
    def request_error(self) -> str:
        """Why its last requests failed, for messages; empty if they did not."""
        return "; ".join(reflector.error for reflector in self._reflectors if reflector.error)

    @property
    def lag(self) -> float | None:
        """The seconds since the API server last sent an event, a bookmark or a list; ``None`` before the first one.

        A healthy watch receives a bookmark about once a minute. With several watches, the greatest lag.
        """
        reflectors = self._reflectors
        heard_at = [each.heard_at for each in reflectors if each.heard_at is not None]
        if not heard_at or len(heard_at) < len(reflectors):
            return None
        return self._clock.monotonic() - min(heard_at)

    @property
    def is_forbidden(self) -> bool:
        """Whether the permission to list or watch is missing, in all namespaces if it is for several.

        The informer retries periodically.
        """
        reflectors = self._reflectors
        return bool(reflectors) and all(reflector.forbidden for reflector in reflectors)

    @property
    def missing_rule(self) -> str:
        """The RBAC rule that the informer lacks if :attr:`is_forbidden` is true; otherwise empty."""
        return self._reflectors[0].missing_rule if self.is_forbidden else ""

    @property
    def is_not_served(self) -> bool:
        """Whether the API server was found not to serve the kind; the informer waits for it."""
        return self._is_not_served

    async def wait_for_sync(
        self, *, unless_forbidden: bool = False, unless_not_served: bool = False
    ) -> None:
        """Wait until :attr:`has_synced` is true; waits forever for a kind that is never served.

        ``unless_forbidden``: also return when :attr:`is_forbidden` is true, and with ``unless_not_served`` when
        :attr:`is_not_served` is. Raises :class:`LookupError` if the informer was removed from the cache.
        """
        while not self.has_synced:
            if unless_forbidden and self.is_forbidden:
                return
            if unless_not_served and self.is_not_served:
                return
            if self._is_dropped:
                raise LookupError(f"{self.gvk}: the informer was removed from the cache")
            await self._changed.wait()

    async def wait_for(
        self,
        key: NamespacedName,
        condition: Callable[[Object | None], bool],
        *,
        timeout: float | None,
    ) -> Object | None:
        """Wait until ``condition`` accepts the object (``None``: it does not exist), and return the object.

        ``condition`` is called after each change of the object; a :class:`LookupError` of it means that it is not met,
        because fields are missing until they are written. Raises :class:`TimeoutError` after ``timeout`` seconds
        (``None``: waits forever), whose message contains the conditions of the object and this error, and
        :class:`LookupError` if the informer is removed from the cache.
        """
        require_wait_arguments(key, condition, timeout)
        changed = anyio.Event()
        last: Object | None = None
        missing: LookupError | None = None

        def notify(event: Event) -> None:
            if event.key == key:
                changed.set()

        def notify_state() -> None:
            changed.set()

        self._handlers.append(notify)
        self._state_handlers.append(notify_state)
        try:
            with anyio.move_on_after(timeout):
                await self.wait_for_sync()
                while True:
                    changed = anyio.Event()
                    last = self.reader.get(key)
                    missing = None
                    try:
                        result = condition(last)
                    except LookupError as error:
                        missing = error
                    else:
                        if truth_of("wait_for: condition", result):
                            return last
                    await changed.wait()
        finally:
            self._state_handlers.remove(notify_state)
            self.remove_handler(notify)
        problem = f" ({self.problem})" if self.problem else ""
        summary = f"{self.gvk} {key}: condition not met after {timeout:g} s{problem}"
        if missing is not None:
            summary += f"; it raised {printable(described(missing), _MAX_ERROR_SHOWN)}"
        raise WaitTimeoutError(summary, last) from missing

    def add_handler(self, handler: Handler, *, left_out: bool = False) -> None:
        """Call ``handler`` immediately for all existing objects (as ``initial``), and later for every change.

        With ``left_out`` also for the objects that are left out of the store, after a new list, as events with their
        state in :attr:`Event.left_out`. All handlers get these events. Nothing is listed if the store is complete.
        """
        require_plain_function("add_handler", handler, "a function of the event")
        self._handlers.append(handler)
        for feed in self._feeds.values():
            if not feed.synced:
                continue
            for entry in self.store.entries(feed.namespace):
                event = Event(EventType.ADDED, entry.key, None, entry, initial=True)
                self._call(handler, event)
        if left_out:
            self.report_left_out()

    def report_left_out(self) -> None:
        """Call the handlers for the objects that are left out of the store, after a new list.

        They get the events that :meth:`add_handler` describes. Nothing is listed if the store is complete.
        """
        for reflector in self._reflectors:
            reflector.report_left_out()

    def remove_handler(self, handler: Handler) -> None:
        """Stop calling ``handler``; raises :class:`ValueError` if it was not added."""
        self._handlers.remove(handler)

    def add_state_handler(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` after :attr:`has_synced`, :attr:`problem` or the reason for it may have changed.

        It is called synchronously, must return quickly, and must not raise.
        """
        require_plain_function("add_state_handler", handler, "a function without parameters")
        self._state_handlers.append(handler)

    def remove_state_handler(self, handler: Callable[[], None]) -> None:
        """Stop calling ``handler``; raises :class:`ValueError` if it was not added."""
        self._state_handlers.remove(handler)

    def add_index(self, name: str, function: IndexFunction, *, left_out: bool = False) -> Self:
        """Add an index, by which :attr:`reader` finds objects, and fill it.

        With ``left_out`` it also finds objects that are left out, as entries that have only their name, uid, version,
        creation time and controller; see :attr:`Reader.unindexed`. Adding the same function again is allowed; raises
        :class:`ValueError` if the name has a different function.
        """
        self.store.add_index(name, function, left_out=left_out)
        return self

    def selected_entry(self, obj: Object | TypedObject) -> Entry | None:
        """Return the entry of an object that was read from the API server; ``None`` if it is not in the selection.

        Nothing is stored.
        """
        if not self.reader.selects(obj):
            return None
        return self._decoder.decode(orjson.dumps(to_object(obj)))

    def wake(self) -> None:
        """Repeat discovery immediately if the informer is waiting for its kind to be served."""
        self._woken.set()

    # For the cache.

    def rebuild(self) -> None:
        """List again now, and discard what is known, because an informer noticed that the database was restored."""
        for reflector in self._reflectors:
            reflector.rebuild()

    def drop(self) -> None:
        """Forget the objects, after the informer was removed from the cache."""
        self._is_dropped = True
        self.reader.drop(self.gvk)
        self.store.drop()
        self.store = self._new_store()
        self._feeds = Feeds(self.store)
        self._set_reflectors([])
        self._notify()

    def watches_namespace(self, namespace: str) -> bool:
        """Return whether the informer lists and watches the namespace."""
        require_namespace("watches_namespace", namespace)
        return "" in self._feeds or namespace in self._feeds

    def record_write(self, response: bytes) -> None:
        """Store the API server's response to a write: a complete object. See :mod:`cfo.runtime.cache.store`.

        Raises :class:`msgspec.DecodeError` if it is not an object.
        """
        entry = self._decoder.decode(response)
        feed = self._feeds.of(entry.key)
        # In a namespace that is not watched, the stored object would never be updated.
        if feed is not None:
            feed.record_write(entry)

    def record_deletion(self, key: NamespacedName, uid: str) -> None:
        """Record that the object of this uid was deleted."""
        feed = self._feeds.of(key)
        if feed is not None:
            feed.record_deletion(key, uid)

    async def run(self) -> None:
        """List and watch the kind until cancelled, or until the informer is dropped."""
        try:
            while not self._is_dropped:
                resource = await self._resolve()
                if resource != self._resource:
                    self._start_following(resource)
                async with anyio.create_task_group() as tasks:
                    for reflector in self._reflectors:
                        tasks.start_soon(self._reflect, reflector, tasks.cancel_scope)
                self._mapper.invalidate()
        finally:
            self._problem = "stopped"
            self._notify()

    # Implementation.

    def _new_store(self) -> Store:
        return Store(
            deliver=self._deliver,
            clock=self._clock,
            selection=self.selection,
            report=self._report,
            budget=self._budget,
        )

    def _report(self, found: LeftOut) -> None:
        message = "Too many objects in a namespace, skipping some"
        if found.reason == "ObjectTooLarge":
            message = "Object is too large, skipping it"
        elif found.reason == NAMESPACE_TOO_LARGE:
            message = "Objects of a namespace are too large together, skipping some"
        _log.error(message, kind=str(self.gvk), object=str(found.key), cause=found.message)
        self._report_left_out(self.gvk, found)

    async def _reflect(self, reflector: Reflector, scope: anyio.CancelScope) -> None:
        """Run a reflector; when it ends, because the kind is not found, end the others too."""
        await reflector.run()
        scope.cancel()

    async def _resolve(self) -> Resource:
        """Return the resource of the kind, waiting until it is served."""
        backoff = Backoff(self._clock, self._options.random)
        while True:
            self._woken = anyio.Event()
            try:
                resource = await self._mapper.resource(self.gvk)
            except UnknownKind as error:
                self._stop_following()  # the API server deleted all objects together with the CRD
                self._is_not_served = True
                if self._set_problem(f"not served: {error}"):
                    _log.info(
                        "Kind is not served, waiting for it", kind=str(self.gvk), error=str(error)
                    )
            except (DiscoveryIncomplete, APIError, TransportError) as error:
                # The kind may still be served, so the store keeps its objects.
                self._is_not_served = False
                if self._set_problem(f"discovery of {self.gvk}: {error}"):
                    _log.warning(
                        "Discovery failed, will retry",
                        kind=str(self.gvk),
                        server=self._transport.config.server,
                        error=str(error),
                    )
            else:
                self._is_not_served = False
                self._set_problem("")
                return resource
            backoff.record_failure()
            await sleep_unless(self._clock, backoff.delay(), self._woken)

    def _start_following(self, resource: Resource) -> None:
        self._resource = resource
        namespaces = self.selection.namespaces if resource.namespaced else ("",)
        self._feeds.open(namespaces)
        reflectors = [
            Reflector(
                self._transport,
                resource,
                feed,
                self._decoder,
                self.selection,
                clock=self._clock,
                options=self._options,
                on_change=partial(self._on_change, feed.namespace),
                on_restore=self._report_restore,
                unavailable=self._unavailable,
                is_one_of_many=len(self._feeds) > 1,
            )
            for feed in self._feeds.values()
        ]
        self._set_reflectors(reflectors)

    def _set_reflectors(self, reflectors: list[Reflector]) -> None:
        self._reflectors = reflectors
        self._by_namespace = {reflector.namespace: reflector for reflector in reflectors}
        self._unanswered = set(self._by_namespace)
        self._denied = {}
        self._report_denied()

    def _on_change(self, namespace: str) -> None:
        """Note whether the namespace of a reflector is listed, or a permission is missing."""
        reflector = self._by_namespace.get(namespace)
        if reflector is None:
            return
        was_denied = namespace in self._denied
        was_unanswered = namespace in self._unanswered
        if reflector.is_listed or reflector.forbidden:
            self._unanswered.discard(namespace)
        if reflector.forbidden:
            self._denied[namespace] = reflector.missing_rule
        else:
            self._denied.pop(namespace, None)
        is_last_answer = was_unanswered and not self._unanswered
        if is_last_answer or was_denied is not reflector.forbidden:
            self._report_denied()
        self._notify()

    def _report_denied(self) -> None:
        """Report the namespaces that are left out, once it is known of all whether a permission is missing."""
        if self._unanswered:
            return
        is_denied_everywhere = len(self._denied) == len(self._reflectors)
        left_out = {} if is_denied_everywhere else dict(self._denied)
        self._unavailable.replace(self, left_out)
        if is_denied_everywhere and len(self._reflectors) > 1:
            _log.warning(
                "Permission denied, will retry",
                resource=str(self._resource.gvr) if self._resource is not None else str(self.gvk),
                error=self._reflectors[0].error,
                missing_rule=self.missing_rule,
            )

    def _stop_following(self) -> None:
        if self._resource is None:
            return
        _log.warning(
            "Kind is no longer served, deleting its objects from the cache", kind=str(self.gvk)
        )
        self._feeds.close()
        self._resource = None
        self._set_reflectors([])

    def _set_problem(self, problem: str) -> bool:
        """Set why the kind is not watched; return whether that is new."""
        if problem == self._problem:
            return False
        self._problem = problem
        self._notify()
        return True

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        for handler in list(self._state_handlers):
            handler()

    def _deliver(self, event: Event) -> None:
        for handler in list(self._handlers):
            self._call(handler, event)

    def _call(self, handler: Handler, event: Event) -> None:
        try:
            call_uncounted(handler, event)
        except Exception as error:  # noqa: BLE001 - logged; handlers are code of the library's users
            self.count_error()
            function_errors.report(error, f"event handler of {self.gvk} for {event.key}")
            _log.error(
                "Event handler failed, continuing with the others",
                error=described(error),
                kind=str(self.gvk),
                object=str(event.key),
                exc_info=error if self._stacks.is_first(error) else None,
            )
