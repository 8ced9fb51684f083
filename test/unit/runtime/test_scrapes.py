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


def test_few_scrapes_have_current_values() -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    registry.register(SlowCollector(clock, 0.1))
    scrapes = Scrapes(registry, clock)
    for number in range(1, 6):
        scrape = scrapes.scrape("")
        assert f"scrapes_total {number}.0".encode() in scrape.body
        assert gzip.decompress(scrape.gzipped) == scrape.body


@pytest.mark.parametrize("seconds", [0.02, 0.09, 0.5])
def test_results_are_used_again_after_many_scrapes(seconds: float) -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    registry.register(SlowCollector(clock, seconds))
    scrapes = Scrapes(registry, clock)
    before = None
    while (last := scrapes.scrape("")) is not before:
        before = last
    assert scrapes.scrape("text/plain;version=1.0.0") is last
    clock.advance(2.1)
    assert scrapes.scrape("") is not last


@pytest.mark.parametrize("seconds", [0.02, 0.09])
def test_encoding_takes_a_tenth_of_the_time(seconds: float) -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    collector = SlowCollector(clock, seconds)
    registry.register(collector)
    scrapes = Scrapes(registry, clock)
    while clock.monotonic() < 100:
        scrapes.scrape("")
        scrapes.scrape(OPEN_METRICS)
        clock.advance(0.01)
    assert 9 < collector.scrapes * seconds < 12


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
    assert collector.scrapes < 30
