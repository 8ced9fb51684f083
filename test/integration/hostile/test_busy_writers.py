"""Tests that a tenant who changes an object all the time delays nothing that the operator must do to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER
from cfo.controllers import raycluster
from cfo.runtime.client.transport import APIRequest, Response, Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import JOB, POD
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    configuration,
    job,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.kueue_queue import FLAVOR, PodQueue, is_reserved, kueue_crds
from test.support.planes import local_config
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    start_environment,
)
from test.support.recordings import GOLDEN

needs_kueue = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)

WRAPPER = NamespacedName("ns", "w")


class OvertakenTransport(Transport):
    """The operator's connection: before each patch of an object, the tenant changes one of its annotations."""

    def __init__(self, env: Environment, gvk: GVK, key: NamespacedName, plural: str) -> None:
        super().__init__(local_config(env.plane))
        self._tenant = env.client
        self._gvk = gvk
        self._key = key
        self._path = f"/apis/{gvk.api_version}/namespaces/{key.namespace}/{plural}/{key.name}"
        self._numbers = count()

    async def request(self, request: APIRequest) -> Response:
        if request.method == "PATCH" and request.path == self._path:
            change = {"metadata": {"annotations": {"x": str(next(self._numbers))}}}
            await self._tenant.patch(self._gvk, self._key, change)
        return await super().request(request)


@pytest.fixture
async def env() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as environment:
        await environment.create_namespace()
        flavor = {"metadata": {"name": "gold"}, "spec": {}}
        await environment.create({"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind, **flavor})
        yield environment


@needs_kueue
async def test_appwrapper_that_changes_all_the_time_starts_and_is_preempted(
    env: AppWrapperEnvironment,
) -> None:
    async with (
        OvertakenTransport(env, APPWRAPPER, WRAPPER, "appwrappers") as transport,
        run_appwrapper_controllers(env, configuration(kueueIntegration=True), transport=transport),
    ):
        queued = wrapper(job(parallelism=2), suspend=True)
        queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lq"}
        await env.create(queued)
        queue = PodQueue(env, 2)
        await eventually(queue.workloads, "a Workload")
        await queue.schedule()
        running = await env.wait_for_condition("PodsReady", "True")
        assert "podSetInfos" in running["spec"]["components"][0]
        await queue.evict(0)

        async def is_released() -> bool:
            return not any(is_reserved(each) for each in await queue.workloads())

        await eventually(is_released, "the quota is released")
        assert await env.client.list(POD, namespace="ns") == []
        assert await env.object_names(JOB) == []
        suspended = await env.get_wrapper()
        assert "podSetInfos" not in suspended["spec"]["components"][0]


async def test_raycluster_that_changes_all_the_time_meets_its_profile() -> None:
    strict = {"name": "strict", "namespaceSelector": "!trusted", "authentication": "enforced"}
    config = kuberay_config(**PLAIN_SETTINGS, mTLSEnabled=False, profiles=[strict])
    key = NamespacedName("ns", "rc")
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace()
        cluster = ray_cluster()
        cluster["spec"]["headGroupSpec"]["enableIngress"] = True
        await env.create(cluster)
        async with OvertakenTransport(env, RAY_CLUSTER, key, "rayclusters") as transport:
            options = ManagerOptions(
                field_manager="codeflare-operator", field_managers=[FIELD_MANAGER]
            )
            manager = Manager(transport, options)
            raycluster.setup(manager, config)
            async with manager:

                async def is_enforced() -> bool:
                    stored = await env.get(RAY_CLUSTER, "rc")
                    assert stored["spec"]["headGroupSpec"]["enableIngress"] is False
                    return True

                await eventually(is_enforced, "the spec that the profile enforces")
