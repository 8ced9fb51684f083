"""Tests of the exact numbers of requests, writes and reconciles, so that no increase goes unnoticed.

``test/bench`` measures how long they take; no test checks that.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from cfo.api.raycluster.conditions import EXPOSED
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.manager.events import EventBroadcaster
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import NamespacedName, Object, find_condition
from test.support import appwrapper_environment as appwrappers
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    job,
    pod,
    wrapper,
)
from test.support.clocks import FakeClock, SteppedClock
from test.support.flux_environment import (
    mini_cluster,
    run_minicluster_controller,
    start_flux_environment,
)
from test.support.inference_environment import (
    election,
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
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

CLUSTERS = 2


HOUR = 3600.0

VANILLA_CHILDREN = {
    ("apply", "rayclusters/status"): 1,
    ("create", "secrets"): 1,
    ("apply", "networkpolicies"): 2,
    ("apply", "ingresses"): 2,
}
CHILDREN_WITHOUT_DOMAIN = {
    ("apply", "rayclusters/status"): 1,
    ("create", "events"): 1,  # the domain is missing, in each of its reconciles
    ("create", "secrets"): 1,
    ("apply", "networkpolicies"): 2,
}
OPENSHIFT_CHILDREN = {
    ("apply", "rayclusters/status"): 1,
    ("patch", "rayclusters"): 1,  # the finalizer
    ("create", "secrets"): 2,
    ("apply", "networkpolicies"): 2,
    ("apply", "serviceaccounts"): 1,
    ("apply", "services"): 1,
    ("create", "clusterrolebindings"): 1,
    ("apply", "routes"): 2,
}


def count_requests(env: Environment) -> Counter[tuple[str, str]]:
    """Count the operator's requests, including Events.

    Watches and discovery are left out: their number does not depend on the number of objects.
    """
    return Counter(
        (exchange.verb, _without_group(exchange.resource))
        for exchange in env.exchanges
        if exchange.verb not in ("watch", "discover")
    )


def _without_group(name: str) -> str:
    """Return a resource with its subresource, without its group."""
    resource, _, subresource = name.partition("/")
    return (
        f"{resource.partition('.')[0]}/{subresource}" if subresource else resource.partition(".")[0]
    )


def multiplied(count: int, per_object: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return the requests for ``count`` objects of which each takes ``per_object``."""
    return {request: number * count for request, number in per_object.items()}


def count_reconciles(manager: Manager) -> float:
    """Return the number of reconciles so far, from the metrics."""
    return sum(
        sample.value
        for metric in manager.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "controller_runtime_reconcile_total"
    )


async def wait_until_written(env: Environment) -> None:
    """Wait until the controllers have nothing left to do, and their Events are written."""
    await env.wait_until_idle()
    assert env.manager is not None
    broadcaster = env.manager._events
    await eventually(partial(_has_written, broadcaster), "the Events are written")


async def _has_written(broadcaster: EventBroadcaster) -> bool:
    return not broadcaster._woken.is_set()


async def create_clusters(env: Environment) -> list[Object]:
    """Create :data:`CLUSTERS` RayClusters, and wait until the controllers have written everything for them."""
    clusters = [await env.create(ray_cluster(f"rc-{number}")) for number in range(CLUSTERS)]
    await wait_until_written(env)
    for item in await env.client.list(RAY_CLUSTER):
        assert find_condition(item["status"]["conditions"], EXPOSED)
    return clusters


async def update_status(env: Environment, cluster: Object, **status: Any) -> None:
    """Update the status of a RayCluster as KubeRay does."""
    key = NamespacedName("ns", cluster["metadata"]["name"])
    await env.client.patch(RAY_CLUSTER, key, {"status": status}, subresource="status")


@pytest.mark.parametrize(
    ("crds", "settings", "expected"),
    [
        pytest.param(VANILLA_CRDS, PLAIN_SETTINGS, VANILLA_CHILDREN, id="vanilla"),
        pytest.param(OPENSHIFT_CRDS, OAUTH_SETTINGS, OPENSHIFT_CHILDREN, id="openshift"),
        pytest.param(
            VANILLA_CRDS,
            {**PLAIN_SETTINGS, "ingressDomain": ""},
            CHILDREN_WITHOUT_DOMAIN,
            id="no-domain",
        ),
    ],
)
async def test_new_cluster_takes_one_request_per_child_and_a_restart_only_lists(
    crds: tuple[Object, ...], settings: dict[str, Any], expected: dict[tuple[str, str], int]
) -> None:
    async with start_environment(*crds) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**settings)):
            env.clear_requests()
            clusters = await create_clusters(env)
            assert count_requests(env) == multiplied(CLUSTERS, expected)
        async with run_controllers(env, kuberay_config(**settings)) as manager:
            found = count_requests(env)
            others = {request for request in found if request[0] != "list"}
            assert others <= {("create", "events")} & expected.keys()
            lists = sum(count for (verb, _), count in found.items() if verb == "list")
            assert lists == len(manager.cache.informers)
            assert count_reconciles(manager) == len(clusters)


