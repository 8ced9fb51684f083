"""Sync code in threads: the threads of sync handlers, the client for them, and reconcilers with a sync ``reconcile``.

.. code-block:: python

    class Greeter:
        def __init__(self, client: Client) -> None:
            self.client = SyncClient(client)

        def reconcile(self, request: Request) -> Result:  # runs in a thread
            account = self.client.get(SERVICE_ACCOUNT, request)
            ...


    Builder(manager).for_(SERVICE_ACCOUNT).complete(ThreadedReconciler(Greeter(manager.client)))

A thread cannot be cancelled. When its reconcile exceeds the timeout, or the process stops or loses leadership, the
thread is abandoned: from then on every call of its :class:`SyncClient` raises :class:`ThreadAbandoned`, a call in
progress included, and nothing is written. Code that uses other clients must end by itself. An abandoned thread occupies
its place in the pool until it ends, and its object is not reconciled by another thread until then.

The context variables of the task (what :func:`~cfo.runtime.reconcile_id` and the log lines use) are those of
the thread, too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

from cfo.runtime import Client, NamespacedName, Object, ObjectKind, Request, Result, TypedObject
from cfo.runtime.controller import ControllerOptions
from cfo.runtime.process import ThreadPool, wrong_result

T = TypeVar("T")
ObjectT = TypeVar("ObjectT", bound="Object | TypedObject")

_DEFAULT_THREADS: Final = 2 * ControllerOptions().max_concurrent_reconciles
"""Twice as many threads as workers, so that abandoned threads do not block the workers."""


class ThreadAbandoned(Exception):
    """Raised in a thread whose task was cancelled: the thread must end."""

    def __init__(self) -> None:
        super().__init__("the task of this thread was cancelled")


class _LoopCalls:
    """The calls of coroutine functions from one thread. Except for :meth:`call`, everything runs in the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._abandoned = False

    def call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call ``function`` from the thread; raises :class:`ThreadAbandoned`."""
        if self._abandoned:
            raise ThreadAbandoned
        # The coroutine runs in a copy of the thread's context, which has the write gates of its task.
        future = asyncio.run_coroutine_threadsafe(self._run(function), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ThreadAbandoned from None

    async def _run(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._abandoned:
            raise ThreadAbandoned
        task = cast("asyncio.Task[T]", asyncio.current_task())
        self._tasks.add(task)
        try:
            return await function()
        finally:
            self._tasks.discard(task)

    def abandon(self) -> None:
        """Cancel the calls in progress, which do not take another step, and refuse all later ones."""
        self._abandoned = True
        for task in self._tasks:
            task.cancel()


_current_calls: ContextVar[_LoopCalls | None] = ContextVar("cfo_handlers_loop_calls", default=None)


def call_in_loop(function: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
    """Call a coroutine function in the event loop from a thread of :class:`HandlerThreads`, and return its result.

    Raises :class:`RuntimeError` in any other thread, and :class:`ThreadAbandoned`.
    """
    calls = _current_calls.get()
    if calls is None:
        raise RuntimeError(
            "SyncClient: must be used in the thread in which the handler was called; a coroutine function must "
            "await the async client"
        )
    return calls.call(partial(function, *args, **kwargs))


class HandlerThreads:
    """At most ``limit`` threads at once, named ``name``, which can use a :class:`SyncClient`. Used by one event loop.

    Raises :class:`ValueError` for a limit below 1.
    """

    def __init__(self, name: str, limit: int) -> None:
        self.limit = limit
        self._pool = ThreadPool(name, limit)

    async def run(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call ``function`` in a thread, as soon as there is a place for one, and return its result.

        If the caller is cancelled, the thread is abandoned (see the module).
        """
        calls = _LoopCalls()
        token = _current_calls.set(calls)
        try:
            return await self._pool.run(function, *args, **kwargs)
        except asyncio.CancelledError:
            calls.abandon()
            raise
        finally:
            _current_calls.reset(token)


class SyncClient:
    """The methods of a :class:`~cfo.runtime.Client` for threads; they run in the event loop."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def get(self, kind: ObjectKind[T], key: NamespacedName, *, live: bool = False) -> T | None:
        """Return a copy of the object, or ``None`` if it does not exist; ``live``: from the API server."""
        return call_in_loop(self.client.get, kind, key, live=live)

    def list(
        self,
        kind: ObjectKind[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        live: bool = False,
    ) -> list[T]:
        """Return copies of the objects that match; an empty ``namespace`` means all namespaces."""
        return call_in_loop(
            self.client.list,
            kind,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            live=live,
        )

    def create(self, obj: ObjectT, **options: Any) -> ObjectT:
        """Create an object and return it as persisted; ``options`` as for the method of the client."""
        return cast("ObjectT", call_in_loop(self.client.create, obj, **options))

    def update(self, obj: ObjectT, **options: Any) -> ObjectT:
        """Replace an object and return it as persisted; ``options`` as for the method of the client."""
        return cast("ObjectT", call_in_loop(self.client.update, obj, **options))

    def apply(self, obj: ObjectT, **options: Any) -> ObjectT:
        """Apply an object unless that would change nothing; ``options`` as for the method of the client."""
        return cast("ObjectT", call_in_loop(self.client.apply, obj, **options))

    def patch(
        self,
        kind: ObjectKind[T],
        key: NamespacedName,
        body: Mapping[str, Any] | Sequence[Any],
        **options: Any,
    ) -> T:
        """Patch an object and return it as persisted; ``options`` as for the method of the client."""
        return cast("T", call_in_loop(self.client.patch, kind, key, body, **options))

    def delete(self, kind: ObjectKind[Any], key: NamespacedName, **options: Any) -> bool:
        """Request the deletion of an object; return false if it does not exist. ``options`` as for the client."""
        return call_in_loop(self.client.delete, kind, key, **options)


class SyncReconciler(Protocol):
    """A reconciler whose ``reconcile`` is not a coroutine function: :class:`ThreadedReconciler` runs it."""

    def reconcile(self, request: Request) -> Result:
        """Reconcile the object named ``request``, which may no longer exist."""
        ...


class ThreadedReconciler:
    """Runs a sync reconciler in at most ``max_threads`` threads, and an object in one thread at a time.

    By default there are two threads for each worker of a controller with default options. Raises :class:`ValueError`
    for fewer than 1, and :class:`TypeError` for a coroutine function, which needs no thread.
    """

    def __init__(self, reconciler: SyncReconciler, *, max_threads: int = _DEFAULT_THREADS) -> None:
        if inspect.iscoroutinefunction(reconciler.reconcile):
            raise TypeError(
                f"ThreadedReconciler: {type(reconciler).__name__}.reconcile is async: must be a plain method; pass "
                "the reconciler to complete() itself"
            )
        self.reconciler = reconciler
        self._threads = HandlerThreads(type(reconciler).__name__, max_threads)
        self._running: set[Request] = set()

    async def reconcile(self, request: Request) -> Result:
        """Reconcile ``request`` in a thread.

        Raises :class:`RuntimeError` while an abandoned thread still reconciles it; the request is retried then.
        """
        if request in self._running:
            raise RuntimeError(
                f"an earlier reconcile of {request} was cancelled, and its thread has not ended yet"
            )
        return await self._threads.run(self._reconcile, request)

    def _reconcile(self, request: Request) -> Result:
        self._running.add(request)
        try:
            result: object = self.reconciler.reconcile(request)
        finally:
            self._running.discard(request)
        if not isinstance(result, Result):
            name = f"{type(self.reconciler).__name__}.reconcile"
            raise wrong_result(name, result, "a Result")
        return result
