"""Tests that the objects of one namespace take a limited part of the operator's memory, however large they are."""

from __future__ import annotations

import pytest

from cfo.api.flux.names import MINICLUSTER, MINICLUSTER_LABEL
from cfo.api.raycluster.names import RAY_CLUSTER, names_of
from cfo.dashboard import in_cluster
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects import CORE_EVENT
from cfo.runtime.objects.kinds import INGRESS, JOB, NETWORK_POLICY
from cfo.runtime.objects.unstructured import NamespacedName, Object, key_of, namespace_of
from cfo.summaries import raycluster as raycluster_views
from test.integration.hostile.attacks import MEGABYTE, ingress
from test.support.flux_environment import (
    FluxEnvironment,
    mini_cluster,
    run_minicluster_controller,
    start_flux_environment,
)
from test.support.inference_environment import (
    new_stack,
    run_inference_controllers,
    start_inference_environment,
)
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

BUDGET = 1 << 20


def cached_bytes(manager: Manager) -> int:
    """Return the size of the JSON of all objects in all informers."""
    return sum(informer.reader.size for informer in manager.cache.informers)


def large_job(number: int) -> Object:
    """Return a suspended Job of a megabyte with the label of MiniClusters."""
    container = {"name": "c", "image": "i", "args": ["x" * MEGABYTE]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {MINICLUSTER_LABEL: "x"}
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {"name": f"j-{number}", "namespace": "editor", "labels": labels},
        "spec": {"suspend": True, "template": template},
    }


async def test_large_jobs_take_little_memory_also_after_a_restart() -> None:
    number_of_jobs = 5
    async with start_flux_environment() as env:
        await env.create_namespace("editor")
        async with run_minicluster_controller(env) as manager:
            for number in range(number_of_jobs):
                await env.create(large_job(number))
            await wait_for_jobs(manager, number_of_jobs)
            assert cached_bytes(manager) < 100_000
        async with run_minicluster_controller(env) as manager:
            await wait_for_jobs(manager, number_of_jobs)
            assert cached_bytes(manager) < 100_000
            assert manager.cache.budget.held("editor") < 100_000


async def wait_for_jobs(manager: Manager, number: int) -> None:
    (jobs,) = (informer for informer in manager.cache.informers if informer.gvk == JOB)

    async def are_cached() -> bool:
        return len(jobs.reader) == number

    await eventually(are_cached, "the Jobs are cached")


async def test_mini_clusters_with_long_strings_take_the_budget_of_their_namespace() -> None:
    """Those that are left out are reconciled as well, and other namespaces notice nothing."""
    async with start_flux_environment() as env:
        for namespace in ("editor", "victim"):
            await env.create_namespace(namespace)
        async with run_minicluster_controller(env) as manager:
            manager.cache.budget.max_bytes = BUDGET
            for number in range(8):
                name = f"m-{number}"
                await env.create(mini_cluster(name, "editor", command=f"true {'x' * 300_000}"))
            await env.wait_for_event(
                "NamespaceTooLarge", "more than 1 MiB together", namespace="editor"
            )
            await env.create(mini_cluster("v", "victim"))
            for key in (NamespacedName("victim", "v"), NamespacedName("editor", "m-7")):
                await wait_for_job(env, key)
            await env.wait_until_idle()
            assert manager.cache.budget.held("editor") <= BUDGET
            assert cached_bytes(manager) <= BUDGET + 100_000
            reasons = [reason for _, reason, _ in await env.events("editor")]
            assert reasons.count("NamespaceTooLarge") == 1
            reasons = [reason for _, reason, _ in await env.events("victim")]
            assert "NamespaceTooLarge" not in reasons


async def wait_for_job(env: FluxEnvironment, key: NamespacedName) -> None:
    async def exists() -> bool:
        return await env.client.get(JOB, key) is not None

    await eventually(exists, f"Job {key}")


async def test_ray_cluster_for_which_the_cache_has_no_room_is_protected_also_after_a_restart() -> (
    None
):
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        settings = kuberay_config(**PLAIN_SETTINGS)
        async with run_controllers(env, settings) as manager:
            manager.cache.budget.max_bytes = 1000
            cluster = await env.create(ray_cluster())
            await env.wait_for_event("NamespaceTooLarge", "together")
            await wait_for_policy(env, cluster)
        policy = await env.get(NETWORK_POLICY, names_of(cluster).head_policy)
        await env.delete(policy)
        async with run_controllers(env, settings, wait=False) as manager:
            manager.cache.budget.max_bytes = 1000
            await manager.started()
            await wait_for_policy(env, cluster)
            assert not manager.cache.informer(RAY_CLUSTER).reader.is_complete("ns")


async def wait_for_policy(env: Environment, cluster: Object) -> None:
    key = NamespacedName(namespace_of(cluster), names_of(cluster).head_policy)

    async def exists() -> bool:
        return await env.client.get(NETWORK_POLICY, key) is not None

    await eventually(exists, "the NetworkPolicy")


