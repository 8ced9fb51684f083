"""The bounded pool of threads whose work can be abandoned."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from cfo.runtime.process import ThreadPool


async def test_pool_is_bounded_and_a_cancelled_job_that_has_not_started_never_runs() -> None:
    pool = ThreadPool("test", 2)
    release = threading.Event()
    ran: list[int] = []
    running = [asyncio.create_task(pool.run(release.wait, 5)) for _ in range(2)]
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(pool.run(ran.append, 1))
    await asyncio.sleep(0.01)
    assert [thread.name for thread in threading.enumerate()].count("test") == 2
    waiting.cancel()
    await asyncio.wait([waiting])
    release.set()
    await asyncio.gather(*running)
    assert await pool.run(lambda: "next") == "next"
    assert ran == []


async def test_abandoned_thread_occupies_its_place_until_it_ends() -> None:
    pool = ThreadPool("test", 1)
    started = threading.Event()
    release = threading.Event()

    def block() -> None:
        started.set()
        release.wait(5)

    blocked = asyncio.create_task(pool.run(block))
    assert await asyncio.to_thread(started.wait, 5)
    blocked.cancel()
    await asyncio.wait([blocked])
    waiting = asyncio.create_task(pool.run(release.is_set))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    release.set()
    assert await waiting


async def test_context_and_exceptions_pass_between_thread_and_event_loop() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("value")
    pool = ThreadPool("test", 1)
    assert await pool.run(variable.get) == "value"

    def fail() -> None:
        raise LookupError("missing")

    with pytest.raises(LookupError, match="missing"):
        await pool.run(fail)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.run(lambda: next(iter(())))


def test_pool_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="limit: 0"):
        ThreadPool("test", 0)
