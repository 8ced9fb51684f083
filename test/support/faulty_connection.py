"""A wire between a client and a control plane that a test can cut, silence or slow down at any byte.

The client talks plain HTTP to it, and it TLS to the control plane: so it sees the bytes of the answers, and can cut
them in the middle of a line or of a chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

from cfo.runtime.client.config import ClientConfig
from envtest import ControlPlane

__all__ = ["Wire", "wire"]


class Wire:
    """The connections. ``cut_within``: after how many bytes, at most and by chance, an answer's connection breaks."""

    def __init__(self, plane: ControlPlane, seed: int) -> None:
        parts = urlsplit(plane.url)
        self._address = parts.hostname or "", parts.port or 443
        self._trust = ssl.create_default_context(cadata=plane.ca_pem.decode())
        self._random = random.Random(seed)
        self._links: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._silenced: set[asyncio.StreamWriter] = set()
        self.cut_within: int | None = None
        self.refuses = False
        self.latency = 0.0
        self.opened = 0
        self.cuts = 0
        self.config: ClientConfig = ClientConfig.for_control_plane(plane)

    def silence(self) -> None:
        """All connections that are open stay so, but nothing goes through any more, in either direction."""
        self._silenced |= self._links.keys()

    def cut(self) -> None:
        """Breaks all connections."""
        for task in list(self._links.values()):
            self.cuts += 1
            task.cancel()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one connection."""
        task = asyncio.current_task()
        assert task is not None
        if self.refuses:
            writer.transport.abort()
            return
        self.opened += 1
        self._links[writer] = task
        try:
            there, back = await asyncio.open_connection(*self._address, ssl=self._trust)
            limit = self._random.randint(1, self.cut_within) if self.cut_within else None
            forth = asyncio.create_task(self._pump(reader, back, writer, None))
            try:
                await self._pump(there, writer, writer, limit)
            finally:
                forth.cancel()
                back.transport.abort()
        except (OSError, ssl.SSLError, asyncio.CancelledError):
            pass  # asyncio's streams complain of tasks that end otherwise
        finally:
            self._links.pop(writer, None)
            self._silenced.discard(writer)
            writer.transport.abort()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        link: asyncio.StreamWriter,
        limit: int | None,
    ) -> None:
        while data := await source.read(65536):
            if self.latency:
                await asyncio.sleep(self.latency)
            if link in self._silenced:
                await asyncio.Event().wait()
            if limit is not None:
                limit -= len(data)
                if limit <= 0:
                    sink.write(data[:limit] if limit else data)
                    with contextlib.suppress(ConnectionError):
                        await sink.drain()
                    self.cuts += 1
                    return
            sink.write(data)
            await sink.drain()

    async def end(self) -> None:
        """Ends all that still carries something."""
        tasks = list(self._links.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def wire(plane: ControlPlane, *, seed: int = 0) -> AsyncIterator[Wire]:
    """A wire to ``plane``, whose ``config`` says how to reach it."""
    carried = Wire(plane, seed)
    listen: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object] = carried.connected
    server = await asyncio.start_server(listen, "127.0.0.1", 0)  # type: ignore[arg-type]
    port = server.sockets[0].getsockname()[1]
    carried.config = replace(ClientConfig.for_control_plane(plane), server=f"http://127.0.0.1:{port}")
    try:
        yield carried
    finally:
        server.close()
        await carried.end()
