"""A stream of bytes between the reader of a connection and a task."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["MAX_WAITING", "ByteQueue"]

MAX_WAITING: Final = 1 << 20
"""Bytes that wait to be read, above which :meth:`ByteQueue.room` waits."""


class ByteQueue:
    """Bytes in the order in which they were fed; ``taken`` is called with the number of bytes that were read."""

    def __init__(self, taken: Callable[[int], None] | None = None) -> None:
        self._chunks: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._size = 0
        self._drained = asyncio.Event()
        self._taken = taken

    @property
    def is_full(self) -> bool:
        """Whether more than :data:`MAX_WAITING` bytes wait to be read."""
        return self._size > MAX_WAITING

    def feed(self, data: bytes) -> int:
        """Add bytes; return how many: none after :meth:`end`."""
        if not data or self._ended:
            return 0
        self._chunks.append(data)
        self._size += len(data)
        self._wake.set()
        return len(data)

    def end(self) -> None:
        """End the stream: readers receive what was fed before, then nothing."""
        self._ended = True
        self._wake.set()
        self._drained.set()

    def drop(self) -> int:
        """End the stream without its waiting bytes; return how many there were."""
        dropped = self._size
        self._size = 0
        self._chunks.clear()
        self.end()
        return dropped

    async def room(self) -> None:
        """Wait until at most :data:`MAX_WAITING` bytes wait to be read, or the stream has ended."""
        while self._size > MAX_WAITING and not self._ended:
            self._drained.clear()
            await self._drained.wait()

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end of the stream."""
        while not self._chunks:
            if self._ended:
                return b""
            self._wake.clear()
            await self._wake.wait()
        chunk = self._chunks.popleft()
        self._size -= len(chunk)
        self._drained.set()
        if self._taken is not None:
            self._taken(len(chunk))
        return chunk
