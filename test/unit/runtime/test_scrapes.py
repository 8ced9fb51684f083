"""Tests that scrapes share results, so that encoding metrics takes at most a tenth of the event loop's time."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from cfo.runtime.controller.scrapes import Scrapes
from test.support.clocks import FakeClock

OPEN_METRICS = "application/openmetrics-text"


class SlowCollector(Collector):
    """Counts how often it is scraped; each time takes some seconds of the clock."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.scrapes = 0

    def collect(self) -> Iterator[Metric]:
        self._clock.advance(self._seconds)
        self.scrapes += 1
        yield CounterMetricFamily("scrapes", "Number of scrapes.", value=self.scrapes)


@pytest.mark.parametrize(("seconds", "used_again"), [(0.02, 0.38), (0.5, 1.0)])
def test_result_is_used_again(seconds: float, used_again: float) -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    collector = SlowCollector(clock, seconds)
    registry.register(collector)
    scrapes = Scrapes(registry, clock)
    first = scrapes.scrape("")
    assert b"scrapes_total 1.0" in first.body
    assert gzip.decompress(first.gzipped) == first.body
    clock.advance(used_again - 0.01)
    assert scrapes.scrape("text/plain;version=1.0.0") is first
    clock.advance(0.02)
    assert b"scrapes_total 2.0" in scrapes.scrape("").body


def test_clients_choose_one_of_two_formats() -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    collector = SlowCollector(clock, 0.02)
    registry.register(collector)
    scrapes = Scrapes(registry, clock)
    for version in range(20):
        accept = f"{OPEN_METRICS};version={version}.0.0;escaping=dots,text/plain;version={version}"
        scrape = scrapes.scrape(accept)
        assert scrape.content_type.startswith(f"{OPEN_METRICS}; version=1.0.0")
        assert scrape.body.endswith(b"# EOF\n")
        assert scrapes.scrape(f"text/plain;version={version}").content_type.startswith("text/plain")
    assert collector.scrapes == 2
