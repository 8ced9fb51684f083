"""Accepts the connections of an HTTP server, and limits their number.

The attack: any pod that can reach a port opens connections until the memory of the process is full. Each TLS connection
takes about 0.06 MB, also before its handshake. At the limit a new connection takes the place of another one that no
handler needs. The connection that is closed is

1. from the address with the most connections. Only a client that has more than its share loses any: the API servers
   keep theirs while one pod opens thousands;
2. one on which no request has been answered yet, if there is any;
3. the one that was idle for the longest time.

An idle connection of an API server can be closed without harm: its HTTP client opens another one. If handlers need all
connections, the new one is closed.

A TLS handshake must be complete after 10 seconds, and the header of the first request after 30 more seconds.

Other clients get their turn before each request, also if a client sends thousands at once (pipelining): from Python
3.12 on, aiohttp handles all that it has read without returning to the event loop. And little is read in each turn
(:mod:`.small_reads`). Compressed bodies are refused before they are read: 1 MB could contain 1 GB. So are bodies in
chunks, of which there can be any number. No client of these servers sends these. What clients do not read is limited,
too (:mod:`.large_responses`).

Tried instead:

* aiohttp's sites, which have no limit: 500 connections without a handshake take 160 MB;
* a limit in the protocols of asyncio's servers: those get to know their connection after its handshake, so they can
  neither count nor close it before, and :meth:`asyncio.loop.start_tls` on an accepted connection can deliver the first
  request before aiohttp knows the connection. Therefore connections are accepted here;
* to refuse new connections at the limit: a client with idle connections would lock out all others.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import socket
import ssl
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import anyio
import anyio.lowlevel
import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError

from cfo.runtime.process.large_responses import LargeResponses
from cfo.runtime.process.rare_reports import RareReports
from cfo.runtime.process.small_reads import READ_BYTES, SmallReads, SmallTLSReads

KEEP_ALIVE: Final = 180.0
"""Seconds after which an idle connection is closed. API servers do this after 90 s; they have to close first."""

_HANDSHAKE_TIMEOUT: Final = 10
_FIRST_REQUEST_TIMEOUT: Final = 30.0
_SHUTDOWN_TIMEOUT: Final = 5.0
_BACKLOG: Final = 128

_ACCEPTS_IN_TURN: Final = 8
"""How many connections are accepted in one turn of the event loop.

If a client opens hundreds at once, the others wait for as many turns, which are long while reviews are served.
"""

_ACCEPT_RETRY: Final = 1.0
"""Seconds to wait if the process has no file descriptor left; asyncio's servers wait as long."""

_LOG_INTERVAL: Final = 60.0

_log = structlog.get_logger(__name__)


class _MalformedRequests(logging.Filter):
    """Drops aiohttp's tracebacks for requests that are no HTTP, and reports their number once in a while.

    Otherwise a client without credentials could fill the disk with logs. Errors of handlers are kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reports = RareReports(_LOG_INTERVAL)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record of aiohttp."""
        if record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError):
            return True
        refused = self._reports.count(record.created)
        if refused:
            _log.warning("Refused malformed requests", refused=refused)
        return False


def _server_log() -> logging.Logger:
    log = logging.getLogger("cfo.runtime.http")
    if not log.filters:
        log.addFilter(_MalformedRequests())
    return log


def server_options() -> dict[str, Any]:
    """Return the options that each HTTP server of the process has, for aiohttp's ``Server`` or ``AppRunner``."""
    return {
        "access_log": None,
        "auto_decompress": False,
        "keepalive_timeout": KEEP_ALIVE,
        "logger": _server_log(),
    }


class AddressUnavailable(OSError):
    """Raised if a server cannot listen on its address, because the port is in use, for example.

    ``server`` is the name of the server; empty if it has none. ``address`` is ``HOST:PORT``.
    """

    server = ""
    address = ""

    def __str__(self) -> str:
        return self.strerror or ""


