"""The ApiClient of kubernetes-asyncio on the API server: generated APIs, watches, logs, exec and port-forward."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio.client import (
    ApiException,
    CoreV1Api,
    V1Container,
    V1ObjectMeta,
    V1Pod,
    V1PodSpec,
    V1Service,
    V1ServicePort,
    V1ServiceSpec,
)
from kubernetes_asyncio.watch import Watch

from cfo.runtime import ClientConfig
from cfo.runtime.client import open_api_client
from envtest import ControlPlane, EmbeddedControlPlane
from test.support.raycluster_environment import eventually


def service(name: str) -> V1Service:
    return V1Service(
        metadata=V1ObjectMeta(name=name),
        spec=V1ServiceSpec(selector={"app": name}, ports=[V1ServicePort(port=80)]),
    )


async def test_generated_api_creates_watches_and_deletes_objects(
    control_plane: ControlPlane, namespace: str
) -> None:
    config = ClientConfig.for_control_plane(control_plane)
    async with open_api_client(config) as api_client:
        core = CoreV1Api(api_client)
        created = await core.create_namespaced_service(namespace, service("web"))
        assert created.spec.cluster_ip
        async with Watch() as watch:
            async for event in watch.stream(core.list_namespaced_service, namespace):
                assert (event["type"], event["object"].metadata.name) == ("ADDED", "web")
                break
        await core.delete_namespaced_service("web", namespace)
        with pytest.raises(ApiException) as caught:
            await core.read_namespaced_service("web", namespace)
        assert caught.value.status == 404


@pytest.fixture
async def plane() -> AsyncIterator[EmbeddedControlPlane]:
    """A control plane with a running pod ``web``, which answers commands and returns what it receives on its port."""
    plane = ControlPlane.embedded(scenario={})

    @plane.scenario.on_exec(labels={"app": "web"})
    async def print_command(call: Any) -> int:
        await call.write(" ".join(call.command))
        return 0

    @plane.scenario.on_port_forward(labels={"app": "web"})
    async def echo(call: Any) -> None:
        await call.write(await call.read())

    async with plane:
        async with open_api_client(ClientConfig.for_control_plane(plane)) as api_client:
            core = CoreV1Api(api_client)
            pod = V1Pod(
                metadata=V1ObjectMeta(name="web", labels={"app": "web"}),
                spec=V1PodSpec(containers=[V1Container(name="main", image="web:1")]),
            )
            await core.create_namespaced_pod("default", pod)

            async def is_running() -> bool:
                await plane.advance(0)
                found = await core.read_namespaced_pod("web", "default")
                return bool(found.status.phase == "Running")

            await eventually(is_running, "the pod runs")
        yield plane


@pytest.mark.embedded(reason="the pods are simulated")
async def test_command_log_and_port_of_a_pod(plane: EmbeddedControlPlane) -> None:
    config = ClientConfig.for_control_plane(plane)
    plane.scenario.log("default", "web", "first", "second")
    async with (
        open_api_client(config) as api_client,
        open_api_client(config, websockets=True) as websocket_client,
    ):
        pods, connections = CoreV1Api(api_client), CoreV1Api(websocket_client)
        log = await pods.read_namespaced_pod_log("web", "default", tail_lines=1)
        assert log == "second\n"
        output = await connections.connect_get_namespaced_pod_exec(
            "web", "default", command=["ls", "-l"], stdout=True
        )
        assert output == "ls -l"
        connection = await connections.connect_get_namespaced_pod_portforward(
            "web", "default", ports="8080", _preload_content=False
        )
        received = bytearray()
        async with connection as websocket:
            await websocket.send_bytes(b"\x00ping")
            async for message in websocket:
                assert message.type == aiohttp.WSMsgType.BINARY
                # The channel of data; the first message of a channel is the port.
                if message.data[0] == 0:
                    received += message.data[1:]
                if received.endswith(b"ping"):
                    break
        assert bytes(received) == (8080).to_bytes(2, "little") + b"ping"
