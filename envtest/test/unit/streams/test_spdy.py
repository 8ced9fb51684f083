"""SPDY/3.1 frames: streams that a client opens, and bytes that must not exhaust the server."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from envtest.streams import port_forward
from envtest.streams.byte_queue import MAX_WAITING, ByteQueue
from envtest.streams.port_forward import _Pairs
from envtest.streams.remote_command import Options, _SPDYStreams
from envtest.streams.spdy import MAX_FRAME, ProtocolError, SPDYConnection, SPDYStream, parse_headers
from envtest.streams.spdy_dictionary import DICTIONARY
from envtest.streams.upgrade import _Parser


class Client:
    """Writes the frames of a client, and collects those of the server."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.streams: list[SPDYStream] = []
        self.paused: list[bool] = []
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self.connection = SPDYConnection(self._send, self.streams.append, self.paused.append)

    async def _send(self, data: bytes) -> None:
        self.sent.append(data)

    def open_frame(self, number: int, headers: dict[str, str], *, size: int = 0) -> bytes:
        block = len(headers).to_bytes(4, "big")
        for name, value in headers.items():
            for text in (name.encode(), value.encode() + b"x" * size):
                block += len(text).to_bytes(4, "big") + text
        data = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        body = number.to_bytes(4, "big") + bytes(6) + data
        return b"\x80\x03\x00\x01\x00" + len(body).to_bytes(3, "big") + body

    @staticmethod
    def data_frame(number: int, data: bytes, *, fin: bool = False) -> bytes:
        return number.to_bytes(4, "big") + bytes([fin]) + len(data).to_bytes(3, "big") + data


async def test_streams_carry_bytes_in_both_directions() -> None:
    client = Client()
    frames = (
        client.open_frame(1, {"streamType": "data", "port": "80"})
        + client.data_frame(1, b"one")
        + client.open_frame(3, {"streamtype": "error"})
        + client.data_frame(1, b"two", fin=True)
    )
    for position in range(0, len(frames), 7):  # frames are split anywhere
        assert await client.connection.feed(frames[position : position + 7])
    first, second = client.streams
    assert (first.headers, second.headers["streamtype"]) == (
        {"streamtype": "data", "port": "80"},
        "error",
    )
    assert [await first.incoming.read() for _ in range(3)] == [b"one", b"two", b""]
    client.sent.clear()
    await first.write(b"answer")
    await first.close()
    await first.write(b"late")
    assert client.sent == [client.data_frame(1, b"answer"), client.data_frame(1, b"", fin=True)]


async def test_pings_are_answered_and_goaway_ends_the_connection() -> None:
    client = Client()
    ping = bytes.fromhex("8003000600000004") + b"\0\0\0\1"
    assert await client.connection.feed(ping)
    assert client.sent == [ping]
    assert not await client.connection.feed(bytes.fromhex("8003000700000008") + bytes(8))


async def test_reset_streams_end() -> None:
    client = Client()
    await client.connection.feed(client.open_frame(1, {"a": "b"}))
    await client.connection.feed(bytes.fromhex("8003000300000008") + b"\0\0\0\1\0\0\0\5")
    assert await client.streams[0].incoming.read() == b""


async def test_transport_is_paused_while_bytes_wait() -> None:
    client = Client()
    await client.connection.feed(client.open_frame(1, {"a": "b"}))
    for _ in range(3):
        await client.connection.feed(client.data_frame(1, b"x" * 500_000))
    assert client.paused == [True]
    await client.streams[0].incoming.read()
    assert client.paused == [True, False]
    await client.connection.feed(client.data_frame(1, b"x" * 500_000))
    await client.streams[0].close()
    assert client.paused == [True, False, True, False], "bytes of a closed stream do not wait"


