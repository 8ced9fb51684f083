"""Lets one reconcile at a time have large objects in memory.

An object that a tenant may create can have 1.5 MB of JSON. Decoded, small values take 20 times as much, and all workers
of all controllers can have such objects at the same time. So there is room for the large objects of one reconcile. Any
other one ends when it would decode its first, and is repeated when the room is passed on to it: if it waited, those of
one tenant could occupy all workers. Namespaces take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

MANY_VALUES: Final = 10_000
"""The number of values from which an object is large. Usual objects have hundreds."""


class RoomTaken(Exception):
    """Another reconcile has large objects. The controller repeats this one later; reconcilers do not catch it."""


def is_large(encoded: bytes) -> bool:
    """Return whether JSON has about :data:`MANY_VALUES` values or more; commas and braces in strings count as well."""
    if len(encoded) < 2 * MANY_VALUES:
        return False
    values = encoded.count(b",") + encoded.count(b"{") + encoded.count(b"[")
    return values >= MANY_VALUES


class LargeObjects:
    """The room for large objects, which the reconciles of all controllers of a process share.

    Each reconcile has an identity, and no other one with this identity runs at the same time.
    """

    def __init__(self) -> None:
        self._holder: Hashable = None
        """The reconcile that has the room, also before it runs."""
        self._waiting: dict[str, dict[Hashable, Callable[[], object]]] = {}
        """The functions that repeat the reconciles without room, by namespace. The first namespace is next."""

    @contextmanager
    def reconcile(self, identity: Hashable) -> Iterator[None]:
        """Run one reconcile; the room that it has is passed on when it ends."""
        token = _reconcile.set((self, identity))
        try:
            yield
        finally:
            _reconcile.reset(token)
            if self._holder == identity:
                self._pass_on()

    def take(self, identity: Hashable) -> None:
        """Take the room for a reconcile, unless it has it. Raises :class:`RoomTaken` if another one has it."""
        if self._holder is None:
            self._holder = identity
        if self._holder != identity:
            raise RoomTaken("another reconcile has large objects in memory")

    def wait(self, identity: Hashable, namespace: str, repeat: Callable[[], object]) -> None:
        """Call ``repeat`` once the room is kept for a reconcile, which is for an object in this namespace."""
        self._waiting.setdefault(namespace, {})[identity] = repeat
        if self._holder is None:
            self._pass_on()

    def _pass_on(self) -> None:
        self._holder = None
        if not self._waiting:
            return
        namespace = next(iter(self._waiting))
        waiting = self._waiting.pop(namespace)
        self._holder = next(iter(waiting))
        repeat = waiting.pop(self._holder)
        if waiting:
            self._waiting[namespace] = waiting  # behind all other namespaces
        repeat()


_reconcile: ContextVar[tuple[LargeObjects, Hashable] | None] = ContextVar(
    "reconcile_with_large_objects", default=None
)


def admit(encoded: bytes) -> None:
    """Take the room, within a reconcile, before this JSON is decoded, if that is large.

    Raises :class:`RoomTaken` if another reconcile has the room.
    """
    current = _reconcile.get()
    if current is not None and is_large(encoded):
        room, identity = current
        room.take(identity)
