"""Sends large responses, and limits the memory of those that clients do not read.

The attack: any pod that can reach a port requests large responses on many connections, and reads none. asyncio's TLS
connections keep all that is written in memory, and report that it was sent. So a large response is written in pieces,
must be read in time, and those that are being sent are limited together.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from io import BytesIO
from typing import Final

from aiohttp import web

from cfo.runtime.process.byte_budget import ByteBudget

SEND_TIMEOUT: Final = 30.0
"""The time in seconds in which a client must read a large response."""

MAX_BYTES: Final = 16 << 20
"""The maximum number of bytes in all large responses that a server is sending."""

_LARGE: Final = 64 << 10
"""The size in bytes from which a response is large."""


class LargeResponses:
    """The large responses that a server is sending."""

    def __init__(self) -> None:
        self._budget = ByteBudget(MAX_BYTES)

    async def send(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Send ``response`` if it is large; the server sends all others.

        The connection is closed if the client does not read in time, or if newer responses need the memory.
        """
        if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
            return
        size = len(response.body)
        transport = request.transport
        if size <= _LARGE or response.prepared or transport is None:
            return
        response.headers["Content-Length"] = str(size)
        response.body = BytesIO(response.body)  # aiohttp writes it in pieces
        transport.set_write_buffer_limits(high=_LARGE)
        timeout = asyncio.timeout(SEND_TIMEOUT)
        try:
            async with timeout:
                self._budget.add(timeout, size)
                with suppress(ConnectionError):  # the client has closed the connection
                    await response.prepare(request)
                    await response.write_eof()
        except TimeoutError:
            transport.abort()
        finally:
            self._budget.remove(timeout)
            # aiohttp keeps the response until the next request of the connection.
            response.body = None
