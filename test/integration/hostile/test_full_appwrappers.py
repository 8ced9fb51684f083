"""Tests that an AppWrapper as large as etcd accepts is suspended and deleted, and keeps no quota."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from cfo.api.appwrapper.podsets import MAX_POD_SET_BYTES
from cfo.runtime.objects.kinds import JOB
from cfo.runtime.objects.unstructured import Object
from test.support.appwrapper_environment import (
    AppWrapperEnvironment,
    job,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.full_objects import fill_up, limit_object_sizes

PATH: Final = "template.spec.template"


@pytest.fixture
async def environment(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AppWrapperEnvironment]:
    limit_object_sizes(monkeypatch)
    async with start_appwrapper_environment() as environment:
        await environment.create_namespace()
        yield environment


def with_annotation(length: int) -> Object:
    """Return an AppWrapper of a Job with a declared pod set that has an annotation of this length."""
    obj = wrapper(job(), admissionGracePeriodDuration="10h")
    pod_set = {"path": PATH, "replicas": 1, "annotations": {"a": "x" * length}}
    obj["spec"]["components"][0]["podSets"] = [pod_set]
    return obj


async def test_full_appwrapper_releases_its_quota_when_it_is_suspended(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(job(), admissionGracePeriodDuration="10h"))
        await environment.wait_for_phase("Running")
        await environment.wait_until_idle()
        await fill_up(environment, await environment.get_wrapper())
        await environment.set_suspend(True)
        await environment.wait_for_phase("Suspended")
        await environment.wait_for_condition("QuotaReserved", "False")
        assert await environment.find(JOB, "j") is None


async def test_recorded_pod_sets_that_fill_an_appwrapper_are_removed_so_that_it_can_be_deleted(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(with_annotation(10))
        await environment.wait_for_phase("Running")
        await environment.wait_until_idle()
    # An earlier version recorded annotations of any length.
    recorded = (await environment.get_wrapper())["status"]["componentStatus"]
    recorded[0]["podSets"][0]["annotations"]["a"] = "x" * (700 << 10)
    await environment.patch(
        wrapper(), {"status": {"componentStatus": recorded}}, subresource="status"
    )
    await fill_up(environment, await environment.get_wrapper())
    async with run_appwrapper_controllers(environment):

        def is_small(obj: Object) -> bool:
            (component,) = obj["status"]["componentStatus"]
            return bool(component["podSets"] == [{"path": PATH, "replicas": 1}])

        stored = await environment.wait_until(is_small, "small pod sets")
        assert stored["status"]["phase"] == "Running"
        await environment.delete(stored)
        await environment.wait_until_deleted()
        assert await environment.find(JOB, "j") is None


async def test_large_pod_sets_that_admission_did_not_see_are_not_recorded(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(with_annotation(MAX_POD_SET_BYTES))
        failed = await environment.wait_for_phase("Failed")
    assert "podSets have" in str(failed["status"]["conditions"])
    assert len(str(failed["status"])) < MAX_POD_SET_BYTES


async def test_component_name_that_fills_an_appwrapper_does_not_keep_its_quota(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment):
        await environment.create(wrapper(job("j" * (900 << 10))))
        await environment.wait_for_phase("Failed")
        await environment.wait_for_condition("QuotaReserved", "False")
