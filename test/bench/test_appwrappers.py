"""AppWrappers by the thousand, on the embedded control plane (``make bench``; it prints, and judges nothing).

Control plane, pods and operator share one process, so the times are those of all of them; the requests are the
operator's own. ``BENCH_APPWRAPPERS`` and ``BENCH_RUNNING`` are how many there are, ``BENCH_SECONDS`` how long
they rest.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from cfo.runtime.manager import Manager
from test.integration.appwrappers import CONTROLLERS, Watched, job, operating, watched_world, wrapper

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

APPWRAPPERS = int(os.environ.get("BENCH_APPWRAPPERS", "1000"))
RUNNING = int(os.environ.get("BENCH_RUNNING", "5000"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "60"))

_AT_ONCE = 32


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    yield
    structlog.reset_defaults()


async def create(here: Watched, count: int, **pods: Any) -> None:
    """Creates so many AppWrappers of one Job each."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            await here.create(wrapper(job(f"j-{number}", **pods), name=f"w-{number}"))

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(one(number))


async def reach(manager: Manager, phase: str, count: int) -> None:
    """Waits until so many are in ``phase``, as the operator's own metric says."""
    while True:
        total = manager.metrics.registry.get_sample_value("appwrapper_phase_total", {"namespace": "ns", "phase": phase})
        if (total or 0) >= count:
            return
        await asyncio.sleep(0.2)


def asked(here: Watched) -> Counter[tuple[str, str]]:
    """What the operator asked for, but for Events."""
    return Counter(
        (exchange.verb, exchange.resource) for exchange in here.exchanges if "events" not in exchange.resource
    )


async def test_from_creation_to_success() -> None:
    async with watched_world(controllers=CONTROLLERS) as here, operating(here) as manager:
        await here.namespace()
        began = time.perf_counter()
        await create(here, APPWRAPPERS, phase="Succeeded")
        created = time.perf_counter() - began
        await reach(manager, "Succeeded", APPWRAPPERS)
        seconds = time.perf_counter() - began
        counts = asked(here)
        total = sum(counts.values())
        print(
            f"\n{APPWRAPPERS:,} AppWrappers of one Job each: created in {created:.1f} s, all succeeded after "
            f"{seconds:.1f} s ({APPWRAPPERS / seconds:.0f}/s); {total / APPWRAPPERS:.2f} requests for each"
        )
        for (verb, resource), number in counts.most_common(8):
            print(f"  {verb:8} {resource:45} {number / APPWRAPPERS:.2f}")


async def test_at_rest() -> None:
    async with watched_world(controllers=CONTROLLERS) as here, operating(here) as manager:
        await here.namespace()
        began = time.perf_counter()
        await create(here, RUNNING)
        await reach(manager, "Running", RUNNING)
        quiet = 0
        while quiet < 10:  # two seconds without a request: all pods are ready, and that is written
            before = len(here.exchanges)
            await asyncio.sleep(0.2)
            quiet = quiet + 1 if len(here.exchanges) == before else 0
        print(f"\n{RUNNING:,} AppWrappers run after {time.perf_counter() - began:.1f} s")
        here.exchanges.clear()
        cpu = time.process_time()
        await asyncio.sleep(SECONDS)
        print(
            f"in {SECONDS:.0f} s at rest: {sum(asked(here).values())} requests, "
            f"{time.process_time() - cpu:.2f} s of CPU (control plane and operator)"
        )
