"""Tests that pods hold the shared quota of FluxJobs while they occupy nodes, and neither longer nor shorter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import pytest

from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER, MINICLUSTER_LABEL, QUOTA_RESERVED
from cfo.runtime.client.client import Propagation
from cfo.runtime.client.errors import NotFound
from cfo.runtime.objects.kinds import JOB, POD
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import NamespacedName, Object, key_of, owner_reference
from test.support.clocks import SteppedClock
from test.support.flux_environment import (
    SCHEDULED,
    FluxEnvironment,
    condition,
    flux_job,
    flux_setup,
    mini_cluster,
    pod_annotations,
    run_flux_controllers,
    start_flux_environment,
)
from test.support.raycluster_environment import eventually
from test.support.tenant_clients import start_tenant_client

EDIT_PODS = Rule("", "pods", ("get", "create", "patch", "delete"))
KEEP = {"metadata": {"finalizers": ["test.example.com/keep"]}}
"""A finalizer of a tenant."""
RUNNING = {"pod": pod_annotations(phase="Running")}
"""Defaults of MiniClusters whose pods run until they are deleted."""


@pytest.fixture
async def env() -> AsyncIterator[FluxEnvironment]:
    async with start_flux_environment(controllers=SCHEDULED) as environment:
        for namespace in ("operator", "attacker", "victim"):
            await environment.create_namespace(namespace)
        yield environment


def ghost(name: str, owner: Object) -> Object:
    """Return a pod that ends at once, with the label of a MiniCluster that does not exist and a real one as owner."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "attacker",
            "labels": {MINICLUSTER_LABEL: "ghost"},
            "annotations": pod_annotations(phase="Failed")["annotations"],
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "nodeName": "envtest",  # without the scheduler, a kubelet lets it fail
            "restartPolicy": "Never",
            "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000000"}}}
            ],
        },
    }


async def wait_for_quota(env: FluxEnvironment, name: str, reason: str, namespace: str) -> None:
    """Wait until the FluxJob has or lacks quota for this reason."""
    await env.wait_for(
        lambda obj: condition(obj, QUOTA_RESERVED).get("reason") == reason,
        reason,
        name=name,
        namespace=namespace,
        gvk=FLUX_JOB,
    )


async def wait_for_used(env: FluxEnvironment, pods: int) -> None:
    """Wait until so many pods hold quota of the FluxSetup."""
    await env.wait_for(
        lambda obj: (obj.get("status") or {}).get("usedResources") == pods,
        f"{pods} pods hold quota",
        name="setup",
        namespace="operator",
        gvk=FLUX_SETUP,
    )


def sleeper(name: str) -> Object:
    """Return a pod that runs until it is deleted, with the label of a MiniCluster of its own."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "attacker",
            "labels": {MINICLUSTER_LABEL: name},
            "annotations": pod_annotations(phase="Running")["annotations"],
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }


def reads_of_pods(env: FluxEnvironment) -> list[str]:
    """Return the verbs with which the controllers have read pods, except watches."""
    return [
        exchange.verb
        for exchange in env.exchanges
        if exchange.resource == "pods" and exchange.verb in ("get", "list")
    ]


async def test_deleted_pods_without_a_label_hold_quota_until_the_next_list(
    env: FluxEnvironment,
) -> None:
    """Each was read on its own, the more rarely the more there were, so that thousands held quota for hours."""
    number = 24
    clock = SteppedClock()
    await env.create(flux_setup(namespace="operator", max_size=20, namespaceSelector={}))
    async with (
        run_flux_controllers(env, clock=clock),
        start_tenant_client(env, EDIT_PODS, namespace="attacker") as tenant,
    ):
        keys = [NamespacedName("attacker", f"pod-{at}") for at in range(number)]
        for key in keys:
            await tenant.create(sleeper(key.name))
        await wait_for_used(env, number)
        env.clear_requests()
        for key in keys:
            await tenant.patch(POD, key, {"metadata": {"labels": {MINICLUSTER_LABEL: None}}})

        async def is_listed() -> bool:
            return bool(reads_of_pods(env))

        await eventually(is_listed, "the pods are listed")
        await env.wait_until_idle()
        await wait_for_used(env, number)
        for key in keys:
            await tenant.delete(POD, key, grace_period_seconds=0)
        await env.wait_until_idle()
        clock.step(30)
        await wait_for_used(env, 0)
        # On a busy machine, a list can begin before the last pod has lost its label.
        assert set(reads_of_pods(env)) == {"list"}
        assert len(reads_of_pods(env)) <= number / 4


async def test_nothing_without_a_node_delays_a_preemption(env: FluxEnvironment) -> None:
    """Pods of two jobs have no node. One has a pod more that has none either; a finalizer keeps the other one's."""
    setup = flux_setup(
        namespace="operator",
        max_size=4,
        namespaceSelector={},
        preemption="LowerPriority",
    )
    no_node: Object = {"requests": {"cpu": "1000000"}}
    edit_clusters = Rule("flux-framework.org", "miniclusters", ("get", "patch", "delete"))
    await env.create(setup)
    async with (
        run_flux_controllers(env),
        start_tenant_client(env, EDIT_PODS, edit_clusters, namespace="attacker") as tenant,
    ):
        for name in ("decoy", "finalizer"):
            await env.create(flux_job(name, "attacker", size=2, priority=0, resources=no_node))

        async def have_pods() -> bool:
            return len(await env.pods("attacker")) == 4

        await eventually(have_pods, "the pods of the MiniClusters exist")
        decoy = sleeper("pod")
        decoy["metadata"]["labels"] = {MINICLUSTER_LABEL: "decoy"}
        decoy["spec"]["schedulingGates"] = [{"name": "example.com/never"}]
        await tenant.create(decoy)
        kept = NamespacedName("attacker", "finalizer")
        await tenant.patch(MINICLUSTER, kept, KEEP)
        await tenant.delete(MINICLUSTER, kept)
        await env.create(flux_job("high", "victim", size=4, priority=10))
        await wait_for_quota(env, "high", "Admitted", "victim")


