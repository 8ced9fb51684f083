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
from cfo.runtime.client.config import ClientConfig
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
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)

SELECTOR = "part=a"
QUEUED = configuration(kueueIntegration=True)


@asynccontextmanager
async def run_operator(env: AppWrapperEnvironment) -> AsyncIterator[None]:
    """Run the controllers and the webhook of an operator for a part of the AppWrappers, until the block ends."""
    async with Transport(ClientConfig.for_control_plane(env.plane)) as transport:
        options = ManagerOptions(
            field_manager=FIELD_MANAGER,
            selectors={APPWRAPPER: SELECTOR},
            webhook=replace(OPTIONS, url=free_url()),
        )
        manager = Manager(transport, options)
        appwrapper.setup(manager, QUEUED)
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
            leave_queue = {"metadata": {"labels": {QUEUE_NAME_LABEL: None}}}
            leave_part = {"metadata": {"labels": {"part": part}}}
            for change in (leave_queue, leave_part):
                await env.client.patch(APPWRAPPER, NamespacedName("ns", "w"), change)

            async def is_deleted() -> bool:
                return await queue.workloads() == []

            await eventually(is_deleted, "no Workload")


async def refuse(env: AppWrapperEnvironment, metadata: Object, **spec: bool) -> None:
    """Assert that a change of the labels of the AppWrapper is refused."""
    change = {"metadata": metadata, "spec": spec}
    with pytest.raises(Forbidden, match=r"metadata.labels\[part\]: Forbidden: immutable while"):
        await env.client.patch(APPWRAPPER, NamespacedName("ns", "w"), change)
