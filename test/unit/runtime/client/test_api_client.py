"""The ApiClient of kubernetes-asyncio: server, TLS, credentials and their renewal, write gate, lifetime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from kubernetes_asyncio.client import (
    ApiClient,
    ApiException,
    CoreV1Api,
    V1ConfigMap,
    V1ObjectMeta,
)
from kubernetes_asyncio.stream import WsApiClient

from cfo.runtime import ClientConfig
from cfo.runtime.client import CredentialError, WriteRejected, open_api_client
from cfo.runtime.client.credentials import Credentials
from cfo.runtime.client.write_gate import write_gates
from test.support.api_server import ApiServer, Handler, json
from test.support.certificates import create_ca, create_certificate, server_ssl_context

PATH = "/api/v1/namespaces/ns/configmaps/a"
EXEC_PATH = "/api/v1/namespaces/ns/pods/web/exec"
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}


class RenewableCredentials:
    """Returns ``first``, and ``second`` after the first renewal."""

    def __init__(self, first: Credentials, second: Credentials) -> None:
        self.current = first
        self.next = second

    async def __call__(self, *, renew: bool) -> Credentials:
        if renew:
            self.current = self.next
        return self.current


BEARERS = (Credentials("Bearer first"), Credentials("Bearer second"))


def only_for(authorization: str, handler: Handler) -> Handler:
    """Return a handler that responds with 401 to all other credentials."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != authorization:
            return web.Response(status=401)
        return await handler(request)

    return handle


async def remote_command(request: web.Request) -> web.StreamResponse:
    """Serve an exec that prints its command."""
    websocket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
    await websocket.prepare(request)
    await websocket.send_bytes(b"\x01" + " ".join(request.query.getall("command")).encode())
    await websocket.close()
    return websocket


async def read(api_client: ApiClient) -> Any:
    return (await CoreV1Api(api_client).read_namespaced_config_map("a", "ns")).data


async def execute(api_client: ApiClient) -> str:
    """Execute ``echo hello`` in a pod, and return what it printed."""
    printed: str = await CoreV1Api(api_client).connect_get_namespaced_pod_exec(
        "web", "ns", command=["echo", "hello"], stdout=True
    )
    return printed


async def test_generated_api_reads_and_writes_objects() -> None:
    async with ApiServer().run() as server:
        server.answer("GET", PATH, json(OBJECT))
        server.answer("POST", PATH.rpartition("/")[0], json(OBJECT))
        config = ClientConfig(
            server=f"{server.url}/",
            token="t",
            headers=(("Impersonate-Group", "a"), ("Impersonate-Group", "b")),
        )
        async with open_api_client(config) as api_client:
            assert await read(api_client) == {"k": "v"}
            model = V1ConfigMap(metadata=V1ObjectMeta(name="a"), data={"k": "v"})
            await CoreV1Api(api_client).create_namespaced_config_map("ns", model)
        read_request, create_request = server.all_requests
        assert read_request.headers["Authorization"] == "Bearer t"
        assert read_request.headers["User-Agent"].startswith("cfo/")
        assert read_request.headers.getall("Impersonate-Group") == ["a", "b"]  # type: ignore[attr-defined]
        assert create_request.body == {"metadata": {"name": "a"}, "data": {"k": "v"}}


async def test_rejected_credentials_are_renewed_once() -> None:
    async with ApiServer().run() as server:
        server.answer("GET", PATH, only_for("Bearer second", json(OBJECT)))
        credentials = RenewableCredentials(*BEARERS)
        config = ClientConfig(server=server.url, credentials=credentials)
        async with open_api_client(config) as api_client:
            assert await read(api_client) == {"k": "v"}
            assert await read(api_client) == {"k": "v"}
            credentials.current = credentials.next = BEARERS[0]
            with pytest.raises(ApiException) as caught:
                await read(api_client)
        assert caught.value.status == 401
        assert len(server.all_requests) == 5


async def test_command_is_executed_with_renewed_credentials() -> None:
    async with ApiServer().run() as server:
        server.answer("GET", EXEC_PATH, only_for("Bearer second", remote_command))
        config = ClientConfig(server=server.url, credentials=RenewableCredentials(*BEARERS))
        async with open_api_client(config, websockets=True) as api_client:
            assert isinstance(api_client, WsApiClient)
            assert await execute(api_client) == "echo hello"
        async with open_api_client(
            ClientConfig(server=server.url, token="wrong"), websockets=True
        ) as api_client:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await execute(api_client)


async def test_failed_login_is_a_credential_error() -> None:
    async def credentials(*, renew: bool) -> Credentials:
        raise CredentialError("the plugin is broken")

    config = ClientConfig(server="https://127.0.0.1:1", credentials=credentials)
    async with open_api_client(config) as api_client:
        with pytest.raises(CredentialError, match="the plugin is broken"):
            await read(api_client)


