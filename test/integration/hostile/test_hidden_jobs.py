"""Tests that a tenant cannot keep the Job of a MiniCluster from being suspended, and so the quota of a queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cfo.api.flux.names import MINICLUSTER, MINICLUSTER_LABEL
from cfo.runtime.objects.kinds import JOB, SERVICE
from cfo.runtime.objects.unstructured import NamespacedName, Object
from envtest import EmbeddedControlPlane
from envtest.faults import Fault
from test.support.flux_environment import (
    FluxEnvironment,
    mini_cluster,
    run_minicluster_controller,
    start_flux_environment,
)
from test.support.raycluster_environment import eventually

KEY = NamespacedName("ns", "flux-sample")


async def start_cluster(env: FluxEnvironment) -> None:
    await env.create_namespace()
    await env.create(mini_cluster())
    await env.wait_until_idle()


async def wait_for_job(env: FluxEnvironment, holds: Callable[[Object], bool]) -> None:
    async def check() -> bool:
        job = await env.find(JOB, KEY.name)
        return job is not None and holds(job)

    await eventually(check, "the Job")


def is_suspended(job: Object) -> bool:
    return bool(job["spec"].get("suspend"))


async def take_service(env: FluxEnvironment) -> None:
    """Replace the Service of the MiniCluster by one of another owner."""
    (service,) = await env.client.list(SERVICE, namespace="ns")
    name = service["metadata"]["name"]
    await env.delete(service)
    await env.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"ports": [{"port": 80}]},
        }
    )


@pytest.mark.parametrize("spec", [{}, {"size": 0}], ids=["taken name", "invalid spec"])
async def test_job_without_its_label_is_suspended(spec: Object) -> None:
    async with start_flux_environment() as env:
        async with run_minicluster_controller(env):
            await start_cluster(env)
        # While no operator runs, which would put them back.
        await env.client.patch(JOB, KEY, {"metadata": {"labels": {MINICLUSTER_LABEL: None}}})
        await take_service(env)
        await env.client.patch(MINICLUSTER, KEY, {"spec": {"suspend": True, **spec}})
        async with run_minicluster_controller(env):
            await wait_for_job(env, is_suspended)


async def test_job_that_accepts_no_suspension_is_created_again_suspended() -> None:
    async with (
        start_flux_environment(controllers=("gc", "job")) as env,
        run_minicluster_controller(env),
    ):
        await start_cluster(env)
        before = await env.get(JOB, KEY.name)
        assert isinstance(env.plane, EmbeddedControlPlane)
        env.plane.faults.add(
            Fault(
                verbs=("patch",),
                resources=("jobs",),
                count=1,
                code=500,
                message="etcdserver: request is too large",
            )
        )
        await env.client.patch(MINICLUSTER, KEY, {"spec": {"suspend": True}})
        await wait_for_job(
            env,
            lambda job: is_suspended(job) and job["metadata"]["uid"] != before["metadata"]["uid"],
        )
