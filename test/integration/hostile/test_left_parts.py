"""Tests that a tenant does not take a running AppWrapper, and its quota of Kueue, from all operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from cfo.api.appwrapper.names import APPWRAPPER, FIELD_MANAGER
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.config.part import Part
from cfo.controllers import appwrapper
from cfo.runtime import LabelSelector
from cfo.runtime.client.errors import Forbidden
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import POD
from cfo.runtime.objects.unstructured import NamespacedName, Object
from cfo.webhooks import appwrapper as webhook
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    configuration,
    job,
    start_appwrapper_environment,
    wrapper,
)
from test.support.config_map_webhooks import OPTIONS, free_url
from test.support.kueue_queue import FLAVOR, PodQueue, is_reserved, kueue_crds
from test.support.planes import local_config
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)

SELECTOR = "part=a"
QUEUED = configuration(kueueIntegration=True)


@asynccontextmanager
async def run_operator(
    env: AppWrapperEnvironment, *, has_webhook: bool = True
) -> AsyncIterator[None]:
    """Run the controllers and the webhook of an operator for a part of the AppWrappers, until the block ends."""
    async with Transport(local_config(env.plane)) as transport:
        options = ManagerOptions(
            field_manager=FIELD_MANAGER,
            selectors={APPWRAPPER: SELECTOR},
            webhook=replace(OPTIONS, url=free_url()),
        )
        manager = Manager(transport, options)
        appwrapper.setup(manager, QUEUED)
        if has_webhook:
            webhook.setup(manager, QUEUED, part=Part(selector=LabelSelector.of(SELECTOR)))
        async with manager:
            await manager.started()

            async def is_ready() -> bool:
                failures = await manager.health.failures()
                assert not failures, failures
                return True

            async def is_called() -> bool:
                try:
                    await env.client.create(queued("invalid"), dry_run=True)
                except Forbidden:
                    return True
                return False

            await eventually(is_ready, "readiness")
            if has_webhook:
                await eventually(is_called, "calls of the webhook")
            yield


def queued(name: str, *templates: Object) -> Object:
    """Return a suspended AppWrapper of the operator in a queue."""
    obj = wrapper(*templates, name=name, suspend=True)
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq", "part": "a"}
    return obj


@pytest.mark.parametrize("part", [None, "b"])
async def test_running_appwrapper_that_leaves_its_operator_is_refused(part: str | None) -> None:
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as env:
        await env.create_namespace()
        flavor = {"metadata": {"name": "gold"}, "spec": {}}
        await env.create({"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind, **flavor})
        async with run_operator(env):
            await env.create(queued("w", job(parallelism=2)))
            queue = PodQueue(env, 2)
            await eventually(queue.workloads, "a Workload")
            await refuse(env, {"labels": {"part": part}})
            await queue.schedule()
            await env.wait_for_condition("PodsReady", "True")
            await refuse(env, {"labels": {"part": part}})
            await refuse(env, {"labels": {"part": part, QUEUE_NAME_LABEL: None}}, suspend=True)
            await queue.evict(0)

            async def is_released() -> bool:
                return not any(is_reserved(each) for each in await queue.workloads())

            await eventually(is_released, "the quota is released")
            assert await env.client.list(POD, namespace="ns") == []
            await change_labels(env, queue=None)
            await wait_for_no_workload(queue)
            await change_labels(env, part=part)


async def refuse(env: AppWrapperEnvironment, metadata: Object, **spec: bool) -> None:
    """Assert that a change of the labels of the AppWrapper is refused."""
    change = {"metadata": metadata, "spec": spec}
    with pytest.raises(Forbidden, match=r"metadata.labels\[part\]: Forbidden: immutable while"):
        await env.client.patch(APPWRAPPER, NamespacedName("ns", "w"), change)


async def create_flavor(env: AppWrapperEnvironment) -> None:
    """Create the namespace and the ResourceFlavor of the queue."""
    await env.create_namespace()
    flavor = {"metadata": {"name": "gold"}, "spec": {}}
    await env.create({"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind, **flavor})


async def change_labels(env: AppWrapperEnvironment, **labels: str | None) -> None:
    """Change labels of the AppWrapper; ``queue`` is that of its queue."""
    named = {QUEUE_NAME_LABEL if key == "queue" else key: value for key, value in labels.items()}
    change = {"metadata": {"labels": named}}
    await env.client.patch(APPWRAPPER, NamespacedName("ns", "w"), change)


async def wait_for_no_workload(queue: PodQueue) -> None:
    """Wait until no Workload exists."""

    async def is_deleted() -> bool:
        assert await queue.workloads() == []
        return True

    await eventually(is_deleted, "no Workload")


@pytest.mark.parametrize("part", [None, "b"])
async def test_appwrapper_gets_no_queue_in_the_update_in_which_it_leaves(part: str | None) -> None:
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as env:
        await create_flavor(env)
        async with run_operator(env):
            await env.create(queued("w", job(parallelism=2)))
            queue = PodQueue(env, 2)
            await eventually(queue.workloads, "a Workload")
            await change_labels(env, queue=None)
            await refuse(env, {"labels": {"part": part, QUEUE_NAME_LABEL: "lq"}})
            await wait_for_no_workload(queue)
            await refuse(env, {"labels": {"part": part, QUEUE_NAME_LABEL: "lq"}})
            await change_labels(env, part=part)
            await change_labels(env, queue="lq")
            await env.create(queued("later", job(parallelism=2)))
            await eventually(queue.workloads, "a Workload")
            (workload,) = await queue.workloads()
            assert workload["metadata"]["name"].startswith("appwrapper-later-")


@pytest.mark.parametrize("part", [None, "b"])
async def test_waiting_workload_of_an_appwrapper_that_left_with_a_queue_is_deleted(
    part: str | None,
) -> None:
    """The webhook may not be registered."""
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as env:
        await create_flavor(env)
        async with run_operator(env, has_webhook=False):
            await env.create(queued("w", job(parallelism=2)))
            queue = PodQueue(env, 2)
            await eventually(queue.workloads, "a Workload")
            await change_labels(env, part=part, queue="other")
            await wait_for_no_workload(queue)
            await env.wait_for_event(
                "DeletedWorkload", "because the AppWrapper has left the operator"
            )


async def test_workload_of_an_appwrapper_that_left_while_it_ran_is_deleted_when_its_pods_end() -> (
    None
):
    """No operator sees that its Job completes."""
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as env:
        await create_flavor(env)
        async with run_operator(env, has_webhook=False):
            await env.create(queued("w", job(parallelism=2)))
            queue = PodQueue(env, 2)
            await eventually(queue.workloads, "a Workload")
            await queue.schedule()
            await env.wait_for_condition("PodsReady", "True")
            await change_labels(env, part="b")

            async def is_being_deleted() -> bool:
                (workload,) = await queue.workloads()
                assert is_reserved(workload)
                return "deletionTimestamp" in workload["metadata"]

            await eventually(is_being_deleted, "the Workload is being deleted")
            await env.wait_for_event("QuotaInUse", "keeping the quota until they end")
            for pod in await env.client.list(POD, namespace="ns"):
                await env.set_pod_status(pod["metadata"]["name"], "Succeeded")
            await wait_for_no_workload(queue)
