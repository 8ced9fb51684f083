"""Tests that a tenant does not keep pods whose quota was given back, by a change of its Job."""

from __future__ import annotations

import pytest

from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime.objects.kinds import POD
from test.support.appwrapper_environment import (
    configuration,
    job,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.kueue_queue import FLAVOR, PodQueue, kueue_crds
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)


@pytest.mark.parametrize(("mode", "reclaimed"), [("Indexed", 0), ("NonIndexed", 1)])
async def test_quota_of_a_job_that_can_be_raised_is_not_given_back(
    mode: str, reclaimed: int
) -> None:
    """Only the completions of Indexed Jobs can be raised."""
    async with (
        start_appwrapper_environment(*kueue_crds(), controllers=("job",)) as environment,
        run_appwrapper_controllers(environment, configuration(kueueIntegration=True)),
    ):
        await environment.create_namespace()
        flavor = {"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind}
        await environment.create({**flavor, "metadata": {"name": "gold"}, "spec": {}})
        component = job(parallelism=2)
        component["spec"]["completionMode"] = mode
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
        found = workload["status"].get("reclaimablePods") or []
        assert sum(each["count"] for each in found) == reclaimed
