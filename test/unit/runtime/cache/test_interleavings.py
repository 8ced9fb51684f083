"""Any order in which lists, watch events and answers can come: what is read never goes back, and ends in the truth.

A small API server makes a history of random writes, ours and others'. What it says reaches the store late and mixed:
watch events in their order; the answers to our writes in any order, but one at a time for each object, as a controller
works, which deletes by uid what it has read; lists of any state that is new enough, begun before and completed after
other things came. After each step each key must read as it was at some moment of the history, not before the moment
that was read earlier, nor before our last write whose answer has come.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import orjson
import pytest

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.selectors import LabelSelector, Selection
from cfo.runtime.cache.store import Event, EventType, Listing, Store
from cfo.runtime.clock import FakeClock
from cfo.runtime.objects import GVK, NamespacedName

DECODER = EntryDecoder(GVK("ray.io", "v1", "RayCluster"))
KEYS = [NamespacedName("ns", name) for name in "abc"]


class World:
    """The server's history, and what of it is still on its way."""

    def __init__(self, seed: int, selector: str) -> None:
        self.random = random.Random(seed)
        self.selector = LabelSelector.of(selector)
        self.version = 10
        self.uids = 0
        self.states: dict[NamespacedName, list[tuple[int, Entry | None]]] = {key: [(0, None)] for key in KEYS}
        self.watch: list[tuple[int, EventType, Entry]] = []
        self.answers: dict[NamespacedName, Callable[[], None]] = {}
        self.listing: tuple[Listing, int] | None = None
        self.mirror: dict[NamespacedName, Entry] = {}
        self.read_at = dict.fromkeys(KEYS, 0)
        self.store = Store(deliver=self.told, clock=FakeClock(), selection=Selection(label_selector=self.selector))
        self.store.open([""])
        self.feed = self.store.feeds[""]

    # What is told must be what changed.

    def told(self, event: Event) -> None:
        if event.type is EventType.ADDED:
            assert event.key not in self.mirror
        else:
            assert event.key in self.mirror
        if event.new is None:
            del self.mirror[event.key]
        else:
            self.mirror[event.key] = event.new

    # The server.

    def now(self, key: NamespacedName) -> Entry | None:
        return self.states[key][-1][1]

    def at(self, key: NamespacedName, version: int) -> Entry | None:
        return next(state for since, state in reversed(self.states[key]) if since <= version)

    def seen(self, state: Entry | None) -> Entry | None:
        """A state as the selector lets it be seen."""
        return state if state is not None and self.selector.matches(state.meta.labels) else None

    def write(self, own: bool) -> None:
        key = self.random.choice(KEYS)
        if own and key in self.answers:
            return
        before = self.now(key)
        self.version += self.random.randint(1, 3)
        if before is not None and self.random.random() < 0.3:
            last = self.state(key, before.meta.uid, dict(before.meta.labels))
            self.happened(key, before, None, last)
            stored = self.store.get(key)
            if own and stored is not None and stored.meta.uid == before.meta.uid:
                self.answers[key] = lambda: self.answered_deletion(key, before.meta.uid, last.version)
            return
        if before is None:
            self.uids += 1
        uid = before.meta.uid if before is not None else f"uid-{self.uids}"
        after = self.state(key, uid, self.random.choice([{}, {"app": "x"}]))
        self.happened(key, before, after, after)
        if own:
            self.answers[key] = lambda: self.answered(after)

    def state(self, key: NamespacedName, uid: str, labels: dict[str, str]) -> Entry:
        metadata = {"name": key.name, "namespace": key.namespace, "uid": uid, "resourceVersion": str(self.version)}
        return DECODER.decode(orjson.dumps({"metadata": metadata | {"labels": labels}}))

    def happened(self, key: NamespacedName, before: Entry | None, after: Entry | None, last: Entry) -> None:
        self.states[key].append((self.version, after))
        if self.seen(after) is not None:
            self.watch.append((self.version, EventType.UPDATED, last))
        elif self.seen(before) is not None:
            self.watch.append((self.version, EventType.DELETED, last))

    # What reaches the store.

    def answered(self, state: Entry) -> None:
        self.feed.record_write(state)
        self.read_at[state.key] = max(self.read_at[state.key], state.version)

    def answered_deletion(self, key: NamespacedName, uid: str, version: int) -> None:
        self.feed.record_deletion(key, uid)
        self.read_at[key] = max(self.read_at[key], version)

    def deliver_answer(self) -> None:
        if self.answers:
            self.answers.pop(self.random.choice(list(self.answers)))()

    def deliver_event(self) -> None:
        if self.feed.synced and self.listing is None and self.watch:
            _, kind, state = self.watch.pop(0)
            self.feed.observe(kind, state)

    def bookmark(self) -> None:
        if self.feed.synced and self.listing is None:
            self.feed.advance(self.watch[0][0] - 1 if self.watch else self.version)

    def list_begin(self) -> None:
        if self.listing is None:
            listing = self.feed.begin()
            snapshot = self.random.randint(max(listing.known_version, 1), self.version)
            for key in KEYS:
                state = self.seen(self.at(key, snapshot))
                if state is not None:
                    listing.add(state)
            self.listing = (listing, snapshot)

    def list_end(self) -> None:
        if self.listing is not None:
            (listing, snapshot), self.listing = self.listing, None
            listing.commit(str(snapshot))
            self.watch = [event for event in self.watch if event[0] > snapshot]

    # What must hold.

    def check(self) -> None:
        if not self.feed.synced:
            return
        for key in KEYS:
            stored = self.store.get(key)
            assert stored is self.mirror.get(key)
            self.read_at[key] = self.moment(key, stored)

    def moment(self, key: NamespacedName, stored: Entry | None) -> int:
        """The first moment, not before the last one, at which the key was as it is stored."""
        start = self.read_at[key]
        for since, state in [(start, self.at(key, start)), *self.states[key]]:
            seen = self.seen(state)
            same = seen is stored or (seen is not None and stored is not None and seen.version == stored.version)
            if since >= start and same:
                return since
        raise AssertionError(f"{key} reads as {stored}, which it was never since version {start}: {self.states[key]}")


@pytest.mark.parametrize("selector", ["", "app=x"])
@pytest.mark.parametrize("start", range(0, 400, 50))
def test_what_is_read_never_goes_back_and_ends_in_the_truth(selector: str, start: int) -> None:
    for seed in range(start, start + 50):
        world = World(seed, selector)
        steps: list[Callable[[], None]] = [
            lambda: world.write(True),  # noqa: B023
            lambda: world.write(False),  # noqa: B023
            world.deliver_answer,
            world.deliver_answer,
            world.deliver_event,
            world.deliver_event,
            world.bookmark,
            world.list_begin,
            world.list_end,
        ]
        for _ in range(150):
            world.random.choice(steps)()
            world.check()
        world.list_begin()
        world.list_end()
        while world.watch or world.answers:
            world.deliver_event()
            world.deliver_answer()
            world.check()
        for key in KEYS:
            truth, stored = world.seen(world.now(key)), world.store.get(key)
            assert (truth and truth.version) == (stored and stored.version), f"seed {seed}"
