"""Changes of summaries, and subscriptions that deliver them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import Enum
from typing import Final

import anyio
import msgspec

from cfo.runtime import GVK, NamespacedName
from cfo.summaries.summary import Summary

QUIET_SECONDS: Final = 0.1
"""Changes are delivered when no further event has arrived for this time."""
MAX_DELAY_SECONDS: Final = 1.0
"""The maximum time to wait for the end of events, and then to compute summaries, before those that are ready are
delivered."""

Identity = tuple[GVK, NamespacedName]
"""The kind of an object, and its namespace and name."""


class ChangeType(Enum):
    """How a summary has changed."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class SummaryChange(msgspec.Struct, frozen=True):
    """A change of one summary; of a removed object, it is the last one."""

    type: ChangeType
    summary: Summary


class Subscription:
    """The changes since they were last read; see :meth:`.Overview.subscribe`.

    ``summaries`` are the current summaries; the first changes are their additions. ``refresh`` computes the summaries
    that may have changed, and calls :meth:`record` for those that have; it is cancelled if it takes long. What is
    remembered is at most one summary for each object.
    """

    def __init__(
        self, summaries: Mapping[Identity, Summary], refresh: Callable[[], Awaitable[None]]
    ) -> None:
        self._summaries = summaries
        self._refresh = refresh
        self._last_read: dict[Identity, Summary | None] = dict.fromkeys(summaries)
        """What the reader knows of the objects that have changed since; ``None``: not the object."""
        self._is_complete = True
        """Whether the last ``refresh`` was not cancelled."""
        self._woken = anyio.Event()
        self._was_read = anyio.Event()

    async def wait_until_read(self) -> None:
        """Wait until the reader has received all changes that were computed."""
        while self._last_read:
            await self._was_read.wait()

    def record(self, identity: Identity, before: Summary | None, after: Summary | None) -> None:
        """Remember that a summary has changed; one that was added and removed again is forgotten."""
        known = self._last_read.setdefault(identity, before)
        if known is None and after is None:
            del self._last_read[identity]
            self._wake_waiters()
        self._woken.set()

    def _wake_waiters(self) -> None:
        """Let :meth:`wait_until_read` check again."""
        self._was_read.set()
        self._was_read = anyio.Event()

    def wake(self) -> None:
        """Record that summaries may have changed, and have to be computed."""
        self._woken.set()

    async def next(self) -> list[SummaryChange]:
        """Wait until something has changed, and return all changes: at most one for each object.

        Returns after :data:`MAX_DELAY_SECONDS` what has been computed until then, if anything.
        """
        while True:
            self._woken = anyio.Event()
            with anyio.move_on_after(MAX_DELAY_SECONDS) as scope:
                await self._refresh()
            self._is_complete = not scope.cancelled_caught
            changes = self._take_changes()
            if changes:
                return changes
            await self._wait_for_quiet()

    async def __aiter__(self) -> AsyncIterator[list[SummaryChange]]:
        """Yield the changes, each time after a short period without events."""
        while True:
            yield await self.next()
            await self._wait_for_quiet()

    async def _wait_for_quiet(self) -> None:
        """Wait for an event, and then until none has arrived for :data:`QUIET_SECONDS`; not if work is left."""
        if not self._is_complete:
            return
        await self._woken.wait()
        with anyio.move_on_after(MAX_DELAY_SECONDS):
            while self._woken.is_set():
                self._woken = anyio.Event()
                with anyio.move_on_after(QUIET_SECONDS):
                    await self._woken.wait()

    def _take_changes(self) -> list[SummaryChange]:
        last_read = self._last_read
        self._last_read = {}
        self._wake_waiters()
        changes = []
        for identity, before in last_read.items():
            after = self._summaries.get(identity)
            if before is None and after is not None:
                changes.append(SummaryChange(ChangeType.ADDED, after))
            elif before is not None and after is None:
                changes.append(SummaryChange(ChangeType.REMOVED, before))
            elif before is not None and after is not None and before != after:
                changes.append(SummaryChange(ChangeType.CHANGED, after))
        return changes
