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
from test.support.faults import Unruly, crashed, picture, running, same_end, settled
from test.support.raycluster_environment import (
    OAUTH,
    OPENSHIFT,
    PLAIN,
    VANILLA,
    World,
    gone,
    kuberay,
    ray_cluster,
    world,
)

PLATFORMS = [
    pytest.param(VANILLA, PLAIN, False, id="vanilla"),
    pytest.param(OPENSHIFT, OAUTH, True, id="openshift"),
]


async def _directly(here: World, settings: dict[str, Any], openshift: bool, cluster: Object) -> dict[str, Any]:
    """What becomes of a cluster when nothing goes wrong."""
    namespace = await here.namespace(cluster["metadata"]["namespace"])
    async with running(here, kuberay(**settings)):
        await here.create(cluster)
        await settled(here)
    return await picture(here, namespace, openshift=openshift)


@pytest.mark.parametrize(("platform", "settings", "openshift"), PLATFORMS)
async def test_a_crash_after_each_single_write(
    platform: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    async with world(*platform) as here:
        expected = await _directly(here, settings, openshift, ray_cluster(namespace="undisturbed"))
        nothing: dict[str, Any] = {}
        for number in itertools.count(1):
            namespace = await here.namespace(f"crash-{number}")
            cluster = await here.create(ray_cluster(namespace=namespace))
            creating = await crashed(here, kuberay(**settings), after=number)
            async with running(here, kuberay(**settings)):
                await same_end(here, namespace, expected, openshift=openshift, why=f"crash after write {number}")
            await here.delete(cluster)
            deleting = await crashed(here, kuberay(**settings), after=number)
            async with running(here, kuberay(**settings)):
                await same_end(here, namespace, nothing, openshift=openshift, why=f"deletion, write {number}")
            if not creating and not deleting:
                break
        assert number > len(expected) - 1  # each child was a write, and each write a crash


Act = Callable[[World, Object], Awaitable[Object | None]]


async def _recreated(here: World, cluster: Object) -> Object | None:
    await here.delete(cluster)
    await gone(here, [(RAY_CLUSTER, cluster["metadata"]["name"])], cluster["metadata"]["namespace"])
    return await here.create(ray_cluster(namespace=cluster["metadata"]["namespace"]))


async def _deleted(here: World, cluster: Object) -> Object | None:
    await here.delete(cluster)
    return None


async def _suspended_and_resumed(here: World, cluster: Object) -> Object | None:
    await here.patch(cluster, {"spec": {"suspend": True}})
    return await here.patch(cluster, {"spec": {"suspend": False}})


async def _children_deleted(here: World, cluster: Object) -> Object | None:
    namespace = cluster["metadata"]["namespace"]
    for child in (await here.children(namespace)).values():
        if child["kind"] in (NETWORK_POLICY.kind, SECRET.kind):
            await here.delete(child)
    return cluster


async def _child_came_and_went(here: World, cluster: Object) -> Object | None:
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
    async with world(*platform) as here:
        expected = await _directly(here, settings, openshift, ray_cluster(namespace="undisturbed"))
        async with running(here, kuberay(**settings)) as (manager, transport):
            for act in ACTS:
                namespace = await here.namespace(act.__name__.strip("_").replace("_", "-"))
                cluster = await here.create(ray_cluster(namespace=namespace))
                await settled(here)
                if act is _recreated and openshift:
                    # its finalizer holds a cluster until the operator hears of the deletion
                    cluster = await here.patch(cluster, {"metadata": {"finalizers": None}})
                transport.flow.hold()
                left = await act(here, cluster)
                await _act_on_what_is_known(manager.controllers, transport, NamespacedName(namespace, "rc"))
                transport.flow.release()
                await same_end(
                    here, namespace, expected if left else {}, openshift=openshift, why=f"after {act.__name__}"
                )


async def _act_on_what_is_known(controllers: Any, transport: Unruly, request: NamespacedName) -> None:
    assert not transport.flow.open.is_set()
    for controller in controllers:
        await controller.reconciler.reconcile(request)


@pytest.mark.parametrize(("platform", "settings", "openshift"), PLATFORMS)
async def test_what_came_and_went_while_nobody_ran(
    platform: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    async with world(*platform) as here:
        expected = await _directly(here, settings, openshift, ray_cluster(namespace="undisturbed"))
        namespaces = {}
        async with running(here, kuberay(**settings)):
            for act in ACTS:
                namespace = namespaces[act] = await here.namespace(act.__name__.strip("_").replace("_", "-"))
                await here.create(ray_cluster(namespace=namespace))
            await settled(here)
        left = {}
        for act, namespace in namespaces.items():
            cluster = await here.get(RAY_CLUSTER, "rc", namespace)
            if act is _recreated:
                cluster = await here.patch(cluster, {"metadata": {"finalizers": None}})
            left[act] = await act(here, cluster)
        async with running(here, kuberay(**settings)):
            for act, namespace in namespaces.items():
                await same_end(
                    here, namespace, expected if left[act] else {}, openshift=openshift, why=f"after {act.__name__}"
                )


@pytest.mark.parametrize(("platform", "settings", "openshift"), PLATFORMS)
async def test_watches_that_repeat_themselves(
    platform: tuple[Object, ...], settings: dict[str, Any], openshift: bool
) -> None:
    async with world(*platform) as here:
        expected = await _directly(here, settings, openshift, ray_cluster(namespace="undisturbed"))
        async with running(here, kuberay(**settings), repeats=0.7, seed=4) as (_, transport):
            for round_ in range(4):
                namespace = await here.namespace(f"round-{round_}")
                cluster = await here.create(ray_cluster(namespace=namespace))
                await settled(here)
                await _suspended_and_resumed(here, cluster)
                await settled(here)
                await same_end(here, namespace, expected, openshift=openshift)
                if round_ % 2:
                    await here.delete(cluster)
                    await same_end(here, namespace, {}, openshift=openshift)
            await settled(here)
            before = transport.writes
            await settled(here)
            assert transport.writes == before