async def test_ended_pods_of_a_tenant_hold_no_shared_quota(env: FluxEnvironment) -> None:
    await env.create(
        flux_setup(
            namespace="operator",
            max_size=4,
            namespaceSelector={},
            resources={"cpu": "8"},
            mini_cluster=RUNNING,
        )
    )
    async with run_flux_controllers(env):
        await env.create(mini_cluster("real", "attacker", size=1, suspend=True))
        real = await env.get(MINICLUSTER, "real", "attacker")
        async with start_tenant_client(env, EDIT_PODS, namespace="attacker") as tenant:
            for number in range(5):
                await tenant.create(ghost(f"ghost-{number}", real))
        for number in range(5):
            await env.wait_for(
                lambda obj: (obj.get("status") or {}).get("phase") == "Failed",
                "the pod has ended",
                name=f"ghost-{number}",
                namespace="attacker",
                gvk=POD,
            )
        await env.wait_until_idle()
        await env.create(flux_job("job", "victim", size=4))
        await wait_for_quota(env, "job", "Admitted", "victim")
        await wait_for_used(env, 4)


async def test_running_pods_hold_quota_after_they_lose_their_label_or_owner(
    env: FluxEnvironment,
) -> None:
    setup = flux_setup(namespace="operator", max_size=4, namespaceSelector={}, mini_cluster=RUNNING)
    clock = SteppedClock()
    await env.create(setup)
    # The Job adopts a pod again whose labels match.
    other_labels = {"batch.kubernetes.io/controller-uid": None, "controller-uid": None}
    changes: dict[str, Object] = {
        "label": {"labels": {MINICLUSTER_LABEL: None}},
        "owner": {"ownerReferences": None, "labels": other_labels},
    }
    async with run_flux_controllers(env, clock=clock):
        for name in changes:
            await env.create(flux_job(name, "attacker", size=2))

        async def have_pods() -> list[Object]:
            pods = await env.pods("attacker")
            assert [pod["status"].get("phase") for pod in pods] == ["Running"] * 4
            return pods

        pods = await eventually(have_pods, "four pods run")
        async with start_tenant_client(env, EDIT_PODS, namespace="attacker") as tenant:
            for pod in pods:
                await env.client.patch(POD, key_of(pod), KEEP)
                change = changes[pod["metadata"]["labels"][MINICLUSTER_LABEL]]
                await tenant.patch(POD, key_of(pod), {"metadata": change})
        for name in changes:
            await env.client.delete(FLUX_JOB, NamespacedName("attacker", name))
            await env.wait_until_removed(MINICLUSTER, name, "attacker")
        await env.wait_until_idle()
        await env.create(flux_job("job", "victim", size=4))
        await wait_for_quota(env, "job", "InsufficientQuota", "victim")
        await wait_for_used(env, 4)
        for pod in pods:
            await env.client.patch(POD, key_of(pod), {"metadata": {"finalizers": None}})
            await env.client.delete(POD, key_of(pod))
        await env.wait_until_idle()
        clock.step(30)
        await wait_for_quota(env, "job", "Admitted", "victim")


