"""Keeps the summaries of all objects, from informers: no requests of its own, and no polling.

An event only marks the objects whose summary it can change. Summaries are computed when someone asks for them, for the
marked objects only, so an :class:`Overview` that no one reads costs next to nothing. The informers keep the objects as
bytes; an object and those that it depends on are decoded while its summary is computed.

Whether a CA is overdue depends on the time alone, and is checked when the object changes, not by a timer. The
exceptions are an object to which no operator writes, and one whose deletion takes long: nothing else would change them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Final

import anyio

from cfo.api.kueue import LOCAL_QUEUES, missing_queue_message
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
    is_deleting,
    key_of,
    uid_of,
)
from cfo.runtime.cache import LeftOutNumber
from cfo.runtime.objects import CORE_EVENT
from cfo.runtime.process import Timer, count_values
from cfo.summaries.changes import Identity, Subscription
from cfo.summaries.dependents import Dependents
from cfo.summaries.kind_informers import MAX_CHILD_BYTES, KindInformers, shared_informer
from cfo.summaries.kind_view import (
    MAX_CREATED,
    MAX_EVENTS,
    KindView,
    Related,
    may_become_overdue,
    missing_kueue,
    missing_queue,
    related_objects,
    summarize,
    with_forbidden,
)
from cfo.summaries.marks import Marks
from cfo.summaries.pod_events import awaits_containers
from cfo.summaries.problems import (
    last_occurrence,
    seconds_until_hung,
    seconds_until_overdue,
    seconds_until_slow,
)
from cfo.summaries.summary import Problem, Summary, kind_names
from cfo.summaries.warning_events import (
    CreatedObject,
    about_created,
    about_object,
    created_objects,
    involved_object,
    warning_events,
)

_MAX_NAMESPACES: Final = 3
"""The maximum number of namespaces that are named for each kind with objects that are left out."""

_BATCH_SECONDS: Final = 0.005
"""Seconds after which other tasks run; one summary can take longer."""

_MAX_VALUES: Final = 200_000
"""How many values are decoded for one summary; an object that any user creates can have 600,000, and 200 pods."""


def interruption(informers: Iterable[Informer]) -> str:
    """Return why changes of objects that were read are not received at the moment; empty if they are."""
    for informer in informers:
        if informer.has_synced and informer.problem:
            return informer.problem
    return ""


class _Decoder:
    """Decodes an object, and those that its summary depends on, up to a number of values."""

    def __init__(self) -> None:
        self.values = 0
        """How many values were decoded."""

    def object(self, entry: Entry) -> Object:
        """Return the object of ``entry``, or only its metadata: if it is too large, or nested too deeply."""
        found = self._decoded(entry)
        if found is None:
            return entry.metadata_object()
        return found

    def objects(self, entries: Iterable[Entry]) -> list[Object]:
        """Return the objects of ``entries``, without those that are too large, or nested too deeply."""
        found = []
        for entry in entries:
            obj = self._decoded(entry)
            if obj is not None:
                found.append(obj)
        return found

    def _decoded(self, entry: Entry) -> Object | None:
        values = count_values(entry.raw)
        if self.values + values > _MAX_VALUES:
            return None
        self.values += values
        try:
            return entry.object()
        except MALFORMED:
            return None


class Overview:
    """The summaries of all objects whose kinds have ``views``.

    ``cache`` provides the informers; those that it has, and those in ``shared``, are shared, so create the overview of
    a running operator after its controllers. ``related`` are the other kinds to watch (see
    :func:`.kind_view.related_kinds`); what is left out is not part of the summaries. Pods are large: leave them out
    where memory matters more than the reason why a pod does not start. Include LocalQueues where they are not served,
    in all versions: objects that wait for one then have the problem that Kueue is not installed.

    ``pause_share``: after each part of its work, it lets other tasks run for this multiple of the time that it took.
    Users can change large objects, and their pods, all the time.
    """

    def __init__(
        self,
        cache: Cache,
        views: Iterable[KindView],
        *,
        related: Collection[GVK],
        shared: Collection[Informer] = (),
        clock: Clock | None = None,
        pause_share: float = 0.0,
    ) -> None:
        self.views = {view.gvk: view for view in views}
        self._clock = clock or SystemClock()
        self._pause_share = pause_share
        self._paused_until = 0.0
        self._summaries: dict[Identity, Summary] = {}
        self._marked = Marks()
        """The objects whose summary may have changed."""
        self._created: Dependents[CreatedObject] = Dependents()
        """What was created for each object."""
        self._in_queue: Dependents[NamespacedName] = Dependents()
        """The LocalQueue of each object that has one."""
        self._overdue_at: dict[Identity, float] = {}
        """When to compute the summary of an object again to which no operator has written, or that is being deleted."""
        self._timer: Timer | None = None
        self._subscriptions: list[Subscription] = []
        self._handlers: list[tuple[Informer, Callable[[Event], None]]] = []
        self._left_out_handlers: list[Callable[[], None]] = []
        self._sync_states: dict[Informer, tuple[bool, bool, bool]] = {}
        """Whether each informer had synced when that was last looked at, and whether its kind was not served, or
        forbidden."""
        self._state_changed = anyio.Event()
        self.informers_of: dict[GVK, KindInformers] = {}
        for gvk in self.views:
            # Before those of children, which share them: a MiniCluster is also a child of its FluxJob.
            shared_informer(gvk, cache, shared)
        for gvk, view in self.views.items():
            # Before the handlers, which are called at once for the objects of an informer that has synced.
            self.informers_of[gvk] = KindInformers(view, cache, shared, related)
            self._watch(gvk, self.informers_of[gvk])
        self._events: Informer | None = None
        if CORE_EVENT in related:
            self._events = warning_events(cache)
            self._add_handler(self._events, self._on_warning)
        self._queues: list[Informer] = []
        for gvk in LOCAL_QUEUES:
            if gvk in related:
                queues = shared_informer(
                    gvk, cache, shared, metadata_only=True, max_bytes=MAX_CHILD_BYTES
                )
                self._queues.append(queues)
                self._add_handler(queues, self._on_queue)

    def _watch(self, gvk: GVK, informers: KindInformers) -> None:
        self._mark_on_events(informers.objects, gvk, informers.names_of_object)
        self._add_handler(informers.objects, self._on_object)
        for children in informers.children.values():
            self._mark_on_events(children, gvk, informers.names_of_owners)
        if informers.pods is not None:
            self._mark_on_events(informers.pods, gvk, informers.names_by_pod_label)

    @property
    def informers(self) -> Collection[Informer]:
        """All informers that are watched."""
        return tuple(self._sync_states)

    def kind_names(self, kinds: Iterable[GVK]) -> dict[GVK, str]:
        """Return the names of ``kinds`` of :attr:`views`, with the API group if another one has objects of the kind."""
        existing = [
            gvk for gvk, informers in self.informers_of.items() if len(informers.objects.reader)
        ]
        return kind_names((*existing, *kinds))

    def unavailable(self) -> dict[GVK, str]:
        """Return the kinds that cannot be read now, each with the reason."""
        return {
            informer.gvk: informer.problem or "the first list is not complete"
            for informer in self._sync_states
            if not informer.has_synced
        }

    def left_out(self) -> dict[GVK, str]:
        """Return the kinds of :attr:`views` with objects that the cache leaves out: how many, and how to see them."""
        found = {}
        for gvk, informers in self.informers_of.items():
            numbers = informers.objects.reader.left_out_numbers()
            if numbers:
                found[gvk] = _left_out_text(gvk, numbers)
        return found

    def add_left_out_handler(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` after :meth:`left_out` may have changed; it must return quickly, and must not raise."""
        self._left_out_handlers.append(handler)

    def forbidden(self) -> tuple[GVK, ...]:
        """Return the kinds that the user is not allowed to list and watch."""
        return tuple(informer.gvk for informer in self._sync_states if informer.is_forbidden)

    async def next_interruption(self, known: str = "") -> str:
        """Wait until changes are no longer received, or are received again if ``known`` is the reason why not.

        Returns the reason, empty if changes are received again; see :func:`interruption`.
        """
        while True:
            current = interruption(self._sync_states)
            if bool(current) != bool(known):
                return current
            await self._state_changed.wait()

    def not_served(self) -> tuple[GVK, ...]:
        """Return the kinds that the API server does not serve."""
        return tuple(informer.gvk for informer in self._sync_states if informer.is_not_served)

    async def wait_for_sync(self, *, except_for: Container[GVK] = ()) -> None:
        """Wait until each kind but those in ``except_for`` was read completely, is forbidden, or is not served."""
        for informer in self.informers:
            if informer.gvk in except_for:
                continue
            await informer.wait_for_sync(unless_forbidden=True, unless_not_served=True)

    async def refresh(self) -> None:
        """Compute the summaries that may have changed, in parts; those that are computed remain if it is cancelled.

        Objects that change meanwhile may be left for the next call: they can change faster than this computes them.
        """
        remaining = len(self._marked)
        while remaining > 0:
            await self._clock.sleep(max(self._paused_until - self._clock.monotonic(), 0.0))
            remaining = self._update_batch(remaining)

    def _update_batch(self, most: int) -> int:
        """Compute up to ``most`` summaries, as long as other tasks can wait; return how many of them remain."""
        began = now = self._clock.monotonic()
        while most > 0 and now - began < _BATCH_SECONDS:
            identity = self._marked.take()
            if identity is None:
                most = 0
                break
            self._update(identity)
            most -= 1
            now = self._clock.monotonic()
        self._paused_until = now + self._pause_share * (now - began)
        return most

    async def snapshot(self) -> list[Summary]:
        """Return the summaries of all objects, by kind in the order of ``views``, then by namespace and name."""
        await self.refresh()
        positions = {gvk: position for position, gvk in enumerate(self.views)}

        def order(identity: Identity) -> tuple[int, NamespacedName]:
            gvk, key = identity
            return positions[gvk], key

        return [self._summaries[identity] for identity in sorted(self._summaries, key=order)]

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Yield a stream of changes, which begins with an addition for each object that exists."""
        subscription = Subscription(self._summaries, self.refresh)
        self._subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.remove(subscription)

    async def wait_until_read(self) -> None:
        """Wait until all subscribers have received the changes that were computed."""
        for subscription in list(self._subscriptions):
            await subscription.wait_until_read()

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
        self._marked.clear()

    # Events: each marks the objects whose summary can change.

    def _mark_on_events(
        self, informer: Informer, gvk: GVK, names_of: Callable[[Entry], Iterable[str]]
    ) -> None:
        """Let each event mark the objects of ``gvk`` in its namespace that have the names of the old or new entry."""

        def handler(event: Event) -> None:
            for entry in (event.old, event.new):
                if entry is None:
                    continue
                for name in names_of(entry):
                    self._mark(gvk, NamespacedName(event.key.namespace, name))

        self._add_handler(informer, handler)

    def _add_handler(self, informer: Informer, handler: Callable[[Event], None]) -> None:
        self._sync_states[informer] = _state_of(informer)
        self._handlers.append((informer, handler))
        informer.add_handler(handler)
        informer.add_state_handler(self._on_state)

    def _on_object(self, event: Event) -> None:
        if event.new is None:  # left out, or deleted, which can end that it is left out
            for handler in self._left_out_handlers:
                handler()

    def _on_warning(self, event: Event) -> None:
        for entry in (event.old, event.new):
            if entry is None:
                continue
            involved = involved_object(entry)
            if involved is None:
                continue
            key = NamespacedName(involved.namespace, involved.name)
            for gvk in self.views:
                if involved.kind == gvk.kind:
                    self._mark(gvk, key)
            if involved.kind == POD.kind:
                self._mark_owners_of_pod(key)
            for created in created_objects(involved):
                for identity in self._created.dependents_of(created):
                    self._mark(*identity)

    def _mark_owners_of_pod(self, key: NamespacedName) -> None:
        for gvk, informers in self.informers_of.items():
            if informers.pods is None:
                continue
            pod = informers.pods.reader.entry(key)
            if pod is None:
                continue
            for name in informers.names_by_pod_label(pod):
                self._mark(gvk, NamespacedName(key.namespace, name))

    def _on_queue(self, event: Event) -> None:
        for identity in self._in_queue.dependents_of(event.key):
            self._mark(*identity)

    def _on_state(self) -> None:
        """Summaries say nothing about kinds that cannot be read, so they change when that changes."""
        self._state_changed.set()
        self._state_changed = anyio.Event()
        states = {informer: _state_of(informer) for informer in self._sync_states}
        if states != self._sync_states:
            self._sync_states = states
            for identity in self._summaries:
                self._mark(*identity)

    def _mark(self, gvk: GVK, key: NamespacedName) -> None:
        """Mark an object that exists or has a summary; forget the mark of any other.

        Anyone can create Events about objects that do not exist.
        """
        identity = (gvk, key)
        exists = self.informers_of[gvk].objects.reader.contains(key)
        if not exists and identity not in self._summaries:
            self._marked.discard(identity)
            return
        self._marked.add(identity)
        for subscription in self._subscriptions:
            subscription.wake()

    # Summaries.

    def _update(self, identity: Identity) -> None:
        gvk, key = identity
        before = self._summaries.get(identity)
        after = self._summary_of(gvk, key)
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
        entry = self.informers_of[gvk].objects.reader.entry(key)
        if entry is None:
            return {}
        return related_objects(self.views[gvk], key, self._related_to(gvk, entry, _Decoder()))

    def _summary_of(self, gvk: GVK, key: NamespacedName) -> Summary | None:
        entry = self.informers_of[gvk].objects.reader.entry(key)
        if entry is None:
            self._overdue_at.pop((gvk, key), None)
            self._created.remember((gvk, key), ())
            self._in_queue.remember((gvk, key), ())
            return None
        view = self.views[gvk]
        decoder = _Decoder()
        obj = decoder.object(entry)
        self._created.remember((gvk, key), _created_for(view, key.namespace, obj))
        related = self._related_to(gvk, entry, decoder)
        queue = _queue_of(view, obj, related)
        if queue:
            in_namespace = NamespacedName(key.namespace, queue)
            self._in_queue.remember((gvk, key), (in_namespace,))
            related = self._with_queue(view, obj, related, in_namespace)
        else:
            self._in_queue.remember((gvk, key), ())
        summary = summarize(view, obj, related)
        if not is_deleting(obj):
            summary = with_forbidden(summary, self._forbidden_causes(gvk))
        waits = [
            seconds_until_slow(obj, related.now),
            seconds_until_hung(related.pods or (), related.now),
        ]
        if may_become_overdue(summary):
            waits.append(seconds_until_overdue(obj, related.now))
        self._check_again((gvk, key), min((each for each in waits if each > 0), default=math.inf))
        return summary

    def _forbidden_causes(self, gvk: GVK) -> Sequence[str]:
        """Return which resources may say why an object has not started, and cannot be read."""
        found: list[str] = []
        pods = self.informers_of[gvk].pods
        if pods is not None:
            if pods.is_forbidden:
                found.append("pods")
            if self._events is not None and self._events.is_forbidden:
                found.append("events")
        return found

    def _check_again(self, identity: Identity, seconds: float) -> None:
        """Compute a summary again in ``seconds``, unless they have passed or are infinite."""
        if 0 < seconds < math.inf:
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

    def _related_to(self, gvk: GVK, entry: Entry, decoder: _Decoder) -> Related:
        informers = self.informers_of[gvk]
        cached = informers.pods_of(entry)
        pods = None if cached is None else decoder.objects(cached)
        events: list[Entry] = []
        if self._events is not None:
            events = about_object(self._events, entry.key, entry.meta.uid)
        return Related(
            children={
                kind: decoder.objects(children)
                for kind, children in informers.children_of(entry).items()
            },
            pods=pods,
            events=decoder.objects(events),
            created_events=self._created_events(gvk, entry, decoder),
            pod_events=self._pod_events(pods or (), decoder),
            now=self._clock.now(),
        )

    def _with_queue(
        self, view: KindView, obj: Object, related: Related, queue: NamespacedName
    ) -> Related:
        """Return ``related`` with what is known about the LocalQueue of its object, instead of Events about that."""
        if self._queues and all(informer.is_not_served for informer in self._queues):
            return replace(related, queue_problem=missing_kueue(queue.name))
        readers = [informer.reader for informer in self._queues if informer.has_synced]
        if not readers:
            return related
        problem: Problem | None = missing_queue(view, obj, queue.name)
        for reader in readers:
            if reader.may_exist(queue):
                problem = None
        outdated = missing_queue_message(queue.name)
        events = [event for event in related.events if event.get("message") != outdated]
        return replace(related, events=events, queue_problem=problem)

    def _created_events(self, gvk: GVK, entry: Entry, decoder: _Decoder) -> list[Object]:
        """Return Warning Events about what was created for an object; older ones are about others of these names."""
        if self._events is None:
            return []
        since = time_of(entry.meta.creation_timestamp)
        found: list[Object] = []
        for created in self._created.keys_of((gvk, entry.key)):
            for event in decoder.objects(about_created(self._events, created)):
                last = last_occurrence(event)
                if since is None or last is None or last >= since:
                    found.append(event)
        return found[:MAX_EVENTS]

    def _pod_events(self, pods: Iterable[Object], decoder: _Decoder) -> list[Object]:
        """Return Warning Events about the first of ``pods`` that wait for their containers."""
        if self._events is None:
            return []
        found: list[Object] = []
        for pod in islice(filter(awaits_containers, pods), MAX_CREATED):
            found += decoder.objects(about_object(self._events, key_of(pod), uid_of(pod)))
        return found[:MAX_EVENTS]


def _left_out_text(gvk: GVK, numbers: Mapping[str, LeftOutNumber]) -> str:
    parts = []
    for namespace, found in islice(numbers.items(), _MAX_NAMESPACES):
        at_least = "" if found.is_exact else "at least "
        parts.append(f"{at_least}{found.number} in namespace {namespace}")
    if len(numbers) > _MAX_NAMESPACES:
        parts.append(f"others in {len(numbers) - _MAX_NAMESPACES} more namespaces")
    resource = f"{gvk.kind.lower()}.{gvk.group}"
    return (
        f"objects that are not shown, because they, or all of their namespace, are too large: {', '.join(parts)}; "
        f"kubectl get {resource} lists them, and those that you delete make room"
    )


def _state_of(informer: Informer) -> tuple[bool, bool, bool]:
    return informer.has_synced, informer.is_not_served, informer.is_forbidden


def _created_for(view: KindView, namespace: str, obj: Object) -> list[CreatedObject]:
    """Return what was created for an object; nothing if its fields have unexpected types."""
    if view.created is None:
        return []
    try:
        names = dict.fromkeys(view.created(obj))
    except MALFORMED:
        return []
    return [CreatedObject(namespace, kind, name, uid) for kind, name, uid in names]


def _queue_of(view: KindView, obj: Object, related: Related) -> str:
    """Return the LocalQueue of an object; empty if it has none, or its fields have unexpected types."""
    if view.queue is None:
        return ""
    try:
        return view.queue(obj, related)
    except MALFORMED:
        return ""
