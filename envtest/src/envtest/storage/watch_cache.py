"""The objects of one resource in key order, and a sliding window of their changes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence

from envtest.storage.record import Change, Record
from envtest.storage.watcher import Watcher

__all__ = ["Key", "WatchCache"]

Key = tuple[str, str]

WINDOW_EVENTS = 20_000
"""Maximum number of changes in the window."""
WINDOW_BYTES = 48 * 1024 * 1024
"""Maximum bytes of the replaced records in the window."""


class WatchCache:
    """The current records, their sorted keys, the recent changes and the watchers of one resource.

    The window is limited by the number of changes and by the bytes of the records that only history still references.
    Changes up to the revision ``compacted`` are discarded. Watches cannot begin before the revision ``served_since``,
    although lists can still be read as of earlier ones.
    """

    __slots__ = (
        "_history_bytes",
        "changes",
        "compacted",
        "history",
        "keys",
        "records",
        "served_since",
        "watchers",
    )

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.keys: list[Key] = []
        self.history: deque[Change] = deque()
        self.watchers: list[Watcher] = []
        self.compacted = 0
        self.served_since = 0
        self.changes = 0
        self._history_bytes = 0

    def fork(self) -> WatchCache:
        """Return a copy without watchers; the records, which are immutable, are shared."""
        copy = WatchCache()
        copy.records = self.records.copy()
        copy.keys = self.keys.copy()
        copy.history = deque(Change(each.type, each.record, each.previous) for each in self.history)
        copy.compacted = self.compacted
        copy.served_since = self.served_since
        copy.changes = self.changes
        copy._history_bytes = self._history_bytes
        return copy

    def put(self, change: Change) -> None:
        """Apply ``change`` and notify the watchers."""
        record = change.record
        key = record.key
        if change.type == "DELETED":
            del self.records[key]
            del self.keys[bisect_left(self.keys, key)]
        else:
            if change.previous is None:
                insort(self.keys, key)
            self.records[key] = record
        self.changes += 1
        self.history.append(change)
        if change.previous is not None:
            self._history_bytes += len(change.previous.data)
        if len(self.history) > WINDOW_EVENTS or self._history_bytes > WINDOW_BYTES:
            self._discard_oldest()
        for watcher in self.watchers.copy():
            watcher.offer(change)

    def restore(self, record: Record) -> None:
        """Add a record without a change, because it was stored by an earlier process."""
        if record.key not in self.records:
            insort(self.keys, record.key)
        self.records[record.key] = record

    def _discard_oldest(self) -> None:
        change = self.history.popleft()
        if change.previous is not None:
            self._history_bytes -= len(change.previous.data)
        self.compacted = change.revision

    def compact(self, revision: int) -> None:
        """Discard the changes up to ``revision``."""
        while self.history and self.history[0].revision <= revision:
            self._discard_oldest()
        self.compacted = max(self.compacted, revision)

    def since(self, revision: int, namespace: str) -> list[Change]:
        """Return the changes after ``revision``, oldest first."""
        found: list[Change] = []
        for change in reversed(self.history):
            if change.revision <= revision:
                break
            if not namespace or change.record.namespace == namespace:
                found.append(change)
        found.reverse()
        return found

    def current(self, namespace: str, after: Key | None) -> Sequence[Key]:
        """Return the keys in order: of one namespace or all, greater than ``after``."""
        keys = self.keys
        start = bisect_right(keys, after) if after is not None else 0
        if not namespace:
            return keys[start:] if start else keys
        first = bisect_left(keys, (namespace, ""))
        last = bisect_left(keys, (namespace + "\0", ""))
        return keys[max(first, start) : last]

    def at(self, revision: int) -> dict[Key, Record]:
        """Return the records as of ``revision``, which must be within the window."""
        records = dict(self.records)
        for change in reversed(self.history):
            if change.revision <= revision:
                break
            if change.previous is None:
                records.pop(change.record.key, None)
            else:
                records[change.record.key] = change.previous
        return records