class _Connection:
    """A connection, from before its handshake."""

    def __init__(self, address: str, protocol: Any, opened: float) -> None:
        self.address = address
        self.protocol = protocol
        self.handshake = anyio.CancelScope()
        self.is_established = False
        """Whether the handshake is complete."""
        self.first_request_timer: asyncio.TimerHandle | None = None
        self.idle_since = opened
        self.is_answered = False
        """Whether a request on it has been answered."""
        self.requests = 0
        self.protections = 0
        """The number of handlers that need it."""
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed the connection."""
        if self._is_closed:
            return False
        # The protocol gets its transport at the end of the handshake, and loses it when the client disconnects.
        return not self.is_established or self.protocol.transport is not None

    def close(self) -> None:
        """Close the connection without a response, which the client may never read."""
        self._is_closed = True
        self.handshake.cancel()
        if self.first_request_timer is not None:
            self.first_request_timer.cancel()
        if self.protocol.transport is not None:
            self.protocol.transport.abort()


class Listener:
    """Accepts connections on the bound socket ``sock`` for ``server``, at most ``limit`` at once; ``name`` is for logs.

    With ``protect_requests`` a connection is not closed while its request is handled, otherwise only in a block of
    :meth:`protected`. Must be created in the event loop that runs it. The socket is closed at the end of :meth:`run`.
    """

    def __init__(
        self,
        name: str,
        server: web.Server,
        sock: socket.socket,
        *,
        limit: int,
        tls: ssl.SSLContext | None = None,
        protect_requests: bool = True,
    ) -> None:
        self._name = name
        self._server = server
        self._socket = sock
        self._limit = limit
        self._tls = tls
        self._protect_requests = protect_requests
        self._connections: dict[Any, _Connection] = {}
        self._limit_reports = RareReports(_LOG_INTERVAL)
        self._large_responses = LargeResponses()
        self._handler = server.request_handler
        server.request_handler = self._handle
        sock.setblocking(False)
        sock.listen(_BACKLOG)

    async def run(self) -> None:
        """Accept connections until cancelled; connections with a complete handshake stay open."""
        loop = asyncio.get_running_loop()
        try:
            async with anyio.create_task_group() as tasks:
                accepted_in_turn = 0
                while True:
                    try:
                        accepted, peer = await loop.sock_accept(self._socket)
                    except OSError as error:
                        _log.error(
                            "Failed to accept connection, will retry",
                            endpoint=self._name,
                            error=str(error),
                        )
                        await anyio.sleep(_ACCEPT_RETRY)
                        continue
                    connection = self._admit(str(peer[0]), loop)
                    if connection is None:
                        accepted.close()
                    else:
                        tasks.start_soon(self._open, accepted, connection)
                    accepted_in_turn += 1
                    if accepted_in_turn == _ACCEPTS_IN_TURN:
                        # Let other tasks run: sock_accept does not wait while clients are in the backlog.
                        await anyio.lowlevel.checkpoint()
                        accepted_in_turn = 0
        finally:
            self._socket.close()

    @contextmanager
    def protected(self, request: web.BaseRequest) -> Iterator[None]:
        """Do not close the connection of ``request`` in this block, even if others need its place.

        Raises :class:`ConnectionError` if it is closed already.
        """
        connection = self._connections.get(request.protocol)
        if connection is None or not connection.is_open:
            raise ConnectionResetError("the connection is closed")
        connection.protections += 1
        try:
            yield
        finally:
            connection.protections -= 1

    def _admit(self, address: str, loop: asyncio.AbstractEventLoop) -> _Connection | None:
        """Return a new connection, for which another one is closed at the limit; ``None`` if that is not possible."""
        if len(self._connections) >= self._limit:
            self._remove_closed()
        if len(self._connections) >= self._limit:
            self._report_limit(loop.time())
            victim = self._victim(address)
            if victim is None:
                return None
            self._close(victim)
        protocol = self._server()
        connection = _Connection(address, protocol, loop.time())
        self._connections[protocol] = connection
        return connection

    def _victim(self, address: str) -> _Connection | None:
        """Return the connection to close for a new one from ``address``; ``None`` if handlers need all of them."""
        connections = self._connections.values()
        shares = Counter(connection.address for connection in connections)
        shares[address] += 1

        def rank(connection: _Connection) -> tuple[int, bool, float]:
            """Return the order in the module's docstring; the connection with the largest rank is closed."""
            share = shares[connection.address]
            return share, not connection.is_answered, -connection.idle_since

        candidates = [connection for connection in connections if not connection.protections]
        return max(candidates, key=rank, default=None)

    def _remove_closed(self) -> None:
        self._connections = {
            key: connection for key, connection in self._connections.items() if connection.is_open
        }

    def _report_limit(self, now: float) -> None:
        """Log that a connection is closed because of the limit, at most once per :data:`_LOG_INTERVAL`."""
        closed = self._limit_reports.count(now)
        if closed:
            _log.warning(
                "Too many connections", endpoint=self._name, limit=self._limit, closed=closed
            )

    async def _open(self, accepted: socket.socket, connection: _Connection) -> None:
        """Complete the handshake, and close the connection if its first request does not arrive in time."""
        loop = asyncio.get_running_loop()
        if not connection.is_open:
            # It was closed for another one before this task has started; the cancelled scope below ends the handshake.
            accepted.close()
        # An OSError means that the client failed the handshake, or disconnected.
        with connection.handshake, suppress(OSError):
            try:
                await anyio.lowlevel.checkpoint_if_cancelled()
                await self._connect(accepted, connection.protocol)
            except BaseException as error:
                # Frees the buffers now: the traceback refers to a frame that refers to a future with this exception.
                traceback.clear_frames(error.__traceback__)
                raise
            connection.is_established = True
        if connection.is_established and connection.is_open:
            connection.first_request_timer = loop.call_later(
                _FIRST_REQUEST_TIMEOUT, self._close_without_request, connection
            )
        else:
            self._close(connection)
            if connection.protocol.transport is None:
                connection.protocol.connection_lost(None)  # also frees its buffers now

    async def _connect(self, accepted: socket.socket, protocol: Any) -> None:
        """Give an accepted connection to ``protocol``, after the TLS handshake if there is TLS. Raises OSError."""
        loop = asyncio.get_running_loop()
        if self._tls is None:
            await loop.connect_accepted_socket(lambda: SmallReads(protocol), accepted)
            return
        handshake = loop.create_future()
        tls = SmallTLSReads(
            loop,
            protocol,
            self._tls,
            handshake,
            server_side=True,
            ssl_handshake_timeout=_HANDSHAKE_TIMEOUT,
            ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT,
        )
        transport, _ = await loop.connect_accepted_socket(lambda: tls, accepted)
        try:
            await handshake
        except BaseException:
            transport.abort()
            raise
        if protocol.transport is not None:
            # While aiohttp pauses reading, asyncio keeps up to 256 KiB, and then decrypts them in one turn.
            protocol.transport.set_read_buffer_limits(high=READ_BYTES)

    def _close_without_request(self, connection: _Connection) -> None:
        """Close a connection on which no request has arrived."""
        if not connection.requests:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        connection.close()
        self._connections.pop(connection.protocol, None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = self._connections.get(request.protocol)
        if connection is not None and "Transfer-Encoding" in request.headers:
            return await self._refuse_chunks(request, connection)
        await anyio.lowlevel.checkpoint()
        connection = self._connections.get(request.protocol)
        if connection is None:  # closed for another one just now
            return web.Response(status=503)
        connection.requests += 1
        if connection.first_request_timer is not None:
            connection.first_request_timer.cancel()
        if self._protect_requests:
            connection.protections += 1
        try:
            if "Content-Encoding" in request.headers:
                return _refuse_encoded_body()
            response = await self._handler(request)
        finally:
            if self._protect_requests:
                connection.protections -= 1
            connection.is_answered = True
            connection.idle_since = asyncio.get_running_loop().time()
        await self._large_responses.send(request, response)
        return response

    async def _refuse_chunks(
        self, request: web.BaseRequest, connection: _Connection
    ) -> web.StreamResponse:
        """Refuse a body in chunks, and close the connection at once: nothing more of the body must be parsed."""
        response = web.Response(status=411, text="bodies need a Content-Length\n")
        await response.prepare(request)
        await response.write_eof()
        self._close(connection)
        return response


def _refuse_encoded_body() -> web.Response:
    response = web.Response(status=415, text="compressed bodies are not accepted\n")
    response.force_close()
    return response


_PORTS_OF_SERVERS: Final = range(20_000, 32_000)
"""Ports that no kernel gives to clients by default: on Linux, these are the ports from 32768."""


def free_port() -> int:
    """Return a port of the loopback interface that is free now, and that no client gets before a server binds it."""
    while True:
        port = secrets.choice(_PORTS_OF_SERVERS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port


def bind_socket(
    address: tuple[str | None, int], *, reuse_port: bool = False, server: str = ""
) -> socket.socket:
    """Return a socket that is bound but does not listen yet, so that a port in use is reported at startup.

    ``address`` is a host (``None``: all addresses, IPv4 and IPv6) and a port. If the host has several addresses, one is
    used, preferably of IPv4, as in Go. ``server`` names the server in errors. Raises :class:`AddressUnavailable`.
    """
    host, port = address
    bound: socket.socket | None = None
    try:
        family, sockaddr = _socket_address(host, port)
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port and hasattr(socket, "SO_REUSEPORT"):
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host is not None))
        bound.bind(sockaddr)
    except OSError as error:
        if bound is not None:
            bound.close()
        text = f"{host or ''}:{port}"
        problem = f"cannot listen on {text}: {_reason(error)}"
        unavailable = AddressUnavailable(error.errno, problem)
        unavailable.server = server
        unavailable.address = text
        raise unavailable from error
    return bound


def _reason(error: OSError) -> str | None:
    """Return the reason of an error in the words of the operating system."""
    if isinstance(error, socket.gaierror):  # its number is not one of the operating system
        return error.strerror
    return os.strerror(error.errno or 0)


def _socket_address(host: str | None, port: int) -> tuple[int, Any]:
    """Return the address family and the address to which a socket is bound."""
    if host is None:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", port)
        return socket.AF_INET, ("", port)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, sockaddr in found:
        if family == socket.AF_INET:
            return family, sockaddr
    family, _, _, _, sockaddr = found[0]
    return family, sockaddr
