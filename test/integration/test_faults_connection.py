"""Tests with faulty connections: they break at any byte, go silent, are slow, or are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.informer import Informer
from cfo.runtime.cache.reflector import POSITION_CHECK_SECONDS, ReflectorOptions
from cfo.runtime.client.client import Client
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import Object, key_of
from envtest import ControlPlane, EmbeddedControlPlane
from test.support.faults import FastClock, new_manager, snapshot, wait_for_snapshot
from test.support.faulty_proxy import FaultyProxy, start_faulty_proxy
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    start_environment,
)


@asynccontextmanager
async def run_informer(
    proxy: FaultyProxy, *, idle_seconds: float = 75.0
) -> AsyncIterator[Informer]:
    """Run an informer of ConfigMaps that connects through the proxy."""
    async with Transport(proxy.config) as transport, anyio.create_task_group() as tasks:
        mapper = RESTMapper(transport)
        options = ReflectorOptions(idle_seconds=idle_seconds, page_size=7)
        cache = Cache(transport, mapper, clock=FastClock(), options=options)
        informer = cache.informer(CONFIG_MAP)
        tasks.start_soon(cache.run)
        yield informer
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def start_proxy_and_client(
    plane: ControlPlane, *, seed: int = 0
) -> AsyncIterator[tuple[FaultyProxy, Client]]:
    """Run a proxy, and yield it with a client that does not use it."""
    async with (
        start_faulty_proxy(plane, seed=seed) as proxy,
        Transport(ClientConfig.for_control_plane(plane)) as transport,
    ):
        yield proxy, Client(transport, RESTMapper(transport), field_manager="tester")


def config_map(name: str, **data: str) -> Object:
    """Return a ConfigMap in the namespace ``default``."""
    metadata = {"namespace": "default", "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def wait_until_current(informer: Informer, client: Client) -> None:
    """Wait until the informer contains the current ConfigMaps."""

    async def is_current() -> bool:
        listed = {
            key_of(item): item["metadata"]["resourceVersion"]
            for item in await client.list(CONFIG_MAP)
        }
        return informer.has_synced and listed == {
            entry.key: entry.meta.resource_version for entry in informer.reader.entries()
        }

    await eventually(is_current, f"the informer is current ({informer.problem})")


async def wait_until_watching(informer: Informer, client: Client, name: str = "watched") -> None:
    """Wait until the informer's watch is open: the object ``name``, which is created now, can only arrive on it."""
    await wait_until_current(informer, client)
    await client.create(config_map(name))
    await wait_until_current(informer, client)


@pytest.mark.parametrize("seed", [0, 1])
async def test_informer_stays_complete_when_connections_break_at_any_byte(
    plane: ControlPlane, seed: int
) -> None:
    async with start_proxy_and_client(plane, seed=seed) as (proxy, client):
        for number in range(20):
            await client.create(config_map(f"old-{number}", text="x" * 200))
        proxy.cut_within_bytes = 9000  # hardly enough for a page of the list
        async with run_informer(proxy) as informer:
            for number in range(40):
                await client.create(config_map(f"new-{number}", text="y" * 300))
                if number % 3 == 0:
                    await client.patch(
                        CONFIG_MAP, key_of(config_map(f"new-{number}")), {"data": {"text": "z"}}
                    )
                if number % 5 == 0:
                    await client.delete(CONFIG_MAP, key_of(config_map(f"new-{number}")))
            await wait_until_current(informer, client)
            assert proxy.cuts > 3
            assert proxy.opened > proxy.cuts


async def test_silent_connection_is_noticed_and_no_event_is_missed(plane: ControlPlane) -> None:
    async with (
        start_proxy_and_client(plane) as (proxy, client),
        run_informer(proxy, idle_seconds=1.0) as informer,
    ):
        for round_ in range(3):
            await wait_until_watching(informer, client, f"seen-{round_}")
            opened = proxy.opened
            proxy.silence()
            await client.create(config_map(f"unseen-{round_}"))
            await wait_until_current(informer, client)
            assert proxy.opened > opened


def test_silent_connection_is_noticed_within_90_seconds() -> None:
    """The server sends a bookmark every minute; after a longer silence the reflector checks its position.

    It does so on a new connection, with a short timeout.
    """
    idle = ReflectorOptions().idle_seconds
    assert idle > 60
    assert idle + POSITION_CHECK_SECONDS <= 90


