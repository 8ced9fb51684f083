"""Tests that an AppWrapper gives back its quota only when the pods that it owns have ended, whatever their labels."""

from __future__ import annotations

import pytest

from cfo.api.appwrapper.names import APPWRAPPER, APPWRAPPER_LABEL
from cfo.runtime.client.client import Client
from cfo.runtime.objects.kinds import DEPLOYMENT, JOB, POD
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import (
    NamespacedName,
    Object,
    find_condition,
    key_of,
    owner_reference,
)
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    job,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.clocks import SteppedClock
from test.support.raycluster_environment import eventually
from test.support.tenant_clients import start_tenant_client

EDIT_PODS = Rule("", ("pods", "pods/status"), ("get", "create", "patch"))
BIG = NamespacedName("ns", "big")


def is_quota_reserved(obj: Object) -> bool:
    """Return whether the AppWrapper holds quota."""
    condition = find_condition(obj["status"]["conditions"], "QuotaReserved") or {}
    return condition.get("status") == "True"


async def start_big_pod(environment: AppWrapperEnvironment) -> Object:
    """Create an AppWrapper of one pod, let the pod run, and return the pod."""
    await environment.create(wrapper(pod("big")))
    await environment.wait_for_phase("Running")
    await environment.set_pod_status("big", "Running")
    await environment.wait_for_condition("PodsReady", "True")
    return await environment.get(POD, "big")


async def relabel(tenant: Client, value: str | None) -> None:
    """Remove the AppWrapper's label from the running pod, or let it name another AppWrapper."""
    await tenant.patch(POD, BIG, {"metadata": {"labels": {APPWRAPPER_LABEL: value}}})


@pytest.mark.parametrize("label", [None, "other"])
@pytest.mark.parametrize("has_forged_owner", [False, True])
async def test_decoys_and_removed_labels_release_no_quota(
    label: str | None, has_forged_owner: bool
) -> None:
    async with (
        start_appwrapper_environment() as environment,
        run_appwrapper_controllers(environment),
    ):
        await environment.create_namespace()
        big = await start_big_pod(environment)
        async with start_tenant_client(environment, EDIT_PODS) as tenant:
            decoy = pod("decoy", labels={APPWRAPPER_LABEL: "w"})
            decoy["metadata"]["namespace"] = "ns"
            if has_forged_owner:
                decoy["metadata"]["ownerReferences"] = big["metadata"]["ownerReferences"]
                for reference in decoy["metadata"]["ownerReferences"]:
                    reference.pop("blockOwnerDeletion", None)
            await tenant.create(decoy)
            await environment.set_pod_status("decoy", "Succeeded")
            await relabel(tenant, label)
            await environment.wait_until_idle()
            found = await environment.get_wrapper()
            assert (found["status"]["phase"], is_quota_reserved(found)) == ("Running", True)
        await environment.set_pod_status("big", "Succeeded")
        await environment.client.patch(POD, BIG, {"metadata": {"labels": {APPWRAPPER_LABEL: "w"}}})
        await environment.wait_for_phase("Succeeded")


@pytest.mark.parametrize("label", ["w", None, "other"])
async def test_pod_that_lost_its_owner_keeps_the_quota(label: str | None) -> None:
    """Users can remove the controller of a running pod, and then the garbage collector does not delete it."""
    async with (
        start_appwrapper_environment() as environment,
        run_appwrapper_controllers(environment, clock=SteppedClock()),
    ):
        await environment.create_namespace()
        await environment.create(wrapper(job("work")))
        await environment.wait_for_phase("Running")
        owner = await environment.get(JOB, "work")
        worker = pod("worker", labels={APPWRAPPER_LABEL: "w"})
        worker["metadata"]["namespace"] = "ns"
        worker["metadata"]["ownerReferences"] = [owner_reference(owner)]
        await environment.create(worker)
        await environment.set_pod_status("worker", "Running")
        await environment.wait_for_condition("PodsReady", "True")
        changes = {"ownerReferences": None, "labels": {APPWRAPPER_LABEL: label}}
        async with start_tenant_client(environment, EDIT_PODS) as tenant:
            await tenant.patch(POD, NamespacedName("ns", "worker"), {"metadata": changes})
        await environment.wait_until_idle()
        await environment.set_suspend(True)
        await environment.wait_for_condition("DeletingResources", "True")
        await environment.wait_until_idle()
        assert is_quota_reserved(await environment.get_wrapper())
        await environment.set_pod_status("worker", "Succeeded")
        await environment.wait_for_phase("Suspended")


