"""Bodies of requests: their end, and what follows."""

from __future__ import annotations

import random
import time

import pytest

from envtest.http_server.request_body import FRAMING_BYTES, BodyError, RequestBody

CHUNKS = b"3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"


async def read(body: RequestBody) -> bytes:
    return b"".join([piece async for piece in body.iter_any()])


def feed(body: RequestBody, data: bytes, size: int) -> bytes:
    """Pass data to a body in pieces; return what follows the body."""
    rest = b""
    for start in range(0, len(data), size):
        part = data[start : start + size]
        rest += part if body.complete else body.feed(part)
    return rest


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("length", "data", "content"), [(None, CHUNKS, b"abc0123456789"), (3, b"abc", b"abc")]
)
async def test_body_ends_before_the_next_request(
    length: int | None, data: bytes, content: bytes, size: int
) -> None:
    body = RequestBody(length)
    rest = feed(body, data + b"GET /", size)
    assert body.complete
    assert (await read(body), rest) == (content, b"GET /")


async def test_random_chunks_are_decoded_whatever_the_reads_are() -> None:
    """Content and trailers with line breaks must not be taken for the end, however they are cut."""
    generator = random.Random(11)
    for _ in range(300):
        content = bytes(generator.choices(b"\r\n0a;", k=generator.randrange(1, 60)))
        data, position = b"", 0
        while position < len(content):
            chunk = content[position : position + generator.randrange(1, 12)]
            extension = generator.choice((b"", b";a", b";a=b", b';a="b;c"'))
            data += b"%0*x%b\r\n%b\r\n" % (generator.randrange(1, 5), len(chunk), extension, chunk)
            position += len(chunk)
        data += generator.choice((b"0\r\n\r\n", b"000;x\r\n\r\n", b"0\r\nA:\r\nB: c\r\n\r\n"))
        body = RequestBody(None)
        rest = feed(body, data + b"POST / HTTP/1.1\r\n\r\n", generator.randrange(1, len(data) + 5))
        assert body.complete, data
        assert (await read(body), rest) == (content, b"POST / HTTP/1.1\r\n\r\n"), data


def test_damaged_chunks_are_refused_or_incomplete() -> None:
    """No damage causes another exception, and none lets a body end later than its last empty line."""
    generator = random.Random(12)
    for _ in range(2000):
        data = bytearray(CHUNKS)
        for _ in range(generator.randrange(1, 4)):
            position = generator.randrange(len(data))
            data[position : position + generator.randrange(3)] = generator.randbytes(
                generator.randrange(3)
            )
        body = RequestBody(None)
        try:
            feed(body, bytes(data), generator.randrange(1, 20))
        except BodyError:
            continue
        assert not body.complete or b"\r\n\r\n" in data


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b"1_0\r\n",
        b" 1\r\n",
        b"1 \r\n",
        b"\r\n",
        b"1\nab",
        b"1;a\nb\r\n",
        b"1\r\nab\r\n",
        b"1\r\na\n",
        b"0\n\n",
        b"0\r\n\n",
        b"0\r\nA: b\r\n c\r\n\r\n",
        b"0\r\nContent-Length: 3\r\n\r\n",
        b"f" * 17 + b"\r\n",
        b"1;" + b"a" * (FRAMING_BYTES + 1),
        b"0\r\nA: " + b"a" * (FRAMING_BYTES + 1),
        b"0" * (FRAMING_BYTES + 1),
    ],
)
@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_malformed_chunk_is_refused(data: bytes, size: int) -> None:
    with pytest.raises(BodyError):
        feed(RequestBody(None), data, size)


@pytest.mark.parametrize("content", [b"\r\n\r\n", b"x"])
def test_chunks_in_small_pieces_take_linear_time(content: bytes) -> None:
    seconds = []
    for count in (5_000, 40_000):
        body, started_at = RequestBody(None), time.process_time()
        body.discard()
        feed(body, b"%x\r\n%b\r\n" % (len(content), content) * count + b"0\r\n\r\n", 100)
        seconds.append(time.process_time() - started_at)
        assert body.complete
    assert seconds[1] < 8 * 4 * seconds[0] + 0.05


async def test_reader_learns_that_the_client_has_disconnected() -> None:
    body = RequestBody(3)
    body.feed(b"ab")
    body.fail(ConnectionResetError())
    with pytest.raises(ConnectionError):
        await read(body)


@pytest.mark.parametrize(
    ("length", "data"), [(6, (b"ab", b"cdefGET /")), (None, (b"2\r\nab", b"\r\n0\r\n\r\nGET /"))]
)
async def test_discarded_body_takes_no_memory(
    length: int | None, data: tuple[bytes, bytes]
) -> None:
    body = RequestBody(length)
    body.feed(data[0])
    body.discard()
    assert body.feed(data[1]) == b"GET /"
    assert await read(body) == b""
