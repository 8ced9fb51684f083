"""Handles the objects of one resource: decides which handlers run, runs them, and stores what they changed.

One reconcile calls the handlers for the object's events, starts or stops its daemons, and calls the handlers for what
changed since its configuration was handled last. All that they store is sent afterwards, in one patch (two if the
status is a subresource). Handlers that must be called again have their progress in the object, and the object is
requeued; nothing is written in between.
"""

from __future__ import annotations

from typing import Any, Final

from cfo.runtime.cache import Entry, Event, Informer
from cfo.runtime.controller import Channel, Request, Result, set_finalizer
from cfo.runtime.objects import (
    NamespacedName,
    Object,
    has_finalizer,
    is_deleting,
    key_of,
    uid_of,
)
from cfo.runtime.process import function_errors
from cfo_handlers.background import Daemon, Daemons, Memory, Timer
from cfo_handlers.bodies import Body, Patch, RawEventType
from cfo_handlers.causes import Change, ObjectCause, detect_change, matches
from cfo_handlers.declarations import (
    BackgroundHandler,
    ChangingHandler,
    DaemonHandler,
    IndexHandler,
    Reason,
    TimerHandler,
    WatchingHandler,
)
from cfo_handlers.environment import Environment
from cfo_handlers.events import EnqueueAndRemember
from cfo_handlers.execution import call_changing, call_handler, is_async
from cfo_handlers.patching import apply_patch
from cfo_handlers.progress import StoredProgress
from cfo_handlers.resource_selectors import Resource
from cfo_handlers.stoppers import DaemonStoppingReason

_SOON: Final = 0.001
_TITLES: Final = {
    Reason.CREATE: "Creation",
    Reason.UPDATE: "Updating",
    Reason.DELETE: "Deletion",
    Reason.RESUME: "Resuming",
}