@pytest.mark.embedded(reason="it pauses the server")
async def test_hanging_server_with_open_connections_is_noticed(plane: ControlPlane) -> None:
    assert isinstance(plane, EmbeddedControlPlane)
    async with (
        start_proxy_and_client(plane) as (proxy, client),
        run_informer(proxy, idle_seconds=1.0) as informer,
    ):
        await wait_until_watching(informer, client)
        plane.faults.pause()
        await eventually(lambda: _has_reconnected(proxy), "the informer reconnects")
        plane.faults.resume()
        await client.create(config_map("after"))
        await wait_until_current(informer, client)


async def _has_reconnected(proxy: FaultyProxy, connections: int = 3) -> bool:
    return proxy.opened >= connections


async def test_clusters_converge_when_connections_keep_breaking() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        expected = await _undisturbed_snapshot(env)
        async with start_faulty_proxy(env.plane, seed=5) as proxy, _run_controllers(env, proxy):
            proxy.cut_within_bytes = 40_000
            for number in range(8):
                namespace = await env.create_namespace(f"cut-{number}")
                await env.create(ray_cluster(namespace=namespace))
                if number % 2:
                    proxy.cut()
            for number in range(8):
                await wait_for_snapshot(env, f"cut-{number}", expected)
            assert proxy.cuts > 4


async def test_high_latency_causes_no_repeated_writes() -> None:
    """Each chunk of a response is delayed; no request times out, and no write is repeated."""
    async with start_environment(*VANILLA_CRDS) as env:
        expected = await _undisturbed_snapshot(env)
        async with start_faulty_proxy(env.plane) as proxy, _run_controllers(env, proxy):
            proxy.latency = 0.15
            namespace = await env.create_namespace("slow")
            env.clear_requests()
            await env.create(ray_cluster(namespace=namespace))
            await wait_for_snapshot(env, namespace, expected)
            await env.wait_until_idle()
            writes = [resource for verb, resource in env.requests() if verb in ("create", "apply")]
            children = [resource for resource in writes if resource != "rayclusters.ray.io/status"]
            assert len(children) == len(expected) - 1  # one per child


async def test_clusters_converge_when_server_is_unreachable_at_start_and_later() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        expected = await _undisturbed_snapshot(env)
        async with start_faulty_proxy(env.plane) as proxy:
            proxy.refuses_connections = True
            async with Transport(proxy.config, observe=env.exchanges.append) as transport:
                manager = new_manager(transport, kuberay_config(**PLAIN_SETTINGS))
                env.manager = manager
                namespace = await env.create_namespace("early")
                await env.create(ray_cluster(namespace=namespace))
                async with manager:
                    await eventually(lambda: _has_failed(env, 3), "three failed requests")
                    proxy.refuses_connections = False
                    await manager.started()
                    await wait_for_snapshot(env, namespace, expected)
                    proxy.refuses_connections = True
                    proxy.cut()
                    namespace = await env.create_namespace("late")
                    await env.create(ray_cluster(namespace=namespace))
                    failed = _count_failed(env)
                    await eventually(
                        lambda: _has_failed(env, failed + 3), "three further failed requests"
                    )
                    proxy.refuses_connections = False
                    await wait_for_snapshot(env, namespace, expected)
                env.manager = None


def _count_failed(env: Environment) -> int:
    return sum(exchange.code == "<error>" for exchange in env.exchanges)


async def _has_failed(env: Environment, times: int) -> bool:
    return _count_failed(env) >= times


async def _undisturbed_snapshot(env: Environment) -> dict[str, Any]:
    """Return the snapshot of a cluster that was created and reconciled without faults."""
    namespace = await env.create_namespace("undisturbed")
    async with start_faulty_proxy(env.plane) as proxy, _run_controllers(env, proxy):
        await env.create(ray_cluster(namespace=namespace))
        await env.wait_until_idle()
    return await snapshot(env, namespace)


@asynccontextmanager
async def _run_controllers(env: Environment, proxy: FaultyProxy) -> AsyncIterator[None]:
    """Run the RayCluster controllers through the proxy until the end of the block."""
    env.clear_requests()
    async with Transport(proxy.config, observe=env.exchanges.append) as transport:
        manager = new_manager(transport, kuberay_config(**PLAIN_SETTINGS))
        env.manager = manager
        try:
            async with manager:
                await manager.started()
                yield
        finally:
            env.manager = None
