"""Receives the bodies of requests, and limits their size: of each, and of all that are being received together.

Bodies that arrive slowly cannot fill the memory: if all incomplete bodies together are too large, the oldest is
rejected.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from cfo.runtime.process.byte_budget import ByteBudget

MAX_BODY: Final = 7 * 1024 * 1024
"""The maximum size of a request body in bytes: enough for an object and its old version, each of the maximum size in
etcd. controller-runtime has the same limit."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""The maximum size in bytes of all reviews' bodies in flight, and of all bodies that are being received. Decoded,
they take up to 20 times as much memory (a list of empty lists)."""

READ_TIMEOUT: Final = 30.0
"""The time in seconds in which a body must be received."""


class TooManyBytes(Exception):
    """Raised by :meth:`RequestBodies.read` for a body that was given up in favour of newer ones."""


class RequestBodies:
    """The bodies that are being received; together they have at most :data:`MAX_BYTES`."""

    def __init__(self) -> None:
        self._budget = ByteBudget(MAX_BYTES)

    async def read(self, request: web.BaseRequest) -> bytes | None:
        """Read the body; return ``None`` if it exceeds :data:`MAX_BODY`.

        Raises :class:`TimeoutError` if that takes too long, :class:`TooManyBytes` if newer bodies need the memory.
        """
        if (request.content_length or 0) > MAX_BODY:
            return None
        timeout = asyncio.timeout(READ_TIMEOUT)
        chunks: list[bytes] = []
        size = 0
        try:
            async with timeout:
                async for chunk in request.content.iter_any():
                    size += len(chunk)
                    if size > MAX_BODY:
                        return None
                    chunks.append(chunk)
                    self._budget.add(timeout, len(chunk))
        except TimeoutError:
            if self._budget.is_given_up(timeout):
                raise TooManyBytes from None
            raise
        finally:
            self._budget.remove(timeout)
        return b"".join(chunks)