class ResourceHandlers:
    """The reconciler of one resource."""

    def __init__(
        self, environment: Environment, resource: Resource, informer: Informer, daemons: Daemons
    ) -> None:
        self.environment = environment
        self.resource = resource
        self.informer = informer
        registry = environment.registry
        self.watching = registry.for_resource(WatchingHandler, resource)
        self.changing = registry.for_resource(ChangingHandler, resource)
        self.daemon_handlers = registry.for_resource(DaemonHandler, resource)
        self.index_handlers = registry.for_resource(IndexHandler, resource)
        self._async_indexes = [handler for handler in self.index_handlers if is_async(handler.fn)]
        resumes = any(handler.initial for handler in self.changing)
        self.events = EnqueueAndRemember(keep_events=bool(self.watching), keep_initial=resumes)
        self.channel = Channel()
        self.timers = [
            Timer(environment, handler, resource, informer.reader, self.recall, self.channel)
            for handler in registry.for_resource(TimerHandler, resource)
        ]
        self._background = registry.for_resource(BackgroundHandler, resource)
        self._daemons = daemons
        self._memories: dict[NamespacedName, Memory] = {}
        self._fields = {
            handler.field for handler in (*self.changing, *self.daemon_handlers) if handler.field
        }
        self._blocks_deletion = bool(
            self._background or any(handler.needs_finalizer for handler in self.changing)
        )

    @property
    def reconciles(self) -> bool:
        """Whether there are handlers other than those of indexes that run in the event loop."""
        return bool(self.watching or self.changing or self._background or self._async_indexes)

    def start_indexes(self) -> None:
        """Fill the indexes from the informer, before any controller starts; also on replicas that do not lead."""
        if self.index_handlers:
            self.informer.add_handler(self._index)

    # Events.

    def is_relevant(self, event: Event) -> bool:
        """Return whether an event may concern a handler; false for most changes of only the status."""
        if event.old is None or event.new is None:
            return True
        if self.watching or self._background or self._async_indexes:
            return True
        if any(path[0] not in ("spec", "metadata") for path in self._fields):
            return True
        before = event.old.meta
        after = event.new.meta
        return (
            not after.generation  # kinds without one change it never
            or before.generation != after.generation
            or before.labels != after.labels
            or before.finalizers != after.finalizers
            or before.deletion_timestamp != after.deletion_timestamp
            or before.uid != after.uid
            or before.raw_annotations != after.raw_annotations
        )

    def _index(self, event: Event) -> None:
        """Update the indexes; functions that are not coroutine functions run here, in the event loop."""
        if event.new is None:
            for handler in self.index_handlers:
                self._store_in_index(handler, event.key, None)
            return
        memory = self._memories.get(event.key)
        memo = memory.memo if memory else self.environment.memo
        cause = ObjectCause(self.environment, self.resource, Body(event.new.object()), memo)
        for handler in self.index_handlers:
            if handler in self._async_indexes:
                continue
            result: Any = None
            try:
                if matches(handler, cause):
                    result = handler.fn(**cause.kwargs(), param=handler.param)
            except Exception as error:
                function_errors.report(error, f"index function {handler.id} for {event.key}")
                stack_trace = error if self.environment.stacks.is_first(error) else None
                cause.logger.error(  # noqa: TRY400 - the stack trace only once
                    f"Indexer {handler.id!r} failed with an exception: {error!r:.200}",
                    exc_info=stack_trace,
                )
            self._store_in_index(handler, event.key, result)

    def _store_in_index(self, handler: IndexHandler, key: NamespacedName, result: Any) -> None:
        self.environment.indexes[handler.id].put(f"{self.resource}/{key}", result)

    # Reconciling.

    def recall(self, obj: Object) -> Memory:
        """Return an object's memory, and stop the daemons of a deleted object of the same name."""
        key = key_of(obj)
        known = self._memories.get(key)
        if known is not None and known.uid == uid_of(obj):
            return known
        self._stop_daemons(known, DaemonStoppingReason.RESOURCE_DELETED)
        memory = Memory(obj, self.environment.memo)
        self._memories[key] = memory
        return memory

    async def reconcile(self, request: Request) -> Result:
        """Call the handlers that an object needs now."""
        for kind, entry in self.events.take(request):
            await self._call_watching(kind, entry)
        obj = await self._read(request)
        if obj is None:
            self.events.initial.pop(request, None)
            memory = self._memories.pop(request, None)
            self._stop_daemons(memory, DaemonStoppingReason.RESOURCE_DELETED)
            return Result()
        if self._async_indexes:
            await self._call_async_indexes(request, obj)
        if not (self.changing or self._background):
            return Result()
        return await self._reconcile(request, obj)

    async def _call_async_indexes(self, request: Request, obj: Object) -> None:
        cause = ObjectCause(self.environment, self.resource, Body(obj), self.environment.memo)
        for handler in self._async_indexes:
            result: Any = None
            if matches(handler, cause):
                outcome = await call_handler(handler, cause)
                result = outcome.result
            self._store_in_index(handler, request, result)

    async def _read(self, request: Request) -> Object | None:
        """Return the object from the cache, or from the API server after a write whose outcome is unknown."""
        client = self.environment.client
        gvk = self.resource.gvk
        if client.cache.is_uncertain(gvk, request):
            return await client.get(gvk, request, live=True)
        return self.informer.reader.get(request)

    async def _call_watching(self, kind: RawEventType, entry: Entry) -> None:
        """Call the handlers of events, without retries."""
        obj = entry.object()
        memory = self._memories.get(entry.key) if kind == "DELETED" else self.recall(obj)
        memo = memory.memo if memory is not None else self.environment.memo
        raw = {"type": kind, "object": obj}
        cause = ObjectCause(self.environment, self.resource, Body(obj), memo, type=kind, event=raw)
        for handler in self.watching:
            if matches(handler, cause):
                await call_handler(handler, cause)
        if kind != "DELETED":
            await apply_patch(self.environment, self.resource, obj, cause.patch, cause.logger)

    async def _reconcile(self, request: Request, obj: Object) -> Result:
        environment = self.environment
        initial = self.events.initial
        is_initial = initial.get(request) == uid_of(obj)
        change = detect_change(environment, obj, self._fields, initial=is_initial)
        nothing = change.reason in (Reason.NOOP, Reason.FREE)
        if change.reason is Reason.RESUME and not self.changing:
            nothing = True
        finalizer = environment.settings.persistence.finalizer
        if nothing and not (self._blocks_deletion or has_finalizer(obj, finalizer)):
            initial.pop(request, None)
            return Result()
        memory = self.recall(obj)
        body = memory.body or Body(obj)
        body.replace(obj)
        if self.daemon_handlers:
            memory.body = body
        cause = ObjectCause(environment, self.resource, body, memory.memo, change=change)
        concerned = any(matches(handler, cause, changes=False) for handler in self.changing)
        wanted = self._match_background(memory, cause)
        blocks = bool(wanted) or memory.is_accompanied or self._needs_finalizer(cause)
        if blocks is not has_finalizer(obj, finalizer) and not (blocks and is_deleting(obj)):
            stored = await set_finalizer(environment.client, obj, finalizer, present=blocks)
            if stored is None or is_deleting(stored):
                return Result()
            obj = stored
            body.replace(obj)
        if not is_deleting(obj):
            self._start_daemons(wanted, memory, body)
        if concerned and change.reason in _TITLES and not memory.has_handled_deletion:
            delay = await self._handle_change(obj, cause, change)
            if delay is not None:
                return Result(requeue_after=max(delay, _SOON))
        if change.reason is not Reason.DELETE:
            initial.pop(request, None)
            return Result()
        memory.has_handled_deletion = True
        if not memory.is_accompanied:
            # Otherwise the end of a daemon or a timer enqueues the object again.
            current = self.informer.reader.get(request)
            if current is not None:
                await set_finalizer(environment.client, current, finalizer, present=False)
        return Result()

    def _start_daemons(self, wanted: list[BackgroundHandler], memory: Memory, body: Body) -> None:
        for handler in wanted:
            if isinstance(handler, DaemonHandler) and handler.id not in memory.daemons:
                cause = ObjectCause(self.environment, self.resource, body, memory.memo)
                self._daemons.start(Daemon(handler, cause, memory, self.channel))

    async def _handle_change(self, obj: Object, cause: ObjectCause, change: Change) -> float | None:
        """Call the handlers of a change; return the seconds until the next call, or ``None`` if all have finished."""
        logger = cause.logger
        title = _TITLES[change.reason]
        patch = cause.patch
        progress = StoredProgress(self.changing, cause)
        for purpose in progress.superseded:
            if purpose in _TITLES:  # stored in the object, where any user can write
                logger.info(f"{_TITLES[Reason(purpose)]} is superseded by {title.lower()}.")
        if progress.handlers:
            logger.debug(f"{title} is in progress: {self.resource} {key_of(obj)}")
            await call_changing(progress, cause)
        if progress.delay() is not None:
            progress.store()
        else:
            if progress.handlers:
                failed = len(progress.failed)
                succeeded = len(progress.states) - failed
                logger.info(f"{title} is processed: {succeeded} succeeded; {failed} failed.")
            progress.purge()
            if change.reason in (Reason.CREATE, Reason.UPDATE) and change.new is not None:
                storage = self.environment.settings.persistence.diffbase_storage
                storage.store(body=obj, patch=patch, essence=change.new)
        await apply_patch(self.environment, self.resource, obj, patch, logger)
        cause.patch = Patch()
        return progress.delay()

    # Deletion, and what must end before.

    def _needs_finalizer(self, cause: ObjectCause) -> bool:
        return any(
            handler.needs_finalizer and matches(handler, cause, changes=False)
            for handler in self.changing
        )

    def _match_background(self, memory: Memory, cause: ObjectCause) -> list[BackgroundHandler]:
        """Return the daemons and timers whose filters match; ask other daemons to stop, and all after a deletion."""
        wanted = [
            item
            for item in self._background
            if item.id not in memory.ended and matches(item, cause)
        ]
        identities = {handler.id for handler in wanted}
        if is_deleting(cause.body):
            self._stop_daemons(memory, DaemonStoppingReason.RESOURCE_DELETED)
        for daemon in list(memory.daemons.values()):
            if daemon.handler.id not in identities:
                self._daemons.stop_daemon(daemon, DaemonStoppingReason.FILTERS_MISMATCH)
        return wanted

    def _stop_daemons(self, memory: Memory | None, reason: DaemonStoppingReason) -> None:
        if memory is None:
            return
        for daemon in list(memory.daemons.values()):
            self._daemons.stop_daemon(daemon, reason)
