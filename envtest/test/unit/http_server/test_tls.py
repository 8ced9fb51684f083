"""TLS of connections: what arrives, how a connection ends, and what a client cannot do."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from envtest.formats.certificate_authority import CertificateAuthority, server_context
from envtest.http_server import listener, tls
from envtest.http_server.tls import BUFFER_BYTES, TLSTransport

AUTHORITY = CertificateAuthority()
SERVER = server_context(AUTHORITY.server(["127.0.0.1"]), AUTHORITY.pem)
SECONDS = 30.0

T = TypeVar("T")


class Echo(asyncio.Protocol):
    """Returns what it receives. ``end`` ends the connection, ``flood`` is answered with more than a client buffers."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = False
        self.paused = False
        self.begun = asyncio.Event()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.begun.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.transport.write(b"x" * 50_000_000 if data == b"flood" else data)
        if data in {b"end", b"flood"}:
            self.transport.close()

    def eof_received(self) -> None:
        self.ended = True

    def pause_writing(self) -> None:
        self.paused = True

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


class Client:
    """A TLS client that decides when which bytes are sent."""

    def __init__(
        self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader, self.writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    def records(self, data: bytes) -> bytes:
        """Return encrypted data."""
        while data:
            data = data[self.tls.write(data) :]
        return self._outgoing.read()

    async def shake_hands(self) -> None:
        await self._exchange(self.tls.do_handshake)

    async def read(self, size: int = 1 << 20) -> bytes:
        return await self._exchange(lambda: self.tls.read(size))

    async def _exchange(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.writer.write(self._outgoing.read())
                data = await self.reader.read(1 << 20)
                self._incoming.write(data) if data else self._incoming.write_eof()
            finally:
                self.writer.write(self._outgoing.read())


Connect = Callable[..., Awaitable[tuple[Client, Echo]]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Return a function that connects a client."""
    async with asyncio.timeout(SECONDS), _server() as (port, protocols):
        clients = []

        async def connect(context: ssl.SSLContext | None = None) -> tuple[Client, Echo]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            trusting = context or ssl.create_default_context(cadata=AUTHORITY.pem.decode())
            clients.append(Client(trusting, reader, writer))
            echo = await protocols.get()
            if context is None:
                await clients[-1].shake_hands()
                await echo.begun.wait()
            return clients[-1], echo

        yield connect
        for client in clients:
            client.writer.transport.abort()


@asynccontextmanager
async def _server(
    handshake_seconds: float = SECONDS,
) -> AsyncIterator[tuple[int, asyncio.Queue[Echo]]]:
    buffer = memoryview(bytearray(BUFFER_BYTES))
    protocols: asyncio.Queue[Echo] = asyncio.Queue()

    def accept() -> TLSTransport:
        echo = Echo()
        protocols.put_nowait(echo)
        return TLSTransport(SERVER, echo, buffer, handshake_seconds)

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], protocols
    finally:
        server.close()


async def read_exactly(client: Client, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await client.read()
    return data


@pytest.mark.parametrize("size", [1, 16 * 1024, 16 * 1024 + 1, 3_000_000])
async def test_data_of_any_size_arrives_in_order(connect: Connect, size: int) -> None:
    client, _ = await connect()
    data = bytes(index * 7 % 251 for index in range(size))
    client.writer.write(client.records(data))
    assert await read_exactly(client, size) == data


async def test_records_that_arrive_in_pieces_are_read(connect: Connect) -> None:
    client, echo = await connect()
    for byte in client.records(b"first") + client.records(b"second"):
        client.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert await read_exactly(client, 11) == echo.received == b"firstsecond"


async def test_connections_do_not_mix_their_data(connect: Connect) -> None:
    pairs = [await connect() for _ in range(5)]
    for _ in range(10):
        for number, (client, _) in enumerate(pairs):
            client.writer.write(client.records(b"%d" % number * 1000))
    for number, (client, _) in enumerate(pairs):
        assert await read_exactly(client, 10_000) == b"%d" % number * 10_000


async def test_client_receives_the_end_after_the_data(connect: Connect) -> None:
    client, echo = await connect()
    client.writer.write(client.records(b"end"))
    assert [await client.read(), await client.read()] == [
        b"end",
        b"",
    ]  # no end of TLS would raise SSLEOFError
    await echo.lost.wait()
    assert not echo.ended


@pytest.mark.parametrize("announced", [True, False])
async def test_end_of_the_client_ends_the_connection(connect: Connect, announced: bool) -> None:
    client, echo = await connect()
    if announced:
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        client.writer.write(client.records(b""))
    else:
        client.writer.write_eof()
    await echo.lost.wait()
    assert echo.ended


async def test_paused_connection_passes_nothing_until_it_resumes(connect: Connect) -> None:
    client, echo = await connect()
    echo.transport.pause_reading()
    client.writer.write(client.records(b"later"))
    await asyncio.sleep(0.05)
    assert echo.received == b""
    echo.transport.resume_reading()
    assert await client.read() == b"later"


async def test_records_received_before_a_pause_wait_for_its_end(connect: Connect) -> None:
    client, echo = await connect()
    pausing = Pausing(echo.transport)
    echo.transport.set_protocol(pausing)
    client.writer.write(client.records(b"one") + client.records(b"two") + client.records(b"three"))
    for expected in (b"one", b"two", b"three"):
        assert await pausing.received.get() == expected
        await asyncio.sleep(0.01)
        assert pausing.received.empty()
        pausing.transport.resume_reading()


class Pausing(asyncio.Protocol):
    """Pauses after each record."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.put_nowait(data)
        self.transport.pause_reading()


async def test_client_that_does_not_read_pauses_the_writer_and_is_cut_off(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "CLOSE_SECONDS", 0.05)
    client, echo = await connect()
    client.writer.transport.pause_reading()
    client.writer.write(client.records(b"flood"))
    await echo.lost.wait()
    assert echo.paused


async def test_client_without_handshake_is_disconnected() -> None:
    async with asyncio.timeout(SECONDS), _server(handshake_seconds=0.05) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"])
async def test_client_that_does_not_speak_tls_is_disconnected(
    connect: Connect, data: bytes
) -> None:
    client, echo = await connect(ssl.create_default_context())
    client.writer.write(data)
    await client.reader.read()
    assert not echo.begun.is_set()


async def test_certificate_of_another_authority_is_refused_with_an_alert(
    connect: Connect, tmp_path: Path
) -> None:
    pair = CertificateAuthority().client("unknown")
    file = tmp_path / "client.pem"
    file.write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    context.load_cert_chain(file)
    client, _ = await connect(context)
    await client.shake_hands()
    with pytest.raises(
        ssl.SSLError, match="unknown ca"
    ):  # in TLS 1.3, the client's handshake is complete before
        await client.read()


async def test_broken_record_ends_the_connection(connect: Connect) -> None:
    client, echo = await connect()
    record = bytearray(client.records(b"data"))
    record[-1] ^= 1
    client.writer.write(record)
    with pytest.raises(ssl.SSLError, match="bad record mac"):
        await client.read()
    await echo.lost.wait()
    assert not echo.received


@pytest.mark.parametrize("context", [SERVER, None], ids=["in a handshake", "without TLS"])
@pytest.mark.parametrize("turns", range(5))
async def test_stopped_listener_ends_connections_without_a_request(
    turns: int, context: ssl.SSLContext | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HEAD_SECONDS", 3600.0)

    async def refuse(*_: object) -> None:
        raise AssertionError("nothing is requested")

    server = listener.Listener(refuse, refuse)  # type: ignore[arg-type]
    await server.start("127.0.0.1", 0, context)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        for _ in range(turns):  # of the event loop, in which it accepts the connection
            await asyncio.sleep(0)
        await server.stop(SECONDS)
        gc.collect()  # asyncio leaves a connection to it that it accepts while the server closes
        client.setblocking(False)
        async with asyncio.timeout(SECONDS):
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
