"""Refused pods, deadlines, retries and Events of workload controllers, on the plane's clock."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import Object, find_condition
from envtest.controllers.job_outcome import TRACKING
from envtest.controllers.pod_control import create_in_batches
from test.support.headless_plane import HeadlessPlane, headless_plane

PODS = GroupResource("", "pods")
QUOTAS = GroupResource("", "resourcequotas")
EVENTS = GroupResource("", "events")
DEPLOYMENTS = GroupResource("apps", "deployments")
REPLICA_SETS = GroupResource("apps", "replicasets")
STATEFUL_SETS = GroupResource("apps", "statefulsets")
JOBS = GroupResource("batch", "jobs")

CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}


def workload(**spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": CONTAINERS}
    return {"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec}


def job(**spec: Any) -> Object:
    return {"template": {"spec": {**CONTAINERS, "restartPolicy": "Never"}}, **spec}


def status(plane: HeadlessPlane, resource: GroupResource, name: str = "w") -> Object:
    return (plane.get(name, resource) or {}).get("status") or {}


def condition(plane: HeadlessPlane, resource: GroupResource, kind: str, name: str = "w") -> Object:
    return dict(find_condition(status(plane, resource, name).get("conditions"), kind) or {})


def events(plane: HeadlessPlane, kind: str) -> set[tuple[str, str]]:
    found = plane.list(EVENTS)
    return {
        (each["reason"], each["message"])
        for each in found
        if each["involvedObject"]["kind"] == kind
    }


async def limit_pods(plane: HeadlessPlane, pods: int) -> Object:
    quota = await plane.create("q", resource=QUOTAS, spec={"hard": {"pods": str(pods)}})
    await plane.until(lambda: status(plane, QUOTAS, "q").get("hard"))
    return quota


async def end(plane: HeadlessPlane, pod: Object, phase: str = "Failed", code: int = 1) -> None:
    now = plane.core.clock.timestamp()
    state = {"terminated": {"exitCode": code, "finishedAt": now, "startedAt": now}}
    container = {
        "name": "c",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }

    def change(obj: Object) -> None:
        obj["status"] = {
            **(obj.get("status") or {}),
            "phase": phase,
            "containerStatuses": [container],
        }

    await plane.edit(pod, change, PODS, "status")


def unfinished(plane: HeadlessPlane) -> list[Object]:
    return [pod for pod in plane.list(PODS) if pod["status"].get("phase") == "Pending"]


async def test_refused_pods_are_reported_until_they_are_created() -> None:
    async with headless_plane("deployment", "resourcequota") as plane:
        quota = await limit_pods(plane, 2)
        await plane.create("w", resource=DEPLOYMENTS, spec=workload(replicas=4))
        await plane.until(lambda: status(plane, DEPLOYMENTS).get("replicas") == 2)
        failure = condition(plane, DEPLOYMENTS, "ReplicaFailure")
        assert failure["reason"] == "FailedCreate"
        assert failure["message"].endswith(
            "is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
        )
        assert any(
            reason == "FailedCreate" and text.startswith("Error creating: pods")
            for reason, text in events(plane, "ReplicaSet")
        )
        await plane.edit(quota, lambda obj: obj["spec"].update(hard={"pods": "9"}), QUOTAS)
        await plane.until(lambda: status(plane, QUOTAS, "q")["hard"] == {"pods": "9"})
        await plane.core.clock.advance(1000)
        await plane.until(lambda: status(plane, DEPLOYMENTS).get("replicas") == 4)
        await plane.until(lambda: not condition(plane, DEPLOYMENTS, "ReplicaFailure"))


async def test_refused_pods_of_jobs_and_stateful_sets_are_reported() -> None:
    async with headless_plane("job", "statefulset", "resourcequota") as plane:
        await limit_pods(plane, 1)
        await plane.create("j", resource=JOBS, spec=job(parallelism=3, completions=3))
        await plane.until(lambda: status(plane, JOBS, "j").get("active") == 1)
        await plane.create("w", resource=STATEFUL_SETS, spec=workload(serviceName="s", replicas=2))
        await plane.until(lambda: status(plane, STATEFUL_SETS).get("observedGeneration") == 1)
        assert status(plane, STATEFUL_SETS)["replicas"] == 0
        refused = [
            text for reason, text in events(plane, "StatefulSet") if reason == "FailedCreate"
        ]
        assert refused[0].startswith("Create Pod w-0 in StatefulSet w failed error: pods")


async def test_rollout_without_progress_exceeds_its_deadline() -> None:
    async with headless_plane("deployment") as plane:
        await plane.create(
            "w", resource=DEPLOYMENTS, spec=workload(replicas=1, progressDeadlineSeconds=60)
        )
        await plane.until(
            lambda: (
                condition(plane, DEPLOYMENTS, "Progressing").get("reason") == "ReplicaSetUpdated"
            )
        )
        await plane.core.clock.advance(50)
        assert condition(plane, DEPLOYMENTS, "Progressing")["status"] == "True"
        await plane.core.clock.advance(20)
        await plane.until(lambda: condition(plane, DEPLOYMENTS, "Progressing")["status"] == "False")
        (name,) = plane.names(REPLICA_SETS)
        progress = condition(plane, DEPLOYMENTS, "Progressing")
        assert progress["reason"] == "ProgressDeadlineExceeded"
        assert progress["message"] == f'ReplicaSet "{name}" has timed out progressing.'
        assert events(plane, "Deployment") == {
            ("ScalingReplicaSet", f"Scaled up replica set {name} from 0 to 1")
        }


async def test_failed_pod_of_a_job_is_replaced_after_the_back_off() -> None:
    async with headless_plane("job") as plane:
        await plane.create("j", resource=JOBS, spec=job(backoffLimit=2))
        for delay in (10, 20):
            await plane.until(lambda: unfinished(plane))
            await end(plane, unfinished(plane)[0])
            await plane.core.clock.advance(delay - 2)
            assert not unfinished(plane)
            await plane.core.clock.advance(3)
        await plane.until(lambda: unfinished(plane))
        await end(plane, unfinished(plane)[0])
        await plane.until(lambda: condition(plane, JOBS, "Failed", "j"))
        assert condition(plane, JOBS, "Failed", "j")["reason"] == "BackoffLimitExceeded"
        assert status(plane, JOBS, "j")["failed"] == 3
        assert all(
            TRACKING not in (pod["metadata"].get("finalizers") or ()) for pod in plane.list(PODS)
        )
        await plane.until(lambda: len(events(plane, "Job")) == 4)
        assert ("BackoffLimitExceeded", "Job has reached the specified backoff limit") in events(
            plane, "Job"
        )


async def test_failed_index_does_not_stop_the_other_indexes() -> None:
    async with headless_plane("job") as plane:
        spec = job(completionMode="Indexed", completions=2, parallelism=2, backoffLimitPerIndex=1)
        await plane.create("j", resource=JOBS, spec=spec)

        def pod_of(index: int) -> Object | None:
            name = "batch.kubernetes.io/job-completion-index"
            found = [
                pod
                for pod in unfinished(plane)
                if pod["metadata"]["annotations"][name] == str(index)
            ]
            return found[0] if found else None

        await plane.until(lambda: pod_of(0) and pod_of(1))
        for failures in ("0", "1"):
            await plane.until(lambda: pod_of(0))
            failing = pod_of(0)
            assert failing is not None
            assert (
                failing["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"]
                == failures
            )
            await end(plane, failing)
            await plane.core.clock.advance(15)
        await plane.until(lambda: status(plane, JOBS, "j").get("failedIndexes") == "0")
        assert pod_of(1) is not None
        assert not condition(plane, JOBS, "Failed", "j")
        await end(plane, pod_of(1) or {}, "Succeeded", 0)
        await plane.until(lambda: condition(plane, JOBS, "Failed", "j"))
        assert condition(plane, JOBS, "Failed", "j")["reason"] == "FailedIndexes"
        assert status(plane, JOBS, "j")["completedIndexes"] == "1"


async def test_completed_job_is_deleted_after_its_ttl() -> None:
    async with headless_plane("job", "gc") as plane:
        await plane.create("j", resource=JOBS, spec=job(ttlSecondsAfterFinished=60))
        await plane.until(lambda: unfinished(plane))
        await end(plane, unfinished(plane)[0], "Succeeded", 0)
        await plane.until(lambda: condition(plane, JOBS, "Complete", "j"))
        assert ("Completed", "Job completed") in events(plane, "Job")
        await plane.core.clock.advance(61)
        await plane.until(lambda: plane.get("j", JOBS) is None)


async def test_job_of_another_controller_is_not_changed() -> None:
    async with headless_plane("job") as plane:
        await plane.create("other", resource=JOBS, spec=job(managedBy="example.com/queue"))
        await plane.create("own", resource=JOBS, spec=job())
        await plane.until(lambda: status(plane, JOBS, "own").get("active"))
        assert status(plane, JOBS, "other") == {}
        assert len(plane.list(PODS)) == 1


@pytest.mark.parametrize(("allowed", "calls"), [(10, 10), (0, 1), (1, 3), (3, 7)])
async def test_pods_are_created_in_growing_batches(allowed: int, calls: int) -> None:
    called = []

    async def create(number: int) -> None:
        called.append(number)
        if number >= allowed:
            raise StatusError(403, "Forbidden", "no")

    created, error = await create_in_batches(10, create)
    assert (created, len(called), error is None) == (allowed, calls, allowed == 10)


async def test_pods_of_a_namespace_that_is_being_deleted_are_not_an_error() -> None:
    async def create(number: int) -> None:
        raise StatusError(403, "Forbidden", "no", {"causes": [{"reason": "NamespaceTerminating"}]})

    assert await create_in_batches(10, create) == (0, None)


def labelled(label: str, **spec: Any) -> Object:
    return workload(
        selector={"matchLabels": {"app": label}},
        template={"metadata": {"labels": {"app": label}}, "spec": CONTAINERS},
        **spec,
    )


async def test_controllers_write_nothing_at_rest() -> None:
    cron = {"schedule": "@yearly", "jobTemplate": {"spec": job()}}
    scaling = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"},
        "maxReplicas": 3,
    }
    async with headless_plane("all") as plane:
        await plane.create("w", resource=DEPLOYMENTS, spec=workload(replicas=2))
        await plane.create("s", resource=STATEFUL_SETS, spec=labelled("s", serviceName="s"))
        await plane.create("d", resource=GroupResource("apps", "daemonsets"), spec=labelled("d"))
        await plane.create("j", resource=JOBS, spec=job(activeDeadlineSeconds=3600))
        await plane.create("c", resource=GroupResource("batch", "cronjobs"), spec=cron)
        await plane.create(
            "h", resource=GroupResource("autoscaling", "horizontalpodautoscalers"), spec=scaling
        )
        await plane.core.clock.advance(60)
        assert len([each for each in plane.list(PODS) if each["status"]["phase"] == "Running"]) == 5
        before = plane.core.store.revision
        await plane.core.clock.advance(600)
        assert plane.core.store.revision == before


async def test_image_that_cannot_be_pulled_is_reported_as_the_kubelet_does() -> None:
    async with headless_plane("pods") as plane:
        spec = {"containers": [{"name": "c", "image": "i:not-found"}]}
        await plane.create("p", resource=PODS, spec=spec)
        await plane.until(lambda: events(plane, "Pod"))
        ((reason, message),) = events(plane, "Pod")
        assert (reason, message.partition(": failed")[0]) == ("Failed", "Error: ErrImagePull")
        await plane.core.clock.advance(11)
        await plane.until(lambda: len(events(plane, "Pod")) == 2)
        assert ("BackOff", 'Back-off pulling image "i:not-found"') in events(plane, "Pod")