async def test_queue_has_room_once_bytes_are_read() -> None:
    queue = ByteQueue()
    for _ in range(2):
        assert queue.feed(b"x" * MAX_WAITING) == MAX_WAITING
    waiting = asyncio.ensure_future(queue.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await queue.read()
    await waiting
    assert queue.drop() == MAX_WAITING
    assert (queue.feed(b"late"), await queue.read()) == (0, b"")


@pytest.mark.parametrize(
    "frame",
    [
        b"\x80\x02\x00\x01\x00\x00\x00\x00",
        b"\x80\x03\x00\x01\x00\x00\x00\x02ab",
        b"\x80\x03\x00\x01\x00\x00\x00\x0c" + bytes(10) + b"ab",
        b"\0\0\0\1\0" + (MAX_FRAME + 1).to_bytes(3, "big"),
    ],
    ids=["version", "truncated", "compression", "size"],
)
async def test_malformed_frames_end_the_connection(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        await Client().connection.feed(frame)


async def test_headers_are_bounded_when_they_are_decompressed() -> None:
    client = Client()
    with pytest.raises(ProtocolError, match="more than 16384 bytes"):
        await client.connection.feed(client.open_frame(1, {"a": ""}, size=10_000_000))
    with pytest.raises(ProtocolError, match="truncated"):
        parse_headers(b"\xff\xff\xff\xff")


class Transport:
    """Counts how often reading is paused."""

    def __init__(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


async def test_transport_is_paused_while_frames_wait_for_a_client_that_does_not_read() -> None:
    transport = Transport()
    parser = _Parser(transport)  # type: ignore[arg-type]
    for _ in range(2):
        parser.feed_data(b"x" * MAX_WAITING)
    assert not transport.reads
    await parser.bytes.read()
    assert transport.reads
    parser.pause(True)
    await parser.bytes.read()
    assert not transport.reads, "bytes still wait within the streams"
    parser.pause(False)
    assert transport.reads


async def test_bytes_that_nothing_reads_do_not_pause_the_transport() -> None:
    client = Client()
    streams = _SPDYStreams(Options(stdin=True, stdout=True, stderr=False, tty=False))
    for number, kind in enumerate(("stdin", "stdin", "stdout", "error", "unknown")):
        await client.connection.feed(client.open_frame(2 * number + 1, {"streamtype": kind}))
        streams.accept(client.streams[-1], "v4.channel.k8s.io")
    assert streams.complete.is_set()
    for number in (3, 5, 7, 9):
        for _ in range(3):
            await client.connection.feed(client.data_frame(number, b"x" * 500_000))
    assert client.paused == []
    await client.connection.feed(client.data_frame(1, b"typed"))
    assert await streams.stdin.read() == b"typed"


async def _ignore(port: int, connection: object) -> None:
    """Forward nothing."""


async def test_streams_without_a_pair_are_bounded_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(port_forward, "PAIR_SECONDS", 0.01)
    client, tasks = Client(), set[asyncio.Task[None]]()
    pairs = _Pairs(_ignore, tasks)
    for number in range(1, 1001, 2):
        headers = {"streamtype": "data", "requestid": str(number)}
        await client.connection.feed(client.open_frame(number, headers))
        pairs.accept(client.streams[-1])
        reset = b"\x80\x03\0\x03\0\0\0\x08" + number.to_bytes(4, "big") + b"\0\0\0\5"
        await client.connection.feed(reset)
    assert len(pairs._waiting) <= 100
    closed = asyncio.Event()
    pairs._start = lambda work: (work.close(), closed.set())  # type: ignore[assignment,method-assign,return-value]
    pairs.accept(SPDYStream(client.connection, 2001, {"streamtype": "data"}))
    while "1999" in pairs._waiting:
        closed.clear()
        async with asyncio.timeout(120):
            await closed.wait()
    assert not pairs._waiting


async def test_port_of_many_digits_is_an_error() -> None:
    client, tasks = Client(), set[asyncio.Task[None]]()
    pairs = _Pairs(_ignore, tasks)
    for number, kind in ((1, "error"), (3, "data")):
        await client.connection.feed(
            client.open_frame(number, {"streamtype": kind, "port": "9" * 5000})
        )
        pairs.accept(client.streams[-1])
    await asyncio.gather(*tasks)
    assert any(b"must be from 1 to 65535" in frame for frame in client.sent)
