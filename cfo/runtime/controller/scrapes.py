"""Encodes metrics for scrapes.

The attack: any pod that reaches the port asks for metrics on many connections, one request after the other. Encoding
them takes up to 0.1 s, in the event loop, because the metrics belong to it. So requests that wait share one result, and
the event loop encodes for at most a tenth of the time.
"""

from __future__ import annotations

import gzip
from typing import Final

import anyio
import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from cfo.runtime.process.clock import Clock, SystemClock

_PAUSE_SHARE: Final = 9.0
"""After metrics were encoded, they are not encoded again for this multiple of the time that it took."""

_MAX_PAUSE: Final = 1.0
"""The longest such pause in seconds: on a busy machine, Prometheus must not time out."""

_COMPRESSION_LEVEL: Final = 6


class Scrape(msgspec.Struct, frozen=True):
    """The encoded metrics; ``number`` counts how often they were encoded, ``gzipped`` is the same, compressed."""

    number: int
    content_type: str
    body: bytes
    gzipped: bytes


class Scrapes:
    """The results of scrapes of ``registry``. Used by one event loop."""

    def __init__(self, registry: CollectorRegistry, clock: Clock | None = None) -> None:
        self._registry = registry
        self._clock = clock or SystemClock()
        self._turn = anyio.Lock()
        self._begun = 0
        self._next_at = 0.0
        self._newest: Scrape | None = None

    async def scrape(self, accept: str) -> Scrape:
        """Return metrics that are not older than this call, in the format that ``accept``, an HTTP header, prefers."""
        encode, content_type = choose_encoder(accept)
        older = self._begun
        async with self._turn:
            newest = self._newest
            if newest is not None and newest.number > older and newest.content_type == content_type:
                return newest
            pause = self._next_at - self._clock.monotonic()
            if pause > 0:
                await self._clock.sleep(pause)
            self._begun += 1
            started = self._clock.monotonic()
            body = encode(self._registry)
            gzipped = gzip.compress(body, _COMPRESSION_LEVEL)
            ended = self._clock.monotonic()
            self._next_at = ended + min(_PAUSE_SHARE * (ended - started), _MAX_PAUSE)
            scrape = Scrape(self._begun, content_type, body, gzipped)
            is_awaited = self._turn.statistics().tasks_waiting > 0
            self._newest = scrape if is_awaited else None
            return scrape
