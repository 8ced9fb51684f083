"""A stream of bytes between the reader of a connection and a task."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["ByteQueue"]


class ByteQueue:
    """Bytes in the order in which they were fed; ``taken`` is called with the number of bytes that were read."""

    def __init__(self, taken: Callable[[int], None] | None = None) -> None:
        self._chunks: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._taken = taken

    def feed(self, data: bytes) -> None:
        """Add bytes; ignored after :meth:`end`."""
        if data and not self._ended:
            self._chunks.append(data)
            self._wake.set()

    def end(self) -> None:
        """End the stream: readers receive what was fed before, then nothing."""
        self._ended = True
        self._wake.set()

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end of the stream."""
        while not self._chunks:
            if self._ended:
                return b""
            self._wake.clear()
            await self._wake.wait()
        chunk = self._chunks.popleft()
        if self._taken is not None:
            self._taken(len(chunk))
        return chunk
