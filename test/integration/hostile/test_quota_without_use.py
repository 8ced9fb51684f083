"""Tests that an AppWrapper whose pods do not use the quota of its queue keeps it only for a limited time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

import pytest

from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.appwrapper.status import is_true
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.kinds import DEPLOYMENT, JOB, POD
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    find_condition,
    new_object,
    owner_reference,
)
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    configuration,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.clocks import SteppedClock
from test.support.kueue_queue import (
    FLAVOR,
    WORKLOAD,
    PodQueue,
    admission_of,
    is_reserved,
    kueue_crds,
    workload_condition,
)
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN
from test.support.tenant_clients import start_tenant_client

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)

RESOURCE_QUOTA = GVK("", "v1", "ResourceQuota")
GPU = "example.com/gpu"
GPUS = {"limits": {GPU: "16"}, "requests": {GPU: "16", "cpu": "1"}}
CONTAINER = {"name": "main", "image": "busybox"}
TINY = {"requests": {"cpu": "1m", "memory": "1Mi"}}


@pytest.fixture
async def environment() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(
        *kueue_crds(), controllers=(*CONTROLLERS, "resourcequota")
    ) as environment:
        await environment.create_namespace()
        flavor = {"apiVersion": FLAVOR.api_version, "kind": FLAVOR.kind, "spec": {}}
        await environment.create({**flavor, "metadata": {"name": "gold"}})
        yield environment


async def limit_gpus(
    environment: AppWrapperEnvironment, number: int, namespace: str = "ns"
) -> None:
    """Create or replace the ResourceQuota of the namespace."""
    hard = {f"requests.{GPU}": str(number)}
    await environment.client.apply(new_object(RESOURCE_QUOTA, "q", namespace, spec={"hard": hard}))


def job(**spec: int) -> Object:
    """Return a Job whose pods request 16 GPUs each."""
    container = {**CONTAINER, "resources": GPUS}
    template = {
        "metadata": {"annotations": {"envtest.cfo/phase": "Running"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "c"},
        "spec": {**spec, "backoffLimit": 0, "template": template},
    }


def deployment(replicas: int) -> Object:
    """Return a Deployment whose pods request 16 GPUs each."""
    labels = {"app": "big"}
    container = {**CONTAINER, "resources": GPUS}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "c"}, "spec": spec}


async def admit(
    environment: AppWrapperEnvironment,
    component: Object,
    namespace: str = "ns",
    **annotations: str,
) -> None:
    """Create an AppWrapper in a queue, and admit its Workload as Kueue does."""
    settings = {"retryLimit": "0", **annotations}
    obj = wrapper(component, namespace=namespace, **settings)
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    await environment.create(obj)

    async def workload() -> Object | None:
        found = await environment.client.list(WORKLOAD, namespace=namespace)
        return found[0] if found else None

    found: Object = await eventually(workload, "the Workload exists")
    conditions = [workload_condition(kind) for kind in ("QuotaReserved", "Admitted")]
    status = {"conditions": conditions, "admission": admission_of(found)}
    await environment.patch(found, {"status": status}, subresource="status")
    await environment.wait_for_phase("Running", namespace=namespace)


@dataclass(frozen=True)
class Operator:
    """The running AppWrapper controllers, and when they began with an AppWrapper that Kueue admits."""

    manager: Manager
    clock: SteppedClock
    began: datetime

    def fill_cache(self) -> None:
        """Let the cache leave out each object that it sees from now on."""
        self.manager.cache.budget.max_bytes = 1

    def minutes(self) -> float:
        """Return how long ago they began."""
        return (self.clock.now() - self.began).total_seconds() / 60


@asynccontextmanager
async def run_operator(
    environment: AppWrapperEnvironment, *, unused_quota_limit: str = "30m"
) -> AsyncIterator[Operator]:
    """Run the controllers.

    The grace periods are longer than a busy machine takes to create pods.
    """
    clock = SteppedClock()
    periods = {
        "admissionGracePeriod": "1m",
        "warmupGracePeriod": "1m",
        "unusedQuotaLimit": unused_quota_limit,
    }
    config = configuration(kueueIntegration=True, faultTolerance=periods)
    async with run_appwrapper_controllers(environment, config, clock=clock) as manager:
        yield Operator(manager, clock, clock.now())


@asynccontextmanager
async def run_with_admitted(
    environment: AppWrapperEnvironment,
    component: Object,
    *,
    gpus: int = 0,
    unused_quota_limit: str = "30m",
    **annotations: str,
) -> AsyncIterator[Operator]:
    """Run the controllers with an admitted AppWrapper of ``component`` in a namespace with so many GPUs.

    After the admission, the clocks move in steps of half a minute, in which pods that the cache leaves out are read.
    """
    async with run_operator(environment, unused_quota_limit=unused_quota_limit) as operator:
        await limit_gpus(environment, gpus)
        await admit(environment, component, **annotations)
        environment.least_step = 30.0
        yield operator


async def create_tiny_pods(environment: AppWrapperEnvironment, phase: str) -> None:
    """Create two small pods as the tenant that the Job takes for its own, and let them run or end."""
    owner = await environment.get(JOB, "c")
    labels = owner["spec"]["template"]["metadata"]["labels"]
    async with start_tenant_client(environment, Rule("", "pods", ("create",))) as tenant:
        for number in range(2):
            container = {**CONTAINER, "resources": TINY}
            pod = new_object(POD, f"tiny-{number}", "ns", spec={"containers": [container]})
            pod["metadata"] |= {
                "labels": {**labels, APPWRAPPER_LABEL: "w"},
                "ownerReferences": [owner_reference(owner, controller=True)],
            }
            await tenant.create(pod)
            await environment.set_pod_status(f"tiny-{number}", phase)


async def shrink_pods(environment: AppWrapperEnvironment) -> None:
    """Let the tenant lower what the pods of the Deployment request, and wait until they run."""
    changes = {"spec": {"template": {"spec": {"containers": [{**CONTAINER, "resources": TINY}]}}}}
    async with start_tenant_client(environment, Rule("apps", "deployments", ("patch",))) as tenant:
        await tenant.patch(DEPLOYMENT, NamespacedName("ns", "c"), changes)

    async def run() -> bool:
        found = await environment.client.list(POD, namespace="ns")
        return [each["status"].get("phase") for each in found] == ["Running", "Running"]

    await eventually(run, "the small pods run")


async def wait_until_released(environment: AppWrapperEnvironment, namespace: str = "ns") -> str:
    """Wait until the Workload holds no quota; return why the AppWrapper has failed."""
    found = await environment.wait_for_phase("Failed", namespace=namespace)

    async def is_finished() -> bool:
        (workload,) = await environment.client.list(WORKLOAD, namespace=namespace)
        if is_true(workload["status"]["conditions"], "Finished"):
            return True
        # Pods that the cache leaves out are listed again after half a minute.
        await environment.skip_to_next_timer()
        return False

    await eventually(is_finished, "the Workload is finished")
    unhealthy = find_condition(found["status"]["conditions"], "Unhealthy") or {}
    return str(unhealthy["message"])


@pytest.mark.parametrize(
    ("phase", "is_full"),
    [
        pytest.param("Running", True, id="Running-full cache"),
        pytest.param("Succeeded", False, id="Succeeded"),
    ],
)
async def test_tiny_pods_in_place_of_those_of_a_job_keep_no_quota(
    environment: AppWrapperEnvironment, phase: str, *, is_full: bool
) -> None:
    """Also if the cache leaves them out: a user can fill the share of the namespace."""
    async with run_with_admitted(environment, job(parallelism=2, completions=3)) as operator:
        if is_full:
            operator.fill_cache()
        await create_tiny_pods(environment, phase)
        message = await wait_until_released(environment)
        assert f"0 of at least 32 {GPU}" in message


async def test_deployment_with_smaller_pods_than_admitted_keeps_no_quota(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_with_admitted(environment, deployment(2)):
        await shrink_pods(environment)
        message = await wait_until_released(environment)
        assert f"0 of at least 32 {GPU}" in message


@pytest.mark.parametrize("is_refused", [True, False])
async def test_pods_that_have_ended_keep_quota_only_for_half_an_hour(
    environment: AppWrapperEnvironment, *, is_refused: bool
) -> None:
    component = job(parallelism=1, completions=3)
    async with run_with_admitted(environment, component, gpus=16) as operator:
        await environment.wait_for_condition("PodsReady", "True")
        if is_refused:
            await limit_gpus(environment, 0)
        (pod,) = await environment.client.list(POD, namespace="ns")
        await environment.patch(
            pod, {"metadata": {"annotations": {"envtest.cfo/phase": "Succeeded"}}}
        )
        await environment.wait_for_condition("PodsReady", "True")
        if is_refused:
            message = await wait_until_released(environment)
            assert "no pod that uses the quota has run for 30m" in message
            return

        async def runs_again() -> bool:
            found = await environment.client.list(POD, namespace="ns")
            return sorted(each["status"]["phase"] for each in found) == ["Running", "Succeeded"]

        await eventually(runs_again, "the next pod runs")
        await environment.wait_until_idle()
        operator.clock.step(24 * 3600)
        await environment.wait_until_idle()
        await environment.wait_for_condition("PodsReady", "True")
        await environment.wait_for_phases("", "Suspended", "Resuming", "Running")


ANNOTATIONS = {
    "grace-period": {"admissionGracePeriodDuration": "24h"},
    "many-retries": {"admissionGracePeriodDuration": "10m", "retryLimit": "100000"},
    "pause": {"retryPausePeriodDuration": "24h", "retryLimit": "3"},
    "after-the-failure": {"deletionOnFailureGracePeriodDuration": "24h"},
}
"""The annotations of AppWrappers, by namespace."""


async def test_annotations_keep_no_quota_without_pods_for_more_than_half_an_hour(
    environment: AppWrapperEnvironment,
) -> None:
    component = job(parallelism=2, completions=2)
    async with run_operator(environment) as operator:
        for namespace, annotations in ANNOTATIONS.items():
            await environment.create_namespace(namespace)
            await limit_gpus(environment, 0, namespace)
            await admit(environment, component, namespace, **annotations)
        assert operator.minutes() < 1
        environment.least_step = 30.0
        for namespace in ANNOTATIONS:
            await environment.wait_for_condition(
                "ResourcesDeployed", "False", "Failed", namespace=namespace
            )
            await wait_until_released(environment, namespace)
        assert operator.minutes() < 32 + 1


async def test_suspending_an_appwrapper_again_and_again_keeps_no_quota(
    environment: AppWrapperEnvironment,
) -> None:
    """Its Workload stays admitted, so it is resumed each time."""
    component = job(parallelism=2, completions=2)
    async with run_with_admitted(
        environment, component, admissionGracePeriodDuration="24h"
    ) as operator:
        for _ in range(3):
            await environment.wait_until_idle()
            operator.clock.step(600)
            await environment.set_suspend(True)
            await environment.wait_until_idle()
            await environment.wait_for_phase("Running", "Failed")
        message = await wait_until_released(environment)
        assert "have not requested the quota for 30m" in message
        assert operator.minutes() < 32 + 1


async def evict(environment: AppWrapperEnvironment) -> None:
    """Evict the only Workload as Kueue does, and wait until its quota is released."""
    queue = PodQueue(environment, 2)
    await queue.evict(0)

    async def is_released() -> bool:
        await environment.wait_until_idle()
        (workload,) = await queue.workloads()
        if is_reserved(workload):
            await environment.skip_to_next_timer()
        assert not is_reserved(workload)
        return True

    await eventually(is_released, "the quota is released")


async def test_small_pod_without_the_label_keeps_no_quota_after_an_eviction(
    environment: AppWrapperEnvironment,
) -> None:
    component = job(parallelism=2, completions=2)
    async with run_with_admitted(
        environment, component, forcefulDeletionGracePeriodDuration="24h"
    ) as operator:
        owner = owner_reference(await environment.get_wrapper(), controller=True)
        owner["blockOwnerDeletion"] = False
        container = {**CONTAINER, "resources": TINY}
        spec = {"containers": [container], "schedulingGates": [{"name": "example.com/never"}]}
        pod = new_object(POD, "tiny", "ns", spec=spec)
        pod["metadata"]["ownerReferences"] = [owner]
        async with start_tenant_client(environment, Rule("", "pods", ("create",))) as tenant:
            await tenant.create(pod)
        await evict(environment)
        assert operator.minutes() < 32 + 1


@pytest.mark.parametrize("is_full", [False, True], ids=["", "full cache"])
async def test_finalizer_of_a_component_keeps_no_quota_after_an_eviction(
    environment: AppWrapperEnvironment, *, is_full: bool
) -> None:
    async with run_with_admitted(
        environment,
        job(parallelism=2, completions=2),
        unused_quota_limit="5m",
        forcefulDeletionGracePeriodDuration="24h",
    ) as operator:
        finalizers = {"metadata": {"finalizers": ["example.com/keep"]}}
        await environment.client.patch(JOB, NamespacedName("ns", "c"), finalizers)
        await environment.wait_until_idle()
        if is_full:
            operator.fill_cache()
            decoy = new_object(POD, "decoy", "ns", spec={"containers": [CONTAINER]})
            decoy["metadata"]["labels"] = {APPWRAPPER_LABEL: "other"}
            await environment.create(decoy)
        await evict(environment)
        assert operator.minutes() < 7 + 1


async def test_pods_that_wait_keep_the_quota_for_longer(
    environment: AppWrapperEnvironment,
) -> None:
    """Pulling large images takes long, and a user lets the pods wait for them."""
    waiting = job(parallelism=2, completions=2)
    waiting["spec"]["template"]["metadata"]["annotations"] = {"envtest.cfo/phase": "Pending"}
    async with run_with_admitted(
        environment, waiting, gpus=32, warmupGracePeriodDuration="50m"
    ) as operator:
        await wait_until_released(environment)
        assert operator.minutes() >= 50
