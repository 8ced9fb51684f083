"""Keeps the summaries of all objects, from informers: no requests of its own, and no polling.

An event only marks the objects whose summary it can change. Summaries are computed when someone asks for them, for the
marked objects only, so an :class:`Overview` that no one reads costs next to nothing. The informers keep the objects as
bytes; an object and those that it depends on are decoded while its summary is computed.

Periods that depend on the time alone (how long a deletion takes, whether a CA is overdue) are checked when the object
changes, not by a timer. The exception is an object to which no operator writes: nothing else would change it.
"""

from __future__ import annotations

import math
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from enum import Enum
from functools import cache, partial
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec

from cfo.api.reading import MALFORMED, time_of
from cfo.runtime import (
    GVK,
    POD,
    Cache,
    Clock,
    Entry,
    Event,
    Informer,
    NamespacedName,
    Object,
    SystemClock,
)
from cfo.runtime.cache import controller_key
from cfo.runtime.objects import CORE_EVENT
from cfo.runtime.process import Timer
from cfo.summaries.kind_view import (
    MAX_CHILDREN,
    MAX_EVENTS,
    MAX_PODS,
    KindView,
    Related,
    last_occurrence,
    may_become_overdue,
    related_objects,
    summarize,
)
from cfo.summaries.problems import seconds_until_overdue
from cfo.summaries.summary import Summary

QUIET_SECONDS: Final = 0.1
"""Changes are delivered when no further event has arrived for this time."""
MAX_DELAY_SECONDS: Final = 1.0
"""Changes are delivered after this time at the latest."""

_MAX_BYTES: Final = 64 << 10
"""Objects with more bytes are not cached, as in the operator, with which the informers are shared: anyone can create
objects with these labels."""
_MAX_POD_BYTES: Final = 256 << 10
_MAX_EVENT_BYTES: Final = 16 << 10
_BATCH: Final = 20
"""The number of summaries that are computed before other tasks run."""

_REGARDING_INDEX: Final = "overview-regarding"
_CLUSTER_EVENTS: Final = "default"
"""The namespace of Events about cluster-scoped objects."""

_Identity = tuple[GVK, NamespacedName]
_Created = tuple[str, str, str]
"""Namespace, kind and name of an object that was created for another one."""


