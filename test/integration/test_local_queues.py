"""Objects that wait for a LocalQueue that does not exist: an Event for each, once, with and without leader election."""

from __future__ import annotations

from contextlib import AsyncExitStack

from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER
from cfo.controllers import raycluster
from cfo.runtime import (
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    NamespacedName,
    Object,
    Transport,
)
from cfo.runtime.objects import EVENT
from test.support.flux_environment import (
    flux_job,
    flux_setup,
    run_flux_controllers,
    start_flux_environment,
)
from test.support.local_queues import LOCAL_QUEUE, local_queue, local_queue_crd
from test.support.planes import local_config
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

MESSAGE = "LocalQueue team doesn't exist"
KEY = NamespacedName("ns", "rc")


def queued_cluster(name: str = "rc", *, suspend: bool = True) -> Object:
    """Return a RayCluster in the LocalQueue ``team``, which Kueue's webhook has suspended."""
    cluster = ray_cluster(name, suspend=suspend)
    cluster["metadata"]["labels"] = {QUEUE_NAME_LABEL: "team"}
    return cluster


async def reports(env: Environment) -> list[tuple[str, str]]:
    """Return kind and name of the objects with an Event about the queue."""
    events = await env.client.list(EVENT)
    found = [each["regarding"] for each in events if each.get("note") == MESSAGE]
    return sorted((each["kind"], each["name"]) for each in found)


async def wait_for_reports(env: Environment, *expected: tuple[str, str]) -> None:
    """Wait until exactly these objects have an Event about the queue."""

    async def are_reported() -> bool:
        return await reports(env) == sorted(expected)

    await eventually(are_reported, f"Events about {expected}")


def created_events(env: Environment) -> int:
    """Return how many Events the operator has created."""
    requests = [(exchange.verb, exchange.resource) for exchange in env.exchanges]
    return requests.count(("create", "events.events.k8s.io"))


async def test_missing_queue_is_reported_once_and_with_one_request() -> None:
    async with start_environment(*VANILLA_CRDS, local_queue_crd()) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            env.clear_requests()
            await env.create(queued_cluster("admitted", suspend=False))
            await env.create(queued_cluster())
            await wait_for_reports(env, ("RayCluster", "rc"))
            await env.client.patch(RAY_CLUSTER, KEY, {"spec": {"rayVersion": "2.53.0"}})
            await env.create(local_queue("team", "ns"))
            await env.create(queued_cluster("second"))
            await env.wait_until_idle()
            assert created_events(env) == 1
            await env.client.delete(LOCAL_QUEUE, NamespacedName("ns", "team"))
            await wait_for_reports(env, ("RayCluster", "rc"), ("RayCluster", "second"))


async def test_object_that_the_cache_leaves_out_is_reported_once_until_its_queue_exists() -> None:
    async with start_environment(*VANILLA_CRDS, local_queue_crd()) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager:
            manager.cache.budget.max_bytes = 20_000
            cluster = queued_cluster()
            cluster["metadata"]["annotations"]["long"] = "x" * 40_000
            await env.create(cluster)
            await wait_for_reports(env, ("RayCluster", "rc"))
            await env.client.patch(RAY_CLUSTER, KEY, {"spec": {"rayVersion": "2.53.0"}})
            await env.wait_until_idle()
            clusters = manager.cache.informer(RAY_CLUSTER).reader
            assert not clusters.contains(KEY)
            assert await occurrences(env) == 1
            await env.create(local_queue("team", "ns"))
            await env.wait_until_idle()
            await env.client.delete(LOCAL_QUEUE, NamespacedName("ns", "team"))

            async def is_reported_again() -> bool:
                return await occurrences(env) == 2

            await eventually(is_reported_again, "the second report")


async def occurrences(env: Environment) -> int:
    """Return how often the operator has reported the queue."""
    events = [each for each in await env.client.list(EVENT) if each.get("note") == MESSAGE]
    return sum((each.get("series") or {}).get("count", 1) for each in events)


async def test_queue_that_the_cache_leaves_out_is_not_reported_as_missing() -> None:
    async with start_environment(*VANILLA_CRDS, local_queue_crd()) as env:
        await env.create_namespace()
        await env.create_namespace("other")
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager:
            manager.cache.budget.max_bytes = 20_000
            large = local_queue("team", "ns")
            large["metadata"]["annotations"] = {"long": "x" * 40_000}
            await env.create(large)
            await env.wait_until_idle()
            await env.create(queued_cluster())
            other = queued_cluster("second")
            other["metadata"]["namespace"] = "other"
            await env.create(other)
            await wait_for_reports(env, ("RayCluster", "second"))


async def test_queue_of_another_namespace_does_not_count() -> None:
    async with start_environment(*VANILLA_CRDS, local_queue_crd()) as env:
        await env.create_namespace()
        await env.create_namespace("other")
        await env.create(local_queue("team", "other"))
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(queued_cluster())
            await wait_for_reports(env, ("RayCluster", "rc"))


async def test_without_kueue_no_queue_is_missing() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager:
            await env.create(queued_cluster())
            await env.wait_until_idle()
            assert created_events(env) == 0
            assert LOCAL_QUEUE not in {informer.gvk for informer in manager.cache.informers}


async def test_missing_queue_of_a_setup_is_reported_for_its_job() -> None:
    async with start_flux_environment(local_queue_crd()) as env, run_flux_controllers(env):
        await env.create_namespace()
        await env.create(flux_setup(max_size=0, queue="Kueue", kueue={"localQueue": "team"}))
        await env.create(flux_job())
        await wait_for_reports(env, ("FluxJob", "job"), ("MiniCluster", "job"))


async def test_only_the_leader_reports_a_missing_queue() -> None:
    async with (
        start_environment(*VANILLA_CRDS, local_queue_crd()) as env,
        AsyncExitStack() as stack,
    ):
        await env.create_namespace()
        config = kuberay_config(**PLAIN_SETTINGS)
        managers = []
        for identity in ("first", "second"):
            target = local_config(env.plane)
            transport = await stack.enter_async_context(Transport(target))
            options = ManagerOptions(
                field_manager="codeflare-operator",
                field_managers=[FIELD_MANAGER],
                leader_election=LeaderElectionOptions(
                    name="election", namespace="ns", identity=identity
                ),
            )
            manager = Manager(transport, options)
            raycluster.setup(manager, config)
            managers.append(await stack.enter_async_context(manager))
            if identity == "first":
                await manager.started()
        await env.create(queued_cluster())
        await wait_for_reports(env, ("RayCluster", "rc"))
        events = await env.client.list(EVENT)
        (event,) = [each for each in events if each.get("note") == MESSAGE]
        assert not event.get("series")
        assert [manager.is_leader for manager in managers] == [True, False]
