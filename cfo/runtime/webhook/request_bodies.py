"""Receives the bodies of requests, and limits their size: of each, and of all that are being received together.

Bodies that arrive slowly cannot fill the memory: if all incomplete bodies together are too large, the oldest is
rejected.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

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
        self._sizes: dict[asyncio.Timeout, int] = {}
        self._total = 0
        self._rejected: set[asyncio.Timeout] = set()

    async def read(self, request: web.BaseRequest) -> bytes | None:
        """Read the body; return ``None`` if it exceeds :data:`MAX_BODY`.

        Raises :class:`TimeoutError` if that takes too long, :class:`TooManyBytes` if newer bodies need the memory.
        """
        if (request.content_length or 0) > MAX_BODY:
            return None
        timeout = asyncio.timeout(READ_TIMEOUT)
        chunks: list[bytes] = []
        try:
            async with timeout:
                self._sizes[timeout] = 0
                async for chunk in request.content.iter_any():
                    if self._sizes[timeout] + len(chunk) > MAX_BODY:
                        return None
                    chunks.append(chunk)
                    self._add(timeout, len(chunk))
        except TimeoutError:
            if timeout in self._rejected:
                raise TooManyBytes from None
            raise
        finally:
            self._rejected.discard(timeout)
            self._total -= self._sizes.pop(timeout, 0)
        return b"".join(chunks)

    def _add(self, timeout: asyncio.Timeout, size: int) -> None:
        """Count a chunk of the body with this timeout; if all are too large, let the timeout of the oldest expire."""
        self._sizes[timeout] += size
        self._total += size
        if self._total <= MAX_BYTES:
            return
        for oldest in self._sizes:
            if oldest not in self._rejected:
                self._rejected.add(oldest)
                oldest.reschedule(asyncio.get_running_loop().time())
                return
