"""Tests that pods which the cache has no room for neither end an AppWrapper nor run beyond its quota."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime import Manager
from cfo.runtime.objects.kinds import DEPLOYMENT, POD
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.clocks import SteppedClock


@pytest.fixture
async def environment() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(controllers=CONTROLLERS) as environment:
        await environment.create_namespace()
        yield environment


def deployment(replicas: int) -> Object:
    labels = {"app": "d"}
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def fill_cache(manager: Manager) -> None:
    """Leave no room for an object that is new or grows."""
    manager.cache.budget.max_bytes = 1


async def test_running_pods_that_the_cache_leaves_out_are_not_missing(
    environment: AppWrapperEnvironment,
) -> None:
    """Users of other namespaces can fill the cache, and then pods are left out when their status grows."""
    clock = SteppedClock()
    async with run_appwrapper_controllers(environment, clock=clock) as manager:
        await environment.create(wrapper(pod("a"), pod("b")))
        await environment.wait_for_phase("Running")
        for name in ("a", "b"):
            await environment.set_pod_status(name, "Running")
        await environment.wait_for_condition("PodsReady", "True")
        before = await environment.client.list(POD, namespace="ns")
        fill_cache(manager)
        for name in ("a", "b"):
            annotations = {"metadata": {"annotations": {"grown": "x" * 5000}}}
            await environment.client.patch(POD, NamespacedName("ns", name), annotations)
        await environment.wait_until_idle()
        for _ in range(3):
            clock.step(3600)
            await environment.skip_to_next_timer()
            await environment.wait_until_idle()
        found = await environment.wait_for_condition("PodsReady", "True")
        assert found["status"]["phase"] == "Running"
        after = await environment.client.list(POD, namespace="ns")
        assert [each["metadata"]["uid"] for each in after] == [
            each["metadata"]["uid"] for each in before
        ]


async def test_pods_beyond_the_quota_are_found_although_the_cache_leaves_them_out(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, clock=SteppedClock()) as manager:
        queued = wrapper(deployment(1), retryLimit="0")
        queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
        await environment.create(queued)
        await environment.wait_for_condition("PodsReady", "True")
        fill_cache(manager)
        new_template = {"metadata": {"annotations": {"rollout": "2"}}}
        changes = {"spec": {"replicas": 20, "template": new_template}}
        await environment.client.patch(DEPLOYMENT, NamespacedName("ns", "d"), changes)
        await environment.wait_for_condition("Unhealthy", "True", "ExcessPods")
        await environment.wait_for_phase("Failed")
        await environment.wait_for_condition("ResourcesDeployed", "False")
        assert not await environment.client.list(POD, namespace="ns")
