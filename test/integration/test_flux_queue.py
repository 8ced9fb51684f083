"""FluxJobs in the queues of FluxSetups, with all Flux controllers, on a control plane that runs Jobs and pods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from cfo.api.flux.names import (
    EVICTED,
    FLUX_JOB,
    FLUX_SETUP,
    MINICLUSTER,
    MINICLUSTER_LABEL,
    OBJECTS_READY,
    QUOTA_RESERVED,
    JobState,
)
from cfo.controllers.flux.fluxjob import kept_failures
from cfo.controllers.flux.fluxjob.reconciler import FluxJobReconciler
from cfo.runtime.client import name_checks
from cfo.runtime.objects.kinds import CONFIG_MAP, JOB, POD, PRIORITY_CLASS
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    key_of,
    name_of,
    new_object,
    owner_reference,
    uid_of,
)
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
    state,
)
from test.support.flux_observer import observe
from test.support.raycluster_environment import eventually

RUNNING = {"pod": pod_annotations(phase="Running")}
"""Defaults of MiniClusters whose pods run until they are deleted."""


@pytest.fixture
async def env() -> AsyncIterator[FluxEnvironment]:
    async with start_flux_environment(controllers=SCHEDULED) as environment:
        await environment.create_namespace("ns")
        yield environment


async def wait_for_job(
    env: FluxEnvironment,
    holds: Callable[[Object], Any],
    description: str,
    *,
    name: str = "job",
    namespace: str = "ns",
) -> Object:
    return await env.wait_for(holds, description, name=name, namespace=namespace, gvk=FLUX_JOB)


async def wait_for_state(
    env: FluxEnvironment, expected: JobState, name: str = "job", namespace: str = "ns"
) -> Object:
    return await wait_for_job(
        env, lambda obj: state(obj) == [expected], expected, name=name, namespace=namespace
    )


async def wait_for_reason(
    env: FluxEnvironment, reason: str, name: str = "job", namespace: str = "ns"
) -> Object:
    """Wait until the job waits for this reason, with the same message as its state."""
    job = await wait_for_job(
        env,
        lambda obj: condition(obj, QUOTA_RESERVED).get("reason") == reason,
        reason,
        name=name,
        namespace=namespace,
    )
    assert state(job) == [JobState.WAITING]
    assert condition(job, JobState.WAITING)["message"] == condition(job, QUOTA_RESERVED)["message"]
    return job


async def wait_for_totals(
    env: FluxEnvironment, used: int, admitted: int, pending: int, name: str = "setup"
) -> Object:
    """Wait until the numbers in the status of the FluxSetup are these."""

    def holds(obj: Object) -> bool:
        status = obj.get("status") or {}
        numbers = tuple(
            status.get(key) for key in ("usedResources", "admittedWorkloads", "pendingWorkloads")
        )
        return numbers == (used, admitted, pending)

    return await env.wait_for(holds, f"{used}, {admitted}, {pending}", name=name, gvk=FLUX_SETUP)


async def test_jobs_of_three_namespaces_never_exceed_the_quota() -> None:
    names = [f"team-{letter}" for letter in "abc"]
    async with start_flux_environment(controllers=SCHEDULED) as env, observe(env) as observer:
        for name in ("operator", *names):
            await env.create_namespace(name)
        jobs = [
            await env.create(flux_job(f"job-{number:02}", names[number % 3])) for number in range(6)
        ]  # before the setup, and none is lost
        short = {"pod": pod_annotations(phase="Succeeded", finish_after="0.2")}
        setup = flux_setup(
            namespace="operator", max_size=4, namespaceSelector={}, mini_cluster=short
        )
        async with run_flux_controllers(env):
            await env.create(setup)
            finished = (JobState.FINISHED,)

            async def have_finished(number: int) -> bool:
                return sum(states[-1] == finished for states in observer.states.values()) >= number

            for number in (2, 4, 6):
                await eventually(partial(have_finished, number), f"{number} finished jobs")

            async def is_free() -> bool:
                status = (await env.get(FLUX_SETUP, "setup", "operator")).get("status") or {}
                return bool(
                    status.get("usedResources") == 0
                    and status["pendingWorkloads"] == 0
                    and not observer.pods
                )

            await eventually(is_free, "all quota is free")
    assert 2 < observer.most_pods <= 4
    created = {NamespacedName(job["metadata"]["namespace"], name_of(job)): job for job in jobs}
    order = sorted(created, key=lambda key: (created[key]["metadata"]["creationTimestamp"], key))
    assert observer.admissions == order
    progress = [
        (),
        (JobState.REQUESTED,),
        (JobState.WAITING,),
        (JobState.READY,),
        (JobState.RUNNING,),
        (JobState.FINISHED,),
    ]
    for states in observer.states.values():
        assert states == [item for item in progress if item in states]
        assert states[-1] == finished


async def test_jobs_wait_for_quota_and_run_in_order(env: FluxEnvironment) -> None:
    async with run_flux_controllers(env), observe(env) as observer:
        await env.create(flux_job("early"))
        job = await wait_for_reason(env, "NoFluxSetup", "early")
        assert condition(job, JobState.WAITING)["message"] == "No FluxSetup covers namespace ns"
        await env.wait_for_event("NoFluxSetup", "namespace ns")
        await env.create(flux_setup(max_size=4, mini_cluster=RUNNING))
        await wait_for_state(env, JobState.RUNNING, "early")
        await env.create(flux_job("large", size=5))
        await env.create(flux_job("next", size=3))
        large = await wait_for_reason(env, "TooLarge", "large")
        assert "Needs 5 pods" in condition(large, JobState.WAITING)["message"]
        waiting = await wait_for_reason(env, "InsufficientQuota", "next")
        assert (
            condition(waiting, JobState.WAITING)["message"]
            == "Waiting for 3 pods of the quota of FluxSetup ns/setup"
        )
        assert waiting["status"]["position"] == 1
        assert waiting["status"]["fluxSetup"] == "ns/setup"
        await env.create(flux_job("small", size=1))
        await wait_for_state(env, JobState.RUNNING, "small")  # BestEffortFIFO: it passes
        await wait_for_totals(env, 3, 2, 2)
        setup = await env.get(FLUX_SETUP, "setup")
        await env.patch(setup, {"spec": {"max-size": 1}})  # stops nothing
        await env.delete(await env.get(FLUX_JOB, "early"))
        await env.wait_until_removed(MINICLUSTER, "early")
        await wait_for_totals(env, 1, 1, 2)
        await env.patch(setup, {"spec": {"max-size": 5}})
        await wait_for_state(env, JobState.RUNNING, "next")
        assert "position" not in (await env.get(FLUX_JOB, "next"))["status"]
        await env.delete(setup)
        await env.create(flux_job("late", size=1))
        await wait_for_reason(env, "NoFluxSetup", "late")
        assert state(await env.get(FLUX_JOB, "next")) == [JobState.RUNNING]
        assert observer.most_pods <= 4


async def test_quota_is_free_only_after_the_pods_are_deleted(env: FluxEnvironment) -> None:
    stopping = {"pod": pod_annotations(phase="Running", stop_after="0.4")}
    async with run_flux_controllers(env), observe(env) as observer:
        await env.create(flux_setup(max_size=2, mini_cluster=stopping))
        first = await env.create(flux_job("first"))
        await wait_for_state(env, JobState.RUNNING, "first")
        await eventually(lambda: _async(len(observer.pods) == 2), "two pods")
        await env.create(flux_job("second"))
        await wait_for_reason(env, "InsufficientQuota", "second")
        await env.delete(first)
        await wait_for_state(env, JobState.RUNNING, "second")
        assert observer.most_pods == 2


async def _async(value: bool) -> bool:
    return value


async def test_job_of_higher_priority_evicts_the_newest_of_lower_priority(
    env: FluxEnvironment,
) -> None:
    await env.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": PRIORITY_CLASS.kind,
            "metadata": {"name": "urgent"},
            "value": 9,
        }
    )
    async with run_flux_controllers(env), observe(env) as observer:
        await env.create(flux_setup(max_size=4, preemption="LowerPriority", mini_cluster=RUNNING))
        for name in ("old", "young"):
            await env.create(flux_job(name))
            await wait_for_state(env, JobState.RUNNING, name)
        await env.create(flux_job("urgent", priorityClassName="urgent"))
        await wait_for_state(env, JobState.RUNNING, "urgent")
        evicted = await wait_for_reason(env, "InsufficientQuota", "young")
        assert condition(evicted, EVICTED)["status"] == "True"
        assert condition(evicted, EVICTED)["reason"] == "Preempted"
        assert "startTime" not in evicted["status"]
        cluster = await env.get(MINICLUSTER, "young")
        assert cluster["spec"]["suspend"] is True
        await env.patch(cluster, {"spec": {"size": 1}})  # as kubectl scale does
        assert state(await env.get(FLUX_JOB, "old")) == [JobState.RUNNING]
        await env.delete(await env.get(FLUX_JOB, "urgent"))
        resumed = await wait_for_state(env, JobState.RUNNING, "young")
        assert condition(resumed, EVICTED)["status"] == "False"
        assert (await env.get(MINICLUSTER, "young"))["spec"]["size"] == 2
        assert observer.most_pods <= 4


async def test_suspended_job_releases_its_quota_and_is_admitted_again(env: FluxEnvironment) -> None:
    async with run_flux_controllers(env), observe(env) as observer:
        await env.create(flux_setup(max_size=2, mini_cluster=RUNNING))
        job = await env.create(flux_job())
        await wait_for_state(env, JobState.RUNNING)
        await env.create(flux_job("other"))
        await env.patch(job, {"spec": {"suspend": True}})
        await wait_for_reason(env, "Suspended")
        await wait_for_state(env, JobState.RUNNING, "other")
        await env.delete(await env.get(FLUX_JOB, "other"))
        await env.patch(
            job, {"spec": {"suspend": False, "size": 1}}
        )  # a waiting job may change in any way
        await wait_for_state(env, JobState.RUNNING)
        assert (await env.get(JOB, "job"))["spec"]["parallelism"] == 1
        assert observer.most_pods <= 2


async def test_newer_setup_replaces_an_older_one_and_its_deletion_restores_it(
    env: FluxEnvironment,
) -> None:
    async with run_flux_controllers(env):
        old = flux_setup("a-old", max_size=1)
        await env.create(old)
        await env.create(flux_job())
        await wait_for_reason(env, "TooLarge")
        new = await env.create(flux_setup("b-new", max_size=1))

        def active(status: str, reason: str) -> Callable[[Object], bool]:
            return lambda obj: (
                (condition(obj, "Active").get("status"), condition(obj, "Active").get("reason"))
                == (status, reason)
            )

        await env.wait_for(active("False", "Replaced"), "replaced", name="a-old", gvk=FLUX_SETUP)
        await env.wait_for(active("True", "Ready"), "active", name="b-new", gvk=FLUX_SETUP)
        moved = await wait_for_job(
            env, lambda obj: obj["status"].get("fluxSetup") == "ns/b-new", "moved"
        )
        assert state(moved) == [JobState.WAITING]
        await env.create_namespace("operator")
        await env.create(flux_setup("selecting", namespaceSelector={"matchLabels": {"team": "x"}}))
        found = await env.wait_for(
            active("False", "InvalidSelector"), "invalid", name="selecting", gvk=FLUX_SETUP
        )
        assert condition(found, "Active")["message"] == (
            "spec.namespaceSelector: FluxSetups of namespace ns must not select namespaces; allowed in: operator"
        )
        await env.delete(new)
        await env.wait_for(active("True", "Ready"), "active again", name="a-old", gvk=FLUX_SETUP)
        await env.patch(await env.get(FLUX_SETUP, "a-old"), {"spec": {"max-size": 2}})
        await wait_for_state(env, JobState.FINISHED)


def foreign_minicluster(name: str) -> Object:
    """Return a MiniCluster with the name of a FluxJob, which another client creates."""
    container = {"image": "x", "command": "y"}
    spec = {"size": 1, "suspend": True, "containers": [container]}
    return new_object(MINICLUSTER, name, "ns", spec=spec)


async def test_job_holds_no_quota_while_another_minicluster_has_its_name(
    env: FluxEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One exists before the FluxJob, another one is created while the operator creates its own."""
    create = FluxJobReconciler._create

    async def create_after_another(reconciler: FluxJobReconciler, *args: Any) -> None:
        if await env.find(MINICLUSTER, "late") is None:
            await env.create(foreign_minicluster("late"))
        await create(reconciler, *args)

    async with run_flux_controllers(env):
        await env.create(flux_setup(max_size=4))
        await env.create(foreign_minicluster("early"))
        await env.create(flux_job("early"))
        await wait_for_reason(env, "NameTaken", "early")
        monkeypatch.setattr(FluxJobReconciler, "_create", create_after_another)
        await env.create(flux_job("late"))
        await wait_for_reason(env, "NameTaken", "late")
        for name in ("early", "late"):
            await env.wait_for_event(
                "NameTaken", f"MiniCluster {name} exists and does not belong to this FluxJob"
            )
            assert (await env.get(MINICLUSTER, name))["spec"]["size"] == 1
        await wait_for_totals(env, 0, 0, 2)
        monkeypatch.setattr(FluxJobReconciler, "_create", create)
        for name in ("early", "late"):
            await env.delete(foreign_minicluster(name))
            await wait_for_state(env, JobState.FINISHED, name)


