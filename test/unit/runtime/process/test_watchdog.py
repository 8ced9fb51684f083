"""The event loop watchdog: blocks are measured, the blocking function is logged once, and no values are logged."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.process import watchdog as watchdog_module
from cfo.runtime.process.watchdog import INTERVAL, EventLoopWatchdog

BLOCK_SECONDS = 0.6


@pytest.fixture
async def lag() -> AsyncIterator[Callable[[], dict[str, float]]]:
    """Run a watchdog in the event loop of the test; return a function that reads its histogram."""
    metrics = Metrics()
    task = asyncio.create_task(EventLoopWatchdog(metrics.event_loop_lag).run())
    await asyncio.sleep(0)

    def read() -> dict[str, float]:
        (family,) = metrics.event_loop_lag.collect()
        return {
            sample.labels.get("le", sample.name.rpartition("_")[2]): sample.value
            for sample in family.samples
        }

    yield read
    task.cancel()
    await asyncio.wait([task])


async def eventually(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 (the watchdog's thread has no event)
            await asyncio.sleep(0.01)


def block(seconds: float) -> None:
    time.sleep(seconds)


def block_with_a_secret(secret: str) -> None:
    time.sleep(BLOCK_SECONDS)


async def caller_of_the_blocking_function() -> None:
    block_with_a_secret("s3cr3t")


async def test_blocking_function_is_logged_with_its_stack_and_duration(lag: object) -> None:
    with capture_logs() as logs:
        await asyncio.sleep(0.02)
        await caller_of_the_blocking_function()
        await eventually(lambda: logs)
    (line,) = logs
    assert line["event"] == "Event loop was blocked"
    assert line["log_level"] == "warning"
    assert "in a thread: ThreadPool.run of cfo.runtime.process" in line["remedy"]
    assert BLOCK_SECONDS - INTERVAL <= line["seconds"] < BLOCK_SECONDS + 5
    assert (
        line["function"]
        == f"{__file__}:{block_with_a_secret.__code__.co_firstlineno + 1} block_with_a_secret"
    )
    assert line["frames"][0] == line["function"]
    assert line["frames"][1].endswith(" caller_of_the_blocking_function")
    assert "s3cr3t" not in str(line)
    structlog.dev.ConsoleRenderer(colors=False)(
        None, "warning", dict(line)
    )  # must not reserve one of its keys


def block_deep(depth: int) -> None:
    if depth:
        block_deep(depth - 1)
    else:
        block(BLOCK_SECONDS)


async def test_deep_stack_is_logged_with_its_innermost_and_outermost_functions(lag: object) -> None:
    with capture_logs() as logs:
        await asyncio.sleep(0.02)
        block_deep(50)
        await eventually(lambda: logs)
    functions = [frame.rpartition(" ")[2] for frame in logs[0]["frames"]]
    test = "test_deep_stack_is_logged_with_its_innermost_and_outermost_functions"
    assert functions[0] == "block"
    assert functions[-1] == test
    assert logs[0]["frames"][4].endswith(" more")
    assert len(functions) == 7


async def test_block_is_counted_in_the_histogram(lag: Callable[[], dict[str, float]]) -> None:
    block(0.6)
    await eventually(lambda: lag()["count"])
    after = lag()
    assert after["count"] - after["0.25"] == 1
    assert after["+Inf"] == after["count"]
    assert 0.3 <= after["sum"] < 5


async def test_log_lines_are_limited(lag: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog_module, "INTERVAL", 0.02)
    monkeypatch.setattr(watchdog_module, "_LOG_INTERVAL", 0.3)
    with capture_logs() as logs:
        async with asyncio.timeout(120):
            while len(logs) < 2:
                block(0.1)
                await asyncio.sleep(0.01)
    first, second = logs
    assert first["suppressed"] == 0
    assert second["suppressed"] >= 1


async def test_block_that_does_not_end_is_logged(
    lag: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog_module, "_LONG", 0.3)
    with capture_logs() as logs:
        end = time.monotonic() + 20
        while not logs and time.monotonic() < end:
            block(0.01)
        assert [line["event"] for line in logs] == ["Event loop is blocked"]
        await asyncio.sleep(0.3)
    assert len(logs) == 1


async def test_thread_ends_with_the_watchdog() -> None:
    before = threading.enumerate()  # those of earlier tests may not have ended yet
    task = asyncio.create_task(EventLoopWatchdog(Metrics().event_loop_lag).run())
    await asyncio.sleep(0)
    (thread,) = [
        thread
        for thread in threading.enumerate()
        if thread.name == "event-loop-watchdog" and thread not in before
    ]
    task.cancel()
    await asyncio.wait([task])
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
