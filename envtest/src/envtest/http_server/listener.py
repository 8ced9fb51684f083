"""Accepts connections on one address."""

from __future__ import annotations

import asyncio
import errno
import ssl
from typing import Final
from weakref import WeakSet

from envtest.http_server.connection import Connection
from envtest.http_server.deadlines import HEAD_SECONDS
from envtest.http_server.received import Handler, Upgrade
from envtest.http_server.tls import BUFFER_BYTES, TLSTransport

__all__ = ["Listener"]

BACKLOG: Final = 1024


class Listener:
    """A listening server; ``port`` is its actual port."""

    def __init__(self, handler: Handler, upgrade: Upgrade) -> None:
        self._handler = handler
        self._upgrade = upgrade
        self._connections: set[Connection] = set()
        self._accepted: WeakSet[TLSTransport | Connection] = WeakSet()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Start listening, without TLS if ``context`` is None; ``port`` 0 selects a free port. Raises OSError."""
        buffer = memoryview(bytearray(BUFFER_BYTES))

        def accept() -> TLSTransport | Connection:
            protocol: TLSTransport | Connection
            protocol = Connection(self._handler, self._upgrade, self._connections)
            if context is not None:
                protocol = TLSTransport(context, protocol, buffer, HEAD_SECONDS)
            self._accepted.add(protocol)
            return protocol

        try:
            self._server = await asyncio.get_running_loop().create_server(
                accept, host, port, backlog=BACKLOG
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            message = f"port {port} is in use on {host}: set another port, or 0 for a free one"
            raise OSError(errno.EADDRINUSE, message) from None
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self, seconds: float) -> None:
        """Stop listening; give requests that are being served ``seconds`` to end, then cut all connections."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for connection in list(self._connections):
            if connection.task is None:
                connection.close()
            elif connection.waits:
                connection.abort()
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=seconds)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        await asyncio.sleep(0)
        for accepted in list(self._accepted):  # also in a handshake
            accepted.abort()
