"""What happens to connections: they break anywhere, they go silent, they are slow, nobody answers."""

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
from cfo.runtime.client.transport import Transport
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.kinds import CONFIG_MAP
from cfo.runtime.objects import Object, key_of
from envtest import ControlPlane
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
async def following(proxy: FaultyProxy, *, idle_seconds: float = 75.0) -> AsyncIterator[Informer]:
    """An informer of ConfigMaps at the other end of the wire."""
    async with Transport(proxy.config) as transport, anyio.create_task_group() as tasks:
        mapper = RESTMapper(transport)
        cache = Cache(
            transport, mapper, clock=FastClock(), options=ReflectorOptions(idle_seconds=idle_seconds, page_size=7)
        )
        informer = cache.informer(CONFIG_MAP)
        tasks.start_soon(cache.run)
        yield informer
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def at_both_ends(plane: ControlPlane, *, seed: int = 0) -> AsyncIterator[tuple[FaultyProxy, Client]]:
    """A wire, and a client that does not use it."""
    async with (
        start_faulty_proxy(plane, seed=seed) as proxy,
        Transport(ClientConfig.for_control_plane(plane)) as transport,
    ):
        yield proxy, Client(transport, RESTMapper(transport), field_manager="tester")


def config_map(name: str, **data: str) -> Object:
    metadata = {"namespace": "default", "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def agrees(informer: Informer, client: Client) -> None:
    """Waits until the informer knows what there is."""

    async def look() -> bool:
        there = {key_of(item): item["metadata"]["resourceVersion"] for item in await client.list(CONFIG_MAP)}
        return informer.has_synced and there == {
            entry.key: entry.meta.resource_version for entry in informer.reader.entries()
        }

    await eventually(look, f"the informer catches up ({informer.problem})")


@pytest.mark.parametrize("seed", range(2))
async def test_watches_and_lists_that_break_at_any_byte(plane: ControlPlane, seed: int) -> None:
    async with at_both_ends(plane, seed=seed) as (proxy, client):
        for number in range(20):
            await client.create(config_map(f"old-{number}", text="x" * 200))
        proxy.cut_within_bytes = 9000  # a page of the list may just come through
        async with following(proxy) as informer:
            for number in range(40):
                await client.create(config_map(f"new-{number}", text="y" * 300))
                if number % 3 == 0:
                    await client.patch(CONFIG_MAP, key_of(config_map(f"new-{number}")), {"data": {"text": "z"}})
                if number % 5 == 0:
                    await client.delete(CONFIG_MAP, key_of(config_map(f"new-{number}")))
            await agrees(informer, client)
            assert proxy.cuts > 3
            assert proxy.opened > proxy.cuts


async def test_a_connection_that_goes_silent_is_noticed_and_nothing_is_missed(plane: ControlPlane) -> None:
    async with at_both_ends(plane) as (proxy, client), following(proxy, idle_seconds=0.5) as informer:
        await agrees(informer, client)
        for round_ in range(3):
            proxy.silence()
            await client.create(config_map(f"unheard-{round_}"))
            opened = proxy.opened
            await agrees(informer, client)
            assert proxy.opened > opened


def test_silence_is_noticed_within_90_seconds() -> None:
    """A bookmark comes every minute: who hears nothing for longer asks, on a new connection, with a short patience."""
    idle = ReflectorOptions().idle_seconds
    assert idle > 60
    assert idle + POSITION_CHECK_SECONDS <= 90


async def test_a_server_that_hangs_with_its_connections_open(plane: ControlPlane) -> None:
    if not hasattr(plane, "faults"):
        pytest.skip("only the embedded control plane can be made to hang")
    async with at_both_ends(plane) as (proxy, client), following(proxy, idle_seconds=0.3) as informer:
        await agrees(informer, client)
        plane.faults.pause()
        await eventually(lambda: _noticed(proxy), "silence is noticed")
        plane.faults.resume()
        await client.create(config_map("after"))
        await agrees(informer, client)


async def _noticed(proxy: FaultyProxy, connections: int = 3) -> bool:
    return proxy.opened >= connections


async def test_an_operator_on_a_wire_that_breaks_all_the_time() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        expected = await _undisturbed(here)
        async with start_faulty_proxy(here.plane, seed=5) as proxy, _operator(here, proxy):
            proxy.cut_within_bytes = 40_000
            for number in range(8):
                namespace = await here.create_namespace(f"cut-{number}")
                await here.create(ray_cluster(namespace=namespace))
                if number % 2:
                    proxy.cut()
            for number in range(8):
                await wait_for_snapshot(here, f"cut-{number}", expected)
            assert proxy.cuts > 4


async def test_an_operator_far_away() -> None:
    """Every piece of an answer takes its time; nothing times out, nothing is written twice."""
    async with start_environment(*VANILLA_CRDS) as here:
        expected = await _undisturbed(here)
        async with start_faulty_proxy(here.plane) as proxy, _operator(here, proxy):
            proxy.latency = 0.15
            namespace = await here.create_namespace("far")
            here.clear_requests()
            await here.create(ray_cluster(namespace=namespace))
            await wait_for_snapshot(here, namespace, expected)
            await here.wait_until_idle()
            writes = [resource for verb, resource in here.requests() if verb in ("create", "apply")]
            assert len(writes) == len(expected) - 1  # one for each child


async def test_an_operator_whose_server_is_away_at_the_start_and_later() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        expected = await _undisturbed(here)
        async with start_faulty_proxy(here.plane) as proxy:
            proxy.refuses_connections = True
            async with Transport(proxy.config, observe=here.exchanges.append) as transport:
                manager = new_manager(transport, kuberay_config(**PLAIN_SETTINGS))
                here.manager = manager
                namespace = await here.create_namespace("early")
                await here.create(ray_cluster(namespace=namespace))
                async with manager:
                    await eventually(lambda: _failed(here, 3), "it is tried")
                    proxy.refuses_connections = False
                    await manager.started()
                    await wait_for_snapshot(here, namespace, expected)
                    proxy.refuses_connections = True
                    proxy.cut()
                    namespace = await here.create_namespace("late")
                    await here.create(ray_cluster(namespace=namespace))
                    failed = len([None for exchange in here.exchanges if exchange.code == "<error>"])
                    await eventually(lambda: _failed(here, failed + 3), "it is tried again")
                    proxy.refuses_connections = False
                    await wait_for_snapshot(here, namespace, expected)
                here.manager = None


async def _failed(here: Environment, times: int) -> bool:
    return len([None for exchange in here.exchanges if exchange.code == "<error>"]) >= times


async def _undisturbed(here: Environment) -> dict[str, Any]:
    namespace = await here.create_namespace("undisturbed")
    async with start_faulty_proxy(here.plane) as proxy, _operator(here, proxy):
        await here.create(ray_cluster(namespace=namespace))
        await here.wait_until_idle()
    return await snapshot(here, namespace)


@asynccontextmanager
async def _operator(here: Environment, proxy: FaultyProxy) -> AsyncIterator[None]:
    here.clear_requests()
    async with Transport(proxy.config, observe=here.exchanges.append) as transport:
        manager = new_manager(transport, kuberay_config(**PLAIN_SETTINGS))
        here.manager = manager
        try:
            async with manager:
                await manager.started()
                yield
        finally:
            here.manager = None
