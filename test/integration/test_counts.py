"""How many requests, writes and reconciles things cost: exactly, so that nothing gets dearer unnoticed.

How long it takes is measured in ``test/bench``, and judged nowhere.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime.clock import FakeClock
from cfo.runtime.kinds import POD
from cfo.runtime.manager import Manager
from cfo.runtime.objects import NamespacedName, Object
from test.support import appwrapper_environment as appwrappers
from test.support.appwrapper_environment import CONTROLLERS, Watched, job, pod, wrapper
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

CLUSTERS = 10
HOUR = 3600.0

VANILLA_CHILDREN = {("create", "secrets"): 1, ("apply", "networkpolicies"): 2, ("apply", "ingresses"): 2}
OPENSHIFT_CHILDREN = {
    ("patch", "rayclusters"): 1,  # the finalizer
    ("create", "secrets"): 2,
    ("apply", "networkpolicies"): 2,
    ("apply", "serviceaccounts"): 1,
    ("apply", "services"): 1,
    ("create", "clusterrolebindings"): 1,
    ("apply", "routes"): 2,
}


def requests(here: Environment) -> Counter[tuple[str, str]]:
    """What the operator asked for, Events too, but for watches and discovery (which no number of objects raises)."""
    return Counter(
        (exchange.verb, _resource(exchange.resource))
        for exchange in here.exchanges
        if exchange.verb not in ("watch", "discover")
    )


def _resource(name: str) -> str:
    """A resource without its group, but with its subresource."""
    whole, _, subresource = name.partition("/")
    return f"{whole.partition('.')[0]}/{subresource}" if subresource else whole.partition(".")[0]


def times(count: int, each: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """What ``each`` costs, for ``count`` of them."""
    return {request: number * count for request, number in each.items()}


def reconciles(manager: Manager) -> float:
    """How many reconciles there were."""
    return sum(
        sample.value
        for metric in manager.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "controller_runtime_reconcile_total"
    )


async def create_clusters(here: Environment) -> list[Object]:
    return [await here.create(ray_cluster(f"rc-{number}")) for number in range(CLUSTERS)]


async def tick(clock: FakeClock) -> None:
    while True:
        clock.advance(1.0)
        await asyncio.sleep(0.01)


async def report(here: Environment, cluster: Object, **status: Any) -> None:
    """Plays KubeRay, which reports on a cluster."""
    key = NamespacedName("ns", cluster["metadata"]["name"])
    await here.client.patch(RAY_CLUSTER, key, {"status": status}, subresource="status")


@pytest.mark.parametrize(
    ("definitions", "settings", "expected"),
    [
        pytest.param(VANILLA_CRDS, PLAIN_SETTINGS, VANILLA_CHILDREN, id="vanilla"),
        pytest.param(OPENSHIFT_CRDS, OAUTH_SETTINGS, OPENSHIFT_CHILDREN, id="openshift"),
    ],
)
async def test_a_new_cluster_costs_a_request_for_each_child_and_one_for_a_finalizer(
    definitions: tuple[Object, ...], settings: dict[str, Any], expected: dict[tuple[str, str], int]
) -> None:
    async with start_environment(*definitions) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**settings)):
            here.clear_requests()
            await create_clusters(here)
            await here.wait_until_idle()
            assert requests(here) == times(CLUSTERS, expected)


async def test_a_cluster_that_goes_costs_what_the_garbage_collector_does_not_do() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**OAUTH_SETTINGS)):
            clusters = await create_clusters(here)
            await here.wait_until_idle()
            here.clear_requests()
            for cluster in clusters:
                await here.delete(cluster)

            async def all_gone() -> bool:
                return not await here.client.list(RAY_CLUSTER)

            await eventually(all_gone, "no clusters")
            await here.wait_until_idle()
            each = {("delete", "clusterrolebindings"): 1, ("patch", "rayclusters"): 1}
            assert requests(here) == times(CLUSTERS, each)


async def test_a_restart_with_unchanged_clusters_only_lists() -> None:
    for crds, settings in ((VANILLA_CRDS, PLAIN_SETTINGS), (OPENSHIFT_CRDS, OAUTH_SETTINGS)):
        async with start_environment(*crds) as here:
            await here.create_namespace()
            async with run_controllers(here, kuberay_config(**settings)):
                clusters = await create_clusters(here)
                await here.wait_until_idle()
            async with run_controllers(here, kuberay_config(**settings)) as manager:
                asked = requests(here)
                assert {verb for verb, _ in asked} == {"list"}
                assert sum(asked.values()) == len(manager.cache.informers)
                assert reconciles(manager) == 4 * len(clusters)


async def test_what_kuberay_reports_costs_nothing() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS)) as manager:
            clusters = await create_clusters(here)
            for cluster in clusters:
                await report(here, cluster, state="ready", head={"serviceName": "head"})
            await here.wait_until_idle()
            here.clear_requests()
            before = reconciles(manager)
            for number in range(30):
                for cluster in clusters:
                    await report(here, cluster, availableWorkerReplicas=number, head={"podIP": f"10.0.0.{number}"})
            await here.wait_until_idle()
            assert (requests(here), reconciles(manager) - before) == ({}, 0)


async def test_clusters_at_rest_cost_nothing() -> None:
    clock = FakeClock()
    async with start_environment(*VANILLA_CRDS) as here:
        await here.create_namespace()
        async with run_controllers(here, kuberay_config(**PLAIN_SETTINGS), clock=clock) as manager:
            await create_clusters(here)
            ticking = asyncio.create_task(tick(clock))  # discovery is asked so often and no more
            await here.wait_until_idle()
            ticking.cancel()
            here.clear_requests()
            before = reconciles(manager)
            for _ in range(6):
                clock.advance(4 * HOUR)
                await here.wait_until_idle()
            assert (requests(here), reconciles(manager) - before) == ({}, 0)


# AppWrappers.

UNTIL_RUNNING = {
    ("patch", "appwrappers"): 1,  # the finalizer
    ("apply", "appwrappers/status"): 3,  # Resuming, Running, and that the pods are ready
}


async def run_wrapper(here: Watched, component: Object, *phases: str, name: str) -> Object:
    await here.create(wrapper(component, name=name))
    return await here.phase(*phases, name=name)


async def test_an_appwrapper_costs_five_requests_until_its_pod_is_ready() -> None:
    async with appwrappers.watched_world(controllers=CONTROLLERS) as here, appwrappers.operating(here):
        await here.create_namespace()
        await run_wrapper(here, pod("first"), "Running", name="first")  # which begins the watch of pods
        await here.wait_until_idle()
        here.clear_requests()
        for number in range(CLUSTERS):
            await here.create(wrapper(pod(f"p-{number}"), name=f"w-{number}"))
        for number in range(CLUSTERS):
            await here.condition("PodsReady", "True", name=f"w-{number}")
        await here.wait_until_idle()
        asked = requests(here)
        assert asked == times(CLUSTERS, UNTIL_RUNNING | {("create", "pods"): 1})


async def test_the_whole_life_of_an_appwrapper_costs_ten_requests_at_most() -> None:
    async with appwrappers.watched_world(controllers=CONTROLLERS) as here, appwrappers.operating(here):
        await here.create_namespace()
        await run_wrapper(here, job("first", phase="Succeeded"), "Succeeded", name="first")
        await here.wait_until_idle()
        here.clear_requests()
        await run_wrapper(here, job("second", phase="Succeeded"), "Succeeded", name="second")
        await here.wait_until_idle()
        asked = requests(here)
        assert asked == {("patch", "appwrappers"): 1, ("apply", "appwrappers/status"): 3, ("create", "jobs"): 1}
        here.clear_requests()
        await here.delete(await here.wrapper("second"))
        await here.gone("second")
        await here.wait_until_idle()
        asked = requests(here)
        assert asked.pop(("apply", "appwrappers/status")) in (2, 3)  # the Job may be seen to go before its pods
        assert asked == {("patch", "appwrappers"): 1, ("delete", "jobs"): 1}


async def test_appwrappers_at_rest_cost_nothing() -> None:
    clock = FakeClock()
    async with (
        appwrappers.watched_world(controllers=CONTROLLERS) as here,
        appwrappers.operating(here, clock=clock) as manager,
    ):
        await here.create_namespace()
        for number in range(3):
            await here.create(wrapper(pod(f"p-{number}"), name=f"w-{number}"))
        for number in range(3):
            await here.condition("PodsReady", "True", name=f"w-{number}")
        await here.wait_until_idle()
        here.clear_requests()
        before = reconciles(manager)
        for _ in range(6):
            clock.advance(4 * HOUR)
            await here.wait_until_idle()
        assert (requests(here), reconciles(manager) - before) == ({}, 0)


async def test_what_else_happens_to_pods_costs_nothing() -> None:
    async with (
        appwrappers.watched_world(controllers=CONTROLLERS) as here,
        appwrappers.operating(here) as manager,
    ):
        await here.create_namespace()
        await run_wrapper(here, pod(), "Running", name="w")
        await here.condition("PodsReady", "True")
        await here.wait_until_idle()
        here.clear_requests()
        before = reconciles(manager)
        for number in range(20):
            key = NamespacedName("ns", "p")
            await here.client.patch(POD, key, {"metadata": {"annotations": {"seen": str(number)}}})
            await here.client.patch(POD, key, {"status": {"podIP": f"10.0.0.{number}"}}, subresource="status")
        await here.wait_until_idle()
        assert (requests(here), reconciles(manager) - before) == ({}, 0)
