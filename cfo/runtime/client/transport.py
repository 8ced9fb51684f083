"""Requests to an API server, and their answers, as bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Self

import aiohttp

from cfo.runtime.client.config import ClientConfig

__all__ = ["Response", "Transport"]

JSON = "application/json"


class Response(NamedTuple):
    """An answer below 400."""

    code: int
    body: bytes
    headers: Mapping[str, str]


class Transport:
    """One connection pool to one API server; an async context manager."""

    def __init__(self, config: ClientConfig, *, qps: float | None = None, burst: int | None = None) -> None:
        self.config = config

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,
        verb: str = "",
        resource: str = "",
        retry_lost: bool | None = None,
    ) -> Response: ...

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = JSON,
        read_timeout: float | None = None,
        verb: str = "watch",
        resource: str = "",
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of a long answer (a watch), as aiohttp's stream reader.

        ``read_timeout``: seconds without a byte after which reading fails.
        """
        yield aiohttp.StreamReader.__new__(aiohttp.StreamReader)