def foreign_objects() -> dict[str, Object]:
    """Return objects of other owners whose names MiniClusters need, by the names of the MiniClusters."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}
    batch_job = {"suspend": True, "template": {"spec": pod}}
    return {
        "first": new_object(CONFIG_MAP, "first-entrypoint", "ns"),
        "second": new_object(JOB, "second", "ns", spec=batch_job),
    }


async def test_job_holds_no_quota_while_an_object_of_its_minicluster_has_a_taken_name(
    env: FluxEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_checks, "FIRST_NAME_CHECK_SECONDS", 600)
    async with run_flux_controllers(env):
        await env.create(flux_setup(max_size=2))
        waiting = {}
        for name, foreign in foreign_objects().items():
            await env.create(foreign)
            await env.create(flux_job(name))
            waiting[name] = await wait_for_reason(env, "NameTaken", name)
            message = f"{foreign['kind']} {name_of(foreign)} already exists"
            assert message in condition(waiting[name], QUOTA_RESERVED)["message"]
            await env.wait_for_event("NameTaken", message)
        await wait_for_totals(env, 0, 0, 2)
        await env.create(flux_job("other"))
        await wait_for_state(env, JobState.FINISHED, "other")
        await env.wait_until_idle()
        for name, foreign in foreign_objects().items():
            assert (await env.get(FLUX_JOB, name))["status"] == waiting[name]["status"]
            await env.delete(foreign)
            cluster = await env.get(MINICLUSTER, name)
            await env.patch(cluster, {"metadata": {"annotations": {"retry": "1"}}})
            await wait_for_state(env, JobState.FINISHED, name)


async def test_problems_of_jobs_are_reported_until_they_are_corrected(env: FluxEnvironment) -> None:
    async with run_flux_controllers(env):
        await env.create(flux_setup())
        await check_refused_object(env)
        await check_invalid_job(env)
        await check_unknown_priority_class(env)


async def check_refused_object(env: FluxEnvironment) -> None:
    """The API server refuses an object of the MiniCluster."""
    wrong = {"pod": {"hostPID": True}, "shareProcessNamespace": True}
    job = await env.create(flux_job("refused", template=wrong))
    refused = await wait_for_job(
        env,
        lambda obj: condition(obj, OBJECTS_READY).get("status") == "False",
        "refused",
        name="refused",
    )
    assert condition(refused, OBJECTS_READY)["reason"] == "FailedToWrite"
    await env.wait_for_event("FailedToWrite", "ShareProcessNamespace and HostPID")
    await env.patch(job, {"spec": {"suspend": True}})
    released = await wait_for_reason(env, "Suspended", "refused")
    assert condition(released, OBJECTS_READY) == {}


async def check_invalid_job(env: FluxEnvironment) -> None:
    """No webhook has validated the job."""
    job = await env.create(flux_job("invalid", priority=1, priorityClassName="x"))
    invalid = await wait_for_job(
        env,
        lambda obj: condition(obj, "Valid").get("status") == "False",
        "invalid",
        name="invalid",
    )
    assert state(invalid) == [JobState.REQUESTED]
    message = condition(invalid, "Valid")["message"]
    assert message == condition(invalid, JobState.REQUESTED)["message"]
    assert "spec.priority" in message
    assert await env.wait_for_event("Invalid") == message
    await env.patch(job, {"spec": {"priorityClassName": None}})
    await wait_for_state(env, JobState.FINISHED, "invalid")


async def check_unknown_priority_class(env: FluxEnvironment) -> None:
    """It is created later."""
    await env.create(flux_job("early", priorityClassName="later"))
    job = await wait_for_reason(env, "PriorityClassNotFound", "early")
    assert condition(job, JobState.WAITING)["message"] == "PriorityClass later does not exist"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": PRIORITY_CLASS.kind}
    await env.create({**kind, "metadata": {"name": "later"}, "value": 1})
    await wait_for_state(env, JobState.FINISHED, "early")


DENIAL: list[Object] = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "refuse"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [MINICLUSTER.group],
                        "apiVersions": ["*"],
                        "operations": ["CREATE"],
                        "resources": ["miniclusters"],
                    }
                ]
            },
            "validations": [
                {
                    "expression": "object.metadata.name != 'refused'",
                    "message": "not today",
                    "reason": "Forbidden",
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "refuse"},
        "spec": {"policyName": "refuse", "validationActions": ["Deny"]},
    },
]


async def test_refused_minicluster_is_reported_and_its_job_leaves_the_quota_to_others(
    env: FluxEnvironment,
) -> None:
    for obj in DENIAL:
        await env.create(obj)
    async with run_flux_controllers(env):
        await env.create(flux_setup(max_size=2, mini_cluster=RUNNING))
        await env.create(flux_job("refused"))
        job = await wait_for_reason(env, "MiniClusterRefused", "refused")
        assert "not today" in condition(job, QUOTA_RESERVED)["message"]
        await env.wait_for_event("MiniClusterRefused", "not today")
        await env.create(flux_job("other"))
        await wait_for_state(env, JobState.RUNNING, "other")
        await wait_for_totals(env, 2, 1, 1)
        await env.wait_until_idle()
        created = [
            request
            for request in env.requests()
            if request[0] == "create" and "miniclusters" in str(request)
        ]
        assert len(created) == 2


RESOURCE_QUOTA = GVK("", "v1", "ResourceQuota")
FAILING = {"pod": {**pod_annotations(phase="Failed", exit_code="3"), "restartPolicy": "Never"}}


async def fail(env: FluxEnvironment, name: str = "job", **spec: Any) -> Object:
    """Create a FluxJob, and return it once it has failed with its exit code."""
    await env.create(flux_job(name, size=1, backoffLimit=0, **spec))
    return await wait_for_job(
        env, lambda obj: (obj.get("status") or {}).get("exitCode"), "an exit code", name=name
    )


async def test_failed_command_is_reported_with_its_exit_code(env: FluxEnvironment) -> None:
    async with run_flux_controllers(env):
        await env.create(flux_setup(mini_cluster={**FAILING, "cleanup": True}))
        failed = await fail(env)
        assert failed["status"]["exitCode"] == 3
        assert condition(failed, "Succeeded")["status"] == "False"
        assert failed["status"]["completionTime"]
        await env.wait_until_removed(MINICLUSTER, "job")
        await wait_for_totals(env, 0, 0, 0)


async def test_pods_of_the_newest_failed_jobs_are_kept_and_hold_no_quota(
    env: FluxEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_failures, "MAX_KEPT", 2)
    names = [f"job-{number}" for number in range(3)]

    async def are_left() -> bool:
        clusters = await env.client.list(MINICLUSTER, namespace="ns")
        return {name_of(cluster) for cluster in clusters} == set(names[1:])

    async with run_flux_controllers(env):
        await env.create(flux_setup(mini_cluster=FAILING, max_size=1))
        for name in names:
            await fail(env, name)
        await eventually(are_left, "the newest MiniClusters")
        at_once = flux_job("deleted-at-once", size=1, backoffLimit=0, ttlSecondsAfterFinished=0)
        await env.create(at_once)
        for kind in (FLUX_JOB, MINICLUSTER):
            await env.wait_until_removed(kind, "deleted-at-once")
        await wait_for_totals(env, 0, 0, 0)
        pods = await env.pods()
        assert [pod["status"]["phase"] for pod in pods] == ["Failed"] * 2
    async with run_flux_controllers(env):
        await env.wait_until_idle()
        assert await are_left(), "after a restart"


async def test_failed_jobs_keep_their_objects_when_the_pods_of_another_are_replaced(
    env: FluxEnvironment,
) -> None:
    async with run_flux_controllers(env):
        setup = await env.create(flux_setup(mini_cluster=FAILING))
        await fail(env, "kept")
        await env.patch(setup, {"spec": {"mini-cluster": RUNNING}})
        await env.create(flux_job("other"))
        await wait_for_state(env, JobState.RUNNING, "other")
        deleted = await env.get(MINICLUSTER, "other")
        await env.delete(deleted)

        async def is_created_again() -> bool:
            found = await env.client.get(MINICLUSTER, key_of(deleted))
            return found is not None and uid_of(found) != uid_of(deleted)

        await eventually(is_created_again, "another MiniCluster")
        await wait_for_state(env, JobState.RUNNING, "other")
        await env.wait_until_idle()
        assert await env.get(MINICLUSTER, "kept")


async def test_failed_jobs_keep_their_objects_when_those_of_another_are_refused(
    env: FluxEnvironment,
) -> None:
    """The API server refuses the MiniCluster of one job, and the Job of another one."""
    invalid = {"pod": {"hostPID": True}, "shareProcessNamespace": True}
    async with run_flux_controllers(env):
        await env.create(flux_setup(mini_cluster=FAILING))
        await fail(env, "kept")
        for obj in DENIAL:
            await env.create(obj)
        await env.create(flux_job("refused"))
        await env.create(flux_job("invalid", template=invalid))
        for name, kind in (("refused", QUOTA_RESERVED), ("invalid", OBJECTS_READY)):
            await wait_for_job(
                env,
                lambda obj, kind=kind: condition(obj, kind).get("status") == "False",
                kind,
                name=name,
            )
        await env.wait_until_idle()
        assert await env.get(MINICLUSTER, "kept")


async def test_failed_jobs_make_room_for_another_in_the_quota_of_the_namespace(
    env: FluxEnvironment,
) -> None:
    async with run_flux_controllers(env):
        await env.create(flux_setup(mini_cluster=FAILING))
        for resource in ("count/miniclusters.flux-framework.org", "count/jobs.batch"):
            await fail(env, "kept")
            hard = {resource: "1"}
            quota = await env.create(new_object(RESOURCE_QUOTA, "one", "ns", spec={"hard": hard}))
            counted = {**quota, "status": {"hard": hard, "used": hard}}
            await env.client.update(counted, subresource="status")
            other = await env.create(flux_job("other", size=1))
            await env.wait_until_removed(MINICLUSTER, "kept")
            await env.delete(quota)
            for job in (other, await env.get(FLUX_JOB, "kept")):
                await env.delete(job)
                await env.wait_until_removed(FLUX_JOB, name_of(job))
            await env.wait_until_removed(MINICLUSTER, "other")


async def test_changes_of_running_jobs_are_applied_or_reported(env: FluxEnvironment) -> None:
    async with run_flux_controllers(env):
        await env.create(flux_setup(max_size=7, mini_cluster=RUNNING))
        await check_command_given_later(env)
        await check_deleted_minicluster_and_ignored_change(env)
        await check_elastic_job(env)


async def wait_for_pods(env: FluxEnvironment, job: str, number: int) -> None:
    """Wait until the MiniCluster of a job has so many pods."""

    async def exist() -> bool:
        selector = f"{MINICLUSTER_LABEL}={job}"
        pods = await env.client.list(POD, namespace="ns", label_selector=selector)
        return len(pods) == number

    await eventually(exist, f"{number} pods of {job}")


async def check_command_given_later(env: FluxEnvironment) -> None:
    """A job without command stays ready, and its pods run a command that is given later."""
    job = await env.create(flux_job("interactive", command=None))
    await wait_for_job(
        env, lambda obj: (obj.get("status") or {}).get("startTime"), "launched", name="interactive"
    )
    assert state(await env.get(FLUX_JOB, "interactive")) == [JobState.READY]
    await wait_for_pods(env, "interactive", 2)
    await env.patch(job, {"spec": {"command": "hostname"}})
    await wait_for_state(env, JobState.RUNNING, "interactive")
    cluster = await env.get(MINICLUSTER, "interactive")
    assert cluster["spec"]["containers"][0]["command"] == "hostname"
    await wait_for_pods(env, "interactive", 2)


async def check_deleted_minicluster_and_ignored_change(env: FluxEnvironment) -> None:
    """A deleted MiniCluster is recreated, and changes of a running job are ignored."""
    job = await env.create(flux_job())
    await wait_for_state(env, JobState.RUNNING)
    before = await env.get(MINICLUSTER, "job")
    await env.delete(before)

    async def recreated() -> bool:
        found = await env.find(MINICLUSTER, "job")
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    await eventually(recreated, "another MiniCluster")
    await wait_for_state(env, JobState.RUNNING)
    await env.patch(job, {"spec": {"image": "other"}})
    changed = await wait_for_job(
        env, lambda obj: condition(obj, "UpToDate").get("status") == "False", "ignored"
    )
    assert state(changed) == [JobState.RUNNING]
    await env.wait_for_event("UpdateIgnored", "delete it and create another one")
    cluster = await env.get(MINICLUSTER, "job")
    assert cluster["spec"]["containers"][0]["image"] == "fluxrm/flux-sched:focal"


async def check_elastic_job(env: FluxEnvironment) -> None:
    """An elastic job reserves its maximum, and is scaled through the job."""
    job = await env.create(flux_job("elastic", size=1, template={"maxSize": 3}))
    await wait_for_state(env, JobState.RUNNING, "elastic")
    await wait_for_totals(env, 7, 3, 0)
    await env.patch(job, {"spec": {"size": 3}})
    await wait_for_pods(env, "elastic", 3)
    assert (await env.get(MINICLUSTER, "elastic"))["spec"]["size"] == 3


async def wait_for_batch_job(env: FluxEnvironment, queue: str = "") -> Object:
    """Wait until the Job of the FluxJob's MiniCluster exists, in this queue of Kueue, and return it."""

    async def find() -> Object | None:
        job = await env.find(JOB, "job")
        labels = (job or {"metadata": {}})["metadata"].get("labels") or {}
        return job if queue in ("", labels.get("kueue.x-k8s.io/queue-name")) else None

    batch: Object = await eventually(find, "the Job")
    return batch


