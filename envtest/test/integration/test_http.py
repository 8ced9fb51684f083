"""HTTP/1.1 as clients of any language speak it: raw bytes on a TLS connection."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import cast
from urllib.parse import urlsplit

import pytest

from envtest import ControlPlane, EmbeddedControlPlane
from envtest.api_client import APIClient
from envtest.http_server import connection, deadlines
from envtest.planes.base import AdminAccess
from test.support.config_maps import CONFIG_MAPS, config_map

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], AbstractAsyncContextManager[Streams]]


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with ControlPlane.embedded(controllers=()) as running:
        yield running


@pytest.fixture
def client(plane: ControlPlane) -> Connect:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Streams]:
        context = ssl.create_default_context(cadata=plane.ca_pem.decode())
        parts = urlsplit(plane.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
        try:
            async with asyncio.timeout(120):
                yield reader, writer
        finally:
            writer.close()

    return connect


def request(
    plane: ControlPlane, method: str, path: str, *headers: str, version: str = "1.1"
) -> bytes:
    lines = [
        f"{method} {path} HTTP/{version}",
        "Host: x",
        f"Authorization: Bearer {plane.token}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(first.split()[1]), headers, body


async def test_pipelined_requests_are_answered_in_order(
    plane: ControlPlane, client: Connect
) -> None:
    async with client() as (reader, writer):
        writer.write(
            b"".join(request(plane, "GET", path) for path in ("/version", "/livez", "/nothing"))
        )
        answers = [await response(reader) for _ in range(3)]
    assert [code for code, _, _ in answers] == [200, 200, 404]
    assert json.loads(answers[0][2])["major"] == "1"
    assert "connection" not in answers[2][1]


async def test_pipelined_bodies_are_not_mixed(plane: ControlPlane, client: Connect) -> None:
    bodies = [json.dumps(config_map(f"piped-{number}")).encode() for number in range(4)]
    async with client() as (reader, writer):
        writer.write(
            b"".join(
                request(plane, "POST", CONFIG_MAPS, f"Content-Length: {len(body)}") + body
                if number % 2
                else request(plane, "POST", CONFIG_MAPS, "Transfer-Encoding: chunked")
                + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
                for number, body in enumerate(bodies)
            )
        )
        answers = [await response(reader) for _ in bodies]
    assert [code for code, _, _ in answers] == [201] * 4
    assert [json.loads(body)["metadata"]["name"] for _, _, body in answers] == [
        f"piped-{n}" for n in range(4)
    ]


async def test_chunked_body_after_100_continue(plane: ControlPlane, client: Connect) -> None:
    body = json.dumps(config_map("chunked")).encode()
    async with client() as (reader, writer):
        writer.write(
            request(
                plane, "POST", CONFIG_MAPS, "Transfer-Encoding: chunked", "Expect: 100-continue"
            )
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for part in (body[:7], body[7:]):
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        writer.write(b"0\r\n\r\n" + request(plane, "GET", f"{CONFIG_MAPS}/chunked"))
        assert (await response(reader))[0] == 201
        assert (await response(reader))[0] == 200


@pytest.mark.parametrize(("size", "kept"), [(1000, True), (connection.DISCARD_BYTES * 2, False)])
async def test_response_before_the_end_of_the_body(
    plane: ControlPlane, client: Connect, size: int, kept: bool
) -> None:
    """The rest of a small body is read, that of a large one ends the connection after the response."""
    async with client() as (reader, writer):
        writer.write(
            f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        code, headers, _ = await response(reader)
        assert code == 403
        assert (headers.get("connection") == "close") is not kept
        writer.write(b"x" * size + (request(plane, "GET", "/livez") if kept else b""))
        assert (await response(reader))[0] == 200 if kept else await reader.read() == b""


async def test_http_1_0_client_reads_until_the_end(plane: ControlPlane, client: Connect) -> None:
    async with client() as (reader, writer):
        writer.write(
            request(plane, "GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1", version="1.0")
        )
        received = await reader.read()
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"chunked" not in head
    assert not body


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_head_has_the_headers_of_get(
    plane: ControlPlane, client: Connect, method: str
) -> None:
    async with client() as (reader, writer):
        writer.write(request(plane, method, "/version") + request(plane, "GET", "/livez"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: 0" not in head
        if method == "GET":
            await reader.readuntil(b"}")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")


async def test_headers_without_end_are_refused(plane: ControlPlane, client: Connect) -> None:
    async with client() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * (connection.HEAD_BYTES + 100))
        code, headers, body = await response(reader)
    assert (code, headers["connection"], body) == (
        431,
        "close",
        b"431 Request Header Fields Too Large",
    )


async def test_request_that_leaves_http_is_validated(plane: ControlPlane, client: Connect) -> None:
    path = "/api/v1/namespaces/default/pods/missing/exec?command=ls"
    headers = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: eA==",
    )
    async with client() as (reader, writer):
        writer.write(request(plane, "GET", path, *headers))
        code, answered, body = await response(reader)
    assert (code, json.loads(body)["message"]) == (404, 'pods "missing" not found')
    assert answered["connection"] == "close"  # the next request would be read less strictly


async def test_half_a_request_does_not_keep_the_server_running(
    plane: ControlPlane, client: Connect
) -> None:
    async with client() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n")
        await writer.drain()
        await plane.stop()
        assert await reader.read() == b""


async def test_request_in_10_000_writes_is_read_in_linear_time(
    plane: ControlPlane, client: Connect
) -> None:
    data = request(plane, "GET", "/livez", "A: " + "x" * 10_000)
    async with client() as (reader, writer):
        started_at = time.process_time()
        for number in range(10_000):
            writer.write(data[number : number + 1])
        writer.write(data[10_000:])
        assert (await response(reader))[0] == 200
    assert time.process_time() - started_at < 4


async def test_thousands_of_pipelined_requests_are_answered(
    plane: ControlPlane, client: Connect
) -> None:
    """The client does not read before it has sent everything, so the server must stop reading in between."""
    count = 3000
    body = json.dumps({**config_map("piped"), "kind": "Unknown"}).encode()
    chunked = request(
        plane, "POST", CONFIG_MAPS, "Transfer-Encoding: chunked"
    ) + b"%x\r\n%b\r\n0\r\n\r\n" % (
        len(body),
        body,
    )
    async with client() as (reader, writer):
        writer.write(
            b"".join(
                [request(plane, "GET", "/livez"), chunked][number % 2] for number in range(count)
            )
        )
        codes = [(await response(reader))[0] for _ in range(count)]
    assert codes == [200, 400] * (count // 2)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n", 501),
        (b"GET / HTTP/1.1\nHost: x\n\n\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ],
)
async def test_request_that_can_be_read_in_two_ways_ends_the_connection(
    client: Connect, monkeypatch: pytest.MonkeyPatch, data: bytes, code: int
) -> None:
    monkeypatch.setattr(connection, "LINGER_SECONDS", 0.05)
    async with client() as (reader, writer):
        writer.write(data + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        received, headers, _ = await response(reader)
        assert (received, headers["connection"]) == (code, "close")
        assert await reader.read() == b""


async def test_malformed_chunk_ends_the_connection(
    plane: ControlPlane, client: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINGER_SECONDS", 0.05)
    async with client() as (reader, writer):
        head = request(plane, "POST", CONFIG_MAPS, "Transfer-Encoding: chunked")
        writer.write(head + b"1\r\n{x\r\n0\r\n\r\n" + request(plane, "GET", "/livez"))
        code, headers, _ = await response(reader)
        assert (code, headers["connection"]) == (400, "close")
        assert await reader.read() == b""


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET"]
)
async def test_half_a_head_is_dropped(
    plane: ControlPlane, client: Connect, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """More headers do not extend the time."""
    monkeypatch.setattr(deadlines, "HEAD_SECONDS", 1.0)
    async with client() as (reader, writer):
        writer.write(sent)
        if b"\r\n\r\n" in sent:
            await response(reader)
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            if sent:
                writer.write(b"A: b\r\n")
            await asyncio.wait([ended], timeout=0.02)
        with suppress(ConnectionError):
            assert await ended == b""


async def test_connection_between_requests_is_kept(
    plane: ControlPlane, client: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "HEAD_SECONDS", 1.0)
    async with client() as (reader, writer):
        for _ in range(2):
            writer.write(request(plane, "GET", "/livez"))
            assert (await response(reader))[0] == 200
            await asyncio.sleep(1.2)


async def test_watch_of_a_client_that_does_not_read_ends(
    plane: ControlPlane, client: Connect
) -> None:
    """It holds up neither writers nor the watches of others, and its buffer is bounded."""
    async with client() as (_, writer), APIClient(plane) as others:
        writer.write(request(plane, "GET", f"{CONFIG_MAPS}?watch=1"))
        transport = cast("asyncio.Transport", writer.transport)
        transport.pause_reading()
        async with others.watch(CONFIG_MAPS, {"timeoutSeconds": "30"}) as watch:
            for number in range(30):
                created = await others.post(
                    CONFIG_MAPS, config_map(f"large-{number}", {"x": "y" * 500_000})
                )
                assert created.code == 201
                assert await watch.summary(1) == [("ADDED", f"large-{number}")]


async def test_service_level_indicators_have_the_result_of_each_check(api: APIClient) -> None:
    assert (await api.get("/readyz")).code == 200
    indicators = (await api.get("/metrics/slis")).body
    assert 'kubernetes_healthcheck{name="etcd",type="livez"}' not in indicators
    assert 'kubernetes_healthcheck{name="ping",type="readyz"} 1.0' in indicators
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"}' in indicators


def without_tls(plane: EmbeddedControlPlane) -> AdminAccess:
    return AdminAccess(plane.plaintext_url, plane.ca_pem, plane.token)


async def test_address_without_tls_serves_the_same_objects_to_the_same_users() -> None:
    plane = ControlPlane.embedded(controllers=(), plaintext=True)
    async with plane, APIClient(plane) as api, APIClient(without_tls(plane)) as plain:
        assert plane.plaintext_url.startswith("http://127.0.0.1:")
        assert plane.url.startswith("https://")
        async with plain.watch(CONFIG_MAPS) as watch:
            await api.post(CONFIG_MAPS, config_map("shared"))
            assert await watch.summary(1) == [("ADDED", "shared")]
        unknown = await plain.get(CONFIG_MAPS, headers={"Authorization": "Bearer unknown"})
        assert unknown.code == 401
        async with plane.fork() as copy, APIClient(without_tls(copy)) as other:
            assert copy.plaintext_url != plane.plaintext_url
            assert (await other.get(f"{CONFIG_MAPS}/shared")).code == 200
    assert plane.plaintext_url == ""
