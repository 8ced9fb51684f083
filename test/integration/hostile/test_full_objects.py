"""Tests that objects which a tenant has filled up to a limit keep no quota, and do not outlive their AppWrapper."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.runtime.objects.kinds import JOB, POD
from cfo.runtime.objects.unstructured import Object
from envtest import EmbeddedControlPlane
from envtest.faults import Fault
from test.support.appwrapper_environment import (
    AppWrapperEnvironment,
    configuration,
    job,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.raycluster_environment import eventually

TOO_LARGE = "etcdserver: request is too large"
"""What kube-apiserver answers with code 500 to a write that would add to an object of 1.5 MiB."""


@pytest.fixture
async def environment() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(controllers=("gc", "job")) as environment:
        await environment.create_namespace()
        yield environment


async def fill(environment: AppWrapperEnvironment, obj: Object) -> None:
    """Add labels beyond what the cache accepts for the kind, and a finalizer that no one removes."""
    labels = {f"label-{number}": "x" * 60 for number in range(1000)}
    metadata = {"labels": labels, "finalizers": ["tenant.example/keep"]}
    await environment.patch(obj, {"metadata": metadata})


async def run_full_job(environment: AppWrapperEnvironment) -> None:
    """Create an AppWrapper with a Job, and fill the Job while it runs."""
    await environment.create(wrapper(job()))
    await environment.wait_for_phase("Running")
    await fill(environment, await environment.get(JOB, "j"))


def refuse_deletions(environment: AppWrapperEnvironment, resource: str, *, count: int) -> None:
    """Refuse the next deletions, as long as they add a deletionTimestamp or a finalizer to the object."""
    assert isinstance(environment.plane, EmbeddedControlPlane)
    environment.plane.faults.add(
        Fault(verbs=("delete",), resources=(resource,), count=count, code=500, message=TOO_LARGE)
    )


async def suspend_and_wait_until_suspended(environment: AppWrapperEnvironment) -> None:
    obj = wrapper()
    await environment.patch(obj, {"spec": {"suspend": True}})
    await environment.wait_for_phase("Suspended")
    await environment.wait_for_condition("QuotaReserved", "False")


async def test_component_that_the_cache_leaves_out_is_not_deleted_before_it_is(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration()):
        await run_full_job(environment)
        await environment.wait_until_idle()
        await environment.patch(wrapper(), {"spec": {"suspend": True}})
        await environment.wait_for_condition("DeletingResources", "True")
        await environment.wait_until_idle()
        suspending = await environment.wait_for_condition("QuotaReserved", "True")
        assert suspending["status"]["phase"] == "Suspending"
        stored = await environment.get(JOB, "j")
        await environment.patch(stored, {"metadata": {"finalizers": None}})
        await environment.wait_for_phase("Suspended")


async def test_full_component_is_deleted_without_its_finalizers(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration()):
        await run_full_job(environment)
        refuse_deletions(environment, "jobs", count=1)
        await suspend_and_wait_until_suspended(environment)
        assert await environment.find(JOB, "j") is None


async def test_full_pod_is_deleted_by_force_after_the_grace_period(
    environment: AppWrapperEnvironment,
) -> None:
    settings = configuration(faultTolerance={"deletionGracePeriod": "0s"})
    async with run_appwrapper_controllers(environment, settings):
        await environment.create(wrapper(pod()))
        await environment.wait_for_phase("Running")
        await fill(environment, await environment.get(POD, "p"))
        refuse_deletions(environment, "pods", count=1)
        await suspend_and_wait_until_suspended(environment)

        async def is_deleted() -> bool:
            return await environment.find(POD, "p") is None

        await eventually(is_deleted, "the pod is deleted")


async def test_component_without_its_label_is_deleted_although_a_request_failed(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration()):
        await environment.create(wrapper(job()))
        await environment.wait_for_phase("Running")
        stored = await environment.get(JOB, "j")
        # The API server adds the labels of the template to a Job without any.
        labels = {APPWRAPPER_LABEL: None, "other": "label"}
        await environment.patch(stored, {"metadata": {"labels": labels}})
        await environment.wait_until_idle()
        assert isinstance(environment.plane, EmbeddedControlPlane)
        environment.plane.faults.add(
            Fault(verbs=("delete",), resources=("jobs",), count=1, code=500)
        )
        await suspend_and_wait_until_suspended(environment)
        assert await environment.find(JOB, "j") is None
