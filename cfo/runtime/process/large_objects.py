"""Lets one reconcile at a time have large objects in memory.

An object that a tenant may create can have 1.5 MB of JSON. Decoded, small values take 20 times as much, and all workers
of all controllers can have such objects at the same time. So a reconcile waits before it decodes its first large one,
until no other reconcile has any.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import anyio

MANY_VALUES: Final = 10_000
"""The number of values from which an object is large. Usual objects have hundreds."""


def is_large(encoded: bytes) -> bool:
    """Return whether JSON has about :data:`MANY_VALUES` values or more; commas and braces in strings count as well."""
    if len(encoded) < 2 * MANY_VALUES:
        return False
    values = encoded.count(b",") + encoded.count(b"{") + encoded.count(b"[")
    return values >= MANY_VALUES


class LargeObjects:
    """The reconciles that share the memory for large objects: those of all controllers of a process."""

    def __init__(self) -> None:
        self._room = anyio.CapacityLimiter(1)

    @contextmanager
    def reconcile(self) -> Iterator[None]:
        """Run one reconcile; what it has admitted ends with it."""
        share = _Share(self._room)
        token = _share.set(share)
        try:
            yield
        finally:
            _share.reset(token)
            share.release()


class _Share:
    """What one reconcile has of the room; its tasks have it together."""

    def __init__(self, room: anyio.CapacityLimiter) -> None:
        self._room = room
        self._has_room = False
        self._entering: anyio.Lock | None = None

    async def enter(self) -> None:
        """Wait until this reconcile is the one with large objects."""
        if self._entering is None:
            self._entering = anyio.Lock()
        async with self._entering:
            if not self._has_room:
                await self._room.acquire_on_behalf_of(self)
                self._has_room = True

    def release(self) -> None:
        if self._has_room:
            self._room.release_on_behalf_of(self)
            self._has_room = False


_share: ContextVar[_Share | None] = ContextVar("large_objects", default=None)


async def admit(encoded: bytes) -> None:
    """Wait, within a reconcile, until it may decode this JSON. Elsewhere, and for usual objects, return at once."""
    share = _share.get()
    if share is not None and is_large(encoded):
        await share.enter()