@pytest.mark.parametrize("label", [None, "other"])
async def test_pods_of_a_changed_template_keep_the_quota(label: str | None) -> None:
    """A Deployment's pods descend from a ReplicaSet, which the operator does not know when they are created."""
    clock = SteppedClock()
    async with (
        start_appwrapper_environment(controllers=CONTROLLERS) as environment,
        run_appwrapper_controllers(environment, clock=clock),
    ):
        await environment.create_namespace()
        await environment.create(wrapper(deployment("d")))
        await environment.wait_for_condition("PodsReady", "True")
        slow = {"annotations": {"envtest.cfo/stop-after": "3600"}}
        change = {
            "metadata": {"labels": {APPWRAPPER_LABEL: label}, **slow},
            "spec": {"terminationGracePeriodSeconds": 3600},
        }
        key = NamespacedName("ns", "d")
        await environment.client.patch(DEPLOYMENT, key, {"spec": {"template": change}})

        async def is_replaced() -> bool:
            pods = await environment.client.list(POD, namespace="ns")
            periods = [pod["spec"]["terminationGracePeriodSeconds"] for pod in pods]
            return periods == [3600] and pods[0]["status"]["phase"] == "Running"

        await eventually(is_replaced, "the pod of the new template")
        await environment.set_suspend(True)
        await environment.wait_for_condition("DeletingResources", "True")
        await environment.wait_until_idle()
        assert is_quota_reserved(await environment.get_wrapper())

        async def is_forced() -> bool:
            await environment.skip_to_next_timer()
            await environment.wait_until_idle()
            assert not is_quota_reserved(await environment.get_wrapper())
            return True

        await eventually(is_forced, "the release of the quota")
        assert await environment.client.list(POD, namespace="ns") == []


async def test_suspended_appwrapper_waits_for_a_pod_without_its_label() -> None:
    async with (
        start_appwrapper_environment() as environment,
        run_appwrapper_controllers(environment),
    ):
        await environment.create_namespace()
        big = await start_big_pod(environment)
        finalizer = {"metadata": {"finalizers": ["test.example.com/keep"]}}
        orphan = pod("worker", node="other")
        orphan["metadata"]["namespace"] = "ns"
        orphan["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "big",
                "uid": big["metadata"]["uid"],
                "controller": True,
            }
        ]
        await environment.create(orphan)
        await environment.client.patch(POD, NamespacedName("ns", "worker"), finalizer)
        await environment.set_suspend(True)
        await environment.wait_for_condition("DeletingResources", "True")
        await environment.wait_until_idle()
        assert is_quota_reserved(await environment.get_wrapper())


def deployment(name: str) -> Object:
    """Return a Deployment of one pod."""
    labels = {"app": name}
    container = {"name": "main", "image": "busybox"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def kept_component(kind: str) -> Object:
    """Return a Job or a Pod that its finalizer keeps, and whose pods get no node."""
    component = job("kept")
    spec = component["spec"]["template"]["spec"]
    if kind == "Pod":
        component = pod("kept")
        spec = component["spec"]
    component["metadata"]["finalizers"] = ["test.example.com/keep"]
    spec["schedulingGates"] = [{"name": "test.example.com/never"}]
    return component


@pytest.mark.parametrize("kind", ["Pod", "Job"])
@pytest.mark.parametrize("has_decoy", [False, True])
@pytest.mark.parametrize("how", ["suspended", "deleted"])
async def test_finalizers_of_a_tenant_hold_quota_no_longer_than_the_grace_period(
    kind: str, has_decoy: bool, how: str
) -> None:
    clock = SteppedClock()
    async with (
        start_appwrapper_environment(controllers=CONTROLLERS) as environment,
        run_appwrapper_controllers(environment, clock=clock),
    ):
        await environment.create_namespace()
        await environment.create(
            wrapper(kept_component(kind), forcefulDeletionGracePeriodDuration="15s")
        )
        running = await environment.wait_for_phase("Running")
        if has_decoy:
            await create_unlabelled_decoy(environment, running)
        await environment.wait_until_idle()
        began = clock.now()
        if how == "suspended":
            await environment.set_suspend(True)
        else:
            await environment.client.delete(APPWRAPPER, key_of(running))

        async def is_released() -> bool:
            await environment.wait_until_idle()
            found = await environment.find(APPWRAPPER, "w")
            if found is not None and is_quota_reserved(found):
                await environment.skip_to_next_timer()
            found = await environment.find(APPWRAPPER, "w")
            assert found is None or not is_quota_reserved(found)
            return True

        await eventually(is_released, "the release of the quota")
        await environment.wait_for_event("FinalizersRemain", f"{kind} kept")
        kept = await environment.get(POD if kind == "Pod" else JOB, "kept")
        assert kept["metadata"]["deletionTimestamp"]
    # Time also passes while a busy machine runs the test.
    assert 15 <= (clock.now() - began).total_seconds() < 60


async def create_unlabelled_decoy(environment: AppWrapperEnvironment, owner: Object) -> None:
    """Create a pod of ``owner`` as a tenant, without a label or node, that its finalizer keeps."""
    decoy = pod("decoy")
    reference = owner_reference(owner)
    reference.pop("blockOwnerDeletion", None)
    decoy["metadata"]["namespace"] = "ns"
    decoy["metadata"]["ownerReferences"] = [reference]
    decoy["metadata"]["finalizers"] = ["test.example.com/keep"]
    decoy["spec"]["schedulingGates"] = [{"name": "test.example.com/never"}]
    async with start_tenant_client(environment, EDIT_PODS) as tenant:
        await tenant.create(decoy)
