"""Tests that the labels of an AppWrapper keep no quota of Kueue, and that none runs without an admission."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cfo.api.appwrapper.names import APPWRAPPER, QUOTA_RESERVED, UNHEALTHY
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.appwrapper.status import is_true
from cfo.runtime.client.client import Propagation
from cfo.runtime.objects.kinds import JOB, POD
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    configuration,
    job,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.kueue_queue import FLAVOR, PodQueue, is_reserved, kueue_crds
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)

WRAPPER = NamespacedName("ns", "w")
QUEUED = configuration(kueueIntegration=True)
LEFT: Object = {"metadata": {"labels": {QUEUE_NAME_LABEL: None}}}
OTHER_MANAGER: Object = {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}
SUSPENDED: Object = {"spec": {"suspend": True}}
RESUMED: Object = {"spec": {"suspend": False}}


@pytest.fixture
async def env() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as environment:
        await environment.create_namespace()
        flavor = {"metadata": {"name": "gold"}, "spec": {}}
        await environment.create({"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind, **flavor})
        yield environment


async def start(env: AppWrapperEnvironment) -> PodQueue:
    """Create an AppWrapper in a queue, and wait until it runs."""
    component = job(parallelism=2)
    del component["spec"]["completions"]
    queued = wrapper(component)
    queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    await env.create(queued)
    queue = PodQueue(env, 2)
    await eventually(queue.workloads, "a Workload")
    await queue.schedule()
    await env.wait_for_condition("PodsReady", "True")
    return queue


async def patch(env: AppWrapperEnvironment, *changes: Object) -> None:
    """Change the AppWrapper as a tenant can while no webhook validates it."""
    for change in changes:
        await env.client.patch(APPWRAPPER, WRAPPER, change)


async def wait_until_released(env: AppWrapperEnvironment, queue: PodQueue) -> None:
    """Wait until no Workload has quota, and check that nothing runs then that has a Workload."""

    async def is_released() -> bool:
        reserved = [each for each in await queue.workloads() if is_reserved(each)]
        assert not reserved, reserved
        return True

    await eventually(is_released, "the quota is released")
    if await queue.workloads():
        assert await env.client.list(POD, namespace="ns") == []


async def test_suspended_appwrapper_without_its_queue_keeps_no_quota(
    env: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        await patch(env, {**LEFT, **SUSPENDED})
        await wait_until_released(env, queue)

        async def is_deleted() -> bool:
            return await queue.workloads() == []

        await eventually(is_deleted, "no Workload")
        await env.wait_for_event("DeletedWorkload", "because the AppWrapper has left its queue")
        await patch(env, RESUMED)
        await env.wait_for_condition("PodsReady", "True")
        assert await queue.workloads() == []


@pytest.mark.parametrize("change", [LEFT, OTHER_MANAGER], ids=["no queue", "managedBy"])
async def test_running_appwrapper_without_its_queue_is_preempted(
    env: AppWrapperEnvironment, change: Object
) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        await patch(env, change)
        await env.wait_until_idle()
        await queue.evict(0)
        await wait_until_released(env, queue)
        stopped = await env.wait_for_condition(QUOTA_RESERVED, "False")
        assert stopped["spec"]["suspend"] is True
        assert await env.object_names(JOB) == []


async def test_appwrapper_of_another_manager_keeps_no_quota(env: AppWrapperEnvironment) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        await patch(env, {"spec": {**OTHER_MANAGER["spec"], **SUSPENDED["spec"]}})

        async def is_deleted() -> bool:
            return await queue.workloads() == []

        await eventually(is_deleted, "no Workload")
        assert await env.object_names(POD) == []
        await env.wait_for_event("DeletedWorkload", "because the AppWrapper has another managedBy")
        await patch(env, RESUMED)
        await env.wait_until_idle()
        assert await env.object_names(JOB) == []
        assert await queue.workloads() == []


async def test_waiting_appwrapper_of_another_manager_keeps_no_quota(
    env: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        queued = wrapper(job())
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
        await env.create(queued)
        queue = PodQueue(env, 2)
        await eventually(queue.workloads, "a Workload")
        await patch(env, OTHER_MANAGER)

        async def is_deleted() -> bool:
            return await queue.workloads() == []

        await eventually(is_deleted, "no Workload")
        assert await env.object_names(JOB) == []


async def test_appwrapper_of_another_manager_can_be_deleted(env: AppWrapperEnvironment) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        await patch(env, OTHER_MANAGER)
        await env.client.delete(APPWRAPPER, WRAPPER)
        await wait_until_released(env, queue)
        await env.wait_until_deleted()


async def test_appwrapper_of_another_manager_can_be_deleted_after_its_workload(
    env: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        await patch(env, {"spec": {**OTHER_MANAGER["spec"], **SUSPENDED["spec"]}})

        async def is_deleted() -> bool:
            return await queue.workloads() == []

        await eventually(is_deleted, "no Workload")
        await env.wait_until_idle()
        await env.client.delete(APPWRAPPER, WRAPPER)
        await env.wait_until_deleted()


async def test_appwrapper_that_is_suspended_and_resumed_without_its_queue_keeps_no_quota(
    env: AppWrapperEnvironment,
) -> None:
    """The operator may see the suspension or not: the AppWrapper runs with its admission, or without a queue."""
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        await patch(env, {**LEFT, **SUSPENDED}, RESUMED)
        await env.wait_until_idle()
        await queue.evict(0)
        await wait_until_released(env, queue)


async def test_appwrapper_without_its_queue_has_no_more_pods_than_admitted(
    env: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        await start(env)
        await patch(env, LEFT)
        raised = {"spec": {"parallelism": 5}}
        await env.client.patch(JOB, NamespacedName("ns", "j"), raised)
        await env.wait_for_condition(UNHEALTHY, "True", "ExcessPods")


async def test_appwrapper_without_its_queue_is_not_deployed_before_its_workload_is_deleted(
    env: AppWrapperEnvironment,
) -> None:
    """The Workload waits for its admission; Kueue could admit it after the AppWrapper runs without a queue."""
    async with run_appwrapper_controllers(env, QUEUED):
        queued = wrapper(job(parallelism=2), suspend=True)
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
        await env.create(queued)
        queue = PodQueue(env, 2)
        await eventually(queue.workloads, "a Workload")
        (waiting,) = await queue.workloads()
        held = ["test.example.com/hold", *waiting["metadata"]["finalizers"]]
        await env.patch(waiting, {"metadata": {"finalizers": held}})
        await patch(env, {**LEFT, **RESUMED})

        async def is_being_deleted() -> bool:
            (workload,) = await queue.workloads()
            return "deletionTimestamp" in workload["metadata"]

        await eventually(is_being_deleted, "the Workload is being deleted")
        await env.wait_until_idle()
        assert await env.object_names(JOB) == []
        (waiting,) = await queue.workloads()
        await env.patch(waiting, {"metadata": {"finalizers": None}})
        await env.wait_for_condition("PodsReady", "True")


async def test_finished_appwrapper_without_its_queue_keeps_no_quota(
    env: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        await patch(env, LEFT)
        for pod in await env.client.list(POD, namespace="ns"):
            await env.set_pod_status(pod["metadata"]["name"], "Succeeded")
        await env.wait_for_phase("Succeeded")

        async def is_finished() -> bool:
            (workload,) = await queue.workloads()
            return is_true(workload["status"]["conditions"], "Finished")

        await eventually(is_finished, "the Workload is finished")


async def test_deleted_appwrapper_that_a_finalizer_keeps_has_no_quota(
    env: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        stored = await env.get(APPWRAPPER, "w", "ns")
        kept = [*stored["metadata"]["finalizers"], "tenant.test/keep"]
        await patch(env, {"metadata": {"finalizers": kept}})
        await env.client.delete(APPWRAPPER, WRAPPER)
        await wait_until_released(env, queue)
        assert await env.client.list(POD, namespace="ns") == []
        assert await env.client.get(APPWRAPPER, WRAPPER, live=True) is not None
        await env.wait_for_event("DeletedWorkload", "because the AppWrapper is being deleted")


async def test_deleted_appwrapper_with_another_finalizer_keeps_its_quota_until_its_pods_end(
    env: AppWrapperEnvironment,
) -> None:
    """The operator cannot add its finalizer again. The components would create pods for as long as they exist."""
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        pods = await env.client.list(POD, namespace="ns")
        hold = {"metadata": {"finalizers": ["test.example.com/hold"]}}
        for pod in pods:
            await env.patch(pod, hold)
        await patch(env, {"metadata": {"finalizers": ["tenant.test/keep"]}})
        await env.client.delete(APPWRAPPER, WRAPPER)
        await env.wait_for_phase("Terminating")

        async def is_being_deleted() -> bool:
            component = await env.get(JOB, "j", "ns")
            return "deletionTimestamp" in component["metadata"]

        await eventually(is_being_deleted, "the Job is being deleted")
        await env.wait_until_idle()
        (workload,) = await queue.workloads()
        assert is_reserved(workload)
        assert "deletionTimestamp" not in workload["metadata"]
        for pod in pods:
            await env.patch(pod, {"metadata": {"finalizers": None}})
        await env.wait_for_condition(QUOTA_RESERVED, "False")

        async def is_deleted() -> bool:
            return await queue.workloads() == []

        await eventually(is_deleted, "no Workload")
        assert await env.object_names(JOB) == []
        assert await env.client.list(POD, namespace="ns") == []
        kept = await env.get(APPWRAPPER, "w", "ns")
        assert kept["metadata"]["finalizers"] == ["tenant.test/keep"]


async def test_components_without_a_queue_can_be_orphaned_without_the_finalizer(
    env: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        await env.create(wrapper(job(parallelism=2)))
        await env.wait_for_condition("PodsReady", "True")
        await patch(env, {"metadata": {"finalizers": None}})
        await env.wait_until_idle()
        env.clear_requests()
        await env.client.delete(APPWRAPPER, WRAPPER, propagation_policy=Propagation.ORPHAN)
        await env.wait_until_deleted()
        await env.wait_until_idle()
        assert "delete" not in {verb for verb, _ in env.requests()}
        kept = await env.get(JOB, "j", "ns")
        assert "deletionTimestamp" not in kept["metadata"]
        assert "ownerReferences" not in kept["metadata"]


@pytest.mark.parametrize("is_seen", [True, False])
async def test_appwrapper_that_leaves_its_operator_after_its_queue_keeps_no_quota(
    env: AppWrapperEnvironment, is_seen: bool
) -> None:
    """Both labels are removed at once, as if the operator had not seen the first change, or while none runs."""
    leave = {"metadata": {"labels": {QUEUE_NAME_LABEL: None, "part": None}}}
    queue = PodQueue(env, 2)

    async def is_deleted() -> bool:
        return await queue.workloads() == []

    async with run_appwrapper_controllers(env, QUEUED, label_selector="part=a"):
        queued = wrapper(job(parallelism=2), suspend=True)
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq", "part": "a"}
        await env.create(queued)
        await eventually(queue.workloads, "a Workload")
        await env.wait_until_idle()
        if is_seen:
            await patch(env, leave)
            await eventually(is_deleted, "no Workload")
    if not is_seen:
        await patch(env, leave)
    async with run_appwrapper_controllers(env, QUEUED, label_selector="part=a"):
        await eventually(is_deleted, "no Workload")
