"""Tests that pods of objects which a tenant lets an AppWrapper control are not beyond its quota."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime.objects import set_controller_owner
from cfo.runtime.objects.kinds import JOB, POD, SERVICE
from cfo.runtime.objects.unstructured import NamespacedName, Object, uid_of
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


@pytest.fixture
async def environment() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(controllers=("gc", "job", "pods")) as environment:
        await environment.create_namespace()
        yield environment


async def run_queued(environment: AppWrapperEnvironment, **settings: str) -> Object:
    """Return a running AppWrapper of a queue, with a Job of one pod."""
    queued = wrapper(job(), **settings)
    queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    await environment.create(queued)
    return await environment.wait_for_condition("PodsReady", "True")


def controlled(obj: Object, owner: Object) -> Object:
    """Return ``obj``, which ``owner`` controls, with the label of a component, also of its pods."""
    obj["metadata"]["namespace"] = "ns"
    obj["metadata"]["labels"] = {APPWRAPPER_LABEL: "w"}
    if "template" in obj["spec"]:
        obj["spec"]["template"]["metadata"]["labels"] = {APPWRAPPER_LABEL: "w"}
    return set_controller_owner(obj, owner)


async def wait_until_deleted(environment: AppWrapperEnvironment, obj: Object) -> None:
    async def is_deleted() -> bool:
        found = await environment.client.get(JOB, NamespacedName("ns", obj["metadata"]["name"]))
        return found is None or uid_of(found) != uid_of(obj)

    await eventually(is_deleted, "the Job is deleted")


async def test_job_next_to_the_components_causes_a_reset_and_is_deleted(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration()):
        owner = await run_queued(environment)
        extra = await environment.create(controlled(job("extra", parallelism=3), owner))
        await wait_until_deleted(environment, extra)
        reset = await environment.wait_for_condition("PodsReady", "True")
        assert reset["status"]["resettingCount"] == 1
        assert len(await environment.object_names(POD)) == 1


async def test_pod_that_the_appwrapper_controls_itself_causes_a_reset(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration()):
        owner = await run_queued(environment)
        await environment.create(controlled(pod("extra"), owner))

        def is_reset(obj: Object) -> bool:
            status = obj["status"]
            return (status["phase"], status.get("resettingCount")) == ("Running", 1)

        await environment.wait_until(is_reset, "a reset")
        assert await environment.find(POD, "extra") is None


async def test_job_in_place_of_a_component_is_not_kept_after_the_failure(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration()):
        owner = await run_queued(environment, deletionOnFailureGracePeriodDuration="10h")
        await environment.client.delete(
            JOB, NamespacedName("ns", "j"), propagation_policy="Background"
        )
        replacement = await environment.create(controlled(job("j", parallelism=3), owner))
        await environment.wait_for_phase("Failed")
        await wait_until_deleted(environment, replacement)
        failed = await environment.wait_for_condition("QuotaReserved", "False")
        assert "failed before with MissingComponent" in str(failed["status"]["conditions"])


async def test_object_of_a_kind_without_pods_that_a_pod_names_as_owner_is_not_deleted(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, configuration()):
        owner = await run_queued(environment)
        service: Object = {
            "apiVersion": SERVICE.api_version,
            "kind": SERVICE.kind,
            "metadata": {"name": "extra", "namespace": "ns"},
            "spec": {"ports": [{"port": 80}]},
        }
        stored = await environment.create(set_controller_owner(service, owner))
        await environment.create(controlled(pod("extra"), stored))

        def is_reset(obj: Object) -> bool:
            status = obj["status"]
            return (status["phase"], status.get("resettingCount")) == ("Running", 1)

        await environment.wait_until(is_reset, "a reset")
        assert await environment.find(POD, "extra") is None
        assert await environment.find(SERVICE, "extra") is not None
