"""Lets one reconcile at a time have many values in memory, or a few slow ones.

An object that a tenant may create can have 1.5 MB of JSON. Decoded, small values take 20 times as much, and all workers
of all controllers can have such objects at the same time. So there is room for the large objects of one reconcile, or
for its many objects: what it decodes is counted together. Any other one ends when it would exceed the limit, and is
repeated when the room is passed on to it: if it waited, those of one tenant could occupy all workers. Namespaces take
turns.

Nothing else runs in the event loop while such objects are decoded. So the room is passed on after a pause, which is
longer for the same namespace: a tenant who changes many large objects all the time takes a fifth of the time, and all
together half of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeVar

from cfo.runtime.process.clock import Clock, SystemClock, Timer

MANY_VALUES: Final = 10_000
"""How many values a reconcile can decode without the room. Usual objects have hundreds."""

HOLD_SECONDS: Final = 5.0
"""After how many seconds a reconcile for another namespace can have room as well.

A tenant can make a reconcile wait for the API server for a minute, with many large objects."""

MAX_HOLDERS: Final = 3
"""How many reconciles have room at most, all but one of them for longer than :data:`HOLD_SECONDS`."""

PAUSE_SHARE: Final = 4.0
"""After a reconcile with the room, the next one of its namespace waits for this multiple of its duration."""

MAX_PAUSE: Final = 1.0
"""How many seconds it waits at most: a reconcile can also wait for the API server."""

OTHERS_SHARE: Final = 0.25
"""The part of that pause for which the next one of any namespace waits."""

_UNCOUNTED_BYTES: Final = 2 * MANY_VALUES
"""How many bytes a reconcile can decode before values are counted; each value has at least two, with its comma."""

T = TypeVar("T")
A = TypeVar("A")


def count_values(encoded: bytes) -> int:
    """Return about how many values JSON has; commas and braces in strings count as well."""
    return encoded.count(b",") + encoded.count(b"{") + encoded.count(b"[")


class RoomTaken(Exception):
    """Another reconcile has many values. The controller repeats this one later; reconcilers do not catch it."""


class _Holder(NamedTuple):
    """Who has the room: for an object in this namespace, since this time of the monotonic clock in seconds."""

    namespace: str
    since: float


class LargeObjects:
    """The room for large objects, which the reconciles of all controllers of a process share.

    Each reconcile has an identity, and no other one with this identity runs at the same time.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._holders: dict[Hashable, _Holder] = {}
        """The reconciles that have the room, also before they run."""
        self._waiting: dict[str, dict[Hashable, Callable[[], object]]] = {}
        """The functions that repeat the reconciles without room, by namespace. The first namespace is next."""
        self._next_at = 0.0
        """When the pause for all namespaces ends."""
        self._next_at_of: dict[str, float] = {}
        """When that for a namespace ends."""
        self._timer: Timer | None = None

    @contextmanager
    def reconcile(self, identity: Hashable, namespace: str) -> Iterator[None]:
        """Run one reconcile for an object in a namespace; the room that it has is passed on when it ends."""
        token = _reconcile.set(_Decoded(self, identity, namespace))
        began = self._clock.monotonic()
        try:
            yield
        finally:
            _reconcile.reset(token)
            if identity in self._holders:
                self._pause(namespace, self._clock.monotonic() - began)
                self.release(identity)

    def take(self, identity: Hashable, namespace: str) -> None:
        """Take the room for a reconcile, unless it has it. Raises :class:`RoomTaken` if there is none."""
        if identity in self._holders:
            return
        if not self._has_room_for(namespace):
            raise RoomTaken("another reconcile has large objects in memory")
        self._holders[identity] = _Holder(namespace, self._clock.monotonic())

    def wait(self, identity: Hashable, namespace: str, repeat: Callable[[], object]) -> None:
        """Call ``repeat`` once the room is kept for a reconcile, which is for an object in this namespace."""
        self._waiting.setdefault(namespace, {})[identity] = repeat
        self._pass_on()

    def release(self, identity: Hashable) -> None:
        """Pass on the room that a reconcile has, or that is kept for one that does not run after all."""
        if self._holders.pop(identity, None) is not None:
            self._pass_on()

    def _pause(self, namespace: str, seconds: float) -> None:
        """Begin the pauses after a reconcile in ``namespace`` that had the room for so many ``seconds``."""
        now = self._clock.monotonic()
        pause = min(PAUSE_SHARE * seconds, MAX_PAUSE)
        self._next_at = now + OTHERS_SHARE * pause
        ongoing = {name: end for name, end in self._next_at_of.items() if end > now}
        self._next_at_of = {**ongoing, namespace: now + pause}

    def _pause_ends_at(self, namespace: str) -> float:
        return max(self._next_at, self._next_at_of.get(namespace, 0.0))

    def _has_room_for(self, namespace: str) -> bool:
        if len(self._holders) >= MAX_HOLDERS:
            return False
        now = self._clock.monotonic()
        if now < self._pause_ends_at(namespace):
            return False
        return all(
            holder.namespace != namespace and now - holder.since >= HOLD_SECONDS
            for holder in self._holders.values()
        )

    def _pass_on(self) -> None:
        """Repeat the next reconcile if there is room for it."""
        for namespace, waiting in list(self._waiting.items()):
            if not self._has_room_for(namespace):
                continue
            del self._waiting[namespace]
            identity = next(iter(waiting))
            repeat = waiting.pop(identity)
            if waiting:
                self._waiting[namespace] = waiting  # behind all other namespaces
            self._holders[identity] = _Holder(namespace, self._clock.monotonic())
            repeat()
            break
        self._set_timer()

    def _set_timer(self) -> None:
        """Let the next reconcile be repeated after the pause, once all that have the room have had it for long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        holding = {holder.namespace for holder in self._holders.values()}
        pauses = [self._pause_ends_at(name) for name in self._waiting if name not in holding]
        if not pauses:
            return
        held_until = [holder.since + HOLD_SECONDS for holder in self._holders.values()]
        seconds = max([min(pauses), *held_until]) - self._clock.monotonic()
        if seconds > 0:  # otherwise only the end of a reconcile makes room
            self._timer = self._clock.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pass_on()


class _Decoded:
    """How much one reconcile has decoded."""

    def __init__(self, room: LargeObjects, identity: Hashable, namespace: str) -> None:
        self._room = room
        self._identity = identity
        self._namespace = namespace
        self._bytes = 0
        self._values = 0

    def add(self, encoded: bytes) -> None:
        self._bytes += len(encoded)
        if self._bytes < _UNCOUNTED_BYTES:
            return
        self._values += count_values(encoded)
        if self._values >= MANY_VALUES:
            self._room.take(self._identity, self._namespace)


_reconcile: ContextVar[_Decoded | None] = ContextVar("decoded_by_this_reconcile", default=None)


def admit(encoded: bytes) -> None:
    """Count this JSON, which is decoded next, if a reconcile decodes it; take the room above the limit.

    Raises :class:`RoomTaken` if another reconcile has the room.
    """
    decoded = _reconcile.get()
    if decoded is not None:
        decoded.add(encoded)


def call_uncounted(function: Callable[[A], T], argument: A) -> T:
    """Return ``function(argument)``, which belongs to no reconcile, also if one causes the call.

    A write of a reconcile calls event handlers and index functions, which keep nothing that they decode.
    """
    token = _reconcile.set(None)
    try:
        return function(argument)
    finally:
        _reconcile.reset(token)
