"""Sync reconcilers, and calls of coroutine functions from threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, cast

import pytest

from cfo.runtime import Controller, Request, Result, reconcile_id
from cfo.runtime.controller import Channel, ControllerOptions
from cfo_handlers import SyncClient, ThreadAbandoned, ThreadedReconciler
from cfo_handlers.threads import HandlerThreads, call_in_loop

ONE = Request("default", "one")
TWO = Request("default", "two")


@asynccontextmanager
async def running(controller: Controller, *requests: Request) -> AsyncIterator[None]:
    channel = Channel()
    channel.enqueue(requests)
    controller.watch(channel)
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        controller.stop()
        await task


class Recorder:
    """A sync reconciler that records where and in which context it runs."""

    def __init__(self) -> None:
        self.seen: list[tuple[Request, bool, str]] = []
        self.done = threading.Event()

    def reconcile(self, request: Request) -> Result:
        in_main_thread = threading.current_thread() is threading.main_thread()
        self.seen.append((request, in_main_thread, reconcile_id()))
        self.done.set()
        return Result()


class AsyncReconciler:
    async def reconcile(self, request: Request) -> Result:
        return Result()


def test_reconciler_that_needs_no_thread_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"AsyncReconciler\.reconcile is async: must be a plain method"
    ):
        ThreadedReconciler(cast("Any", AsyncReconciler()))


async def is_set(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 5)


async def test_sync_reconciler_runs_in_a_thread_with_the_context_of_the_reconcile() -> None:
    recorder = Recorder()
    async with running(Controller("recorder", ThreadedReconciler(recorder)), ONE):
        await is_set(recorder.done)
    ((request, in_main_thread, identity),) = recorder.seen
    assert request == ONE
    assert not in_main_thread
    assert identity


async def test_other_result_of_a_sync_reconciler_names_its_class() -> None:
    class Silent:
        def reconcile(self, request: Request) -> Result:
            return None  # type: ignore[return-value]

    with pytest.raises(
        TypeError, match=r"^Silent\.reconcile: returned None: must return a Result$"
    ):
        await ThreadedReconciler(Silent()).reconcile(ONE)


async def test_blocked_reconcile_does_not_delay_others_and_is_abandoned_after_its_timeout() -> None:
    release = threading.Event()
    other = threading.Event()
    refused = threading.Event()
    calls: list[Request] = []

    async def call() -> None:
        raise AssertionError("called by an abandoned thread")

    class Blocking:
        def reconcile(self, request: Request) -> Result:
            calls.append(request)
            if request == TWO:
                other.set()
                return Result()
            release.wait(120)
            if calls.count(ONE) > 1:
                return Result()  # the thread of this retry is not abandoned
            try:
                call_in_loop(call)
            except ThreadAbandoned:
                refused.set()
            return Result()

    options = ControllerOptions(max_concurrent_reconciles=2, reconcile_timeout=0.05)
    controller = Controller("blocking", ThreadedReconciler(Blocking()), options=options)
    async with running(controller, ONE, TWO):
        await is_set(other)
        await asyncio.sleep(0.2)  # several retries of ONE, which fail while its thread runs
        assert calls.count(ONE) == 1
        release.set()
        await is_set(refused)


async def test_call_in_progress_takes_no_further_step_once_its_thread_is_abandoned() -> None:
    threads = HandlerThreads("test", 1)
    waiting = asyncio.Event()
    answered = asyncio.Event()
    writes: list[str] = []
    abandoned = threading.Event()

    async def read_and_write() -> None:
        waiting.set()
        await answered.wait()
        writes.append("written")

    def work() -> None:
        try:
            call_in_loop(read_and_write)
        except ThreadAbandoned:
            abandoned.set()

    task = asyncio.create_task(threads.run(work))
    await waiting.wait()
    task.cancel()
    await asyncio.wait([task])
    answered.set()
    await is_set(abandoned)
    assert writes == []


async def test_context_and_exceptions_pass_between_thread_and_event_loop() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("value")
    threads = HandlerThreads("test", 1)

    async def read() -> str:
        return variable.get()

    assert await threads.run(call_in_loop, read) == "value"

    async def fail() -> None:
        raise LookupError("missing")

    with pytest.raises(LookupError, match="missing"):
        await threads.run(call_in_loop, fail)


async def test_sync_client_outside_of_a_thread_is_refused() -> None:
    class FakeClient:
        async def get(self, *_: Any, **__: Any) -> None:
            raise AssertionError

    client: Any = FakeClient()
    with pytest.raises(RuntimeError, match="must be used in the thread in which the handler"):
        SyncClient(client).get(None, ONE)  # type: ignore[arg-type]