async def test_deleted_cluster_takes_requests_only_for_binding_and_finalizer() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**OAUTH_SETTINGS)):
            clusters = await create_clusters(env)
            env.clear_requests()
            for cluster in clusters:
                await env.delete(cluster)

            async def all_deleted() -> bool:
                return not await env.client.list(RAY_CLUSTER)

            await eventually(all_deleted, "all clusters are deleted")
            await wait_until_written(env)
            per_object = {("delete", "clusterrolebindings"): 1, ("patch", "rayclusters"): 1}
            assert count_requests(env) == multiplied(CLUSTERS, per_object)


async def test_kuberay_status_updates_take_no_requests() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager:
            clusters = await create_clusters(env)
            for cluster in clusters:
                await update_status(env, cluster, state="ready", head={"serviceName": "head"})
            await wait_until_written(env)
            env.clear_requests()
            before = count_reconciles(manager)
            for number in range(8):
                for cluster in clusters:
                    await update_status(
                        env,
                        cluster,
                        availableWorkerReplicas=number,
                        head={"podIP": f"10.0.0.{number}"},
                    )
            await wait_until_written(env)
            assert (count_requests(env), count_reconciles(manager) - before) == ({}, 0)


async def test_unchanged_clusters_take_no_requests() -> None:
    clock = SteppedClock()
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS), clock=clock) as manager:
            await create_clusters(env)
            clock.step(20.0)  # the delayed discovery checks, whose number is limited
            await wait_until_written(env)
            env.clear_requests()
            before = count_reconciles(manager)
            for _ in range(6):
                clock.step(4 * HOUR)
                await wait_until_written(env)
            assert (count_requests(env), count_reconciles(manager) - before) == ({}, 0)


# AppWrappers.

UNTIL_RUNNING = {
    ("patch", "appwrappers"): 1,  # the finalizer
    ("apply", "appwrappers/status"): 3,  # Resuming, Running, PodsReady
}


async def run_wrapper(
    env: AppWrapperEnvironment, component: Object, *phases: str, name: str
) -> Object:
    """Create an AppWrapper of one component and wait until it is in one of ``phases``."""
    await env.create(wrapper(component, name=name))
    return await env.wait_for_phase(*phases, name=name)


async def test_appwrapper_takes_five_requests_until_its_pod_is_ready() -> None:
    async with (
        appwrappers.start_appwrapper_environment(controllers=CONTROLLERS) as env,
        appwrappers.run_appwrapper_controllers(env),
    ):
        await env.create_namespace()
        await run_wrapper(env, pod("first"), "Running", name="first")  # starts the watch of pods
        await env.wait_for_condition("PodsReady", "True", name="first")
        await wait_until_written(env)
        env.clear_requests()
        for number in range(CLUSTERS):
            await env.create(wrapper(pod(f"p-{number}"), name=f"w-{number}"))
        for number in range(CLUSTERS):
            await env.wait_for_condition("PodsReady", "True", name=f"w-{number}")
        await wait_until_written(env)
        found = count_requests(env)
        assert found == multiplied(CLUSTERS, UNTIL_RUNNING | {("create", "pods"): 1})


async def test_appwrapper_takes_at_most_twelve_requests_from_creation_to_deletion() -> None:
    async with (
        appwrappers.start_appwrapper_environment(controllers=CONTROLLERS) as env,
        appwrappers.run_appwrapper_controllers(env),
    ):
        await env.create_namespace()
        await run_wrapper(env, job("first", phase="Succeeded"), "Succeeded", name="first")
        await wait_until_written(env)
        env.clear_requests()
        await run_wrapper(env, job("second", phase="Succeeded"), "Succeeded", name="second")
        await wait_until_written(env)
        found = count_requests(env)
        assert found == {
            ("patch", "appwrappers"): 1,
            ("apply", "appwrappers/status"): 3,
            ("create", "jobs"): 1,
            (
                "list",
                "pods",
            ): 1,  # whether pods without the label still run, before the quota is released
        }
        env.clear_requests()
        await env.delete(await env.get_wrapper("second"))
        await env.wait_until_deleted("second")
        await wait_until_written(env)
        found = count_requests(env)
        assert found.pop(("apply", "appwrappers/status")) in (
            2,
            3,
        )  # the Job may be deleted before its pods
        assert found == {
            ("patch", "appwrappers"): 1,
            ("delete", "jobs"): 1,
            ("list", "pods"): 1,
        }


