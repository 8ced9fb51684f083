"""Tests that scrapes share results, and that encoding metrics takes at most a tenth of the event loop's time."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import anyio
from anyio.lowlevel import checkpoint
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.runtime.controller.scrapes import Scrapes
from test.support.clocks import FakeClock

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class SlowCollector(Collector):
    """Counts how often it is scraped; each time takes 0.1 s of the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.scrapes = 0

    def collect(self) -> Iterator[Metric]:
        self._clock.advance(0.1)
        self.scrapes += 1
        yield CounterMetricFamily("scrapes", "Number of scrapes.", value=self.scrapes)


async def test_scrapes_that_wait_share_one_result_after_a_pause() -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    collector = SlowCollector(clock)
    registry.register(collector)
    scrapes = Scrapes(registry, clock)
    first = await scrapes.scrape("")
    assert b"scrapes_total 1.0" in first.body
    assert gzip.decompress(first.gzipped) == first.body

    found: list[bytes] = []

    async def scrape() -> None:
        found.append((await scrapes.scrape("")).body)

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(scrape)
        while not clock.timers:
            await checkpoint()
        clock.advance(0.89)
        for _ in range(10):
            await checkpoint()
        assert (found, collector.scrapes) == ([], 1)
        clock.advance(0.02)
    assert set(found) == {found[0]}
    assert b"scrapes_total 2.0" in found[0]
    assert (len(found), collector.scrapes) == (30, 2)


async def test_no_scrape_gets_metrics_that_are_older_than_its_request() -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    registry.register(SlowCollector(clock))
    scrapes = Scrapes(registry, clock)
    for number in range(1, 4):
        scrape = await scrapes.scrape("")
        assert f"scrapes_total {number}.0".encode() in scrape.body
        clock.advance(1)


async def test_scrapes_in_another_format_are_encoded_again() -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    registry.register(SlowCollector(clock))
    scrapes = Scrapes(registry, clock)
    types: list[str] = []

    async def scrape(accept: str) -> None:
        types.append((await scrapes.scrape(accept)).content_type.partition(";")[0])

    async with anyio.create_task_group() as tasks:
        for accept in ("", OPEN_METRICS, ""):
            tasks.start_soon(scrape, accept)
        while len(types) < 3:
            await checkpoint()
            if clock.timers:
                clock.advance(1)
    assert types == ["text/plain", "application/openmetrics-text", "text/plain"]
