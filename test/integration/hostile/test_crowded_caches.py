"""Tests that objects which the cache has no room for neither end an AppWrapper, nor keep or exceed its quota."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cfo.api.appwrapper.names import APPWRAPPER, APPWRAPPER_LABEL
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.appwrapper import namespace_pods
from cfo.controllers.appwrapper.status import is_true
from cfo.runtime import Manager
from cfo.runtime.client.client import Propagation
from cfo.runtime.objects.kinds import DEPLOYMENT, POD, SERVICE
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    new_object,
    owner_reference,
)
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    configuration,
    job,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.clocks import SteppedClock
from test.support.kueue_queue import FLAVOR, WORKLOAD, PodQueue, is_reserved, kueue_crds
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN

needs_kueue = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)

QUEUED = configuration(kueueIntegration=True)
WRAPPER = NamespacedName("ns", "w")
PORTS = {"ports": [{"port": 80}]}


@pytest.fixture
async def environment() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(controllers=CONTROLLERS) as environment:
        await environment.create_namespace()
        yield environment


def deployment(replicas: int) -> Object:
    labels = {"app": "d"}
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def fill_cache(manager: Manager) -> None:
    """Leave no room for an object that is new or grows."""
    manager.cache.budget.max_bytes = 1


async def test_running_pods_that_the_cache_leaves_out_are_not_missing(
    environment: AppWrapperEnvironment,
) -> None:
    """Users of other namespaces can fill the cache, and then pods are left out when their status grows."""
    clock = SteppedClock()
    async with run_appwrapper_controllers(environment, clock=clock) as manager:
        await environment.create(wrapper(pod("a"), pod("b")))
        await environment.wait_for_phase("Running")
        for name in ("a", "b"):
            await environment.set_pod_status(name, "Running")
        await environment.wait_for_condition("PodsReady", "True")
        before = await environment.client.list(POD, namespace="ns")
        fill_cache(manager)
        for name in ("a", "b"):
            annotations = {"metadata": {"annotations": {"grown": "x" * 5000}}}
            await environment.client.patch(POD, NamespacedName("ns", name), annotations)
        await environment.wait_until_idle()
        for _ in range(3):
            clock.step(3600)
            await environment.skip_to_next_timer()
            await environment.wait_until_idle()
        found = await environment.wait_for_condition("PodsReady", "True")
        assert found["status"]["phase"] == "Running"
        after = await environment.client.list(POD, namespace="ns")
        assert [each["metadata"]["uid"] for each in after] == [
            each["metadata"]["uid"] for each in before
        ]


async def test_pods_beyond_the_quota_are_found_although_the_cache_leaves_them_out(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, clock=SteppedClock()) as manager:
        queued = wrapper(deployment(1), retryLimit="0")
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
        await environment.create(queued)
        await environment.wait_for_condition("PodsReady", "True")
        fill_cache(manager)
        new_template = {"metadata": {"annotations": {"rollout": "2"}}}
        changes = {"spec": {"replicas": 20, "template": new_template}}
        await environment.client.patch(DEPLOYMENT, NamespacedName("ns", "d"), changes)
        await environment.wait_for_condition("Unhealthy", "True", "ExcessPods")
        await environment.wait_for_phase("Failed")
        await environment.wait_for_condition("ResourcesDeployed", "False")
        assert not await environment.client.list(POD, namespace="ns")


async def start_pod_in_queue(environment: AppWrapperEnvironment, queued: Object) -> None:
    """Create an AppWrapper with the pod ``own`` in a queue, and wait until it runs and its pod is ready."""
    queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    await environment.create(queued)
    await environment.wait_for_phase("Running")
    await environment.set_pod_status("own", "Running")
    await environment.wait_for_condition("PodsReady", "True")


async def test_pods_after_the_success_are_found_although_the_cache_leaves_them_out(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, clock=SteppedClock()) as manager:
        await start_pod_in_queue(environment, wrapper(pod("own"), deployment(0)))
        await environment.set_pod_status("own", "Succeeded")
        await environment.wait_for_phase("Succeeded")
        fill_cache(manager)
        changes = {"spec": {"replicas": 3}}
        await environment.client.patch(DEPLOYMENT, NamespacedName("ns", "d"), changes)
        await environment.wait_for_condition("ResourcesDeployed", "False")
        assert not await environment.client.list(POD, namespace="ns")


async def test_pods_of_another_owner_are_not_deleted_although_a_pod_names_it(
    environment: AppWrapperEnvironment,
) -> None:
    """Users can change the owner of a running pod to any object."""
    async with run_appwrapper_controllers(environment, clock=SteppedClock()) as manager:
        await start_pod_in_queue(environment, wrapper(pod("own"), retryLimit="0"))
        owner = await environment.create(new_object(SERVICE, "owner", "ns", spec=PORTS))
        owners = {"ownerReferences": [owner_reference(owner, controller=True)]}
        foreign = pod("foreign")
        foreign["metadata"] |= {"namespace": "ns", **owners}
        await environment.create(foreign)
        fill_cache(manager)
        changes = {"metadata": {**owners, "annotations": {"grown": "x" * 5000}}}
        await environment.client.patch(POD, NamespacedName("ns", "own"), changes)
        await environment.wait_for_condition("ResourcesDeployed", "False")
        (left,) = await environment.client.list(POD, namespace="ns")
        assert left["metadata"]["name"] == "foreign"


async def create_decoy(environment: AppWrapperEnvironment, number: int, appwrapper: str) -> None:
    """Create a pod with the label of an AppWrapper, and an owner of its own."""
    owner = await environment.create(new_object(SERVICE, f"owner-{number}", "ns", spec=PORTS))
    obj = pod(f"decoy-{number}", labels={APPWRAPPER_LABEL: appwrapper})
    reference = owner_reference(owner, controller=True)
    obj["metadata"] |= {"namespace": "ns", "ownerReferences": [reference]}
    await environment.create(obj)


async def test_owners_of_pods_are_read_in_turns_for_all_appwrappers_of_a_namespace(
    environment: AppWrapperEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them would otherwise cause reads of its own, and users choose how many there are."""
    monkeypatch.setattr(namespace_pods, "MAX_OWNERS", 6)
    number_of_pods = 9
    async with run_appwrapper_controllers(environment, clock=SteppedClock()) as manager:
        for number in range(3):
            queued = wrapper(job(f"j{number}"), name=f"w{number}")
            queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
            await environment.create(queued)
            await environment.wait_for_condition("PodsReady", "True", name=f"w{number}")
        fill_cache(manager)
        environment.clear_requests()
        for number in range(number_of_pods):
            await create_decoy(environment, number, f"w{number % 3}")

        async def are_read() -> bool:
            await environment.skip_to_next_timer()
            await environment.wait_until_idle()
            assert environment.requests().count(("get", "services")) >= number_of_pods
            return True

        await eventually(are_read, "the owners of all pods are read")
        sent = [(exchange.verb, exchange.resource) for exchange in environment.exchanges]
        assert sent.count(("get", "services")) <= 6 * sent.count(("list", "pods"))


