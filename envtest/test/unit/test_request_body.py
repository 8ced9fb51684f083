"""Bodies of requests: their end, and what follows."""

from __future__ import annotations

import pytest

from envtest.http_server.request_body import BodyError, RequestBody

CHUNKS = b"3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"


async def read(body: RequestBody) -> bytes:
    return b"".join([piece async for piece in body.iter_any()])


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize(("length", "data", "content"), [(None, CHUNKS, b"abc0123456789"), (3, b"abc", b"abc")])
async def test_body_ends_before_the_next_request(length: int | None, data: bytes, content: bytes, size: int) -> None:
    body = RequestBody(length)
    received, rest = data + b"GET /", b""
    for start in range(0, len(received), size):
        part = received[start : start + size]
        rest += part if body.complete else body.feed(part)
    assert body.complete
    assert (await read(body), rest) == (content, b"GET /")


@pytest.mark.parametrize("data", [b"x\r\n", b"-1\r\n", b"1\nab", b"1\r\nab\r\n", b"0" * 5000, b"f" * 16 + b"\r\n"])
def test_malformed_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        RequestBody(None).feed(data)


async def test_reader_learns_that_the_client_has_disconnected() -> None:
    body = RequestBody(3)
    body.feed(b"ab")
    body.fail(ConnectionResetError())
    with pytest.raises(ConnectionError):
        await read(body)


async def test_discarded_body_takes_no_memory() -> None:
    body = RequestBody(6)
    body.feed(b"ab")
    body.discard()
    assert body.feed(b"cdefGET /") == b"GET /"
    assert await read(body) == b""
