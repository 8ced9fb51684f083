"""One global revision over all tables: create, update, delete, list, watch; all synchronous.

The control plane runs on one event loop and no method here awaits, so each call is atomic. A write
gives the object its resourceVersion, encodes it once, and hands the change to the watchers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envtest.errors import GroupResource
from envtest.objects import Object
from envtest.storage.record import ADDED, DELETED, MODIFIED, Change, Record, encode, record_from, record_of
from envtest.storage.watch_cache import Key, WatchCache
from envtest.storage.watcher import Watcher

__all__ = ["Compacted", "FutureRevision", "Store"]

WATCHER_LIMIT = 20_000


class Compacted(Exception):
    """The revision that was asked for is older than what the store remembers (``oldest``)."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"revision {requested} is compacted, the oldest is {oldest}")
        self.requested = requested
        self.oldest = oldest


class FutureRevision(Exception):
    """The revision that was asked for has not been reached."""


class Store:
    """All objects of a control plane.

    Tables are named by :class:`GroupResource`; objects within by namespace (empty for cluster-scoped ones) and
    name. ``journal`` callbacks see each change before it holds (persistence), ``followers`` right after, and may write
    themselves. ``first_revision`` is the revision that the first write goes beyond.
    """

    def __init__(self, first_revision: int = 1) -> None:
        self.revision = first_revision
        self.compacted = 0
        self.journal: list[Callable[[GroupResource, Change], None]] = []
        self.followers: list[Callable[[GroupResource, Change], None]] = []
        self._tables: dict[GroupResource, WatchCache] = {}

    def _table(self, resource: GroupResource) -> WatchCache:
        table = self._tables.get(resource)
        if table is None:
            table = self._tables[resource] = WatchCache()
        return table

    def resources(self) -> list[GroupResource]:
        """The tables that hold, or once held, objects."""
        return list(self._tables)

    def changes(self, resource: GroupResource) -> int:
        """A counter that grows with each change of the table: compare it to know whether a derived view is stale."""
        table = self._tables.get(resource)
        return table.changes if table else 0

    def count(self, resource: GroupResource) -> int:
        """How many objects a table holds."""
        table = self._tables.get(resource)
        return len(table.records) if table else 0

    def get(self, resource: GroupResource, namespace: str, name: str) -> Record | None:
        """The object, or ``None``."""
        table = self._tables.get(resource)
        return table.records.get((namespace, name)) if table else None

    def create(self, resource: GroupResource, obj: Object) -> Record:
        """Stores a new object; sets its resourceVersion. The caller has seen that the name is free."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        if key in self._table(resource).records:
            raise KeyError(f"{resource} {key} exists")
        record = record_of(obj, self.revision + 1)
        self._commit(resource, Change(ADDED, record, None))
        return record

    def restore(self, resource: GroupResource, data: bytes) -> Record:
        """Puts back an object that an earlier process stored, under its old revision. Nobody is told."""
        record = record_from(data)
        self._table(resource).restore(record)
        self.advance(record.revision)
        return record

    def advance(self, revision: int) -> None:
        """Goes on from ``revision``, where that is beyond the present one; what was before is forgotten."""
        self.revision = max(self.revision, revision)
        self.compacted = self.revision

    def update(self, resource: GroupResource, obj: Object, previous: Record) -> Record:
        """Replaces ``previous``, which must be the current record (read it without an await in between).

        An object that equals the stored one is not written: ``previous`` is returned. ``obj`` gets the
        resourceVersion that holds afterwards.
        """
        self._check_current(resource, previous)
        obj["metadata"]["resourceVersion"] = str(previous.revision)
        if encode(obj) == previous.data:
            return previous
        record = record_of(obj, self.revision + 1)
        self._commit(resource, Change(MODIFIED, record, previous))
        return record

    def delete(self, resource: GroupResource, previous: Record) -> Record:
        """Removes ``previous``; returns its content with the deletion's revision."""
        self._check_current(resource, previous)
        record = record_of(previous.obj(), self.revision + 1)
        self._commit(resource, Change(DELETED, record, previous))
        return record

    def is_current(self, resource: GroupResource, record: Record) -> bool:
        """Whether nothing was written since ``record`` was read."""
        return self._table(resource).records.get(record.key) is record

    def _check_current(self, resource: GroupResource, previous: Record) -> None:
        if not self.is_current(resource, previous):
            raise KeyError(f"{resource} {previous} is not current")

    def _commit(self, resource: GroupResource, change: Change) -> None:
        self.revision = change.revision
        for journal in self.journal:
            journal(resource, change)
        self._table(resource).put(change)
        for follower in self.followers:
            follower(resource, change)

    def list(
        self, resource: GroupResource, namespace: str = "", *, after: Key | None = None, revision: int | None = None
    ) -> Sequence[Record]:
        """The records in key order: of one namespace or all, those after key ``after``, as of ``revision``.

        Raises :class:`Compacted` or :class:`FutureRevision`.
        """
        table = self._table(resource)
        if revision is None or revision == self.revision:
            records = table.records
            return [records[key] for key in table.current(namespace, after)]
        self.check_revision(resource, revision)
        if not table.history or table.history[-1].revision <= revision:
            records = table.records
            return [records[key] for key in table.current(namespace, after)]
        records = table.at(revision)
        return [
            records[key]
            for key in sorted(records)
            if (not namespace or key[0] == namespace) and (after is None or key > after)
        ]

    def check_revision(self, resource: GroupResource, revision: int) -> None:
        """Raises :class:`Compacted` or :class:`FutureRevision` where ``revision`` is out of the window."""
        oldest = max(self.compacted, self._table(resource).compacted)
        if revision < oldest:
            raise Compacted(revision, oldest)
        if revision > self.revision:
            raise FutureRevision

    def watch(
        self, resource: GroupResource, namespace: str = "", *, since: int | None = None, limit: int | None = None
    ) -> Watcher:
        """Watches from after revision ``since`` (now, where it is ``None``). Raises :class:`Compacted`."""
        table = self._table(resource)
        backlog: list[Change] = []
        if since is not None:
            oldest = max(self.compacted, table.compacted)
            if since < oldest:
                raise Compacted(since, oldest)
            backlog = table.since(since, namespace)
        watcher = Watcher(namespace, backlog, limit or WATCHER_LIMIT, table.watchers.remove)
        table.watchers.append(watcher)
        return watcher

    def compact(self, revision: int | None = None) -> None:
        """Forgets history up to ``revision`` (all of it by default): older watches and lists answer 410."""
        revision = self.revision if revision is None else min(revision, self.revision)
        self.compacted = max(self.compacted, revision)
        for table in self._tables.values():
            table.compact(revision)

    def close_watchers(self, resource: GroupResource | None = None) -> None:
        """Ends all watches (of one table): the server stops, or a resource is no longer served."""
        for name, table in self._tables.items():
            if resource is None or name == resource:
                for watcher in table.watchers.copy():
                    watcher.close()