async def test_unchanged_appwrappers_take_no_requests() -> None:
    clock = FakeClock()
    async with (
        appwrappers.start_appwrapper_environment(controllers=CONTROLLERS) as env,
        appwrappers.run_appwrapper_controllers(env, clock=clock) as manager,
    ):
        await env.create_namespace()
        for number in range(3):
            await env.create(wrapper(pod(f"p-{number}"), name=f"w-{number}"))
        for number in range(3):
            await env.wait_for_condition("PodsReady", "True", name=f"w-{number}")
        await wait_until_written(env)
        env.clear_requests()
        before = count_reconciles(manager)
        for _ in range(6):
            clock.advance(4 * HOUR)
            await wait_until_written(env)
        assert (count_requests(env), count_reconciles(manager) - before) == ({}, 0)


async def test_irrelevant_pod_updates_take_no_requests() -> None:
    async with (
        appwrappers.start_appwrapper_environment(controllers=CONTROLLERS) as env,
        appwrappers.run_appwrapper_controllers(env) as manager,
    ):
        await env.create_namespace()
        await run_wrapper(env, pod(), "Running", name="w")
        await env.wait_for_condition("PodsReady", "True")
        await wait_until_written(env)
        env.clear_requests()
        before = count_reconciles(manager)
        for number in range(8):
            key = NamespacedName("ns", "p")
            await env.client.patch(POD, key, {"metadata": {"annotations": {"seen": str(number)}}})
            await env.client.patch(
                POD, key, {"status": {"podIP": f"10.0.0.{number}"}}, subresource="status"
            )
        await wait_until_written(env)
        assert (count_requests(env), count_reconciles(manager) - before) == ({}, 0)


# MiniClusters.


async def test_mini_cluster_takes_one_write_per_object_and_one_for_its_status() -> None:
    async with start_flux_environment() as env:
        await env.create_namespace()
        async with run_minicluster_controller(env):
            for number in range(CLUSTERS):
                await env.create(mini_cluster(f"flux-{number}"))
            await wait_until_written(env)
            per_object = {
                ("create", "secrets"): 1,
                ("apply", "services"): 1,
                ("apply", "configmaps"): 1,
                ("create", "jobs"): 1,
                ("apply", "miniclusters/status"): 1,
                ("create", "events"): 1,
            }
            written = {key: count for key, count in count_requests(env).items() if key[0] != "list"}
            assert written == multiplied(CLUSTERS, per_object)
        async with run_minicluster_controller(env) as manager:
            found = count_requests(env)
            assert {verb for verb, _ in found} == {"list"}
            assert sum(found.values()) == len(manager.cache.informers)
            assert count_reconciles(manager) == CLUSTERS


# InferenceStacks.

STACK_REQUESTS = {
    ("get", "deployments"): 4,  # Helm may have created them
    ("apply", "serviceaccounts"): 1,
    ("apply", "services"): 1,
    ("apply", "configmaps"): 4,
    ("apply", "deployments"): 4,
}


async def test_stack_takes_one_write_per_object_and_a_restart_takes_none() -> None:
    options = election("operator", "ns")
    async with start_inference_environment() as env:
        async with run_inference_controllers(env, election=options):
            await wait_until_written(env)
            env.clear_requests()
            for number in range(CLUSTERS):
                await env.create(new_stack({"a": {}, "b": {}, "c": {}}, name=f"s-{number}"))
            await wait_until_written(env)
            found = count_requests(env)
            assert {key: found[key] for key in STACK_REQUESTS} == multiplied(
                CLUSTERS, STACK_REQUESTS
            )
            others = {
                key for key in found if key[1] not in ("inferencestacks/status", "events", "leases")
            }
            assert others == STACK_REQUESTS.keys()
        async with run_inference_controllers(env, election=options) as manager:
            await wait_until_written(env)
            found = count_requests(env)
            written = {
                key for key in found if key[0] != "list" and key[1] not in ("events", "leases")
            }
            assert written == set()
            listed = sum(count for (verb, _), count in found.items() if verb == "list")
            assert listed == len(manager.cache.informers)
            reads = Counter(
                exchange.resource for exchange in env.exchanges if exchange.verb == "discover"
            )
            assert reads == {"/api": 1, "/apis": 2}, (
                "kinds that are not served share the reads of discovery"
            )
