"""How fast the machinery is when the reconciler does nothing (``make bench``; it prints, and judges nothing)."""

from __future__ import annotations

import asyncio
import time

import pytest
import structlog

from cfo.runtime.controller import Controller
from cfo.runtime.metrics import Metrics
from cfo.runtime.reconcile import Request, Result
from cfo.runtime.source import Channel
from cfo.runtime.workqueue import WorkQueue

pytestmark = pytest.mark.bench

OBJECTS = 10_000


class Nothing:
    def __init__(self) -> None:
        self.left = OBJECTS
        self.finished = asyncio.Event()

    async def reconcile(self, _: Request) -> Result:
        self.left -= 1
        if not self.left:
            self.finished.set()
        return Result()


@pytest.fixture(autouse=True)
def _quiet_logs() -> object:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    yield
    structlog.reset_defaults()


async def test_queue_operations() -> None:
    for metrics in (None, Metrics().queue("bench")):
        queue: WorkQueue[Request] = WorkQueue(metrics=metrics)
        requests = [Request("team", f"cluster-{number}") for number in range(OBJECTS)]
        began = time.perf_counter()
        for request in requests:
            queue.add(request)
        for _ in requests:
            item, _priority = await queue.get()
            queue.done(item)
        seconds = time.perf_counter() - began
        print(f"\nqueue {'with' if metrics else 'without'} metrics: {3 * OBJECTS / seconds:,.0f} operations/s")


async def test_reconciles() -> None:
    nothing, channel = Nothing(), Channel()
    controller = Controller("bench", nothing)
    controller.watch(channel)
    run = asyncio.create_task(controller.run())
    began = time.perf_counter()
    channel.enqueue(Request("team", f"cluster-{number}") for number in range(OBJECTS))
    await nothing.finished.wait()
    seconds = time.perf_counter() - began
    print(f"\n{OBJECTS:,} reconciles that do nothing: {OBJECTS / seconds:,.0f}/s")
    controller.stop()
    await run
