"""Tests that a Job, which a tenant can change, has no more pods than its AppWrapper has quota."""

from __future__ import annotations

import pytest

from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime.objects.kinds import JOB, POD
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.appwrapper_environment import (
    configuration,
    job,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.kueue_queue import FLAVOR, PodQueue, kueue_crds
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository")
async def test_quota_of_succeeded_pods_is_kept_until_the_appwrapper_ends() -> None:
    async with (
        start_appwrapper_environment(*kueue_crds(), controllers=("job",)) as environment,
        run_appwrapper_controllers(environment, configuration(kueueIntegration=True)),
    ):
        await environment.create_namespace()
        flavor = {"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind}
        await environment.create({**flavor, "metadata": {"name": "gold"}, "spec": {}})
        component = job(parallelism=2)
        queued = wrapper(component)
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
        await environment.create(queued)
        queue = PodQueue(environment, 2)
        await eventually(queue.workloads, "a Workload")
        await queue.schedule()
        await environment.wait_for_phase("Running")

        async def pods() -> list[str] | None:
            names = await environment.object_names(POD)
            return names if len(names) == 2 else None

        first, second = await eventually(pods, "the pods")
        await environment.set_pod_status(first, "Succeeded")
        await environment.wait_until_idle()
        await environment.set_pod_status(second, "Running")
        await environment.wait_for_condition("PodsReady", "True")
        await environment.wait_until_idle()
        (workload,) = await queue.workloads()
        assert workload["status"].get("reclaimablePods") is None


def raisable_job(name: str) -> Object:
    """Return a Job whose number of pods can be changed; with ``completions`` it has no more than these."""
    obj = job(name)
    del obj["spec"]["completions"]
    return obj


async def test_job_that_is_raised_after_a_failure_is_not_kept() -> None:
    async with (
        start_appwrapper_environment(controllers=("gc", "job")) as environment,
        run_appwrapper_controllers(environment, configuration()),
    ):
        await environment.create_namespace()
        kept = {"deletionOnFailureGracePeriodDuration": "10h", "retryLimit": "0"}
        queued = wrapper(raisable_job("kept"), job("removed"), **kept)
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
        await environment.create(queued)
        await environment.wait_for_phase("Running")
        removed = NamespacedName("ns", "removed")
        await environment.client.delete(JOB, removed, propagation_policy="Background")
        await environment.wait_for_phase("Failed")
        await environment.wait_for_condition("DeletingResources", "False", "DeletionPaused")
        await environment.patch(await environment.get(JOB, "kept"), {"spec": {"parallelism": 3}})
        await environment.wait_for_condition("Unhealthy", "True", "ExcessPods")

        async def is_deleted() -> bool:
            return await environment.find(JOB, "kept") is None

        await eventually(is_deleted, "the Job is deleted")


async def test_job_that_is_raised_before_other_components_exist_causes_a_reset() -> None:
    async with (
        start_appwrapper_environment(controllers=("gc", "job")) as environment,
        run_appwrapper_controllers(environment, configuration()),
    ):
        await environment.create_namespace()
        limits = {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "small", "namespace": "ns"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]},
        }
        await environment.create(limits)
        denied = pod("denied")
        resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
        denied["spec"]["containers"][0]["resources"] = resources
        queued = wrapper(raisable_job("raised"), denied, admissionGracePeriodDuration="10h")
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
        await environment.create(queued)

        async def first() -> Object | None:
            return await environment.find(JOB, "raised")

        created = await eventually(first, "the Job exists")
        await environment.patch(created, {"spec": {"parallelism": 3}})
        await environment.wait_for_condition("Unhealthy", "True", "ExcessPods")
        await environment.wait_for_phase("Resetting")
