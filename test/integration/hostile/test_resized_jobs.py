"""Tests that a tenant does not get more pods of a MiniCluster by a change of its Job."""

from __future__ import annotations

from cfo.api.flux.names import FLUX_JOB, MINICLUSTER, JobState
from cfo.runtime.objects.kinds import JOB
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import NamespacedName, Object, annotations_of
from test.support.flux_environment import (
    FluxEnvironment,
    flux_job,
    flux_setup,
    mini_cluster,
    run_flux_controllers,
    run_minicluster_controller,
    start_flux_environment,
    state,
)
from test.support.raycluster_environment import eventually
from test.support.tenant_clients import start_tenant_client

EDIT_JOBS = Rule("batch", "jobs", ("get", "patch"))
EDIT_CLUSTERS = Rule("flux-framework.org", "miniclusters", ("get", "patch"))
MAXIMUM = "flux-framework.org/maximum-size"
KEY = NamespacedName("ns", "flux-sample")


async def test_size_of_a_job_is_put_back() -> None:
    async with start_flux_environment() as env:
        await env.create_namespace()
        async with (
            start_tenant_client(env, EDIT_JOBS, EDIT_CLUSTERS) as tenant,
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

            # The Job of a MiniCluster that belongs to no FluxJob follows its size, up to what its brokers know.
            await tenant.patch(JOB, KEY, {"metadata": {"annotations": {MAXIMUM: "1000"}}})
            await tenant.patch(MINICLUSTER, KEY, {"spec": {"size": 1000, "maxSize": 1000}})
            await wait_for_size(env, KEY.name, 2)
            await env.wait_until_idle()
            assert await is_put_back()


async def test_minicluster_of_a_fluxjob_gets_no_more_pods_than_the_job_was_admitted_with() -> None:
    async with start_flux_environment() as env:
        await env.create_namespace()
        async with (
            start_tenant_client(env, EDIT_JOBS, EDIT_CLUSTERS) as tenant,
            run_flux_controllers(env),
        ):
            await env.create(flux_setup(max_size=4, mini_cluster={"size": 2}))
            elastic: Object = {"maxSize": 2}
            for job in (
                flux_job("fixed", size=None),
                flux_job("elastic", size=1, template=elastic),
            ):
                await env.create(job)
                name = job["metadata"]["name"]
                key = NamespacedName("ns", name)
                await wait_until_running(env, name)
                enlarged = {"spec": {"size": 50, "maxSize": 50}}
                await tenant.patch(JOB, key, {"metadata": {"annotations": {MAXIMUM: "50"}}})
                await tenant.patch(MINICLUSTER, key, enlarged)
                await wait_for_size(env, name, 2)
                await env.patch(job, {"spec": {"suspend": True}})
                await env.wait_for_state(JobState.WAITING, name=name)
                await tenant.patch(JOB, key, {"metadata": {"annotations": {MAXIMUM: "50"}}})
                await tenant.patch(MINICLUSTER, key, enlarged)
                await wait_for_size(env, name, 2)
                await env.patch(job, {"spec": {"suspend": False}})
                await wait_until_running(env, name)
                await tenant.patch(MINICLUSTER, key, enlarged)
                await wait_for_size(env, name, 2)
                await env.wait_until_idle()
                assert (await env.get(JOB, name))["spec"]["parallelism"] == 2


async def wait_until_running(env: FluxEnvironment, name: str) -> None:
    """Wait until a FluxJob runs."""

    def runs(job: Object) -> bool:
        return state(job) == [JobState.RUNNING]

    await env.wait_for(runs, "the FluxJob runs", name=name, gvk=FLUX_JOB)


async def wait_for_size(env: FluxEnvironment, name: str, size: int) -> None:
    """Wait until a MiniCluster has this size."""

    async def has_size() -> bool:
        return bool((await env.get(MINICLUSTER, name))["spec"]["size"] == size)

    await eventually(has_size, f"the size {size} of MiniCluster {name}")