async def test_server_is_verified_by_its_ca_and_tls_server_name(tmp_path: Path) -> None:
    ca = create_ca()
    tls = server_ssl_context(create_certificate(ca, "api", "api.internal"), tmp_path)
    async with ApiServer().run(tls) as server:
        server.answer("GET", PATH, json(OBJECT))
        server.answer("GET", EXEC_PATH, remote_command)
        for config in (
            ClientConfig(server=server.url, ca_pem=ca.cert_pem, tls_server_name="api.internal"),
            ClientConfig(server=server.url, verify=False),
        ):
            async with open_api_client(config) as api_client:
                assert await read(api_client) == {"k": "v"}
            async with open_api_client(config, websockets=True) as api_client:
                assert await execute(api_client) == "echo hello"
        requests = len(server.all_requests)
        for config in (
            ClientConfig(server=server.url, ca_pem=ca.cert_pem),
            ClientConfig(server=server.url, tls_server_name="api.internal"),
        ):
            async with open_api_client(config) as api_client:
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await read(api_client)
        assert len(server.all_requests) == requests


async def test_renewed_client_certificate_is_used(tmp_path: Path) -> None:
    ca = create_ca()
    pairs = [create_certificate(ca, name) for name in ("old", "new")]
    certificates = [Credentials("", pair.cert_pem, pair.key_pem) for pair in pairs]

    async def identify_client(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = dict(part[0] for part in request.transport.get_extra_info("peercert")["subject"])
        name = subject["commonName"]
        return web.json_response({"data": {"name": name}}, status=401 if name == "old" else 200)

    tls = server_ssl_context(create_certificate(ca, "api", "127.0.0.1"), tmp_path, client_ca=ca)
    async with ApiServer().run(tls) as server:
        server.answer("GET", PATH, identify_client)
        config = ClientConfig(
            server=server.url,
            ca_pem=ca.cert_pem,
            credentials=RenewableCredentials(certificates[0], certificates[1]),
        )
        async with open_api_client(config) as api_client:
            assert await read(api_client) == {"name": "new"}


@pytest.mark.parametrize(("websockets", "send"), [(False, read), (True, execute)])
async def test_requests_go_through_the_proxy(websockets: bool, send: Callable[..., Any]) -> None:
    async with ApiServer().run() as proxy:
        proxy.answer("GET", PATH, json(OBJECT))
        proxy.answer("GET", EXEC_PATH, remote_command)
        config = ClientConfig(server="http://api.invalid", proxy_url=proxy.url)
        async with open_api_client(config, websockets=websockets) as api_client:
            await send(api_client)
        assert proxy.all_requests[0].headers["Host"] == "api.invalid"


async def test_redirect_is_not_followed() -> None:
    async def redirect(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    async with ApiServer().run() as server:
        server.answer("GET", PATH, redirect)
        async with open_api_client(ClientConfig(server=server.url)) as api_client:
            with pytest.raises(ApiException) as caught:
                await read(api_client)
        assert caught.value.status == 302
        assert len(server.all_requests) == 1


class ClosedGate:
    """The write gate of a process that lost the leadership."""

    def check(self) -> None:
        raise WriteRejected("not the leader")


async def test_writes_and_commands_pass_the_write_gate() -> None:
    async with ApiServer().run() as server:
        server.answer("GET", PATH, json(OBJECT))
        server.answer("GET", EXEC_PATH, remote_command)
        config = ClientConfig(server=server.url)
        token = write_gates.set((ClosedGate(),))
        try:
            async with open_api_client(config) as api_client:
                assert await read(api_client) == {"k": "v"}
                with pytest.raises(WriteRejected):
                    await CoreV1Api(api_client).delete_namespaced_config_map("a", "ns")
            async with open_api_client(config, websockets=True) as api_client:
                with pytest.raises(WriteRejected):
                    await execute(api_client)
        finally:
            write_gates.reset(token)
        assert [request.method for request in server.all_requests] == ["GET"]


async def test_client_is_closed_at_the_end_of_the_block() -> None:
    async with ApiServer().run() as server:
        async with open_api_client(ClientConfig(server=server.url)) as api_client:
            pass
        with pytest.raises(RuntimeError, match="Session is closed"):
            await read(api_client)


def test_only_an_opened_client_imports_kubernetes_asyncio() -> None:
    program = """
import asyncio, sys
from cfo.runtime import ClientConfig, Manager
from cfo.runtime.client import open_api_client

async def main():
    config = ClientConfig(server="http://127.0.0.1:1")
    Manager(config)
    print("kubernetes_asyncio" in sys.modules)
    async with open_api_client(config):
        print("kubernetes_asyncio" in sys.modules)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("False\nTrue\n", 0), done.stderr
