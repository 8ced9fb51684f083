"""Tests that the labels of an AppWrapper keep no quota of Kueue, and that none runs without an admission."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cfo.api.appwrapper.names import APPWRAPPER, QUOTA_RESERVED, UNHEALTHY
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.appwrapper.status import is_true
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


async def test_running_appwrapper_without_its_queue_is_preempted(
    env: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(env, QUEUED):
        queue = await start(env)
        await patch(env, LEFT)
        await env.wait_until_idle()
        await queue.evict(0)
        await wait_until_released(env, queue)
        stopped = await env.wait_for_condition(QUOTA_RESERVED, "False")
        assert stopped["spec"]["suspend"] is True
        assert await env.object_names(JOB) == []


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


async def test_appwrapper_that_leaves_its_operator_after_its_queue_keeps_no_quota(
    env: AppWrapperEnvironment,
) -> None:
    """Both labels are removed at once, as if the operator had not seen the first change yet."""
    async with run_appwrapper_controllers(env, QUEUED, label_selector="part=a"):
        queued = wrapper(job(parallelism=2), suspend=True)
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq", "part": "a"}
        await env.create(queued)
        queue = PodQueue(env, 2)
        await eventually(queue.workloads, "a Workload")
        await env.wait_until_idle()
        await patch(env, {"metadata": {"labels": {QUEUE_NAME_LABEL: None, "part": None}}})

        async def is_deleted() -> bool:
            return await queue.workloads() == []

        await eventually(is_deleted, "no Workload")
