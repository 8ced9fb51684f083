"""The event loop watchdog: every block is measured, the blocking function is logged once, and no values are logged."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from cfo.runtime.process import watchdog as watchdog_module
from cfo.runtime.process.watchdog import EventLoopLag, EventLoopWatchdog

BLOCK_SECONDS = 0.4


@pytest.fixture
async def lag() -> AsyncIterator[EventLoopLag]:
    """Run a watchdog in the event loop of the test."""
    measured = EventLoopLag()
    task = asyncio.create_task(EventLoopWatchdog(measured).run())
    await asyncio.sleep(0)
    yield measured
    task.cancel()
    await asyncio.wait([task])


def samples(lag: EventLoopLag) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(lag)
    return {
        sample.labels.get("le", sample.name.rpartition("_")[2]): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


async def eventually(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (the watchdog's thread has no event)
            await asyncio.sleep(0.01)


def block(seconds: float) -> None:
    time.sleep(seconds)


def block_with_a_secret(secret: str) -> None:
    time.sleep(BLOCK_SECONDS)


async def caller_of_the_blocking_function() -> None:
    block_with_a_secret("s3cr3t")


async def test_blocking_function_is_logged_with_its_stack_and_duration(lag: EventLoopLag) -> None:
    with capture_logs() as logs:
        await asyncio.sleep(0.02)
        await caller_of_the_blocking_function()
        await eventually(lambda: logs)
    (line,) = logs
    assert line["event"] == "Event loop was blocked"
    assert line["log_level"] == "warning"
    assert BLOCK_SECONDS <= line["seconds"] < BLOCK_SECONDS + 5
    assert line["function"] == f"{__file__}:{block_with_a_secret.__code__.co_firstlineno + 1} block_with_a_secret"
    assert line["frames"][0] == line["function"]
    assert line["frames"][1].endswith(" caller_of_the_blocking_function")
    assert "s3cr3t" not in str(line)
    structlog.dev.ConsoleRenderer(colors=False)(None, "warning", dict(line))  # must not reserve one of its keys


def block_deep(depth: int) -> None:
    if depth:
        block_deep(depth - 1)
    else:
        block(BLOCK_SECONDS)


async def test_deep_stack_is_logged_with_its_innermost_and_outermost_functions(lag: EventLoopLag) -> None:
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


async def test_block_is_counted_in_the_histogram(lag: EventLoopLag) -> None:
    await asyncio.sleep(0.01)
    before = samples(lag)
    block(0.3)
    await asyncio.sleep(0.01)
    after = samples(lag)
    assert after["count"] - after["0.25"] == before["count"] - before["0.25"] + 1
    assert after["+Inf"] == after["count"]
    assert after["sum"] - before["sum"] >= 0.3


class Selector:
    """A selector whose ``select`` takes ``seconds`` of the fake clock."""

    def __init__(self) -> None:
        self.now, self.seconds = 0.0, 0.0
        self.events: list[object] = []

    def select(self, timeout: float | None = None) -> list[object]:
        self.now += self.seconds
        return self.events


def test_each_iteration_is_measured_from_when_it_could_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    selector, observed = Selector(), list[float]()
    monkeypatch.setattr(watchdog_module, "monotonic", lambda: selector.now)
    probe = watchdog_module._SelectorProbe.of(selector)
    probe.add(observed.append)
    select: Callable[[float | None], object] = selector.select
    for events, timeout, waited, computed in (
        (["event"], None, 100.0, 0.2),  # waited for an event
        (["event"], 50.0, 10.0, 0.1),  # an event arrived before the next timer was due
        ([], 2.0, 2.0, 0.3),  # a timer was due
        ([], 2.0, 2.5, 0.1),  # a timer was due, but the process did not run: no CPU time, or another thread had the GIL
        (["event"], 0, 0.0, 0.2),  # callbacks were waiting
    ):
        selector.events, selector.seconds = events, waited
        select(timeout)
        selector.now += computed
    select(0)
    assert [round(lag, 2) for lag in observed] == [0, 0.2, 0.1, 0.3, 0.6, 0.2]
    assert probe.last_block[1] == pytest.approx(0.3)


async def test_log_lines_are_limited(lag: EventLoopLag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog_module, "THRESHOLD", 0.05)
    monkeypatch.setattr(watchdog_module, "_LOG_INTERVAL", 0.3)
    with capture_logs() as logs:
        async with asyncio.timeout(20):
            while len(logs) < 2:
                block(0.06)
                await asyncio.sleep(0.06)
    first, second = logs
    assert first["suppressed"] == 0
    assert second["suppressed"] >= 1


async def test_block_that_does_not_end_is_logged(lag: EventLoopLag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog_module, "_LONG", 0.3)
    with capture_logs() as logs:
        end = time.monotonic() + 20
        while not logs and time.monotonic() < end:
            block(0.01)
        assert [line["event"] for line in logs] == ["Event loop is blocked"]
        await asyncio.sleep(0.3)
    assert len(logs) == 1


async def test_selector_is_restored_and_the_thread_ends() -> None:
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    tasks = [asyncio.create_task(EventLoopWatchdog(EventLoopLag()).run()) for _ in range(2)]
    await asyncio.sleep(0)
    threads = [thread for thread in threading.enumerate() if thread.name == "event-loop-watchdog"]
    assert len(threads) == 2
    for number, task in enumerate(tasks):
        assert "select" in vars(selector), f"removed with watchdog {number} still running"
        task.cancel()
        await asyncio.wait([task])
    assert "select" not in vars(selector)
    for thread in threads:
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()


async def test_loop_without_selector_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop: ...

    monkeypatch.setattr(watchdog_module.asyncio, "get_running_loop", Loop)
    with capture_logs() as logs:
        await EventLoopWatchdog(EventLoopLag()).run()
    assert logs[0]["event"] == "Event loop has no selector, not measuring its lag"
