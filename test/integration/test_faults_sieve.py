"""The three patterns by which Sieve (OSDI 2022) broke ten popular controllers, over the RayCluster controllers.

*Intermediate states*: a crash after each single write. *Stale states*: acting on a cache that is older than
the world, but consistent. *Unobserved states*: what came and went between two looks. After each the end is that of
a run in which nothing went wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime.kinds import NETWORK_POLICY, SECRET
from cfo.runtime.objects import NamespacedName, Object
from test.support.faults import FaultyTransport, run_until_crash, run_with_faulty_transport, snapshot, wait_for_snapshot
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    kuberay_config,
    ray_cluster,
    start_environment,
    wait_until_deleted,
)

PLATFORMS = [
    pytest.param(VANILLA_CRDS, PLAIN_SETTINGS, False, id="vanilla"),
    pytest.param(OPENSHIFT_CRDS, OAUTH_SETTINGS, True, id="openshift"),
]


async def _directly(here: Environment, settings: dict[str, Any], openshift: bool, cluster: Object) -> dict[str, Any]:
    """What becomes of a cluster when nothing goes wrong."""
    namespace = await here.create_namespace(cluster["metadata"]["namespace"])
    async with run_with_faulty_transport(here, kuberay_config(**settings)):
        await here.create(cluster)
        await here.wait_until_idle()
    return await snapshot(here, namespace, openshift=openshift)


@pytest.mark.parametrize(("platform", "settings", "openshift"), PLATFORMS)
async def test_a_crash_after_each_single_write(
    platform: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    async with start_environment(*platform) as here:
        expected = await _directly(here, settings, openshift, ray_cluster(namespace="undisturbed"))
        nothing: dict[str, Any] = {}
        for number in itertools.count(1):
            namespace = await here.create_namespace(f"crash-{number}")
            cluster = await here.create(ray_cluster(namespace=namespace))
            creating = await run_until_crash(here, kuberay_config(**settings), after_writes=number)
            async with run_with_faulty_transport(here, kuberay_config(**settings)):
                await wait_for_snapshot(
                    here, namespace, expected, openshift=openshift, description=f"crash after write {number}"
                )
            await here.delete(cluster)
            deleting = await run_until_crash(here, kuberay_config(**settings), after_writes=number)
            async with run_with_faulty_transport(here, kuberay_config(**settings)):
                await wait_for_snapshot(
                    here, namespace, nothing, openshift=openshift, description=f"deletion, write {number}"
                )
            if not creating and not deleting:
                break
        assert number > len(expected) - 1  # each child was a write, and each write a crash


Act = Callable[[Environment, Object], Awaitable[Object | None]]


async def _recreated(here: Environment, cluster: Object) -> Object | None:
    await here.delete(cluster)
    await wait_until_deleted(here, [(RAY_CLUSTER, cluster["metadata"]["name"])], cluster["metadata"]["namespace"])
    return await here.create(ray_cluster(namespace=cluster["metadata"]["namespace"]))


async def _deleted(here: Environment, cluster: Object) -> Object | None:
    await here.delete(cluster)
    return None


async def _suspended_and_resumed(here: Environment, cluster: Object) -> Object | None:
    await here.patch(cluster, {"spec": {"suspend": True}})
    return await here.patch(cluster, {"spec": {"suspend": False}})


async def _children_deleted(here: Environment, cluster: Object) -> Object | None:
    namespace = cluster["metadata"]["namespace"]
    for child in (await here.children(namespace)).values():
        if child["kind"] in (NETWORK_POLICY.kind, SECRET.kind):
            await here.delete(child)
    return cluster


async def _child_came_and_went(here: Environment, cluster: Object) -> Object | None:
    namespace = cluster["metadata"]["namespace"]
    for child in (await here.children(namespace)).values():
        if child["kind"] == NETWORK_POLICY.kind:
            await here.patch(child, {"spec": {"podSelector": {"matchLabels": {"drifted": "yes"}}}})
            await here.delete(child)
    return cluster


ACTS = [_recreated, _deleted, _suspended_and_resumed, _children_deleted, _child_came_and_went]


@pytest.mark.parametrize(("platform", "settings", "openshift"), PLATFORMS)
async def test_stale_and_unobserved_states(
    platform: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    """The watches are held while the world moves; reconciles act on what they knew; then all is heard at once."""
    async with start_environment(*platform) as here:
        expected = await _directly(here, settings, openshift, ray_cluster(namespace="undisturbed"))
        async with run_with_faulty_transport(here, kuberay_config(**settings)) as (manager, transport):
            for act in ACTS:
                namespace = await here.create_namespace(act.__name__.strip("_").replace("_", "-"))
                cluster = await here.create(ray_cluster(namespace=namespace))
                await here.wait_until_idle()
                if act is _recreated and openshift:
                    # its finalizer holds a cluster until the operator hears of the deletion
                    cluster = await here.patch(cluster, {"metadata": {"finalizers": None}})
                transport.watch_gate.hold()
                left = await act(here, cluster)
                await _act_on_what_is_known(manager.controllers, transport, NamespacedName(namespace, "rc"))
                transport.watch_gate.release()
                await wait_for_snapshot(
                    here, namespace, expected if left else {}, openshift=openshift, description=f"after {act.__name__}"
                )


async def _act_on_what_is_known(controllers: Any, transport: FaultyTransport, request: NamespacedName) -> None:
    assert not transport.watch_gate.open.is_set()
    for controller in controllers:
        await controller.reconciler.reconcile(request)


@pytest.mark.parametrize(("platform", "settings", "openshift"), PLATFORMS)
async def test_what_came_and_went_while_nobody_ran(
    platform: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    async with start_environment(*platform) as here:
        expected = await _directly(here, settings, openshift, ray_cluster(namespace="undisturbed"))
        namespaces = {}
        async with run_with_faulty_transport(here, kuberay_config(**settings)):
            for act in ACTS:
                namespace = namespaces[act] = await here.create_namespace(act.__name__.strip("_").replace("_", "-"))
                await here.create(ray_cluster(namespace=namespace))
            await here.wait_until_idle()
        left = {}
        for act, namespace in namespaces.items():
            cluster = await here.get(RAY_CLUSTER, "rc", namespace)
            if act is _recreated:
                cluster = await here.patch(cluster, {"metadata": {"finalizers": None}})
            left[act] = await act(here, cluster)
        async with run_with_faulty_transport(here, kuberay_config(**settings)):
            for act, namespace in namespaces.items():
                await wait_for_snapshot(
                    here,
                    namespace,
                    expected if left[act] else {},
                    openshift=openshift,
                    description=f"after {act.__name__}",
                )


@pytest.mark.parametrize(("platform", "settings", "openshift"), PLATFORMS)
async def test_watches_that_repeat_themselves(
    platform: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    async with start_environment(*platform) as here:
        expected = await _directly(here, settings, openshift, ray_cluster(namespace="undisturbed"))
        async with run_with_faulty_transport(here, kuberay_config(**settings), repeat_probability=0.7, seed=4) as (
            _,
            transport,
        ):
            for round_ in range(4):
                namespace = await here.create_namespace(f"round-{round_}")
                cluster = await here.create(ray_cluster(namespace=namespace))
                await here.wait_until_idle()
                await _suspended_and_resumed(here, cluster)
                await here.wait_until_idle()
                await wait_for_snapshot(here, namespace, expected, openshift=openshift)
                if round_ % 2:
                    await here.delete(cluster)
                    await wait_for_snapshot(here, namespace, {}, openshift=openshift)
            await here.wait_until_idle()
            before = transport.writes
            await here.wait_until_idle()
            assert transport.writes == before
