"""A client for programs and tests that run no manager."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport

__all__ = ["connect"]


@asynccontextmanager
async def connect(config: ClientConfig, *, field_manager: str) -> AsyncIterator[Client]:
    """Return an async context manager with a client that has no cache: each read is a request.

    ``field_manager`` is the field manager of its writes. Entering it sends no request. Operators use the client of
    their :class:`~cfo.runtime.manager.manager.Manager` instead, which reads from informers.
    """
    async with Transport(config) as transport:
        yield Client(transport, RESTMapper(transport), field_manager=field_manager)
