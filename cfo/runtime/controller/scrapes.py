"""Encodes metrics for scrapes.

The attack: any pod that reaches the port asks for metrics on many connections, one request after the other. Encoding
them takes up to 0.1 s, in the event loop, because the metrics belong to it. So a result is used again for a while: the
event loop encodes for at most a tenth of the time. No request waits, because those that wait would occupy all
connections. There are two formats, of which clients choose one, and nothing else.
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

_USED_AGAIN: Final = 19.0
"""A result in one format is used again for this multiple of the time that it took."""

_MAX_AGE: Final = 1.0
"""The maximum age of a result in seconds."""

_COMPRESSION_LEVEL: Final = 6
_OPEN_METRICS: Final = "application/openmetrics-text"


class Scrape(msgspec.Struct, frozen=True):
    """The encoded metrics; ``gzipped`` is the same as ``body``, compressed."""

    content_type: str
    body: bytes
    gzipped: bytes


class Scrapes:
    """The results of scrapes of ``registry``. Used by one event loop."""

    def __init__(self, registry: CollectorRegistry, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self._plain = _Format(registry, clock, generate_latest, CONTENT_TYPE_PLAIN_0_0_4)
        self._open_metrics = _Format(
            registry, clock, openmetrics.generate_latest, openmetrics.CONTENT_TYPE_LATEST
        )

    def scrape(self, accept: str) -> Scrape:
        """Return the metrics in OpenMetrics if ``accept``, an HTTP header, has it, else as text. At most 1 s old."""
        types = (each.partition(";")[0].strip() for each in accept.split(","))
        encoder = self._open_metrics if _OPEN_METRICS in types else self._plain
        return encoder.scrape()


class _Format:
    """The newest result in one format."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        encode: Callable[[CollectorRegistry], bytes],
        content_type: str,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._encode = encode
        self._content_type = content_type
        self._newest: Scrape | None = None
        self._until = 0.0

    def scrape(self) -> Scrape:
        started = self._clock.monotonic()
        if self._newest is not None and started < self._until:
            return self._newest
        body = self._encode(self._registry)
        self._newest = Scrape(self._content_type, body, gzip.compress(body, _COMPRESSION_LEVEL))
        ended = self._clock.monotonic()
        self._until = ended + min(_USED_AGAIN * (ended - started), _MAX_AGE)
        return self._newest
