"""Relayed requests and responses, where the server behind the proxy or the client is careless or hostile."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from envtest import ControlPlane
from envtest.admission import webhook_client
from envtest.api_client import APIClient
from envtest.formats.certificate_authority import CertificateAuthority, server_context
from envtest.planes.plane import EmbeddedControlPlane

SECONDS = 30.0
PODS = "/api/v1/namespaces/default/pods"
PROXY = f"{PODS}/web:80/proxy"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
COMPRESSED = gzip.compress(b"x" * 10_000)


class Backend:
    """A server that records heads of requests and sends ``responses`` as they are, by path; none: it never responds."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.begun = asyncio.Event()
        self.lost = asyncio.Event()
        self.responses: dict[str, bytes] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                self.begun.set()
                response = self.responses.get(head.split()[1].decode(), OK)
                writer.write(response)
                if not response:
                    await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.lost.set()
            writer.close()


class Setup(NamedTuple):
    plane: EmbeddedControlPlane
    backend: Backend

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cadata=self.plane.ca_pem.decode())
        return await asyncio.open_connection(
            "127.0.0.1", int(self.plane.url.rpartition(":")[2]), ssl=context
        )

    def request(self, method: str, target: str, *headers: str) -> bytes:
        lines = (
            f"{method} {target} HTTP/1.1",
            "Host: x",
            f"Authorization: Bearer {self.plane.token}",
            *headers,
        )
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()

    async def exchange(self, method: str, target: str, *headers: str) -> tuple[bytes, bytes]:
        """Return the head and the rest of what a connection sends for one request, with which it ends."""
        reader, writer = await self.connect()
        writer.write(self.request(method, target, *headers, "Connection: close"))
        async with asyncio.timeout(SECONDS):
            answer = await reader.read()
        writer.close()
        head, _, rest = answer.partition(b"\r\n\r\n")
        return head, rest


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    backend = Backend()
    server = await asyncio.start_server(backend.serve, "127.0.0.1", 0)
    # Cookies are never stored for addresses, only for names.
    local = f"localhost:{server.sockets[0].getsockname()[1]}"
    scenario = {"pods": [{"match": {"name": "web"}, "ports": {"80": local}}]}
    async with (
        ControlPlane.embedded(scenario=scenario, controllers=("gc",)) as plane,
        APIClient(plane) as api,
    ):
        spec = {"containers": [{"name": "main", "image": "i"}]}
        await api.post(PODS, {"metadata": {"name": "web"}, "spec": spec})
        await plane.advance(0)
        yield Setup(plane, backend)
    server.close()


@pytest.mark.parametrize(
    ("target", "relayed"),
    [
        (f"{PODS}/web%3A80/proxy/a%20b/c?d=/e", "/a%20b/c?d=/e"),
        (f"{PODS}/%77eb:80/proxy/web:80/proxy@127.0.0.1:1/", "/web:80/proxy@127.0.0.1:1/"),
        (f"{PODS}/%77eb:80/proxy/?a=/web:80/proxy@127.0.0.1:1/", "/?a=/web:80/proxy@127.0.0.1:1/"),
        (f"http://x{PROXY}/a#b", "/a"),
    ],
)
async def test_rest_of_the_path_is_relayed_to_the_pod(
    setup: Setup, target: str, relayed: str
) -> None:
    head, _ = await setup.exchange("GET", target)
    assert head.startswith(b"HTTP/1.1 200 ")
    assert [head.split()[1].decode() for head in setup.backend.heads] == [relayed]


async def test_compressed_responses_are_relayed_as_they_are(setup: Setup) -> None:
    length = b"Content-Length: %d\r\n" % len(COMPRESSED)
    kind = b"Content-Type: text/html\r\nContent-Encoding: gzip\r\n"
    setup.backend.responses["/"] = b"HTTP/1.1 200 OK\r\n" + kind + length + b"\r\n" + COMPRESSED
    head, body = await setup.exchange("GET", f"{PROXY}/")
    assert b"Content-Encoding: gzip" in head
    assert body == COMPRESSED


async def test_responses_to_head_have_no_body(setup: Setup) -> None:
    setup.backend.responses["/"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    head, body = await setup.exchange("HEAD", f"{PROXY}/")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b""


async def test_cookies_of_one_request_are_not_sent_with_others(setup: Setup) -> None:
    setup.backend.responses["/"] = OK.replace(
        b"\r\n\r\n", b"\r\nSet-Cookie: session=1; Path=/\r\n\r\n"
    )
    for _ in range(2):
        head, _ = await setup.exchange("GET", f"{PROXY}/")
        assert b"Set-Cookie: session=1" in head
    assert not any(b"cookie" in head.lower() for head in setup.backend.heads)


async def test_expectations_end_at_the_api_server(setup: Setup) -> None:
    reader, writer = await setup.connect()
    headers = ("Expect: 100-continue", "Content-Length: 2", "Connection: close")
    writer.write(setup.request("POST", f"{PROXY}/", *headers))
    async with asyncio.timeout(SECONDS):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    assert b"expect" not in setup.backend.heads[0].lower()


async def test_headers_are_relayed_whatever_their_case_and_encoding(setup: Setup) -> None:
    moved = b"HTTP/1.1 302 Found\r\nlocation: /login\r\nX-Name: \xfc\r\nContent-Length: 0\r\n\r\n"
    setup.backend.responses["/"] = moved
    head, _ = await setup.exchange("GET", f"{PROXY}/")
    assert f"location: {PROXY}/login".encode() in head.replace(b"Location", b"location")
    assert b"X-Name: \xfc" in head


async def test_servers_cannot_make_the_client_leave_http(setup: Setup) -> None:
    setup.backend.responses["/"] = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
    )
    head, _ = await setup.exchange("GET", f"{PROXY}/")
    assert head.startswith(b"HTTP/1.1 503 ")


async def test_request_ends_with_its_client_before_the_response(setup: Setup) -> None:
    setup.backend.responses["/"] = b""
    _, writer = await setup.connect()
    writer.write(setup.request("GET", f"{PROXY}/"))
    async with asyncio.timeout(SECONDS):
        await setup.backend.begun.wait()
        writer.transport.abort()
        await setup.backend.lost.wait()


async def test_discovery_of_another_server_is_limited(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_client, "_MAX_RESPONSE_BYTES", 1000)
    authority = CertificateAuthority()
    context = server_context(authority.server(["localhost"]), authority.pem)
    setup.backend.responses["/apis/a.example.com/v1"] = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 10_000
    server = await asyncio.start_server(setup.backend.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    assert setup.plane._api_server is not None
    setup.plane._api_server.cluster.endpoints.register(
        "default", "other", f"https://127.0.0.1:{port}"
    )
    names = {
        "group": "a.example.com",
        "version": "v1",
        "groupPriorityMinimum": 1,
        "versionPriority": 1,
    }
    spec = {
        **names,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "default", "name": "other"},
    }
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    async with APIClient(setup.plane) as api, asyncio.timeout(SECONDS):
        await api.post(path, {"metadata": {"name": "v1.a.example.com"}, "spec": spec})
        conditions: list[dict[str, Any]] = []
        while not conditions:
            await asyncio.sleep(0.01)
            status = (await api.get(f"{path}/v1.a.example.com")).body.get("status") or {}
            conditions = status.get("conditions") or []
    server.close()
    assert conditions[0]["message"].endswith("the response is longer than 1000 bytes")
