"""The store: create, update, delete, list and watch, with one revision for all resources.

The control plane runs on one event loop and no method here awaits, so each call is atomic. A write sets the object's
resourceVersion, encodes the object once, and passes the change to the watchers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.storage.page_expiry import PageExpiry
from envtest.storage.record import (
    ADDED,
    DELETED,
    MODIFIED,
    Change,
    Record,
    encode,
    record_from,
    record_of,
)
from envtest.storage.watch_cache import Key, WatchCache
from envtest.storage.watcher import LaggingWatchers, Watcher

__all__ = ["Compacted", "FutureRevision", "Store"]

WATCHER_LIMIT = 20_000
"""Maximum number of changes that wait for a watcher before it is closed."""


_TURNS = 8
"""The most turns of the event loop that :meth:`Store.let_watchers_send` takes; a watcher sends a change in four."""


class Compacted(Exception):
    """Raised when the requested revision is older than the oldest kept revision (``oldest``)."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"revision {requested} is compacted, the oldest is {oldest}")
        self.requested = requested
        self.oldest = oldest


class FutureRevision(Exception):
    """Raised when the requested revision has not been reached."""


class Store:
    """All objects of a control plane.

    Objects are addressed by :class:`GroupResource`, namespace (empty for cluster-scoped objects) and name. ``journal``
    callbacks receive each change before it takes effect (for persistence), ``followers`` right after it, and may write
    themselves. The first write gets the revision after ``first_revision``.
    """

    def __init__(self, first_revision: int = 1) -> None:
        self.revision = first_revision
        self.compacted = 0
        self.journal: list[Callable[[GroupResource, Change], None]] = []
        self.followers: list[Callable[[GroupResource, Change], None]] = []
        self._caches: dict[GroupResource, WatchCache] = {}
        self._behind = LaggingWatchers()
        self.pages = PageExpiry()

    def _cache(self, resource: GroupResource) -> WatchCache:
        cache = self._caches.get(resource)
        if cache is None:
            cache = WatchCache()
            self._caches[resource] = cache
        return cache

    def fork(self) -> Store:
        """Return a store with the same objects, history and revision, without watchers, journals and followers."""
        copy = Store(self.revision)
        copy.compacted = self.compacted
        copy._caches = {resource: cache.fork() for resource, cache in self._caches.items()}
        return copy

    def resources(self) -> list[GroupResource]:
        """Return the resources that have or had objects."""
        return list(self._caches)

    def changes(self, resource: GroupResource) -> int:
        """Return a counter of the changes of a resource: compare it to detect whether a derived view is stale."""
        cache = self._caches.get(resource)
        return cache.changes if cache else 0

    def count(self, resource: GroupResource) -> int:
        """Return the number of objects of a resource."""
        cache = self._caches.get(resource)
        return len(cache.records) if cache else 0

    def get(self, resource: GroupResource, namespace: str, name: str) -> Record | None:
        """Return the object, or ``None``."""
        cache = self._caches.get(resource)
        return cache.records.get((namespace, name)) if cache else None

    def create(
        self, resource: GroupResource, obj: Object, *, written: bytes | None = None
    ) -> Record:
        """Store a new object and set its resourceVersion. The caller has checked that the name is free.

        For ``written`` see :class:`Record`.
        """
        metadata = obj["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        if key in self._cache(resource).records:
            raise KeyError(f"{resource} {key} exists")
        record = record_of(obj, self.revision + 1)
        record.is_new = True
        record.written = written
        self._commit(resource, Change(ADDED, record, None))
        return record

    def restore(self, resource: GroupResource, data: bytes) -> Record:
        """Load an object that an earlier process stored, with its old revision. No watcher is notified."""
        record = record_from(data)
        self._cache(resource).restore(record)
        self.advance(record.revision)
        return record

    def advance(self, revision: int) -> None:
        """Continue from ``revision`` if it is higher than the current one; all earlier history is compacted."""
        self.revision = max(self.revision, revision)
        self.compacted = self.revision

    def update(
        self,
        resource: GroupResource,
        obj: Object,
        previous: Record,
        *,
        always: bool = False,
        written: bytes | None = None,
    ) -> Record:
        """Replace ``previous``, which must be the current record (read it without an await in between).

        An object that equals the stored one is not written unless ``always`` is set: ``previous`` is returned. ``obj``
        gets the resulting resourceVersion. For ``written`` see :class:`Record`.
        """
        self._check_current(resource, previous)
        obj["metadata"]["resourceVersion"] = str(previous.revision)
        # as kube-apiserver: no revision and no event for no change
        if not always and written == previous.written and encode(obj) == previous.data:
            return previous
        record = record_of(obj, self.revision + 1)
        record.written = written
        self._commit(resource, Change(MODIFIED, record, previous))
        return record

    def delete(self, resource: GroupResource, previous: Record) -> Record:
        """Delete ``previous``; return its content with the revision of the deletion."""
        self._check_current(resource, previous)
        record = record_of(previous.obj(), self.revision + 1)
        self._commit(resource, Change(DELETED, record, previous))
        return record

    def is_current(self, resource: GroupResource, record: Record) -> bool:
        """Return whether the object was not written since ``record`` was read."""
        return self._cache(resource).records.get(record.key) is record

    def _check_current(self, resource: GroupResource, previous: Record) -> None:
        if not self.is_current(resource, previous):
            raise KeyError(f"{resource} {previous} is not current")

    def _commit(self, resource: GroupResource, change: Change) -> None:
        self.revision = change.revision
        for journal in self.journal:
            journal(resource, change)
        self._cache(resource).put(change)
        for follower in self.followers:
            follower(resource, change)

    def list(
        self,
        resource: GroupResource,
        namespace: str = "",
        *,
        after: Key | None = None,
        revision: int | None = None,
    ) -> Sequence[Record]:
        """Return the records in key order: of one namespace or all, after key ``after``, as of ``revision``.

        Raises :class:`Compacted` or :class:`FutureRevision`.
        """
        cache = self._cache(resource)
        # the newest state needs no reconstruction
        if revision is None or revision == self.revision:
            records = cache.records
            return [records[key] for key in cache.current(namespace, after)]
        self.check_revision(resource, revision)
        # only other resources changed since
        if not cache.history or cache.history[-1].revision <= revision:
            records = cache.records
            return [records[key] for key in cache.current(namespace, after)]
        records = cache.at(revision)
        return [
            records[key]
            for key in sorted(records)
            if (not namespace or key[0] == namespace) and (after is None or key > after)
        ]

    def check_revision(self, resource: GroupResource, revision: int) -> None:
        """Raise :class:`Compacted` or :class:`FutureRevision` if ``revision`` is outside the kept history."""
        oldest = max(self.compacted, self._cache(resource).compacted)
        if revision < oldest:
            raise Compacted(revision, oldest)
        if revision > self.revision:
            raise FutureRevision

    def watch(
        self,
        resource: GroupResource,
        namespace: str = "",
        *,
        since: int | None = None,
        limit: int | None = None,
    ) -> Watcher:
        """Watch changes after revision ``since`` (from now on if ``None``). Raises :class:`Compacted`."""
        cache = self._cache(resource)
        backlog: list[Change] = []
        if since is not None:
            oldest = max(self.compacted, cache.compacted, cache.served_since)
            if since < oldest:
                raise Compacted(since, oldest)
            backlog = cache.since(since, namespace)
        watcher = Watcher(
            namespace, backlog, limit or WATCHER_LIMIT, cache.watchers.remove, self._behind
        )
        cache.watchers.append(watcher)
        return watcher

    async def let_watchers_send(self) -> None:
        """Give the watchers a chance to send the changes up to now.

        kube-apiserver's watchers usually send a change before the response to the write that caused it, and some
        controllers rely on that. A watcher whose client does not read is not waited for.
        """
        for _ in range(_TURNS):
            if not self._behind:  # all changes are sent
                return
            await asyncio.sleep(0)

    def skip_to_after(self, revision: int) -> None:
        """Use a revision without a change if nothing was written after ``revision``.

        The compaction of kube-apiserver writes a key of its own.
        """
        if self.revision == revision:
            self.revision += 1

    def compact(self, revision: int | None = None) -> None:
        """Discard history up to ``revision`` (all by default): older watches and lists fail with 410."""
        revision = self.revision if revision is None else min(revision, self.revision)
        self.compacted = max(self.compacted, revision)
        for cache in self._caches.values():
            cache.compact(revision)

    def restart_watches(self, resource: GroupResource) -> None:
        """Close all watches of a resource, and let later ones begin at the current revision or after it.

        kube-apiserver does so with the watch cache of a custom resource whenever its CRD changes.
        """
        self.close_watchers(resource)
        self._cache(resource).served_since = self.revision

    def close_watchers(self, resource: GroupResource | None = None) -> None:
        """Close all watches (of one resource): the server stops, or the resource is no longer served."""
        for name, cache in self._caches.items():
            if resource is None or name == resource:
                for watcher in cache.watchers.copy():
                    watcher.close()
