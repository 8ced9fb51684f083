"""Tests that no quota is given back while a tenant can let its Job, or a retry, create more pods."""

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
