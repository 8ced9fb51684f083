"""Tests that a tenant does not get more pods of a MiniCluster by a change of its Job."""

from __future__ import annotations

from cfo.runtime.objects.kinds import JOB
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import NamespacedName, annotations_of
from test.support.flux_environment import (
    mini_cluster,
    run_minicluster_controller,
    start_flux_environment,
)
from test.support.raycluster_environment import eventually
from test.support.tenant_clients import start_tenant_client

EDIT_JOBS = Rule("batch", "jobs", ("get", "patch"))
KEY = NamespacedName("ns", "flux-sample")


async def test_size_of_a_job_is_put_back() -> None:
    async with start_flux_environment() as env:
        await env.create_namespace()
        async with (
            start_tenant_client(env, EDIT_JOBS) as tenant,
            run_minicluster_controller(env),
        ):
            await env.create(mini_cluster(size=2, tasks=2))
            await env.wait_until_idle()
            before = await env.get(JOB, KEY.name)
            annotations = dict.fromkeys(annotations_of(before), "1000")
            resized = {"parallelism": 1000, "completions": 1000}
            await tenant.patch(JOB, KEY, {"spec": resized})
            await tenant.patch(JOB, KEY, {"metadata": {"annotations": annotations}})
            await tenant.patch(JOB, KEY, {"spec": resized})

            async def is_put_back() -> bool:
                job = await env.get(JOB, KEY.name)
                return job["spec"]["parallelism"] == job["spec"]["completions"] == 2

            await eventually(is_put_back, "the size of the Job")
            await env.wait_until_idle()
            assert await is_put_back()
