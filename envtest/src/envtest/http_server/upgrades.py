"""Requests that leave HTTP, such as exec over WebSocket: aiohttp serves their connections.

aiohttp is imported with the first of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from envtest.http_server.connection import HEAD_BYTES
from envtest.http_server.deadlines import IDLE_SECONDS
from envtest.http_server.responses import CompleteResponse, SentResponse

__all__ = ["UpgradeHandler", "UpgradeServer"]

UpgradeHandler = Callable[[web.BaseRequest], Awaitable[CompleteResponse | SentResponse]]
_LOGGER: Final = "envtest.http"


def _logger() -> logging.Logger:
    """Return aiohttp's logger without errors that clients receive as a 400: malformed HTTP is not a server failure."""
    logger = logging.getLogger(_LOGGER)
    if not logger.filters:
        logger.addFilter(
            lambda record: (
                not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
            )
        )
    return logger


class UpgradeServer:
    """Creates the protocols of upgraded connections."""

    def __init__(self, handler: UpgradeHandler) -> None:
        self._handler = handler
        self._server = web.Server(
            self._handle,
            access_log=None,
            logger=_logger(),
            keepalive_timeout=IDLE_SECONDS,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
        )

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        response = await self._handler(raw)
        if isinstance(response, web.StreamResponse):
            return response
        assert isinstance(response, CompleteResponse)
        complete = web.Response(body=response.body, status=response.status)
        for name, value in response.headers:
            complete.headers.add(name, value)
        complete.force_close()  # the connection stays in HTTP, which is not read as strictly here
        return complete

    def protocol(self) -> asyncio.Protocol:
        """Return the protocol of another connection."""
        return self._server()

    async def stop(self, seconds: float) -> None:
        """Give the requests ``seconds`` to end, then cut all connections."""
        await self._server.shutdown(seconds)
