"""Tests of AppWrappers with components that their users are allowed to create, and the operator is not."""

from __future__ import annotations

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import Object
from test.support.appwrapper_environment import (
    configuration,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.raycluster_environment import wait_until_deleted

CONFIG_MAP: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}


@pytest.fixture(autouse=True)
def _config_maps_are_refused(expected_denials: set[str]) -> None:
    """Expect that the operator has no permissions for ConfigMaps."""
    expected_denials |= {"create configmaps", "get configmaps", "list configmaps"}


async def test_appwrapper_fails_and_releases_its_quota() -> None:
    async with start_appwrapper_environment() as environment:
        await environment.create_namespace()
        settings = configuration(faultTolerance={"admissionGracePeriod": "30ms", "retryLimit": 0})
        async with run_appwrapper_controllers(environment, settings):
            await environment.create(
                wrapper(pod(), CONFIG_MAP, deletionOnFailureGracePeriodDuration="0s")
            )
            await environment.wait_for_condition("QuotaReserved", "False")
            await environment.wait_for_phase("Failed")
            await wait_until_deleted(environment, [(POD, "p")])


async def test_appwrapper_can_be_deleted() -> None:
    async with start_appwrapper_environment() as environment:
        await environment.create_namespace()
        async with run_appwrapper_controllers(environment):
            obj = await environment.create(wrapper(pod(), CONFIG_MAP))
            await environment.wait_for_event("ComponentCreationErrored", "ConfigMap c")
            await environment.delete(obj)
            await wait_until_deleted(environment, [(APPWRAPPER, "w"), (POD, "p")])
