"""Handles the objects of one resource: decides which handlers run, runs them, and stores what they changed.

One reconcile calls the handlers for the object's events, starts or stops its daemons, and calls the handlers for what
changed since its configuration was handled last. All that they store is sent afterwards, in one patch (two if the
status is a subresource). Handlers that must be called again have their progress in the object, and the object is
requeued; nothing is written in between.
"""

from __future__ import annotations

from typing import Any, Final

import structlog

from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.store import Event
from cfo.runtime.controller.finalizer import set_finalizer
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.handlers.bodies import Body, Patch
from cfo.runtime.handlers.causes import Cause, Change, detect_change, matches, select_changing
from cfo.runtime.handlers.daemons import Daemon, Daemons, DaemonStoppingReason, Memories, Memory
from cfo.runtime.handlers.declarations import (
    ChangingHandler,
    DaemonHandler,
    Handler,
    IndexHandler,
    Reason,
    TimerHandler,
    WatchingHandler,
)
from cfo.runtime.handlers.environment import Environment
from cfo.runtime.handlers.errors import ErrorsMode
from cfo.runtime.handlers.execution import Invocation, call_handler, call_handlers, deliver_result, is_async
from cfo.runtime.handlers.patching import apply_patch
from cfo.runtime.handlers.progress import HandlerState, Outcome, Progress
from cfo.runtime.handlers.resource_selectors import Resource
from cfo.runtime.handlers.source import EventSource, PendingEvent
from cfo.runtime.handlers.timers import Timer
from cfo.runtime.objects.unstructured import Object, has_finalizer, is_deleting, key_of

_log = structlog.get_logger(__name__)

_SOON: Final = 0.001
_TITLES: Final = {
    Reason.CREATE: "Creation",
    Reason.UPDATE: "Updating",
    Reason.DELETE: "Deletion",
    Reason.RESUME: "Resuming",
}


