"""The limit of connections: which one is closed for a new one, what is never closed, and timeouts."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from cfo.runtime.process import large_responses
from cfo.runtime.process import listener as listener_module
from cfo.runtime.process.listener import Listener, bind_socket, server_options
from cfo.runtime.process.small_reads import READ_BYTES, SmallReads, SmallTLSReads
from test.support.certificates import create_ca, create_certificate, server_ssl_context

LIMIT = 4
LARGE = bytes(large_responses.MAX_BYTES // 3)
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """A running listener. Requests for ``/wait`` are answered after ``release`` is set."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.release = asyncio.Event()
        self.waiting = 0
        self.transport: Any = None
        """The transport of the last request for ``/wait``."""
        self.streams: list[Stream] = []
        self.large: list[web.Response] = []
        self._socket = bind_socket(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.http = web.Server(self._handle, **server_options())
        self.listener = Listener("test", self.http, self._socket, limit=LIMIT, tls=tls)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/large":
            self.large.append(web.Response(body=LARGE))
            return self.large[-1]
        if request.path == "/wait":
            self.waiting += 1
            self.transport = request.transport
            await self.release.wait()
            await request.content.read()
        return web.Response(text="ok")

    async def connect(self, source: str = "127.0.0.1") -> Stream:
        sock = socket.socket()
        # Otherwise the kernel reads megabytes for the client.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        sock.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        stream = await asyncio.open_connection(sock=sock)
        self.streams.append(stream)
        return stream

    @property
    def open(self) -> list[bool]:
        """For each connection, in the order in which they were opened, whether it is open."""
        return [not reader.at_eof() and reader.exception() is None for reader, _ in self.streams]


async def get(stream: Stream, path: str = "/") -> bytes:
    reader, writer = stream
    writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    return head.split(b" ")[1] + await reader.readexactly(2)


@asynccontextmanager
async def running(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(tls)
    task = asyncio.create_task(server.listener.run())
    try:
        async with asyncio.timeout(120):
            yield server
    finally:
        server.release.set()
        task.cancel()
        await asyncio.wait([task])
        for _, writer in server.streams:
            writer.close()
        await server.http.shutdown(1.0)


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (bounded by the timeout of running())
        await asyncio.sleep(0.005)


async def test_new_connection_takes_the_place_of_the_oldest_unanswered_one() -> None:
    async with running() as server:
        with capture_logs() as logs:
            assert await get(await server.connect()) == b"200ok"
            for _ in range(LIMIT + 2):
                await server.connect()
            assert await get(server.streams[-1]) == b"200ok"
            await eventually(lambda: server.open.count(True) == LIMIT)
        assert server.open == [True, False, False, False, True, True, True]
        assert [(line["event"], line["closed"]) for line in logs] == [("Too many connections", 1)]


async def test_connection_that_was_idle_longest_is_closed_if_all_were_answered() -> None:
    async with running() as server:
        for _ in range(LIMIT):
            await get(await server.connect())
        await get(server.streams[0])
        await get(await server.connect())
        assert server.open == [True, False, True, True, True]


async def test_address_with_the_most_connections_loses_one() -> None:
    """One pod that opens connections does not displace those of the API server."""
    async with running() as server:
        for _ in range(2):
            await server.connect("127.0.0.2")
        for _ in range(5 * LIMIT):
            await get(await server.connect("127.0.0.1"))
        assert server.open[:2] == [True, True]
        assert server.open.count(True) == LIMIT
        assert await get(server.streams[0]) == b"200ok"


async def test_connection_with_a_request_in_progress_is_not_closed() -> None:
    async with running() as server:
        requests = [asyncio.create_task(get(await server.connect(), "/wait")) for _ in range(LIMIT)]
        await eventually(lambda: server.waiting == LIMIT)
        reader, _ = await server.connect()
        assert await reader.read() == b"", "there is no room, so the new connection must be closed"
        server.release.set()
        assert await asyncio.gather(*requests) == [b"200ok"] * LIMIT
        assert await get(await server.connect()) == b"200ok"


async def test_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "_FIRST_REQUEST_TIMEOUT", 0.1)
    async with running() as server:
        used = await server.connect()
        await get(used)
        (idle, _), (half, writer) = await server.connect(), await server.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: ")
        for reader in (idle, half):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert await get(used) == b"200ok"


async def test_closed_connections_do_not_count() -> None:
    async with running() as server:
        kept = await server.connect()
        for _ in range(3 * LIMIT):
            reader, writer = await server.connect()
            await get((reader, writer))
            writer.close()
            await writer.wait_closed()
            await eventually(lambda: len(server.http.connections) == 1)
        assert await get(kept) == b"200ok"


async def test_failed_accept_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(listener_module, "_ACCEPT_RETRY", 0.01)
    failures = [OSError(24, "Too many open files")]
    accept = loop.sock_accept

    async def failing_accept(sock: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return await accept(sock)

    monkeypatch.setattr(loop, "sock_accept", failing_accept)
    with capture_logs() as logs:
        async with running() as server:
            assert await get(await server.connect()) == b"200ok"
    assert logs[0]["event"] == "Failed to accept connection, will retry"


async def test_clients_that_wait_are_accepted_in_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client waits for those before it, and a turn is long while reviews are served."""
    server = Server()
    clients = 4 * listener_module._ACCEPTS_IN_TURN
    turns = 0
    accepted_in: list[int] = []

    def admit(*_: object) -> None:
        accepted_in.append(turns)

    monkeypatch.setattr(server.listener, "_admit", admit)
    with ExitStack() as connections:
        for _ in range(clients):
            connections.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        task = asyncio.create_task(server.listener.run())
        while len(accepted_in) < clients:
            turns += 1
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert accepted_in[-1] - accepted_in[0] == 3


async def test_other_tasks_get_their_turn_between_pipelined_requests() -> None:
    """From Python 3.12 on, aiohttp starts handlers eagerly, and those here never wait."""
    async with running() as server:
        turns = 0
        count = 500

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        reader, writer = await server.connect()
        other = asyncio.create_task(take_turns())
        writer.write(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n" * count)
        before = turns
        for _ in range(count):
            await reader.readuntil(b"\r\n\r\nok")
        other.cancel()
        assert turns - before >= count


async def test_compressed_body_is_refused_and_not_inflated() -> None:
    async with running() as server:
        reader, writer = await server.connect()
        body = gzip.compress(bytes(1 << 20))
        head = f"POST / HTTP/1.1\r\nHost: test\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        response = await reader.read()
        assert response.startswith(b"HTTP/1.1 415 ")
        assert response.endswith(b"compressed bodies are not accepted\n")


async def test_body_in_chunks_is_refused_and_not_read() -> None:
    """There can be any number of chunks in a small body."""
    async with running() as server:
        reader, writer = await server.connect()
        writer.write(
            b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
        )
        response = await reader.read()
        assert response.startswith(b"HTTP/1.1 411 ")
        assert response.endswith(b"bodies need a Content-Length\n")


class _Reader(asyncio.Protocol):
    """Records how many bytes it receives at once."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.is_closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.sizes.append(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed.set()


async def test_little_is_read_in_each_turn() -> None:
    reader = _Reader()
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().connect_accepted_socket(lambda: SmallReads(reader), ours)
    _, writer = await asyncio.open_connection(sock=theirs)
    sent = 64 * READ_BYTES
    await send_all(writer, sent)
    await reader.is_closed.wait()
    assert sum(reader.sizes) == sent
    assert max(reader.sizes) <= READ_BYTES


def server_tls(tmp_path: Path) -> ssl.SSLContext:
    return server_ssl_context(create_certificate(create_ca(), "test", "test"), tmp_path)


async def connect_with_tls(sock: socket.socket) -> Stream:
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return await asyncio.open_connection(sock=sock, ssl=tls, server_hostname="test")


async def test_little_is_decrypted_in_each_turn(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    reader = _Reader()
    ours, theirs = socket.socketpair()
    handshake = loop.create_future()
    tls = SmallTLSReads(loop, reader, server_tls(tmp_path), handshake, server_side=True)
    await loop.connect_accepted_socket(lambda: tls, ours)
    _, writer = await connect_with_tls(theirs)
    sent = 64 * READ_BYTES
    await send_all(writer, sent)
    await reader.is_closed.wait()
    assert sum(reader.sizes) == sent
    largest_record = 1 << 14
    assert max(reader.sizes) <= largest_record + READ_BYTES


async def test_little_is_kept_undecrypted_while_reading_is_paused(tmp_path: Path) -> None:
    sent = 2 << 20
    async with running(server_tls(tmp_path)) as server:
        reader, writer = await connect_with_tls(
            socket.create_connection(("127.0.0.1", server.port))
        )
        server.streams.append((reader, writer))
        head = f"POST /wait HTTP/1.1\r\nHost: test\r\nContent-Length: {sent}\r\n\r\n"
        writer.write(head.encode() + bytes(sent))
        await eventually(lambda: server.transport is not None)
        await eventually(lambda: server.transport.get_read_buffer_size() >= READ_BYTES)
        for _ in range(100):  # turns of the event loop, in each of which it could read some more
            await asyncio.sleep(0)
        assert server.transport.get_read_buffer_size() <= 2 * READ_BYTES
        server.release.set()
        assert (await reader.readuntil(b"\r\n")).split()[1] == b"200"


async def send_all(writer: asyncio.StreamWriter, count: int) -> None:
    """Send ``count`` bytes, and close the connection."""
    writer.write(bytes(count))
    await writer.drain()
    writer.close()


async def test_many_malformed_requests_are_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The number of malformed requests is that of the process: other tests may have reported some a moment ago.
    monkeypatch.setattr(logging.getLogger("cfo.runtime.http"), "filters", [])
    async with running() as server:
        with capture_logs() as logs:
            for _ in range(3):
                reader, writer = await server.connect()
                writer.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
    assert [entry["event"] for entry in logs] == ["Refused malformed requests"]
    assert not caplog.records


async def request_large(server: Server) -> Stream:
    """Request a large response, and read its start only."""
    reader, writer = await server.connect()
    writer.write(b"GET /large HTTP/1.1\r\nHost: test\r\n\r\n")
    assert f"Content-Length: {len(LARGE)}".encode() in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_large_responses_that_are_not_read_are_limited_together() -> None:
    async with running() as server:
        unread = [await request_large(server) for _ in range(LIMIT)]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await unread[0][0].readexactly(len(LARGE))
        for reader, _ in unread[1:]:
            assert await reader.readexactly(len(LARGE)) == LARGE
        assert await get(unread[1]) == b"200ok"


async def test_idle_connection_keeps_no_large_response() -> None:
    async with running() as server:
        reader, _ = await request_large(server)
        assert await reader.readexactly(len(LARGE)) == LARGE
        (response,) = server.large
        await eventually(lambda: response.body is None)


async def test_large_response_must_be_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_responses, "SEND_TIMEOUT", 0.05)
    async with running() as server:
        reader, _ = await request_large(server)
        await eventually(lambda: server.large[0].body is None)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(len(LARGE))