async def test_many_hostile_namespaces_leave_room_for_a_new_one_also_after_a_restart() -> None:
    """The hostile ones are created first, and are first in each list."""
    total = 1 << 20
    hostile = [f"a-{number}" for number in range(3)]
    settings = kuberay_config(**PLAIN_SETTINGS)
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in (*hostile, "victim"):
            await env.create_namespace(namespace)
        async with run_controllers(env, settings) as manager:
            manager.cache.budget.total_bytes = total
            for namespace in hostile:
                for number in range(5):
                    large = ray_cluster(f"large-{number}", namespace)
                    large["metadata"]["annotations"]["long"] = "x" * 200_000
                    await env.create(large)
            for namespace in hostile:
                await env.wait_for_event("NamespaceTooLarge", namespace=namespace)
            cluster = await env.create(ray_cluster("v", "victim"))
            await wait_for_policy(env, cluster)
            await env.wait_until_idle()
            check_victim(manager, cluster, total)
        async with run_controllers(env, settings, wait=False) as manager:
            manager.cache.budget.total_bytes = total
            await manager.started()
            await env.wait_until_idle()
            check_victim(manager, cluster, total)
        for namespace in hostile:
            reasons = [reason for _, reason, _ in await env.events(namespace)]
            assert 1 <= reasons.count("NamespaceTooLarge") <= 2, "once for each process"


def check_victim(manager: Manager, cluster: Object, total: int) -> None:
    """Check that the cache has all objects of the victim, and not more than its budget of the others."""
    assert manager.cache.budget.total <= total * 9 // 8
    assert cached_bytes(manager) <= total * 9 // 8
    namespace = namespace_of(cluster)
    assert manager.cache.informer(RAY_CLUSTER).reader.contains(key_of(cluster))
    for informer in manager.cache.informers:
        assert informer.reader.is_complete(namespace), informer.gvk


async def test_room_in_a_namespace_is_used_again() -> None:
    async with start_flux_environment() as env:
        await env.create_namespace("editor")
        async with run_minicluster_controller(env) as manager:
            manager.cache.budget.max_bytes = BUDGET
            for number in range(5):
                name = f"m-{number}"
                await env.create(mini_cluster(name, "editor", command=f"true {'x' * 300_000}"))
            await env.wait_for_event("NamespaceTooLarge", namespace="editor")
            for number in range(5):
                await env.client.delete(MINICLUSTER, NamespacedName("editor", f"m-{number}"))

            async def is_released() -> bool:
                return manager.cache.budget.held("editor") == 0

            await eventually(is_released, "the budget is released")


async def test_stacks_with_long_strings_take_the_budget_of_their_namespace() -> None:
    async with start_inference_environment() as env, run_inference_controllers(env) as manager:
        manager.cache.budget.max_bytes = BUDGET
        for number in range(6):
            annotations = {"long": "x" * 200_000}
            await env.create(new_stack(name=f"s-{number}", gateway={"podAnnotations": annotations}))
        await env.wait_for_event("NamespaceTooLarge", "more than 1 MiB together")
        await env.wait_until_idle()
        assert manager.cache.budget.held("ns") <= BUDGET * 9 // 8


async def test_ingresses_with_thousands_of_hosts_take_little_more_than_their_json() -> None:
    hosts = [f"{number}.a" for number in range(3450)]
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace("attacker")
        for number in range(3):
            obj = ingress(f"many-{number}", "attacker")
            obj["spec"]["rules"] = [{"host": host} for host in hosts]
            await env.create(obj)
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager:
            (ingresses,) = (each for each in manager.cache.informers if each.gvk == INGRESS)
            found = ingresses.reader.entries(index=("claim", "3449.a"))
            assert len(found) == 3
            size = ingresses.reader.size
            assert size > 3 * 50_000
            assert manager.cache.budget.held("attacker") < 2 * size


async def test_events_of_a_namespace_take_the_budget_of_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_cluster, "_NAMESPACE_BYTES", 100_000)
    # As an administrator: the page's role is that of the metrics server, which does not run here.
    monkeypatch.setattr(Environment, "installations", None)
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace("attacker")
        for number in range(30):
            await env.create(warning(number))
        async with (
            run_controllers(env, kuberay_config(**PLAIN_SETTINGS)) as manager,
            in_cluster.manager_source(manager, raycluster_views.VIEWS)() as page,
        ):
            await page.wait_for_sync()
            (events,) = (each for each in page.informers if each.gvk == CORE_EVENT)
            assert 50_000 < events.reader.size <= 100_000
            assert not events.reader.is_complete("attacker")
            assert manager.cache.budget.held("attacker") == 0


def warning(number: int) -> Object:
    """Return a Warning Event of 12 kB."""
    name = f"e-{number}"
    regarding = {"apiVersion": "v1", "kind": "Pod", "name": "x", "namespace": "attacker"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": name,
            "namespace": "attacker",
            "annotations": {"long": "x" * 12_000},
        },
        "involvedObject": regarding,
        "type": "Warning",
        "reason": "Planted",
        "message": "x",
    }