class ResourceHandlers:
    """The reconciler of one resource."""

    def __init__(self, environment: Environment, resource: Resource, informer: Informer, daemons: Daemons) -> None:
        self.environment = environment
        self.resource = resource
        self.informer = informer
        registry = environment.registry
        self.watching = registry.for_resource(WatchingHandler, resource)
        self.changing = registry.for_resource(ChangingHandler, resource)
        self.daemon_handlers = registry.for_resource(DaemonHandler, resource)
        self.index_handlers = registry.for_resource(IndexHandler, resource)
        self._async_indexes = [handler for handler in self.index_handlers if is_async(handler.fn)]
        self.memories = Memories(environment.memo)
        self.timers = [Timer(environment, handler, self) for handler in registry.for_resource(TimerHandler, resource)]
        self._daemons = daemons
        self._fields = {handler.field for handler in (*self.changing, *self.daemon_handlers) if handler.field}
        self._blocks_deletion = bool(
            self.daemon_handlers or self.timers or any(handler.needs_finalizer for handler in self.changing)
        )
        self.source = EventSource(
            informer,
            keep_events=bool(self.watching),
            remember_initial=any(handler.initial for handler in self.changing),
            is_relevant=self._is_relevant,
        )

    @property
    def reconciles(self) -> bool:
        """Whether there are handlers other than those of indexes that run in the event loop."""
        return bool(self.watching or self.changing or self.daemon_handlers or self.timers or self._async_indexes)

    def start_indexes(self) -> None:
        """Fill the indexes from the informer, before any controller starts; also on replicas that do not lead."""
        if self.index_handlers:
            self.informer.add_handler(self._index)

    # Events.

    def _is_relevant(self, old: Entry, new: Entry) -> bool:
        """Return whether an update may concern a handler; false for most changes of only the status."""
        if self.daemon_handlers or self.timers or self._async_indexes:
            return True
        if any(path[0] not in ("spec", "metadata") for path in self._fields):
            return True
        before, after = old.meta, new.meta
        return not after.generation or (
            (before.generation, before.labels, before.finalizers, before.deletion_timestamp, before.uid)
            != (after.generation, after.labels, after.finalizers, after.deletion_timestamp, after.uid)
            or before.raw_annotations != after.raw_annotations
        )

    def _index(self, event: Event) -> None:
        """Update the indexes; functions that are not coroutine functions run here, in the event loop."""
        identity = f"{self.resource}/{event.key}"
        if event.new is None:
            for handler in self.index_handlers:
                self.environment.indexes[handler.id].discard(identity)
            return
        body = Body(event.new.object())
        memory = self.memories.get(event.key)
        cause = Cause(self.environment, self.resource, body, memory.memo if memory else self.environment.memo)
        for handler in self.index_handlers:
            if handler not in self._async_indexes:
                self._index_with(handler, cause, identity)

    def _index_with(self, handler: IndexHandler, cause: Cause, identity: str) -> None:
        result: Any = None
        try:
            if matches(handler, cause):
                result = handler.fn(**cause.kwargs(), param=handler.param)
        except Exception:
            cause.logger.exception(f"Indexer {handler.id!r} failed with an exception")
        self._store_in_index(handler, identity, result)

    def _store_in_index(self, handler: IndexHandler, identity: str, result: Any) -> None:
        index = self.environment.indexes[handler.id]
        if result is None:
            index.discard(identity)
        else:
            index.put(identity, result)

    # Reconciling.

    def recall(self, obj: Object) -> Memory:
        """Return an object's memory, and stop the daemons of a deleted object of the same name."""
        memory, former = self.memories.recall(obj)
        if former is not None:
            self._stop_daemons(former, DaemonStoppingReason.RESOURCE_DELETED)
        return memory

    async def reconcile(self, request: Request) -> Result:
        """Call the handlers that an object needs now."""
        for event in self.source.take(request):
            await self._call_watching(event)
        obj = await self._read(request)
        if obj is None:
            self._forget(request)
            return Result()
        if self._async_indexes:
            await self._call_async_indexes(request, obj)
        if not (self.changing or self.daemon_handlers or self.timers):
            return Result()
        return await self._reconcile(request, obj)

    async def _read(self, request: Request) -> Object | None:
        """Return the object from the cache, or from the API server after a write whose outcome is unknown."""
        client, gvk = self.environment.client, self.resource.gvk
        if client.cache.is_uncertain(gvk, request):
            return await client.get(gvk, request, live=True)
        return self.informer.reader.get(request)

    async def _reconcile(self, request: Request, obj: Object) -> Result:
        environment = self.environment
        uid = self.source.initial.get(request)
        change = detect_change(environment, obj, self._fields, initial=uid == obj["metadata"]["uid"])
        nothing = change.reason in (Reason.NOOP, Reason.FREE) or (change.reason is Reason.RESUME and not self.changing)
        finalizer = environment.settings.persistence.finalizer
        if nothing and not (self._blocks_deletion or has_finalizer(obj, finalizer)):
            self.source.initial.pop(request, None)
            return Result()
        memory = self.recall(obj)
        body = self._live_body(memory, obj)
        cause = Cause(environment, self.resource, body, memory.memo, change=change)
        concerned = any(matches(handler, cause, changes=False) for handler in self.changing)
        self._match_daemons(memory, cause)
        blocks = self._must_block_deletion(memory, cause)
        if blocks is not has_finalizer(obj, finalizer) and not (blocks and is_deleting(obj)):
            stored = await set_finalizer(environment.client, obj, finalizer, present=blocks)
            if stored is None or is_deleting(stored):
                return Result()
            obj = stored
            body.replace(obj)
        self._start_daemons(memory, cause)
        delay = await self._handle_change(obj, cause, change) if concerned else None
        if change.reason is Reason.DELETE and delay is None and has_finalizer(obj, finalizer):
            return await self._release(request, memory)
        if delay is None:
            self.source.initial.pop(request, None)
            return Result()
        return Result(requeue_after=max(delay, _SOON))

    async def _handle_change(self, obj: Object, cause: Cause, change: Change) -> float | None:
        """Call the handlers of a change; return the seconds until the next call, or ``None`` if all have finished."""
        if change.reason not in _TITLES:
            return None
        persistence = self.environment.settings.persistence
        logger, title, patch = cause.logger, _TITLES[change.reason], cause.patch
        selected = select_changing(self.changing, cause)
        progress = Progress(
            persistence.progress_storage,
            obj,
            owned=self.changing,
            selected=selected,
            purpose=change.reason,
            now=self.environment.now(),
        )
        for purpose in progress.superseded:
            if purpose in _TITLES:  # stored in the object, where any user can write
                logger.info(f"{_TITLES[Reason(purpose)]} is superseded by {title.lower()}.")
        if selected:
            logger.debug(f"{title} is in progress: {self.resource} {key_of(obj)}")
            await call_handlers(selected, progress, cause)
        if progress.done:
            if selected:
                succeeded, failed = progress.counts()
                logger.info(f"{title} is processed: {succeeded} succeeded; {failed} failed.")
            progress.purge(patch)
            if change.reason in (Reason.CREATE, Reason.UPDATE) and change.new is not None:
                persistence.diffbase_storage.store(body=obj, patch=patch, essence=change.new)
        else:
            progress.store(patch)
        if patch:
            await apply_patch(self.environment, self.resource, obj, patch, logger)
            cause.patch = Patch()
        return progress.delay(self.environment.now())

    # Deletion.

    def _must_block_deletion(self, memory: Memory, cause: Cause) -> bool:
        if any(handler.needs_finalizer and matches(handler, cause, changes=False) for handler in self.changing):
            return True
        if memory.daemons:
            return True
        return any(
            handler.id not in memory.ended and matches(handler, cause)
            for handler in (*self.daemon_handlers, *(timer.handler for timer in self.timers))
        )

    async def _release(self, request: Request, memory: Memory) -> Result:
        """Remove the finalizer if nothing runs for the object any more; the end of a daemon enqueues it again."""
        if memory.daemons or any(timer.is_running(request) for timer in self.timers):
            return Result()
        obj = self.informer.reader.get(request)
        if obj is not None:
            finalizer = self.environment.settings.persistence.finalizer
            await set_finalizer(self.environment.client, obj, finalizer, present=False)
        return Result()

    def _forget(self, request: Request) -> None:
        self.source.initial.pop(request, None)
        memory = self.memories.forget(request)
        if memory is not None:
            self._stop_daemons(memory, DaemonStoppingReason.RESOURCE_DELETED)

    # Daemons.

    def _live_body(self, memory: Memory, obj: Object) -> Body:
        if memory.body is None:
            body = Body(obj)
            if self.daemon_handlers:
                memory.body = body
            return body
        memory.body.replace(obj)
        return memory.body

    def _match_daemons(self, memory: Memory, cause: Cause) -> None:
        if is_deleting(cause.body):
            self._stop_daemons(memory, DaemonStoppingReason.RESOURCE_DELETED)
            return
        for daemon in list(memory.daemons.values()):
            if not matches(daemon.handler, cause):
                self._daemons.stop_daemon(daemon, DaemonStoppingReason.FILTERS_MISMATCH)

    def _start_daemons(self, memory: Memory, cause: Cause) -> None:
        if is_deleting(cause.body):
            return
        for handler in self.daemon_handlers:
            if handler.id in memory.daemons or handler.id in memory.ended or not matches(handler, cause):
                continue
            own = Cause(self.environment, self.resource, cause.body, memory.memo)

            def on_end(daemon: Daemon) -> None:
                memory.daemons.pop(daemon.handler.id, None)
                if not daemon.is_stopping:
                    memory.ended.add(daemon.handler.id)
                self.source.enqueue(key_of(daemon.cause.body), f"{daemon.handler} ended")

            daemon = Daemon(handler, own, on_end)
            if self._daemons.start(daemon):
                memory.daemons[handler.id] = daemon

    def _stop_daemons(self, memory: Memory, reason: DaemonStoppingReason) -> None:
        for daemon in list(memory.daemons.values()):
            self._daemons.stop_daemon(daemon, reason)

    # Handlers of events, and indexes with coroutine functions.

    async def _call_watching(self, event: PendingEvent) -> None:
        obj = event.entry.object()
        body = Body(obj)
        memory = self.memories.get(event.entry.key) if event.type == "DELETED" else self.recall(obj)
        memo = memory.memo if memory is not None else self.environment.memo
        raw = {"type": event.type, "object": obj}
        cause = Cause(self.environment, self.resource, body, memo, type=event.type, event=raw)
        for handler in self.watching:
            if matches(handler, cause):
                deliver_result(handler, await self._call_once(handler, cause), cause.patch)
        if cause.patch and event.type != "DELETED":
            await apply_patch(self.environment, self.resource, obj, cause.patch, cause.logger)

    async def _call_once(self, handler: Handler, cause: Cause) -> Outcome:
        """Call a handler without retries; errors are logged and ignored by default."""
        invocation = Invocation(self.environment, handler, cause)
        state = HandlerState(started=self.environment.now())
        return await call_handler(
            handler, invocation, state, cause.kwargs(), logger=cause.logger, default_errors=ErrorsMode.IGNORED
        )

    async def _call_async_indexes(self, request: Request, obj: Object) -> None:
        cause = Cause(self.environment, self.resource, Body(obj), self.environment.memo)
        for handler in self._async_indexes:
            result: Any = None
            if matches(handler, cause):
                result = (await self._call_once(handler, cause)).result
            self._store_in_index(handler, f"{self.resource}/{request}", result)