class ChangeType(Enum):
    """How a summary has changed."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class SummaryChange(msgspec.Struct, frozen=True):
    """A change of one summary; of a removed object, it is the last one."""

    type: ChangeType
    summary: Summary


class _Regarding(msgspec.Struct, rename="camel"):
    uid: str | None = None
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None


class _EventHead(msgspec.Struct, rename="camel"):
    involved_object: _Regarding | None = None


_event_head = msgspec.json.Decoder(_EventHead)


def interruption(informers: Iterable[Informer]) -> str:
    """Return why changes of objects that were read are not received at the moment; empty if they are."""
    return next(
        (informer.problem for informer in informers if informer.has_synced and informer.problem), ""
    )


class Overview:
    """The summaries of all objects whose kinds have ``views``.

    ``cache`` provides the informers; those that it has, and those in ``shared``, are shared, so create the overview of
    a running operator after its controllers. ``related`` are the other kinds to watch (see
    :func:`.kind_view.related_kinds`); what is left out is not part of the summaries. Pods are large: leave them out
    where memory matters more than the reason why a pod does not start.
    """

    def __init__(
        self,
        cache: Cache,
        views: Iterable[KindView],
        *,
        related: Collection[GVK],
        shared: Collection[Informer] = (),
        clock: Clock | None = None,
    ) -> None:
        self._cache = cache
        self._shared = shared
        self.views = {view.gvk: view for view in views}
        self._clock = clock or SystemClock()
        self._summaries: dict[_Identity, Summary] = {}
        self._dirty: dict[_Identity, None] = {}
        self._created_for: dict[_Created, dict[_Identity, None]] = {}
        self._created_by: dict[_Identity, Sequence[_Created]] = {}
        self._overdue_at: dict[_Identity, float] = {}
        self._timer: Timer | None = None
        self._subscriptions: list[Subscription] = []
        self._handlers: list[tuple[Informer, Callable[[Event], None]]] = []
        self._known_states: dict[Informer, bool] = {}
        self._state_changed = anyio.Event()
        self.informer_of: dict[GVK, Informer] = {}
        self.children_of: dict[GVK, dict[GVK, Informer]] = {}
        """The informers of the children of each kind, by their kind."""
        self._pods: dict[GVK, Informer] = {}
        for gvk, view in self.views.items():
            # before the handler, which is called at once for the objects of an informer that has synced
            self.informer_of[gvk] = self._informer(gvk)
            self._watch(self.informer_of[gvk], gvk, lambda entry: (entry.name,))
            self.children_of[gvk] = {}
            for child in view.children:
                if child.gvk in related:
                    selection = {
                        "label_selector": child.label_selector,
                        "metadata_only": child.metadata_only,
                    }
                    informer = self._informer(child.gvk, max_bytes=_MAX_BYTES, **selection)
                    self._watch(informer, gvk, partial(_owner_names, gvk.kind))
                    self.children_of[gvk][child.gvk] = informer.add_index(
                        *_index_by_owner(gvk.kind)
                    )
            if view.pod_label and POD in related:
                pods = self._informer(POD, label_selector=view.pod_label, max_bytes=_MAX_POD_BYTES)
                self._watch(pods, gvk, partial(_label_values, view.pod_label))
                self._pods[gvk] = pods.add_index(*_index_by_label(view.pod_label))
        self._events: Informer | None = None
        if CORE_EVENT in related:
            self._events = cache.informer(
                CORE_EVENT, field_selector="type=Warning", max_bytes=_MAX_EVENT_BYTES
            )
            self._events.add_index(_REGARDING_INDEX, _regarded_object)
            self._add_handler(self._events, self._on_warning)

    @property
    def informers(self) -> Collection[Informer]:
        """All informers that are watched."""
        return tuple(self._known_states)

    def unavailable(self) -> dict[GVK, str]:
        """Return the kinds that cannot be read now, each with the reason."""
        return {
            informer.gvk: informer.problem or "the first list is not complete"
            for informer in self._known_states
            if not informer.has_synced
        }

    def forbidden(self) -> tuple[GVK, ...]:
        """Return the kinds that the user is not allowed to list and watch."""
        return tuple(informer.gvk for informer in self._known_states if informer.is_forbidden)

    async def next_interruption(self, known: str = "") -> str:
        """Wait until changes are no longer received, or are received again if ``known`` is the reason why not.

        Returns the reason, empty if changes are received again; see :func:`interruption`.
        """
        while bool(current := interruption(self._known_states)) == bool(known):
            await self._state_changed.wait()
        return current

    async def wait_for_sync(self) -> None:
        """Wait until each kind was read completely or is forbidden; forever for a kind that is not served."""
        for informer in self.informers:
            await informer.wait_for_sync(unless_forbidden=True)

    async def refresh(self) -> None:
        """Compute the summaries that may have changed."""
        computed = 0
        while self._dirty:
            identity = next(iter(self._dirty))
            del self._dirty[identity]
            self._update(identity)
            computed += 1
            if computed % _BATCH == 0:
                await anyio.lowlevel.checkpoint()

    async def snapshot(self) -> list[Summary]:
        """Return the current summaries, by kind in the order of ``views``, then by namespace and name."""
        await self.refresh()
        order = {gvk: position for position, gvk in enumerate(self.views)}
        return [
            self._summaries[each]
            for each in sorted(self._summaries, key=lambda each: (order[each[0]], each[1]))
        ]

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Yield a stream of changes, which begins with an addition for each object that exists."""
        subscription = Subscription(self, self._summaries)
        self._subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.remove(subscription)

    def close(self) -> None:
        """Stop watching. The informers keep running, because others may share them."""
        for informer, handler in self._handlers:
            informer.remove_handler(handler)
            informer.remove_state_handler(self._on_state)
        if self._timer is not None:
            self._timer.cancel()
        self._handlers.clear()
        self._summaries.clear()
        self._overdue_at.clear()
        self._dirty.clear()

    # Events: each marks the objects whose summary can change.

    def _informer(self, gvk: GVK, **selection: Any) -> Informer:
        """Return an informer that has at least the objects of ``selection``: an existing one, or a new one."""
        metadata_only = bool(selection.get("metadata_only"))
        label_selector = str(selection.get("label_selector", ""))
        for informer in (*self._shared, *self._cache.informers):
            existing = informer.selection
            if (
                informer.gvk == gvk
                and existing.metadata_only == metadata_only
                and not existing.fields
                and not existing.field_selector
                and (not existing.label_selector or str(existing.label_selector) == label_selector)
                and existing.namespaces == self._cache.namespaces
                and existing.max_bytes >= selection.get("max_bytes", _MAX_BYTES)
            ):
                return informer
        return self._cache.informer(gvk, **selection)

    def _watch(
        self, informer: Informer, gvk: GVK, names_of: Callable[[Entry], Iterable[str]]
    ) -> None:
        """Let each event mark the objects of ``gvk`` with ``names_of`` the entry, in its namespace."""

        def handler(event: Event) -> None:
            for entry in (event.old, event.new):
                for name in names_of(entry) if entry is not None else ():
                    self._mark(gvk, NamespacedName(event.key.namespace, name))

        self._add_handler(informer, handler)

    def _add_handler(self, informer: Informer, handler: Callable[[Event], None]) -> None:
        self._known_states[informer] = informer.has_synced
        self._handlers.append((informer, handler))
        informer.add_handler(handler)
        informer.add_state_handler(self._on_state)

    def _on_warning(self, event: Event) -> None:
        for entry in (event.old, event.new):
            regarding = _regarding(entry) if entry is not None else None
            if regarding is None:
                continue
            key = NamespacedName(regarding.namespace or "", regarding.name or "")
            for gvk in self.views:
                if regarding.kind == gvk.kind:
                    self._mark(gvk, key)
            for identity in self._created_for.get(
                (key.namespace, regarding.kind or "", key.name), ()
            ):
                self._mark(*identity)

    def _on_state(self) -> None:
        """Summaries say nothing about kinds that cannot be read, so they change when that changes."""
        self._state_changed.set()
        self._state_changed = anyio.Event()
        states = {informer: informer.has_synced for informer in self._known_states}
        if states != self._known_states:
            self._known_states = states
            for identity in self._summaries:
                self._mark(*identity)

    def _mark(self, gvk: GVK, key: NamespacedName) -> None:
        """Mark an object if it exists or has a summary: anyone can create Events about objects that do not."""
        informer = self.informer_of[gvk]
        identity = (gvk, key)
        if not (informer.reader.contains(key) or identity in self._summaries):
            self._dirty.pop(identity, None)
            return
        self._dirty[identity] = None
        for subscription in self._subscriptions:
            subscription.wake()

    # Summaries.

    def _update(self, identity: _Identity) -> None:
        gvk, key = identity
        before, after = self._summaries.get(identity), self._summarize(gvk, key)
        if before == after:
            return
        if after is None:
            del self._summaries[identity]
        else:
            self._summaries[identity] = after
        for subscription in self._subscriptions:
            subscription.record(identity, before, after)

    def related_objects(self, gvk: GVK, key: NamespacedName) -> dict[str, list[tuple[str, str]]]:
        """Return the pods and children of an object, empty if it does not exist."""
        entry = self.informer_of[gvk].reader.entry(key)
        return (
            related_objects(self.views[gvk], key, self._related(gvk, entry))
            if entry is not None
            else {}
        )

    def _summarize(self, gvk: GVK, key: NamespacedName) -> Summary | None:
        entry = self.informer_of[gvk].reader.entry(key)
        if entry is None:
            self._overdue_at.pop((gvk, key), None)
            self._remember_created((gvk, key), [])
            return None
        objects = _decoded([entry])
        obj = objects[0] if objects else {"metadata": {"namespace": key[0], "name": key[1]}}
        self._remember_created((gvk, key), _created_of(self.views[gvk], key.namespace, obj))
        related = self._related(gvk, entry)
        summary = summarize(self.views[gvk], obj, related)
        self._check_again((gvk, key), seconds_until_overdue(obj, related.now), summary)
        return summary

    def _remember_created(self, identity: _Identity, created: Sequence[_Created]) -> None:
        """Remember what was created for an object, so that Events about it mark the object."""
        before = self._created_by.get(identity, [])
        if created == before:
            return
        for each in before:
            self._created_for[each].pop(identity, None)
            if not self._created_for[each]:
                del self._created_for[each]
        for each in created:
            self._created_for.setdefault(each, {})[identity] = None
        self._created_by[identity] = created
        if not created:
            del self._created_by[identity]

    def _check_again(self, identity: _Identity, seconds: float, summary: Summary) -> None:
        """Compute a summary again once an operator should have written the state of its object."""
        if 0 < seconds < math.inf and may_become_overdue(summary):
            self._overdue_at[identity] = self._clock.monotonic() + seconds
            self._set_timer()
        else:
            self._overdue_at.pop(identity, None)

    def _set_timer(self) -> None:
        if self._timer is None and self._overdue_at:
            due = min(self._overdue_at.values()) - self._clock.monotonic()
            # at most one timer a second, which checks all objects that are overdue then
            self._timer = self._clock.call_later(max(due, 0.0) + 1.0, self._mark_overdue)

    def _mark_overdue(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for identity, due in list(self._overdue_at.items()):
            if due <= now:
                del self._overdue_at[identity]
                self._mark(*identity)
        self._set_timer()

    def _related(self, gvk: GVK, entry: Entry) -> Related:
        key = entry.key
        uid = entry.meta.uid
        owner_index, _ = _index_by_owner(gvk.kind)
        owner = (owner_index, controller_key(key.namespace, uid))
        return Related(
            children={
                kind: _decoded(child.reader.entries(index=owner)[:MAX_CHILDREN])
                for kind, child in self.children_of[gvk].items()
                if child.has_synced
            },
            pods=self._pods_of(self.views[gvk], key),
            events=self._events_about(f"{key[0]}/{uid}") if uid else (),
            created_events=self._created_events(gvk, entry),
            now=self._clock.now(),
        )

    def _events_about(self, regarded: str) -> list[Object]:
        """Return the last Warning Events about an object, by its namespace and uid, or namespace, kind and name."""
        if self._events is None:
            return []
        return _decoded(
            self._events.reader.entries(index=(_REGARDING_INDEX, regarded))[-MAX_EVENTS:]
        )

    def _created_events(self, gvk: GVK, entry: Entry) -> list[Object]:
        """Return Warning Events about what was created for an object; older ones are about others of these names."""
        since = time_of(entry.meta.creation_timestamp)
        found: list[Object] = []
        for created in self._created_by.get((gvk, entry.key), ()):
            for event in self._events_about("/".join(created)):
                last = last_occurrence(event)
                if since is None or last is None or last >= since:
                    found.append(event)
        return found[:MAX_EVENTS]

    def _pods_of(self, view: KindView, key: NamespacedName) -> list[Object] | None:
        informer = self._pods.get(view.gvk)
        if informer is None or not informer.has_synced:
            return None
        name, _ = _index_by_label(view.pod_label)
        index = (name, f"{key.namespace}/{view.pod_label_value(key.name)}")
        return _decoded(informer.reader.entries(index=index)[:MAX_PODS])


class Subscription:
    """The changes since they were last read; see :meth:`Overview.subscribe`. It is bounded by the number of objects."""

    def __init__(self, overview: Overview, summaries: Mapping[_Identity, Summary]) -> None:
        self._overview = overview
        self._summaries = summaries
        self._before: dict[_Identity, Summary | None] = dict.fromkeys(summaries)
        self._woken = anyio.Event()

    def record(self, identity: _Identity, before: Summary | None, after: Summary | None) -> None:
        """Remember that a summary has changed; one that was added and removed again is forgotten."""
        if self._before.setdefault(identity, before) is None and after is None:
            del self._before[identity]
        self._woken.set()

    def wake(self) -> None:
        """Record that summaries may have changed, and have to be computed."""
        self._woken.set()

    async def next(self) -> list[SummaryChange]:
        """Wait until something has changed, and return all changes: at most one for each object."""
        while True:
            self._woken = anyio.Event()
            await self._overview.refresh()
            if changes := self._take():
                return changes
            await self._wait_for_events()

    async def __aiter__(self) -> AsyncIterator[list[SummaryChange]]:
        """Yield the changes, each time after a short period without events."""
        while True:
            yield await self.next()
            await self._wait_for_events()

    async def _wait_for_events(self) -> None:
        """Wait for an event, and then until none has arrived for :data:`QUIET_SECONDS`."""
        await self._woken.wait()
        with anyio.move_on_after(MAX_DELAY_SECONDS):
            while self._woken.is_set():
                self._woken = anyio.Event()
                with anyio.move_on_after(QUIET_SECONDS):
                    await self._woken.wait()

    def _take(self) -> list[SummaryChange]:
        recorded, self._before = self._before, {}
        changes = []
        for identity, before in recorded.items():
            after = self._summaries.get(identity)
            if after is not None and before is None:
                changes.append(SummaryChange(ChangeType.ADDED, after))
            elif after is not None and after != before:
                changes.append(SummaryChange(ChangeType.CHANGED, after))
            elif after is None and before is not None:
                changes.append(SummaryChange(ChangeType.REMOVED, before))
        return changes


def _decoded(entries: list[Entry]) -> list[Object]:
    """Return the objects of ``entries``, without those whose JSON cannot be decoded (nested too deeply)."""
    found = []
    for entry in entries:
        try:
            found.append(entry.object())
        except MALFORMED:
            continue
    return found


_Index = tuple[str, Callable[[Entry], Iterator[str]]]
"""The name of an index and its function, which is the same for all overviews that share an informer."""


def _owner_names(kind: str, entry: Entry) -> Iterator[str]:
    return (owner.name for owner in entry.meta.owner_references if owner.kind == kind)


@cache
def _index_by_owner(kind: str) -> _Index:
    def owners(entry: Entry) -> Iterator[str]:
        for owner in entry.meta.owner_references:
            if owner.kind == kind:
                yield controller_key(entry.namespace, owner.uid)

    return f"overview-owner-{kind}", owners


def _regarding(entry: Entry) -> _Regarding | None:
    """Return the object of its namespace that an Event regards: other objects' uids can be copied into any Event."""
    try:
        regarding = _event_head.decode(entry.raw).involved_object
    except (msgspec.DecodeError, RecursionError):
        return None
    allowed = regarding is not None and entry.key.namespace == (
        regarding.namespace or _CLUSTER_EVENTS
    )
    return regarding if allowed else None


def _regarded_object(entry: Entry) -> Iterator[str]:
    regarding = _regarding(entry)
    if regarding is not None and regarding.uid:
        yield f"{regarding.namespace or ''}/{regarding.uid}"
    if regarding is not None and regarding.kind and regarding.name:
        yield f"{regarding.namespace or ''}/{regarding.kind}/{regarding.name}"


def _created_of(view: KindView, namespace: str, obj: Object) -> list[_Created]:
    """Return what was created for an object; nothing if its fields have unexpected types."""
    if view.created is None:
        return []
    try:
        created = dict.fromkeys(view.created(obj))
        return [(namespace, kind, name) for kind, name in created]
    except MALFORMED:
        return []


def _label_values(label: str, entry: Entry) -> Iterator[str]:
    if value := entry.meta.labels.get(label):
        yield value


@cache
def _index_by_label(label: str) -> _Index:
    return f"overview-{label}", lambda entry: (
        f"{entry.namespace}/{value}" for value in _label_values(label, entry)
    )