@pytest.fixture
async def queueing() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as environment:
        await environment.create_namespace()
        flavor = {"metadata": {"name": "gold"}, "spec": {}}
        await environment.create({"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind, **flavor})
        yield environment


async def start_with_full_cache(env: AppWrapperEnvironment, manager: Manager) -> PodQueue:
    """Run an AppWrapper in a queue, and then let its Workload grow, so that the cache leaves it out."""
    queued = wrapper(job(parallelism=2))
    queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    await env.create(queued)
    queue = PodQueue(env, 2)
    await eventually(queue.workloads, "a Workload")
    await queue.schedule()
    await env.wait_for_condition("PodsReady", "True")
    await env.wait_until_idle()
    fill_cache(manager)
    (workload,) = await queue.workloads()
    await env.patch(workload, {"metadata": {"annotations": {"grown": "x" * 5000}}})
    workloads = manager.cache.informer(WORKLOAD).reader

    async def is_left_out() -> bool:
        return not workloads.entries("ns") and not workloads.is_complete("ns")

    await eventually(is_left_out, "the Workload is left out")
    await env.wait_until_idle()
    return queue


@needs_kueue
async def test_running_appwrapper_with_a_left_out_workload_is_not_suspended(
    queueing: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(queueing, QUEUED) as manager:
        queue = await start_with_full_cache(queueing, manager)
        found = await queueing.get_wrapper()
        assert not found["spec"].get("suspend")
        assert found["status"]["phase"] == "Running"
        assert all(is_reserved(each) for each in await queue.workloads())


@needs_kueue
async def test_quota_of_an_evicted_workload_that_is_left_out_is_released(
    queueing: AppWrapperEnvironment,
) -> None:
    """Users of a namespace can fill its share of the cache, and Kueue evicts a Workload with conditions."""
    async with run_appwrapper_controllers(queueing, QUEUED) as manager:
        queue = await start_with_full_cache(queueing, manager)
        await queue.evict(0)

        async def is_released() -> bool:
            (workload,) = await queue.workloads()
            return not is_reserved(workload)

        await eventually(is_released, "the quota is released")
        assert await queueing.client.list(POD, namespace="ns") == []
        (workload,) = await queue.workloads()
        assert is_true(workload["status"]["conditions"], "Requeued")
        await queue.schedule()
        await queueing.wait_for_phase("Running")


@needs_kueue
@pytest.mark.parametrize("how", ["Background", "Foreground", "Orphan"])
async def test_workload_of_a_deleted_appwrapper_that_is_left_out_is_deleted(
    queueing: AppWrapperEnvironment, how: str
) -> None:
    async with run_appwrapper_controllers(queueing, QUEUED) as manager:
        queue = await start_with_full_cache(queueing, manager)
        await queueing.client.delete(APPWRAPPER, WRAPPER, propagation_policy=Propagation(how))
        await queueing.wait_until_deleted()

        async def is_deleted() -> bool:
            assert await queue.workloads() == []
            return True

        await eventually(is_deleted, "no Workload")
