"""Tests that Kueue's quota of an AppWrapper is kept while its pods run, however a tenant deletes the AppWrapper."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cfo.api.appwrapper.names import (
    APPWRAPPER,
    APPWRAPPER_LABEL,
    APPWRAPPER_UID_LABEL,
    QUOTA_FINALIZER,
)
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.appwrapper.deletions import DELETIONS_PER_STEP
from cfo.runtime.client.client import Client, Propagation
from cfo.runtime.objects.kinds import JOB, POD
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    new_object,
    owner_reference,
    uid_of,
)
from test.support.appwrapper_environment import (
    CONTROLLERS,
    AppWrapperEnvironment,
    configuration,
    job,
    pod,
    run_appwrapper_controllers,
    start_appwrapper_environment,
    wrapper,
)
from test.support.clocks import SteppedClock
from test.support.kueue_queue import (
    FLAVOR,
    WORKLOAD,
    admission_of,
    kueue_crds,
    workload_condition,
)
from test.support.raycluster_environment import eventually
from test.support.recordings import GOLDEN
from test.support.tenant_clients import start_tenant_client

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="no CRDs of Kueue next to the repository"
)

WRAPPER = NamespacedName("ns", "w")
QUEUED = configuration(kueueIntegration=True)
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
EDIT = (
    Rule(APPWRAPPER.group, "appwrappers", ("get", "create", "update", "patch", "delete")),
    Rule("", "pods", ("get", "list", "create", "patch")),
)
DELETIONS = {
    "background": "Background",
    "foreground": "Foreground",
    "orphan": "Orphan",
    "taken-over": "Orphan",
    "no-finalizer": "finalizer removed",
}
"""How a tenant deletes an AppWrapper, by its namespace."""


@pytest.fixture
async def environment() -> AsyncIterator[AppWrapperEnvironment]:
    async with start_appwrapper_environment(*kueue_crds(), controllers=CONTROLLERS) as environment:
        await environment.create_namespace()
        await environment.create(
            {
                "apiVersion": FLAVOR.api_version,
                "kind": FLAVOR.kind,
                "metadata": {"name": "gold"},
                "spec": {},
            }
        )
        yield environment


async def workloads(environment: AppWrapperEnvironment, namespace: str = "") -> list[Object]:
    """Return all Workloads, or those of a namespace."""
    return await environment.client.list(WORKLOAD, namespace=namespace)


async def start_held_pod(
    environment: AppWrapperEnvironment,
    grace: str = "10s",
    *,
    stop_seconds: int = 0,
    namespace: str = "ns",
) -> Object:
    """Create an AppWrapper of one pod, admit it, and return its pod, whose deletion does not end.

    ``grace`` is the period after which its deletion is forced; its containers need ``stop_seconds`` to stop.
    """
    template = job(stop_after=str(stop_seconds))
    template["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = stop_seconds
    obj = wrapper(template, namespace=namespace, forcefulDeletionGracePeriodDuration=grace)
    obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "lq"}
    await environment.create(obj)

    async def get_workload() -> Object | None:
        found = await workloads(environment, namespace)
        return found[0] if found else None

    workload: Object = await eventually(get_workload, "a Workload")
    conditions = [workload_condition(kind) for kind in ("QuotaReserved", "Admitted")]
    status = {"conditions": conditions, "admission": admission_of(workload)}
    await environment.patch(workload, {"status": status}, subresource="status")
    await environment.wait_for_condition("PodsReady", "True", namespace=namespace)
    (held,) = await environment.client.list(POD, namespace=namespace)
    return await environment.patch(held, {"metadata": {"finalizers": ["test.example.com/hold"]}})


async def delete_wrapper(tenant: Client, how: str, namespace: str = "ns") -> None:
    """Delete the AppWrapper as a tenant can."""
    key = NamespacedName(namespace, WRAPPER.name)
    if how == "finalizer removed":
        await tenant.delete(APPWRAPPER, key)
        await tenant.patch(APPWRAPPER, key, {"metadata": {"finalizers": None}})
        return
    await tenant.delete(APPWRAPPER, key, propagation_policy=Propagation(how))


async def let_pod_end(environment: AppWrapperEnvironment, held: Object) -> None:
    """Let the deletion of the pod end, and delete it if nothing else did."""
    await environment.client.patch(POD, key_of(held), {"metadata": {"finalizers": None}})
    await environment.client.delete(POD, key_of(held))


async def wait_until_released(environment: AppWrapperEnvironment) -> None:
    """Wait until no Workload exists, moving the clocks to the next timer if the controllers wait for one."""

    async def check() -> bool:
        await environment.wait_until_idle()
        if await workloads(environment):
            await environment.skip_to_next_timer()
        found = await workloads(environment)
        assert not found, found
        return True

    await eventually(check, "no Workload")


async def take_over(environment: AppWrapperEnvironment, namespace: str) -> None:
    """Let a job be the controller of the Workload, as Kueue does for one that names a Workload without a controller."""
    job_ = {"apiVersion": "batch/v1", "kind": "Job", "name": "other", "uid": "other-uid"}
    changes = {
        "ownerReferences": [{**job_, "controller": True}],
        "labels": {JOB_UID_LABEL: "other-uid"},
    }
    (workload,) = await workloads(environment, namespace)
    await environment.patch(workload, {"metadata": changes})


async def assert_kept(environment: AppWrapperEnvironment, number: int = 1) -> None:
    """Assert that so many Workloads stay reserved for their AppWrappers, also after the operator looks again."""
    for _ in range(2):
        await environment.wait_until_idle()
        found = await workloads(environment)
        assert len(found) == number
        for workload in found:
            assert workload["status"]["admission"]
            assert all(each["type"] != "Finished" for each in workload["status"]["conditions"])
            owner = controller_of(workload)
            assert owner is not None
            assert owner["uid"] == labels_of(workload)[APPWRAPPER_UID_LABEL]
            assert JOB_UID_LABEL not in labels_of(workload)
        await environment.skip_to_next_timer()


async def test_deletion_by_a_tenant_keeps_the_quota_until_the_pods_have_ended(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED, clock=SteppedClock()):
        held = []
        for namespace, how in DELETIONS.items():
            await environment.create_namespace(namespace)
            held.append(await start_held_pod(environment, "1h", namespace=namespace))
            async with start_tenant_client(environment, *EDIT, namespace=namespace) as tenant:
                await delete_wrapper(tenant, how, namespace)
        await environment.wait_until_idle()
        await take_over(environment, "taken-over")
        await assert_kept(environment, len(DELETIONS))
        patches = environment.requests().count(("patch", "workloads.kueue.x-k8s.io"))
        assert patches == 1 + 2  # one for each time that a Workload has lost its controller
        for pod_ in held:
            await environment.client.delete(JOB, NamespacedName(namespace_of(pod_), "j"))
            await let_pod_end(environment, pod_)
        await wait_until_released(environment)


CHANGED_PODS: dict[str, Object] = {
    "no-owner": {"ownerReferences": None, "labels": {APPWRAPPER_LABEL: "w"}},
    "no-label": {"labels": {APPWRAPPER_LABEL: None}},
    "no-owner-and-no-label": {"ownerReferences": None, "labels": {APPWRAPPER_LABEL: None}},
    "no-owner-and-other-label": {"ownerReferences": None, "labels": {APPWRAPPER_LABEL: "other"}},
}
"""How the metadata of pods is changed, by namespace."""


async def test_pod_with_changed_owner_or_label_keeps_the_quota(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED, clock=SteppedClock()):
        held = []
        for namespace, changed in CHANGED_PODS.items():
            await environment.create_namespace(namespace)
            pod_ = await start_held_pod(environment, "24h", namespace=namespace)
            async with start_tenant_client(environment, *EDIT, namespace=namespace) as tenant:
                await delete_wrapper(tenant, "finalizer removed", namespace)
                await tenant.patch(POD, key_of(pod_), {"metadata": changed})
            held.append(pod_)
        await assert_kept(environment, len(CHANGED_PODS))
        for pod_ in held:
            await let_pod_end(environment, pod_)
        await wait_until_released(environment)


@pytest.mark.parametrize("label", ["w", None])
async def test_quota_is_kept_after_a_restart_of_the_operator(
    environment: AppWrapperEnvironment, label: str | None
) -> None:
    """The Workload is the only record that remains; the Job, from which the pod descends, is deleted as well."""
    async with run_appwrapper_controllers(environment, QUEUED):
        held = await start_held_pod(environment, "24h")
    async with start_tenant_client(environment, *EDIT) as tenant:
        await delete_wrapper(tenant, "finalizer removed")
        await tenant.patch(POD, key_of(held), {"metadata": {"labels": {APPWRAPPER_LABEL: label}}})

    async def is_deleted() -> bool:
        return await environment.find(JOB, "j") is None

    await eventually(is_deleted, "the deletion of the Job")
    async with run_appwrapper_controllers(environment, QUEUED, clock=SteppedClock()):
        await assert_kept(environment)
        await let_pod_end(environment, held)
        await wait_until_released(environment)


async def create_decoy(tenant: Client, how: str) -> None:
    """Create a pod that does not belong to the AppWrapper, and that does not end."""
    decoy = pod("decoy", node="other")
    decoy["metadata"]["namespace"] = "ns"
    if how == "label":
        decoy["metadata"]["labels"] = {APPWRAPPER_LABEL: "w"}
    else:
        decoy["metadata"]["finalizers"] = ["test.example.com/hold"]
        lost = {"apiVersion": "batch/v1", "kind": "Job", "name": "lost", "uid": "lost"}
        decoy["metadata"]["ownerReferences"] = [{**lost, "controller": True}]
    await tenant.create(decoy)


async def evict(environment: AppWrapperEnvironment) -> None:
    """Evict the Workload, as Kueue did long ago."""
    (workload,) = await workloads(environment)
    conditions = [*workload["status"]["conditions"], workload_condition("Evicted")]
    await environment.patch(workload, {"status": {"conditions": conditions}}, subresource="status")


@pytest.mark.parametrize(("how", "is_evicted"), [("label", False), ("lost owner", True)])
async def test_pod_of_another_owner_keeps_the_quota_no_longer_than_the_grace_period(
    environment: AppWrapperEnvironment, how: str, is_evicted: bool
) -> None:
    grace = "24h" if is_evicted else "25s"
    async with run_appwrapper_controllers(environment, QUEUED, clock=SteppedClock()):
        held = await start_held_pod(environment, grace)
        async with start_tenant_client(environment, *EDIT) as tenant:
            await create_decoy(tenant, how)
            await delete_wrapper(tenant, "finalizer removed")
        await let_pod_end(environment, held)
        await assert_kept(environment)
        if is_evicted:
            await evict(environment)
        await wait_until_released(environment)
        await environment.get(POD, "decoy")
        assert ("delete", "pods") not in environment.requests()
    notes = [note for _, reason, note in await environment.events() if reason == "QuotaInUse"]
    assert len(notes) == 1
    reasons = {reason for _, reason, _ in await environment.events()}
    assert "ForcefulDeletion" not in reasons


async def test_pod_of_another_owner_keeps_the_quota_for_half_an_hour_at_most(
    environment: AppWrapperEnvironment,
) -> None:
    """Users choose the grace period."""
    clock = SteppedClock()
    async with run_appwrapper_controllers(environment, QUEUED, clock=clock):
        held = await start_held_pod(environment, "24h")
        async with start_tenant_client(environment, *EDIT) as tenant:
            await create_decoy(tenant, "label")
            await delete_wrapper(tenant, "finalizer removed")
        await let_pod_end(environment, held)
        await assert_kept(environment)
        clock.step(1800)

        async def is_released() -> bool:
            return not await workloads(environment)

        await eventually(is_released, "no Workload")


async def test_grace_period_of_the_quota_passes_while_no_operator_runs(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED):
        held = await start_held_pod(environment, "1h")
        async with start_tenant_client(environment, *EDIT) as tenant:
            await create_decoy(tenant, "label")
            await delete_wrapper(tenant, "Orphan")
            await tenant.patch(APPWRAPPER, WRAPPER, {"metadata": {"finalizers": None}})
        await environment.wait_until_idle()
    await environment.client.delete(JOB, NamespacedName("ns", "j"))
    await let_pod_end(environment, held)
    clock = SteppedClock()
    clock.step(3600.0)
    async with run_appwrapper_controllers(environment, QUEUED, clock=clock):

        async def is_released() -> bool:
            return not await workloads(environment)

        await eventually(is_released, "no Workload")


async def test_pods_of_a_deleted_appwrapper_are_deleted_by_force_after_the_grace_period(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED, clock=SteppedClock()):
        held = await start_held_pod(environment, stop_seconds=3600)
        async with start_tenant_client(environment, *EDIT) as tenant:
            await create_decoy(tenant, "label")
            await delete_wrapper(tenant, "finalizer removed")

        async def is_forced() -> bool:
            await environment.wait_until_idle()
            await environment.skip_to_next_timer()
            assert ("delete", "pods") in environment.requests()
            return True

        await eventually(is_forced, "a forceful deletion")
        found = await environment.get(POD, held["metadata"]["name"])
        assert found["metadata"]["deletionGracePeriodSeconds"] == 0
        environment.clear_requests()
        await assert_kept(environment)
        assert "delete" not in {verb for verb, _ in environment.requests()}
        await environment.wait_for_event("ForcefulDeletion", held["metadata"]["name"])
        await let_pod_end(environment, held)
        await wait_until_released(environment)
        decoy = await environment.get(POD, "decoy")
        assert "deletionTimestamp" not in decoy["metadata"]


async def create_decoy_of(
    environment: AppWrapperEnvironment, tenant: Client, owner: Object, *, is_gated: bool
) -> None:
    """Create a pod with this owner that its finalizer keeps; with ``is_gated`` it gets no node."""
    decoy = pod("decoy")
    reference = owner_reference(owner)
    reference.pop("blockOwnerDeletion", None)
    decoy["metadata"]["namespace"] = "ns"
    decoy["metadata"]["ownerReferences"] = [reference]
    decoy["metadata"]["finalizers"] = ["test.example.com/hold"]
    if is_gated:
        decoy["spec"]["schedulingGates"] = [{"name": "test.example.com/never"}]
    await tenant.create(decoy)
    await environment.wait_until_idle()


@pytest.mark.parametrize("is_gated", [True, False])
async def test_pod_with_a_chosen_owner_and_finalizer_keeps_the_quota_for_a_limited_time(
    environment: AppWrapperEnvironment, is_gated: bool
) -> None:
    clock = SteppedClock()
    async with run_appwrapper_controllers(environment, QUEUED, clock=clock):
        held = await start_held_pod(environment, "25s")
        owner = await environment.get(APPWRAPPER, "w")
        async with start_tenant_client(environment, *EDIT) as tenant:
            await create_decoy_of(environment, tenant, owner, is_gated=is_gated)
            await delete_wrapper(tenant, "finalizer removed")
        await let_pod_end(environment, held)
        began = clock.now()
        await wait_until_released(environment)
        decoy = await environment.get(POD, "decoy")
        assert bool(decoy["spec"].get("nodeName")) is not is_gated
        assert decoy["metadata"]["deletionGracePeriodSeconds"] == 0
    seconds = (clock.now() - began).total_seconds()
    limit = 25 + 10
    if not is_gated:
        limit += 60 + 10
    assert seconds <= limit


async def test_running_pod_keeps_the_quota_for_a_minute_after_its_forced_deletion(
    environment: AppWrapperEnvironment,
) -> None:
    clock = SteppedClock()
    async with run_appwrapper_controllers(environment, QUEUED, clock=clock):
        held = await start_held_pod(environment, stop_seconds=3600)
        began = clock.now()
        async with start_tenant_client(environment, *EDIT) as tenant:
            await delete_wrapper(tenant, "finalizer removed")
        await wait_until_released(environment)
        found = await environment.get(POD, held["metadata"]["name"])
        assert found["status"]["phase"] == "Running"
    assert 10 + 60 <= (clock.now() - began).total_seconds() <= 10 + 60 + 20


async def test_many_decoys_are_deleted_by_force_from_one_list(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED, clock=SteppedClock()):
        held = await start_held_pod(environment)
        owner = await environment.get(APPWRAPPER, "w")
        reference = owner_reference(owner)
        for number in range(2 * DELETIONS_PER_STEP + 1):
            decoy = pod(f"decoy-{number}")
            decoy["metadata"]["namespace"] = "ns"
            decoy["metadata"]["ownerReferences"] = [reference]
            decoy["spec"]["schedulingGates"] = [{"name": "test.example.com/never"}]
            await environment.create(decoy)
        async with start_tenant_client(environment, *EDIT) as tenant:
            await delete_wrapper(tenant, "finalizer removed")
        await let_pod_end(environment, held)
        await wait_until_released(environment)
        assert await environment.object_names(POD) == []


async def test_new_appwrapper_of_the_same_name_does_not_hold_the_quota_of_its_predecessor(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED, clock=SteppedClock()):
        held = await start_held_pod(environment, "24h")
        async with start_tenant_client(environment, *EDIT) as tenant:
            await delete_wrapper(tenant, "finalizer removed")
            await tenant.create({**wrapper(job("k"))})
            await tenant.patch(POD, key_of(held), {"metadata": {"ownerReferences": None}})
        await environment.wait_for_condition("PodsReady", "True")
        await assert_kept(environment)
        await let_pod_end(environment, held)
        await wait_until_released(environment)
        await environment.wait_for_phase("Running")


async def test_workload_that_an_administrator_deletes_is_replaced_after_the_pods_have_ended(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED, clock=SteppedClock()):
        held = await start_held_pod(environment)
        (workload,) = await workloads(environment)
        await environment.client.delete(WORKLOAD, key_of(workload))
        await assert_kept(environment)
        await let_pod_end(environment, held)

        async def is_replaced() -> bool:
            found = await workloads(environment)
            return [uid_of(each) for each in found] not in ([], [uid_of(workload)])

        await eventually(is_replaced, "another Workload")
        await environment.wait_for_phase("Suspended")


async def test_released_quota_costs_one_write_and_no_list(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED):
        held = await start_held_pod(environment)
        await environment.client.patch(POD, key_of(held), {"metadata": {"finalizers": None}})
        await environment.wait_until_idle()
        environment.clear_requests()
        await environment.client.delete(APPWRAPPER, WRAPPER)
        await environment.wait_until_deleted()
        await wait_until_released(environment)
        to_workloads = [verb for verb, kind in environment.requests() if "workloads" in kind]
        assert to_workloads == ["patch"]
        lists = [each for each in environment.exchanges if each.verb == "list"]
        assert [each.resource for each in lists] == ["pods"]  # it proves the release


async def refuse_updates(environment: AppWrapperEnvironment, *resources: str) -> None:
    """Create a policy of the cluster that refuses each update of an AppWrapper that is being deleted.

    A user who changes it all the time has the same effect: each update of the operator conflicts.
    """
    rule = {
        "apiGroups": [APPWRAPPER.group],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": list(resources),
    }
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "!has(object.metadata.deletionTimestamp)"}],
    }
    binding = {"policyName": "keep", "validationActions": ["Deny"]}
    group = "admissionregistration.k8s.io"
    kinds = (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding))
    for kind, spec in kinds:
        await environment.create(new_object(GVK(group, "v1", kind), "keep", spec=spec))


async def test_quota_is_released_although_the_finalizer_cannot_be_removed(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED, clock=SteppedClock()):
        held = await start_held_pod(environment)
        await refuse_updates(environment, "appwrappers")
        async with start_tenant_client(environment, *EDIT) as tenant:
            await tenant.delete(APPWRAPPER, WRAPPER)
        await assert_kept(environment)
        await let_pod_end(environment, held)
        await wait_until_released(environment)
        assert is_deleting(await environment.get_wrapper())


@pytest.mark.parametrize("ends", [True, False])
async def test_quota_is_released_although_the_status_cannot_be_written(
    environment: AppWrapperEnvironment, ends: bool
) -> None:
    clock = SteppedClock()
    async with run_appwrapper_controllers(environment, QUEUED, clock=clock):
        held = await start_held_pod(environment, stop_seconds=3600)
        await refuse_updates(environment, "appwrappers", "appwrappers/status")
        async with start_tenant_client(environment, *EDIT) as tenant:
            began = clock.now()
            await tenant.delete(APPWRAPPER, WRAPPER)
        await assert_kept(environment)
        if ends:
            await let_pod_end(environment, held)
        await wait_until_released(environment)
        seconds = (clock.now() - began).total_seconds()
        found = await environment.get_wrapper()
        assert is_deleting(found)
        assert found["status"]["phase"] == "Running"
        if not ends:
            pod_left = await environment.get(POD, held["metadata"]["name"])
            assert pod_left["metadata"]["deletionGracePeriodSeconds"] == 0
    assert seconds <= 10 + 60 + 20


async def test_workload_of_an_earlier_version_is_protected_with_one_write(
    environment: AppWrapperEnvironment,
) -> None:
    async with run_appwrapper_controllers(environment, QUEUED):
        await start_held_pod(environment)
    (workload,) = await workloads(environment)
    labels = {JOB_UID_LABEL: "x", APPWRAPPER_UID_LABEL: None}
    old = {"finalizers": None, "labels": labels, "annotations": None}
    await environment.patch(workload, {"metadata": old})
    async with run_appwrapper_controllers(environment, QUEUED):

        async def get_protected() -> Object:
            (found,) = await workloads(environment)
            assert found["metadata"].get("finalizers") == [QUOTA_FINALIZER]
            return found

        protected: Object = await eventually(get_protected, "the finalizer")
        for field in ("labels", "annotations"):
            assert protected["metadata"][field] == workload["metadata"][field]
        await environment.wait_until_idle()
        writes = [each for each in environment.requests() if each[0] not in ("get", "discover")]
        assert writes == [("patch", "workloads.kueue.x-k8s.io")]


async def test_workload_is_kept_if_another_operator_reconciles_its_appwrapper(
    environment: AppWrapperEnvironment,
) -> None:
    """The cache has no AppWrapper of another operator, which looks like a deleted one."""
    obj = wrapper(job())
    obj["metadata"]["finalizers"] = ["test.example.com/hold"]
    own = await environment.create(obj)
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    pod_set = {"name": "main", "count": 1, "template": template}
    workload = {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "namespace": "ns",
            "name": "of-w",
            "labels": {APPWRAPPER_UID_LABEL: uid_of(own)},
            "annotations": {APPWRAPPER_LABEL: WRAPPER.name},
            "finalizers": [QUOTA_FINALIZER],
        },
        "spec": {"queueName": "lq", "podSets": [pod_set]},
    }
    await environment.create(workload)
    before = await workloads(environment)
    async with run_appwrapper_controllers(environment, QUEUED, label_selector="operator=b"):
        await environment.wait_until_idle()
        assert await workloads(environment) == before
        await environment.patch(own, {"metadata": {"labels": {"operator": "b"}}})
        await environment.client.delete(WORKLOAD, NamespacedName("ns", "of-w"))
        await wait_until_released(environment)
