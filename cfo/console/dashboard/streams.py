"""The open streams. Each has a queue of messages, which all streams share; nothing is buffered without a limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

MAX_STREAMS: Final = 8
"""The maximum number of open streams: a quarter of the connections of an endpoint."""

_MAX_MESSAGES: Final = 120
_MAX_BYTES: Final = 4 << 20
"""What a reader can be behind the others: one minute of messages, or this many bytes."""


class TooManyStreams(Exception):
    """Raised if another stream would exceed :data:`MAX_STREAMS`."""


class StreamDropped(Exception):
    """Raised by :meth:`Stream.receive` if the reader is too slow."""


class Stream:
    """One reader; ``is_closed`` returns whether its connection is closed."""

    def __init__(self, is_closed: Callable[[], bool]) -> None:
        self.is_closed = is_closed
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._dropped = False
        self._changed = anyio.Event()

    def send(self, message: bytes) -> None:
        """Add ``message`` to the queue; a reader that has too much to read is dropped."""
        if self._dropped:
            return
        self._messages.append(message)
        self._size += len(message)
        if len(self._messages) > _MAX_MESSAGES or self._size > _MAX_BYTES:
            self.drop()
        self._changed.set()

    def restart(self) -> None:
        """Forget the messages until now, because a snapshot contains them. Raises :class:`StreamDropped`."""
        if self._dropped:
            raise StreamDropped
        self._clear()

    def drop(self) -> None:
        """Forget all messages, and make the reader end."""
        self._dropped = True
        self._clear()
        self._changed.set()

    def _clear(self) -> None:
        self._messages.clear()
        self._size = 0

    async def receive(self) -> bytes:
        """Wait for messages, and return all of them. Raises :class:`StreamDropped`."""
        while not self._messages and not self._dropped:
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._dropped:
            raise StreamDropped
        messages = b"".join(self._messages)
        self._clear()
        return messages


class Streams:
    """The open streams of one server."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._limit = limit
        self._open: dict[Stream, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Stream]:
        return iter(tuple(self._open))

    def send(self, message: bytes) -> None:
        """Add ``message`` to the queue of each stream."""
        for stream in self._open:
            stream.send(message)

    def drop(self) -> None:
        """End all streams."""
        for stream in self._open:
            stream.drop()

    @contextmanager
    def open(self, is_closed: Callable[[], bool]) -> Iterator[Stream]:
        """Open a stream for the block; streams of closed connections make room. Raises :class:`TooManyStreams`."""
        if len(self._open) >= self._limit:
            for stream in [stream for stream in self._open if stream.is_closed()]:
                stream.drop()
                del self._open[stream]
        if len(self._open) >= self._limit:
            raise TooManyStreams
        stream = Stream(is_closed)
        self._open[stream] = None
        try:
            yield stream
        finally:
            self._open.pop(stream, None)
