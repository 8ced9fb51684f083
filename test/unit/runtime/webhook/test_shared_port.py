"""Whether another process may serve at the URL of a process that has stopped serving."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cfo.runtime.process.listener import free_port
from cfo.runtime.webhook import shared_port
from cfo.runtime.webhook.options import WebhookURL
from cfo.runtime.webhook.shared_port import may_be_served
from test.support.certificates import create_ca, create_certificate, server_ssl_context

CA = create_ca("hooks")
OTHER_CA = create_ca("another cluster")
UNRESOLVED = "hooks.invalid"


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Serve on a free port of the loopback interface, which is the result."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


def tls_for(host: str, directory: Path) -> ssl.SSLContext:
    return server_ssl_context(create_certificate(CA, "hooks", host), directory)


@pytest.mark.parametrize("host", ["127.0.0.1", UNRESOLVED])
async def test_refused_connection_proves_that_no_process_is_left(host: str) -> None:
    """Also for a host that only API servers resolve, as its port on this machine is refused."""
    assert not await may_be_served(WebhookURL(host, free_port()), CA.cert_pem)


@pytest.mark.parametrize("host", ["127.0.0.1", UNRESOLVED])
async def test_replica_is_found(tmp_path: Path, host: str) -> None:
    async with listening(tls_for(host, tmp_path)) as port:
        assert await may_be_served(WebhookURL(host, port), CA.cert_pem)


@pytest.mark.parametrize("trusted", [OTHER_CA.cert_pem, b"", b"no certificate"])
async def test_certificate_that_cannot_be_verified_counts_as_a_replica(
    tmp_path: Path, trusted: bytes
) -> None:
    async with listening(tls_for("127.0.0.1", tmp_path)) as port:
        assert await may_be_served(WebhookURL("127.0.0.1", port), trusted)


async def test_server_that_does_not_respond_counts_as_a_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_port, "_PROBE_TIMEOUT", 0.05)
    connected = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await may_be_served(WebhookURL("127.0.0.1", port), CA.cert_pem)
    assert connected.is_set()