async def wait_for_priority(env: FluxEnvironment, expected: str) -> None:
    """Wait until the Job of the FluxJob has this priority class of Kueue."""

    async def has_priority() -> bool:
        labels = (await env.get(JOB, "job"))["metadata"]["labels"]
        return bool(labels.get("kueue.x-k8s.io/priority-class") == expected)

    await eventually(has_priority, f"the priority class {expected}")


async def test_job_with_a_kueue_queue_is_handed_over_to_kueue(env: FluxEnvironment) -> None:
    job = flux_job(template={"pod": pod_annotations(phase="Succeeded", finish_after="0.2")})
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "other"}
    async with run_flux_controllers(env):
        await env.create(flux_setup(max_size=0))  # its quota does not matter
        job = await env.create(job)
        await wait_for_batch_job(env)
        await env.patch(job, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}})
        batch = await wait_for_batch_job(env, "lq")
        assert "suspend" not in (await env.get(MINICLUSTER, "job"))["spec"]
        assert batch["spec"]["suspend"]
        await env.patch(batch, {"spec": {"suspend": False}})  # as Kueue does to admit it
        done = await wait_for_state(env, JobState.FINISHED)
        assert condition(done, "Succeeded")["status"] == "True"
        await wait_for_totals(env, 0, 0, 0)


