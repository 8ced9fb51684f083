"""The proxy of pods and Services; :mod:`test.conformance.servers` plays the pods, which echo requests."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest

from envtest import ControlPlane
from test.conformance import servers
from test.conformance.client import SpecClient
from test.conformance.specs import plays

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


@pytest.fixture
async def session(cluster: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=cluster.ca_pem.decode()))
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with aiohttp.ClientSession(cluster.url, connector=connector, headers=headers) as opened:
        yield opened


async def serve(client: SpecClient, namespace: str, labels: dict[str, str]) -> str:
    """Create a pod and a Service, wait until both serve requests, and return the path of their namespace."""
    core = f"/api/v1/namespaces/{namespace}"
    spec = {"containers": [{"name": "agnhost", "image": "agnhost"}], "restartPolicy": "Never"}
    metadata = {"name": "agnhost", "labels": labels}
    await client.create(f"{core}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    ports = {"ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}], "selector": labels}
    metadata = {"name": "test-service"}
    await client.create(
        f"{core}/services", {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports}
    )
    await client.eventually(f"{core}/pods/agnhost", lambda body: body["status"].get("phase") == "Running")
    await client.eventually(f"{core}/services/test-service/proxy/", lambda body: body.get("Method") == "GET")
    return core


@plays("Proxy version v1 A set of valid responses are returned for both pod and service ProxyWithPath")
async def test_requests_with_a_path_are_relayed(
    client: SpecClient, session: aiohttp.ClientSession, namespace: str
) -> None:
    core = await serve(client, namespace, servers.ECHOES[0])
    for name in ("pods/agnhost", "services/test-service", "services/http:test-service:80"):
        for method in METHODS:
            async with session.request(method, f"{core}/{name}/proxy/some/path/with/{method}") as response:
                assert response.status == 200
                if method != "HEAD":
                    assert await response.json() == {"Method": method, "Body": "foo"}


@plays("Proxy version v1 A set of valid responses are returned for both pod and service Proxy")
async def test_requests_without_a_path_are_relayed_or_redirected(
    client: SpecClient, session: aiohttp.ClientSession, namespace: str
) -> None:
    core = await serve(client, namespace, servers.ECHOES[1])
    for name in ("pods/agnhost", "services/test-service"):
        for method in METHODS:
            path = f"{core}/{name}/proxy"
            async with session.request(method, f"{path}?method={method}", allow_redirects=False) as response:
                if method in ("GET", "HEAD"):
                    assert response.status == 301
                    assert response.headers["Location"] == f"{path}/?method={method}"
                else:
                    assert (response.status, await response.json()) == (200, {"Method": method, "Body": "foo"})


async def test_port_on_which_no_pod_listens_cannot_be_reached(client: SpecClient, namespace: str) -> None:
    core = await serve(client, namespace, servers.ECHOES[0])
    for name in ("pods/agnhost:81", "pods/https:agnhost:"):
        refused = await client.get(f"{core}/{name}/proxy/")
        assert (refused.code, refused.body["reason"]) == (503, "ServiceUnavailable")
        assert "connection refused" in refused.body["message"]
