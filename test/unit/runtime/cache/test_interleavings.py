"""Random interleavings of lists, watch events and write responses: reads never go back in time and converge.

A simulated API server creates a history of random writes, by this client and by others. They reach the store late and
interleaved. Watch events arrive in order. Responses to own writes arrive in any order, but with one write in flight per
object, as in a controller, which deletes the objects that it has read by their uid. Lists return any state that is new
enough, and other messages arrive between their start and their end. After each step, each key must have a state of the
history that is not older than the state of its previous read, nor older than the last own write whose response has
arrived.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import orjson
import pytest

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.feed import Feeds, Listing
from cfo.runtime.cache.selectors import LabelSelector, Selection
from cfo.runtime.cache.store import Event, EventType, Store
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from test.support.clocks import FakeClock

DECODER = EntryDecoder(GVK("ray.io", "v1", "RayCluster"))
KEYS = [NamespacedName("ns", name) for name in "abc"]


class Simulation:
    """The history of the server, and the messages that have not reached the store yet."""

    def __init__(self, seed: int, selector: str) -> None:
        self.random = random.Random(seed)
        self.selector = LabelSelector.of(selector)
        self.version = 10
        self.uids = 0
        self.states: dict[NamespacedName, list[tuple[int, Entry | None]]] = {
            key: [(0, None)] for key in KEYS
        }
        self.watch: list[tuple[int, EventType, Entry]] = []
        self.responses: dict[NamespacedName, Callable[[], None]] = {}
        self.listing: tuple[Listing, int] | None = None
        self.mirror: dict[NamespacedName, Entry] = {}
        self.read_at = dict.fromkeys(KEYS, 0)
        self.store = Store(
            deliver=self.mirror_event,
            clock=FakeClock(),
            selection=Selection(label_selector=self.selector),
        )
        self.feeds = Feeds(self.store)
        self.feeds.open([""])
        self.feed = self.feeds[""]

    # Emitted events must match the changes.

    def mirror_event(self, event: Event) -> None:
        if event.type is EventType.ADDED:
            assert event.key not in self.mirror
        else:
            assert event.key in self.mirror
        if event.new is None:
            del self.mirror[event.key]
        else:
            self.mirror[event.key] = event.new

    # The server.

    def current(self, key: NamespacedName) -> Entry | None:
        return self.states[key][-1][1]

    def entry_at(self, key: NamespacedName, version: int) -> Entry | None:
        return next(state for since, state in reversed(self.states[key]) if since <= version)

    def visible(self, state: Entry | None) -> Entry | None:
        """Return the state if the selector matches it, else None."""
        return state if state is not None and self.selector.matches(state.meta.labels) else None

    def write(self, own: bool) -> None:
        key = self.random.choice(KEYS)
        if own and key in self.responses:
            return
        before = self.current(key)
        self.version += self.random.randint(1, 3)
        if before is not None and self.random.random() < 0.3:
            last = self.entry(key, before.meta.uid, dict(before.meta.labels))
            self.record_change(key, before, None, last)
            stored = self.store.get(key)
            if own and stored is not None and stored.meta.uid == before.meta.uid:
                self.responses[key] = lambda: self.receive_deletion_response(
                    key, before.meta.uid, last.version
                )
            return
        if before is None:
            self.uids += 1
        uid = before.meta.uid if before is not None else f"uid-{self.uids}"
        after = self.entry(key, uid, self.random.choice([{}, {"app": "x"}]))
        self.record_change(key, before, after, after)
        if own:
            self.responses[key] = lambda: self.receive_response(after)

    def entry(self, key: NamespacedName, uid: str, labels: dict[str, str]) -> Entry:
        metadata = {
            "name": key.name,
            "namespace": key.namespace,
            "uid": uid,
            "resourceVersion": str(self.version),
        }
        return DECODER.decode(orjson.dumps({"metadata": metadata | {"labels": labels}}))

    def record_change(
        self, key: NamespacedName, before: Entry | None, after: Entry | None, last: Entry
    ) -> None:
        self.states[key].append((self.version, after))
        if self.visible(after) is not None:
            self.watch.append((self.version, EventType.UPDATED, last))
        elif self.visible(before) is not None:
            self.watch.append((self.version, EventType.DELETED, last))

    # Delivery to the store.

    def receive_response(self, state: Entry) -> None:
        self.feed.record_write(state)
        self.read_at[state.key] = max(self.read_at[state.key], state.version)

    def receive_deletion_response(self, key: NamespacedName, uid: str, version: int) -> None:
        self.feed.record_deletion(key, uid)
        self.read_at[key] = max(self.read_at[key], version)

    def deliver_response(self) -> None:
        if self.responses:
            self.responses.pop(self.random.choice(list(self.responses)))()

    def deliver_event(self) -> None:
        if self.feed.synced and self.listing is None and self.watch:
            _, kind, state = self.watch.pop(0)
            self.feed.observe(kind, state)

    def bookmark(self) -> None:
        if self.feed.synced and self.listing is None:
            self.feed.advance(self.watch[0][0] - 1 if self.watch else self.version)

    def begin_list(self) -> None:
        if self.listing is None:
            listing = self.feed.begin()
            snapshot = self.random.randint(max(listing.known_version, 1), self.version)
            for key in KEYS:
                state = self.visible(self.entry_at(key, snapshot))
                if state is not None:
                    listing.add(state)
            self.listing = (listing, snapshot)

    def end_list(self) -> None:
        if self.listing is not None:
            (listing, snapshot), self.listing = self.listing, None
            listing.commit(str(snapshot))
            self.watch = [event for event in self.watch if event[0] > snapshot]

    # Invariants.

    def check(self) -> None:
        if not self.feed.synced:
            return
        for key in KEYS:
            stored = self.store.get(key)
            assert stored is self.mirror.get(key)
            self.read_at[key] = self.matching_version(key, stored)

    def matching_version(self, key: NamespacedName, stored: Entry | None) -> int:
        """Return the first version, not before the version of the previous read, that has the stored state."""
        start = self.read_at[key]
        for since, state in [(start, self.entry_at(key, start)), *self.states[key]]:
            visible = self.visible(state)
            same = visible is stored or (
                visible is not None and stored is not None and visible.version == stored.version
            )
            if since >= start and same:
                return since
        raise AssertionError(
            f"{key} reads as {stored}, but never had that state since version {start}: {self.states[key]}"
        )

    def converge(self) -> None:
        """List, and deliver everything that is still under way."""
        self.begin_list()
        self.end_list()
        while self.watch or self.responses:
            self.deliver_event()
            self.deliver_response()
            self.check()


@pytest.mark.parametrize("selector", ["", "app=x"])
@pytest.mark.parametrize("start", range(0, 400, 50))
def test_reads_never_go_back_in_time_and_converge(selector: str, start: int) -> None:
    for seed in range(start, start + 50):
        simulation = Simulation(seed, selector)
        steps: list[Callable[[], None]] = [
            lambda: simulation.write(True),  # noqa: B023
            lambda: simulation.write(False),  # noqa: B023
            simulation.deliver_response,
            simulation.deliver_response,
            simulation.deliver_event,
            simulation.deliver_event,
            simulation.bookmark,
            simulation.begin_list,
            simulation.end_list,
        ]
        for _ in range(150):
            simulation.random.choice(steps)()
            simulation.check()
        simulation.converge()
        for key in KEYS:
            expected, stored = (
                simulation.visible(simulation.current(key)),
                simulation.store.get(key),
            )
            assert (expected and expected.version) == (stored and stored.version), f"seed {seed}"