async def test_job_of_a_setup_with_kueue_follows_kueue(env: FluxEnvironment) -> None:
    async with run_flux_controllers(env):
        await env.create(
            flux_setup(max_size=0, queue="Kueue", kueue={"localQueue": "lq"}, mini_cluster=RUNNING)
        )
        job = await env.create(flux_job())
        batch = await wait_for_batch_job(env)
        await wait_for_reason(env, "WaitingForKueue")
        await env.patch(job, {"spec": {"priorityClassName": "low"}})
        await wait_for_priority(env, "low")
        await env.patch(batch, {"spec": {"suspend": False}})  # as Kueue does to admit it
        running = await wait_for_state(env, JobState.RUNNING)
        assert condition(running, QUOTA_RESERVED)["reason"] == "AdmittedByKueue"
        await env.patch(job, {"spec": {"priorityClassName": "high"}})
        await wait_for_priority(env, "high")
        await wait_for_totals(env, 2, 1, 0)
        batch = await env.get(JOB, "job")
        assert batch["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lq"
        await env.patch(batch, {"spec": {"suspend": True}})  # as Kueue does to evict it
        waiting = await wait_for_state(env, JobState.WAITING)
        assert condition(waiting, QUOTA_RESERVED)["reason"] == "WaitingForKueue"
        await env.patch(batch, {"spec": {"suspend": False}})
        await wait_for_state(env, JobState.RUNNING)


async def test_deletion_at_any_moment_leaves_nothing(env: FluxEnvironment) -> None:
    async with run_flux_controllers(env):
        await env.create(flux_setup(max_size=6, mini_cluster=RUNNING))
        for number, expected in enumerate((JobState.WAITING, JobState.READY, JobState.RUNNING)):
            job = await env.create(flux_job(f"job-{number}"))
            await wait_for_job(
                env,
                lambda obj, wanted=expected: (
                    wanted in state(obj) or state(obj) == [JobState.RUNNING]
                ),
                expected,
                name=name_of(job),
            )
            await env.delete(job)

        async def nothing() -> bool:
            clusters = await env.client.list(MINICLUSTER, namespace="ns")
            return not clusters and not any((await env.flux_children()).values())

        await eventually(nothing, "nothing is left")
        await wait_for_totals(env, 0, 0, 0)


async def test_restart_writes_nothing(env: FluxEnvironment) -> None:
    async with run_flux_controllers(env):
        await env.create(flux_setup(max_size=4, mini_cluster=RUNNING))
        for number in range(4):
            await env.create(flux_job(f"job-{number}"))
        for number in range(4):
            expected = JobState.RUNNING if number < 2 else JobState.WAITING
            await wait_for_state(env, expected, f"job-{number}")
        await wait_for_totals(env, 4, 2, 2)
        await env.wait_until_idle()
    before = {name_of(item): item for item in await env.client.list(FLUX_JOB, namespace="ns")}
    async with run_flux_controllers(env):
        await env.wait_until_idle()
        assert [verb for verb, _ in env.requests() if verb not in ("get", "discover")] == []
        assert len(env.exchanges) <= 40
    assert {
        name_of(item): item for item in await env.client.list(FLUX_JOB, namespace="ns")
    } == before


async def test_default_setup_is_created_once(env: FluxEnvironment) -> None:
    await env.create_namespace("operator")
    settings: dict[str, Any] = {
        "defaultSetup": {"enabled": True, "maxSize": 3, "miniClusterSize": 2}
    }
    async with run_flux_controllers(env, **settings):
        setup = await env.wait_for(
            lambda obj: condition(obj, "Active").get("status") == "True",
            "active",
            name="default",
            namespace="operator",
            gvk=FLUX_SETUP,
        )
        assert setup["spec"]["max-size"] == 3
        await env.create(flux_job(size=None))
        await wait_for_job(
            env,
            lambda obj: obj.get("status", {}).get("fluxSetup") == "operator/default",
            "governed",
        )
        await eventually(lambda: _has_pods(env, 2), "two pods, the default size")
    await env.delete(setup)
    await env.create(flux_setup())
    async with run_flux_controllers(env, **settings):
        assert await env.find(FLUX_SETUP, "default", "operator") is None


async def _has_pods(env: FluxEnvironment, number: int) -> bool:
    return len(await env.client.list(POD, namespace="ns")) == number


async def test_requests_of_a_tenant_neither_escape_the_quota_nor_take_it_from_others() -> None:
    thousand = {"image": "i", "name": "a", "resources": {"requests": {"cpu": 1000}}}
    runner = {"image": "i", "name": "b", "runFlux": True}
    escapes: list[dict[str, Any]] = [
        {"resources": {}, "template": {"containers": [thousand]}},
        {"resources": {"requests": {"cpu": "1m"}}, "template": {"containers": [thousand, runner]}},
    ]
    async with start_flux_environment() as env:
        for namespace in ("operator", "attacker", "victim"):
            await env.create_namespace(namespace)
        await env.create(
            flux_setup(namespace="operator", namespaceSelector={}, resources={"cpu": "10"})
        )
        async with run_flux_controllers(env):
            for number, fields in enumerate(escapes):
                await env.create(flux_job(f"job-{number}", "attacker", size=1, **fields))
                await wait_for_reason(env, "TooLarge", f"job-{number}", "attacker")
            claim = [{"image": "i", "resources": {"requests": {"cpu": "1G"}}}]
            cluster = await env.create(
                mini_cluster("manual", "attacker", suspend=True, containers=claim)
            )
            metadata = {
                "name": "manual-0",
                "namespace": "attacker",
                "labels": {MINICLUSTER_LABEL: "manual"},
                "ownerReferences": [owner_reference(cluster)],
            }
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}
            spec = {"containers": [container], "automountServiceAccountToken": False}
            await env.create(
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )
            await env.create(
                flux_job("job", "victim", size=1, resources={"requests": {"cpu": "9"}})
            )
            await wait_for_job(
                env,
                lambda obj: condition(obj, QUOTA_RESERVED).get("status") == "True",
                "admitted",
                namespace="victim",
            )
