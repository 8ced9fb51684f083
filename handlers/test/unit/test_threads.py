"""Sync reconcilers and sync functions in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from cfo.runtime import Controller, Request, Result, reconcile_id
from cfo.runtime.client.write_gate import WriteRejected, write_gates
from cfo.runtime.controller import ControllerOptions, SyncClient, ThreadAbandoned
from cfo.runtime.controller.source import Channel
from cfo.runtime.controller.threads import ThreadedReconciler, ThreadPool, call_in_loop

ONE, TWO = Request("default", "one"), Request("default", "two")


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


async def wait_for(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 5)


async def test_sync_reconciler_runs_in_a_thread_with_the_context_of_the_reconcile() -> None:
    recorder = Recorder()
    async with running(Controller("recorder", recorder), ONE):
        await wait_for(recorder.done)
    ((request, in_main_thread, identity),) = recorder.seen
    assert request == ONE
    assert not in_main_thread
    assert identity


async def test_blocked_reconcile_does_not_delay_others_and_is_abandoned_after_its_timeout() -> None:
    release, other, refused = threading.Event(), threading.Event(), threading.Event()
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
            try:
                call_in_loop(call)
            except ThreadAbandoned:
                (gate,) = write_gates.get()
                with pytest.raises(WriteRejected):
                    gate.check()
                refused.set()
            return Result()

    options = ControllerOptions(max_concurrent_reconciles=2, reconcile_timeout=0.05)
    controller = Controller("blocking", Blocking(), options=options)
    async with running(controller, ONE, TWO):
        await wait_for(other)
        await asyncio.sleep(0.2)  # several retries of ONE, which fail while its thread runs
        assert calls.count(ONE) == 1
        release.set()
        await wait_for(refused)


async def test_pool_is_bounded_and_a_cancelled_job_that_has_not_started_never_runs() -> None:
    pool = ThreadPool("test", 2)
    release, ran = threading.Event(), []
    running_jobs = [asyncio.create_task(pool.run(release.wait, 5)) for _ in range(2)]
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(pool.run(ran.append, 1))
    await asyncio.sleep(0.01)
    assert [thread.name for thread in threading.enumerate()].count("test") == 2
    waiting.cancel()
    await asyncio.wait([waiting])
    release.set()
    await asyncio.gather(*running_jobs)
    assert await pool.run(lambda: "next") == "next"
    assert ran == []


async def test_context_and_exceptions_pass_between_thread_and_event_loop() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("value")
    pool = ThreadPool("test", 1)

    async def read() -> str:
        return variable.get()

    assert await pool.run(call_in_loop, read) == "value"

    async def fail() -> None:
        raise LookupError("missing")

    with pytest.raises(LookupError, match="missing"):
        await pool.run(call_in_loop, fail)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.run(lambda: next(iter(())))


async def test_sync_client_outside_of_a_thread_is_refused() -> None:
    class FakeClient:
        async def get(self, *_: Any, **__: Any) -> None:
            raise AssertionError

    client: Any = FakeClient()
    with pytest.raises(RuntimeError, match="no thread of a ThreadPool"):
        SyncClient(client).get(None, ONE)  # type: ignore[arg-type]


def test_pool_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="limit: 0"):
        ThreadPool("test", 0)


async def test_result_that_is_awaitable_is_awaited() -> None:
    class Wrapped:
        def reconcile(self, request: Request) -> Any:
            async def reconcile() -> Result:
                return Result(requeue_after=1)

            return reconcile()

    assert await ThreadedReconciler(Wrapped(), 1).reconcile(ONE) == Result(requeue_after=1)
