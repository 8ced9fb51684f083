"""Sync code in threads: reconcilers whose ``reconcile`` is not a coroutine function, and the client for them.

.. code-block:: python

    class Greeter:
        def __init__(self, client: Client) -> None:
            self.client = SyncClient(client)

        def reconcile(self, request: Request) -> Result:  # runs in a thread
            account = self.client.get(SERVICE_ACCOUNT, request)
            ...

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
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from cfo.runtime.client.client import Client
from cfo.runtime.client.write_gate import WriteGate, WriteRejected, write_gates
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.objects.unstructured import NamespacedName, Object, ObjectKind, TypedObject

T = TypeVar("T")
ObjectT = TypeVar("ObjectT", bound="Object | TypedObject")


class ThreadAbandoned(Exception):
    """Raised in a thread whose reconcile was cancelled: the thread must end."""


class _Run(WriteGate):
    """One function that runs in a thread. As a gate it refuses writes once the thread is abandoned."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._abandoned = False
        self._call: concurrent.futures.Future[Any] | None = None

    def check(self) -> None:
        if self._abandoned:
            raise WriteRejected("the thread was abandoned, because its task was cancelled")

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            call = self._call
        if call is not None:
            call.cancel()

    def call(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
        with self._lock:
            if self._abandoned:
                raise ThreadAbandoned("the task of this thread was cancelled")
            # The coroutine runs in a copy of the context of this thread.
            call = self._call = asyncio.run_coroutine_threadsafe(
                function(*args, **kwargs), self._loop
            )
        try:
            return cast("T", call.result())
        except concurrent.futures.CancelledError:
            raise ThreadAbandoned("the task of this thread was cancelled") from None
        finally:
            self._call = None


_current_run: ContextVar[_Run | None] = ContextVar("cfo_thread_run", default=None)


def call_in_loop(function: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
    """Call a coroutine function in the event loop from a thread of a :class:`ThreadPool`, and return its result.

    Raises :class:`RuntimeError` in any other thread, and :class:`ThreadAbandoned`.
    """
    run = _current_run.get()
    if run is None:
        raise RuntimeError(
            "no thread of a ThreadPool: a coroutine function must await the async client instead"
        )
    return run.call(function, *args, **kwargs)


class ThreadPool:
    """At most ``limit`` threads at once, named ``name``. Used by one event loop.

    The threads are not those of :func:`anyio.to_thread.run_sync` with a limiter and ``abandon_on_cancel``: it frees the
    place of a thread that is still running when its caller is cancelled, so their number would not be limited, and the
    process would not exit before all have ended. Raises :class:`ValueError` for a limit below 1.
    """

    def __init__(self, name: str, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit: {limit}: must be 1 or more threads")
        self.name = name
        self.limit = limit
        self._places = asyncio.Semaphore(limit)

    async def run(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call ``function`` in a thread, as soon as there is a place for one, and return its result.

        If the caller is cancelled, the thread is abandoned (see the module).
        """
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        run = _Run(loop)
        context = contextvars.copy_context()
        context.run(_current_run.set, run)
        context.run(write_gates.set, (*write_gates.get(), run))
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            _finish(future, partial(context.run, partial(function, *args, **kwargs)))
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._places.release)

        try:
            threading.Thread(target=work, name=self.name, daemon=True).start()
        except RuntimeError:  # the process has too many threads
            self._places.release()
            raise
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            run.abandon()
            raise


def _finish(future: concurrent.futures.Future[T], job: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return  # cancelled before the thread has started
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001 - raised in the task that waits
        # A future cannot hold StopIteration, and SystemExit would end the event loop.
        ordinary = isinstance(error, Exception) and not isinstance(error, StopIteration)
        future.set_exception(error if ordinary else RuntimeError(f"the thread raised {error!r}"))
    else:
        future.set_result(result)


class SyncClient:
    """The methods of a :class:`~cfo.runtime.client.client.Client` for threads; they run in the event loop."""

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
        selectors = {"label_selector": label_selector, "field_selector": field_selector}
        return call_in_loop(self.client.list, kind, namespace=namespace, live=live, **selectors)

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
    """A reconciler whose ``reconcile`` runs in a thread; everything else is as for a ``Reconciler``."""

    def reconcile(self, request: Request) -> Result:
        """Reconcile the object named ``request``, which may no longer exist."""
        ...


class ThreadedReconciler:
    """Runs a sync reconciler in at most ``limit`` threads, and an object in one thread at a time."""

    def __init__(self, reconciler: SyncReconciler, limit: int) -> None:
        self.reconciler = reconciler
        self._pool = ThreadPool(type(reconciler).__name__, limit)
        self._running: set[Request] = set()

    async def reconcile(self, request: Request) -> Result:
        """Reconcile ``request`` in a thread.

        Raises :class:`RuntimeError` while an abandoned thread still reconciles it; the request is retried then.
        """
        if request in self._running:
            raise RuntimeError(
                f"an earlier reconcile of {request} was cancelled, and its thread has not ended yet"
            )
        result = await self._pool.run(self._reconcile, request)
        return await result if inspect.isawaitable(result) else result

    def _reconcile(self, request: Request) -> Result:
        self._running.add(request)
        try:
            return self.reconciler.reconcile(request)
        finally:
            self._running.discard(request)
