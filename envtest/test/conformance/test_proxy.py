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
    await client.create(
        f"{core}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )
    ports = {"ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}], "selector": labels}
    metadata = {"name": "test-service"}
    await client.create(
        f"{core}/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports},
    )
    await client.eventually(
        f"{core}/pods/agnhost", lambda body: body["status"].get("phase") == "Running"
    )
    await client.eventually(
        f"{core}/services/test-service/proxy/", lambda body: body.get("Method") == "GET"
    )
    return core


@plays(
    "Proxy version v1 A set of valid responses are returned for both pod and service ProxyWithPath"
)
async def test_requests_with_a_path_are_relayed(
    client: SpecClient, session: aiohttp.ClientSession, namespace: str
) -> None:
    core = await serve(client, namespace, servers.ECHOES[0])
    for name in ("pods/agnhost", "services/test-service", "services/http:test-service:80"):
        for method in METHODS:
            async with session.request(
                method, f"{core}/{name}/proxy/some/path/with/{method}"
            ) as response:
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
            async with session.request(
                method, f"{path}?method={method}", allow_redirects=False
            ) as response:
                if method in ("GET", "HEAD"):
                    assert response.status == 301
                    assert response.headers["Location"] == f"{path}/?method={method}"
                else:
                    assert (response.status, await response.json()) == (
                        200,
                        {"Method": method, "Body": "foo"},
                    )


async def test_port_on_which_no_pod_listens_cannot_be_reached(
    client: SpecClient, namespace: str
) -> None:
    core = await serve(client, namespace, servers.ECHOES[0])
    for name in ("pods/agnhost:81", "pods/https:agnhost:"):
        refused = await client.get(f"{core}/{name}/proxy/")
        assert (refused.code, refused.body["reason"]) == (503, "ServiceUnavailable")
        assert "connection refused" in refused.body["message"]


@plays("Proxy version v1 should proxy through a service and a pod")
async def test_ports_by_name_and_links_in_pages(
    client: SpecClient, session: aiohttp.ClientSession, namespace: str
) -> None:
    core, labels = f"/api/v1/namespaces/{namespace}", {servers.PORTER_LABEL: "true"}
    targets = {"portname1": (80, "dest1"), "portname2": (81, 162)}
    targets |= {"tlsportname1": (443, "tlsdest1"), "tlsportname2": (444, 462)}
    ports = [
        {"name": name, "port": port, "targetPort": target}
        for name, (port, target) in targets.items()
    ]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"generateName": "proxy-service-"},
    }
    name = (
        await client.create(
            f"{core}/services", {**service, "spec": {"ports": ports, "selector": labels}}
        )
    )["metadata"]["name"]
    named = {"dest1": 160, "dest2": 162, "tlsdest1": 460, "tlsdest2": 462}
    container_ports = [{"name": each, "containerPort": number} for each, number in named.items()]
    # Requests without a port go to the first one.
    first = [{"containerPort": 80}]
    container = {"name": name, "image": "agnhost", "ports": first + container_ports}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    controller = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name}}
    spec = {"replicas": 1, "selector": labels, "template": template}
    await client.create(f"{core}/replicationcontrollers", {**controller, "spec": spec})
    (pod,) = (await client.eventually(f"{core}/pods", lambda body: body["items"]))["items"]
    proxy = f"{core}/services/{name}:portname1/proxy/"
    await client.eventually(proxy, lambda body: not isinstance(body, dict))
    services, pods = f"{core}/services/{{}}/proxy", f"{core}/pods/{{}}/proxy"
    one = pod["metadata"]["name"]
    expected = {
        **{services.format(f"{scheme}{name}:portname1"): "foo" for scheme in ("", "http:")},
        **{services.format(f"{scheme}{name}:portname2"): "bar" for scheme in ("", "http:")},
        services.format(f"https:{name}:tlsportname1"): "tls baz",
        services.format(f"https:{name}:tlsportname2"): "tls qux",
        **{pods.format(f"{scheme}{one}:160"): "foo" for scheme in ("", "http:")},
        **{pods.format(f"{scheme}{one}:162"): "bar" for scheme in ("", "http:")},
        pods.format(f"https:{one}:460"): "tls baz",
        pods.format(f"https:{one}:462"): "tls qux",
    }
    for each in (one, f"{one}:1080", f"http:{one}:1080"):
        expected[pods.format(each)] = f'<a href="{pods.format(each)}/rewriteme">test</a>'
    secure = pods.format(f"https:{one}:443")
    expected[secure] = f'<a href="{secure}/tlsrewriteme">test</a>'
    for path, text in expected.items():
        async with session.get(f"{path}/") as response:
            assert (path, response.status, await response.text()) == (path, 200, text)