EDIT_JOBS = (
    Rule("flux-framework.org", ("fluxjobs", "miniclusters"), ("get", "patch", "delete")),
    Rule("batch", "jobs", ("get", "patch", "delete")),
)


KEPT = {
    "minicluster": (MINICLUSTER, MINICLUSTER),
    "minicluster-of-a-deleted-fluxjob": (MINICLUSTER, FLUX_JOB),
    "fluxjob": (FLUX_JOB, FLUX_JOB),
    "job": (JOB, JOB),
}
"""The object with a finalizer and the deleted one, by the name of the FluxJob."""


async def test_object_that_a_finalizer_keeps_prevents_no_preemption(env: FluxEnvironment) -> None:
    """The garbage collector waits until the object no longer exists, and pods ran on."""
    number = len(KEPT)
    setup = flux_setup(
        namespace="operator",
        max_size=number,
        namespaceSelector={},
        preemption="LowerPriority",
        mini_cluster=RUNNING,
    )
    await env.create(setup)
    async with (
        run_flux_controllers(env),
        start_tenant_client(env, *EDIT_JOBS, namespace="attacker") as tenant,
    ):
        for name in KEPT:
            await env.create(flux_job(name, "attacker", size=1, priority=0))
        await wait_for_used(env, number)
        await env.wait_until_idle()
        for name, (kept, deleted) in KEPT.items():
            key = NamespacedName("attacker", name)
            await tenant.patch(kept, key, KEEP)
            await tenant.delete(deleted, key, propagation_policy=Propagation.BACKGROUND)
        await env.create(flux_job("high", "victim", size=number, priority=10))
        await wait_for_quota(env, "high", "Admitted", "victim")
        await env.wait_until_idle()
        phases = [pod["status"].get("phase") for pod in await env.pods("victim")]
        assert phases == ["Running"] * number


async def test_resumed_minicluster_of_an_evicted_job_prevents_no_preemption(
    env: FluxEnvironment,
) -> None:
    """The queue waited until nothing created pods, and any user can resume a MiniCluster after each suspension."""
    clock = SteppedClock()
    setup = flux_setup(
        namespace="operator",
        max_size=3,
        namespaceSelector={},
        preemption="LowerPriority",
        mini_cluster=RUNNING,
    )
    key = NamespacedName("attacker", "low")
    resume = {"spec": {"suspend": False}}
    await env.create(setup)
    async with (
        run_flux_controllers(env, clock=clock),
        start_tenant_client(env, *EDIT_JOBS, namespace="attacker") as tenant,
        anyio.create_task_group() as tasks,
    ):

        async def keep_resumed() -> None:
            while True:
                with suppress(NotFound):
                    await tenant.patch(MINICLUSTER, key, resume)
                await anyio.sleep(0.02)

        await env.create(flux_job("low", "attacker", size=3, priority=0))
        await wait_for_used(env, 3)
        await env.wait_until_idle()
        tasks.start_soon(keep_resumed)
        await env.create(flux_job("high", "victim", size=3, priority=10))
        await wait_for_quota(env, "high", "QuotaIsBeingReleased", "victim")
        clock.step(31)
        await wait_for_quota(env, "high", "Admitted", "victim")
        tasks.cancel_scope.cancel()


async def test_pods_that_only_pretend_to_end_prevent_no_preemption(env: FluxEnvironment) -> None:
    clock = SteppedClock()
    setup = flux_setup(
        namespace="operator",
        max_size=6,
        namespaceSelector={},
        preemption="LowerPriority",
        mini_cluster=RUNNING,
    )
    await env.create(setup)
    async with (
        run_flux_controllers(env, clock=clock),
        start_tenant_client(env, EDIT_PODS, namespace="attacker") as tenant,
    ):
        for number in range(3):
            await tenant.create(sleeper(f"pod-{number}"))
        await env.create(flux_job("low", "victim", size=3, priority=0))
        await wait_for_used(env, 6)
        await env.create(flux_job("high", "victim", size=3, priority=10))
        await wait_for_quota(env, "high", "QuotaIsBeingReleased", "victim")
        await env.wait_until_idle()
        clock.step(150)
        await env.wait_until_idle()
        await wait_for_quota(env, "low", "Admitted", "victim")
        clock.step(151)
        await wait_for_quota(env, "high", "Admitted", "victim")
