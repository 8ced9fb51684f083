"""Tests that a tenant who changes an object all the time delays nothing that the operator must do to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import EVICTED, FLUX_JOB, JobState
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
from test.support.flux_environment import (
    SCHEDULED,
    FluxEnvironment,
    condition,
    flux_job,
    flux_setup,
    pod_annotations,
    run_flux_controllers,
    start_flux_environment,
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
    """The operator's connection: before each patch of an object or its status, the tenant changes an annotation."""

    def __init__(self, env: Environment, gvk: GVK, key: NamespacedName, plural: str) -> None:
        super().__init__(local_config(env.plane))
        self._tenant = env.client
        self._gvk = gvk
        self._key = key
        self._path = f"/apis/{gvk.api_version}/namespaces/{key.namespace}/{plural}/{key.name}"
        self._numbers = count()
        self.overtakes = True

    async def request(self, request: APIRequest) -> Response:
        is_patch = request.method == "PATCH" and request.path in (
            self._path,
            f"{self._path}/status",
        )
        if is_patch and self.overtakes:
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


async def test_flux_job_that_changes_all_the_time_is_preempted() -> None:
    key = NamespacedName("attacker", "low")
    async with start_flux_environment(controllers=SCHEDULED) as env:
        for namespace in ("operator", "attacker", "victim"):
            await env.create_namespace(namespace)
        setup = flux_setup(
            namespace="operator",
            max_size=3,
            namespaceSelector={},
            preemption="LowerPriority",
            mini_cluster={"pod": pod_annotations(phase="Running")},
        )
        await env.create(setup)
        async with OvertakenTransport(env, FLUX_JOB, key, "fluxjobs") as transport:
            transport.overtakes = False
            async with run_flux_controllers(env, transport=transport):
                await env.create(flux_job("low", "attacker", size=3, priority=0))
                await wait_for_running(env, key)
                transport.overtakes = True
                await env.create(flux_job("high", "victim", size=3, priority=10))
                await wait_for_running(env, NamespacedName("victim", "high"))
                evicted = await env.get(FLUX_JOB, "low", "attacker")
                assert condition(evicted, EVICTED)["status"] == "True"


async def wait_for_running(env: FluxEnvironment, key: NamespacedName) -> None:
    await env.wait_for(
        lambda obj: condition(obj, JobState.RUNNING).get("status") == "True",
        "running",
        name=key.name,
        namespace=key.namespace,
        gvk=FLUX_JOB,
    )


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
