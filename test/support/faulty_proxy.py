"""A TCP proxy between a client and a control plane that a test can cut, silence or slow down at any byte.

The client connects with plain HTTP, the proxy with TLS to the control plane. So the proxy sees the responses' bytes,
and can cut them in the middle of a line or of an HTTP chunk. It can also answer in place of the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import yaml

from cfo.runtime.client.config import ClientConfig
from envtest import ControlPlane

__all__ = ["Answer", "FaultyProxy", "start_faulty_proxy"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the proxy responds in place of the API server; ``retry_after`` is in seconds (``None``: no header)."""

    code: int
    reason: str
    retry_after: int | None = None

    def encode(self) -> bytes:
        """Return the HTTP response, with a Status object as kube-apiserver sends it."""
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "the server is overloaded, please try again later",
            "reason": self.reason,
            "code": self.code,
        }
        body = orjson.dumps(status)
        retry = "" if self.retry_after is None else f"Retry-After: {self.retry_after}\r\n"
        head = (
            f"HTTP/1.1 {self.code} {self.reason}\r\nContent-Type: application/json\r\n{retry}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class FaultyProxy:
    """A TCP proxy whose connections a test breaks, silences or slows down.

    :attr:`cut_within_bytes`: each new connection breaks after a random number of response bytes, at most this many.
    :attr:`refuses_connections`: new connections are closed immediately.
    :attr:`latency`: how long each chunk of data is delayed, in seconds.
    :attr:`answer`: what requests on new connections get; they do not reach the API server.
    :attr:`opened` counts the accepted connections, :attr:`cuts` the broken ones, :attr:`answered` the requests that got
    an answer.
    :attr:`config` is the configuration of a client that connects through the proxy.
    """

    def __init__(self, plane: ControlPlane, seed: int) -> None:
        parts = urlsplit(plane.url)
        self._address = parts.hostname or "", parts.port or 443
        self._tls = ssl.create_default_context(cadata=plane.ca_pem.decode())
        self._random = random.Random(seed)
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._silenced: set[asyncio.StreamWriter] = set()
        self.cut_within_bytes: int | None = None
        self.refuses_connections = False
        self.latency = 0.0
        self.answer: Answer | None = None
        self.opened = 0
        self.cuts = 0
        self.answered = 0
        self.config: ClientConfig = ClientConfig.for_control_plane(plane)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def silence(self) -> None:
        """Stop forwarding on all open connections, in both directions, and leave them open."""
        self._silenced |= self._connections.keys()

    def cut(self) -> None:
        """Break all open connections."""
        for task in list(self._connections.values()):
            self.cuts += 1
            task.cancel()

    def kubeconfig(self, path: Path, plane: ControlPlane, token: str) -> None:
        """Write a kubeconfig for a client that connects through the proxy with ``token``."""
        document = yaml.safe_load(plane.kubeconfig(token=token))
        document["clusters"][0]["cluster"] = {"server": self.config.server}
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)

    async def handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward one client connection until either side or the test ends it."""
        task = asyncio.current_task()
        assert task is not None
        if self.refuses_connections:
            writer.transport.abort()
            return
        self.opened += 1
        self._connections[writer] = task
        try:
            if self.answer is not None:
                await self._answer(reader, writer)
                return
            server_reader, server_writer = await asyncio.open_connection(
                *self._address, ssl=self._tls
            )
            limit = (
                self._random.randint(1, self.cut_within_bytes) if self.cut_within_bytes else None
            )
            requests = asyncio.create_task(self._forward(reader, server_writer, writer, None))
            try:
                await self._forward(server_reader, writer, writer, limit)
            finally:
                requests.cancel()
                server_writer.transport.abort()
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # asyncio's streams log an error for tasks that end otherwise
        finally:
            self._connections.pop(writer, None)
            self._silenced.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer each request on a connection; close it at the first one for which there is no answer any more."""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _CONTENT_LENGTH.search(head)
            if length is not None:
                await reader.readexactly(int(length[1]))
            if self.answer is None:
                return
            self.answered += 1
            writer.write(self.answer.encode())
            await writer.drain()

    async def _forward(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        connection: asyncio.StreamWriter,
        limit: int | None,
    ) -> None:
        """Copy data until the source ends, or ``limit`` bytes were copied."""
        while data := await source.read(65536):
            if self.latency:
                await asyncio.sleep(self.latency)
            if connection in self._silenced:
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

    async def close(self) -> None:
        """Close all connections."""
        tasks = list(self._connections.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def start_faulty_proxy(plane: ControlPlane, *, seed: int = 0) -> AsyncIterator[FaultyProxy]:
    """Run a proxy in front of ``plane``; its ``config`` connects a client to it."""
    proxy = FaultyProxy(plane, seed)
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object] = proxy.handle_connection
    server = await asyncio.start_server(handle, "127.0.0.1", 0)  # type: ignore[arg-type]
    port = server.sockets[0].getsockname()[1]
    proxy.config = replace(ClientConfig.for_control_plane(plane), server=f"http://127.0.0.1:{port}")
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
