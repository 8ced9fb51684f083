"""Encodes metrics for scrapes.

The attack: any pod that reaches the port asks for metrics on many connections, one request after the other. Encoding
them takes up to 0.1 s, in the event loop, because the metrics belong to it. So it may take a tenth of the time; beyond
that, requests get the newest result again. No request waits, because those that wait would occupy all connections.
There are two formats, of which clients choose one, and nothing else.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from cfo.runtime.process.clock import Clock, SystemClock

_SHARE: Final = 0.1
"""Which part of the time encoding may take."""

_MAX_CREDIT: Final = 0.5
"""How many seconds of it can be saved for later, so that some scrapes at once all have current values."""

_MAX_AGE: Final = 2.0
"""The maximum age of a result in seconds."""

_COMPRESSION_LEVEL: Final = 6
_OPEN_METRICS: Final = "application/openmetrics-text"

_Format = tuple[str, Callable[[CollectorRegistry], bytes]]
"""The content type, and the function that encodes."""

_OPEN_METRICS_FORMAT: Final[_Format] = (
    openmetrics.CONTENT_TYPE_LATEST,
    openmetrics.generate_latest,
)
_TEXT_FORMAT: Final[_Format] = (CONTENT_TYPE_PLAIN_0_0_4, generate_latest)


class Scrape(msgspec.Struct, frozen=True):
    """The encoded metrics; ``gzipped`` is the same as ``body``, compressed. ``at``: the monotonic time in seconds."""

    at: float
    content_type: str
    body: bytes
    gzipped: bytes


class Scrapes:
    """The results of scrapes of ``registry``. Used by one event loop."""

    def __init__(self, registry: CollectorRegistry, clock: Clock | None = None) -> None:
        self._registry = registry
        self._clock = clock or SystemClock()
        self._credit = _MAX_CREDIT
        self._credited_at = self._clock.monotonic()
        self._newest: dict[bool, Scrape] = {}
        """The newest result in OpenMetrics, and the newest one as text."""

    def scrape(self, accept: str) -> Scrape:
        """Return the metrics in OpenMetrics if ``accept``, an HTTP header, has it, else as text.

        They are current, or at most 2 s old if there were many scrapes.
        """
        types = (each.partition(";")[0].strip() for each in accept.split(","))
        is_open_metrics = _OPEN_METRICS in types
        now = self._clock.monotonic()
        self._credit = min(self._credit + _SHARE * (now - self._credited_at), _MAX_CREDIT)
        self._credited_at = now
        newest = self._newest.get(is_open_metrics)
        if newest is not None and self._credit <= 0 and now < newest.at + _MAX_AGE:
            return newest
        scrape = self._encode(is_open_metrics=is_open_metrics)
        self._credit -= scrape.at - now
        self._newest[is_open_metrics] = scrape
        return scrape

    def _encode(self, *, is_open_metrics: bool) -> Scrape:
        content_type, encode = _OPEN_METRICS_FORMAT if is_open_metrics else _TEXT_FORMAT
        body = encode(self._registry)
        gzipped = gzip.compress(body, _COMPRESSION_LEVEL)
        return Scrape(self._clock.monotonic(), content_type, body, gzipped)
