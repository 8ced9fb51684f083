"""The pod and workload controllers, without containers and without a server."""

import asyncio
from typing import Any

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object, annotations_of, find_condition, labels_of
from envtest.controllers.job_failures import INDEX
from envtest.controllers.job_outcome import TRACKING
from envtest.controllers.pod_state import is_ready
from envtest.controllers.replica_set_revisions import template_hash
from envtest.controllers.rollouts import resolve_int_or_percent, surge_and_unavailable
from envtest.storage import Change
from test.support.headless_plane import HeadlessPlane, headless_plane

PODS = GroupResource("", "pods")
CLAIMS = GroupResource("", "persistentvolumeclaims")
DEPLOYMENTS = GroupResource("apps", "deployments")
REPLICA_SETS = GroupResource("apps", "replicasets")
STATEFUL_SETS = GroupResource("apps", "statefulsets")
JOBS = GroupResource("batch", "jobs")
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def template(image: str = "i", **annotations: str) -> Object:
    named = {f"envtest.cfo/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {
        "metadata": {"labels": {"app": "a"}, "annotations": named},
        "spec": {"containers": [{"name": "c", "image": image}], "restartPolicy": "Always"},
    }


def workload(**spec: Any) -> Object:
    return {"selector": {"matchLabels": {"app": "a"}}, "template": template(), **spec}


def phase(plane: HeadlessPlane, name: str) -> str:
    return ((plane.get(name, PODS) or {}).get("status") or {}).get("phase", "")


def status(plane: HeadlessPlane, resource: GroupResource, name: str = "w") -> Object:
    return (plane.get(name, resource) or {}).get("status") or {}


def finalizers(plane: HeadlessPlane, name: str) -> list[str]:
    return list((plane.get(name, PODS) or {})["metadata"].get("finalizers") or ())


async def pod(plane: HeadlessPlane, name: str = "p", **annotations: str) -> Object:
    created = template(**annotations)
    return await plane.create(
        name, resource=PODS, metadata=created["metadata"], spec=created["spec"]
    )


async def test_pod_becomes_running_and_ready() -> None:
    async with headless_plane("pods") as plane:
        await pod(plane)
        await plane.until(lambda: phase(plane, "p") == "Running")
        running = plane.get("p", PODS)
        assert running is not None
        assert running["spec"]["nodeName"] == "envtest"
        assert (find_condition(running["status"]["conditions"], "Ready") or {})["status"] == "True"
        assert running["status"]["containerStatuses"][0]["ready"]
        assert running["status"]["podIP"].startswith("10.244.")
        node = plane.get("envtest", GroupResource("", "nodes"), "")
        assert node is not None
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.0"


async def test_annotations_set_phase_readiness_and_exit_code() -> None:
    async with headless_plane("pods") as plane:
        await pod(plane, "waits", phase="Pending")
        await pod(plane, "well", phase="Succeeded")
        await pod(plane, "badly", phase="Failed", exit_code="3")
        await pod(plane, "busy", ready="false")
        await plane.until(
            lambda: phase(plane, "well") == "Succeeded" and phase(plane, "badly") == "Failed"
        )
        failed = plane.get("badly", PODS)
        assert failed is not None
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        await plane.until(
            lambda: phase(plane, "busy") == "Running" and phase(plane, "waits") == "Pending"
        )
        conditions = status(plane, PODS, "busy")["conditions"]
        assert (find_condition(conditions, "Ready") or {})["status"] == "False"


async def test_annotation_added_later_changes_the_phase() -> None:
    async with headless_plane("pods") as plane:
        created = await pod(plane)
        await plane.until(lambda: phase(plane, "p") == "Running")
        await plane.edit(
            created,
            lambda obj: (
                annotations_of(obj).update({"envtest.cfo/phase": "Failed"})
                or obj["metadata"].update(annotations={"envtest.cfo/phase": "Failed"})
            ),
            PODS,
        )
        await plane.until(lambda: phase(plane, "p") == "Failed")


async def test_deleted_pod_is_removed() -> None:
    async with headless_plane("pods") as plane:
        created = await pod(plane)
        await plane.until(lambda: phase(plane, "p") == "Running")
        await plane.delete(created, resource=PODS)
        await plane.until(lambda: plane.get("p", PODS) is None)


async def test_replica_set_keeps_its_replicas() -> None:
    async with headless_plane("replicaset", "pods") as plane:
        created = await plane.create("w", resource=REPLICA_SETS, spec=workload(replicas=2))
        await plane.until(lambda: status(plane, REPLICA_SETS).get("readyReplicas") == 2)
        await plane.edit(created, lambda obj: obj["spec"].update(replicas=1), REPLICA_SETS)
        await plane.until(
            lambda: len(plane.names(PODS)) == 1 and status(plane, REPLICA_SETS)["replicas"] == 1
        )
        await plane.delete(plane.list(PODS)[0], resource=PODS)
        await plane.until(lambda: status(plane, REPLICA_SETS).get("readyReplicas") == 1)


async def test_replica_set_adopts_and_releases_pods() -> None:
    async with headless_plane("replicaset") as plane:
        orphan = await pod(plane, "orphan")
        await plane.create("w", resource=REPLICA_SETS, spec=workload(replicas=1))
        await plane.until(
            lambda: (plane.get("orphan", PODS) or {})["metadata"].get("ownerReferences")
        )
        assert plane.names(PODS) == {"orphan"}
        await plane.edit(orphan, lambda obj: obj["metadata"].update(labels={"app": "b"}), PODS)
        await plane.until(
            lambda: not (plane.get("orphan", PODS) or {})["metadata"].get("ownerReferences")
        )
        await plane.until(lambda: len(plane.names(PODS)) == 2)


async def test_job_tracks_the_pods_that_it_adopts_until_it_releases_them() -> None:
    async with headless_plane("job") as plane:
        orphan = await pod(plane, "orphan")
        job = workload(parallelism=1, manualSelector=True)
        job["template"]["spec"]["restartPolicy"] = "Never"
        await plane.create("w", resource=JOBS, spec=job)
        await plane.until(lambda: finalizers(plane, "orphan") == [TRACKING])
        await plane.edit(orphan, lambda obj: obj["metadata"].update(labels={"app": "b"}), PODS)
        await plane.until(lambda: finalizers(plane, "orphan") == [])
        assert not (plane.get("orphan", PODS) or {})["metadata"].get("ownerReferences")


async def test_deployment_rolls_out_a_new_template() -> None:
    async with headless_plane("deployment", "pods", "gc") as plane:
        created = await plane.create("w", resource=DEPLOYMENTS, spec=workload(replicas=3))
        await plane.until(lambda: status(plane, DEPLOYMENTS).get("availableReplicas") == 3)
        min_available = 3

        def set_new_template(obj: Object) -> None:
            obj["spec"]["template"] = template("new")

        def is_rolled_out() -> bool:
            nonlocal min_available
            min_available = min(
                min_available, status(plane, DEPLOYMENTS).get("availableReplicas") or 0
            )
            images = {one["spec"]["containers"][0]["image"] for one in plane.list(PODS)}
            return images == {"new"} and status(plane, DEPLOYMENTS).get("updatedReplicas") == 3

        await plane.edit(created, set_new_template, DEPLOYMENTS)
        await plane.until(is_rolled_out)
        await plane.until(
            lambda: _progress(plane) == "NewReplicaSetAvailable" and len(plane.names(PODS)) == 3
        )
        assert min_available >= 2
        assert (plane.get("w", DEPLOYMENTS) or {})["metadata"][
            "generation"
        ] == 2  # the revision counts as no change
        sets = plane.list(REPLICA_SETS)
        assert sorted(
            annotations_of(each)["deployment.kubernetes.io/revision"] for each in sets
        ) == ["1", "2"]
        assert sorted(each["spec"]["replicas"] for each in sets) == [0, 3]
        assert (
            annotations_of(plane.get("w", DEPLOYMENTS) or {})["deployment.kubernetes.io/revision"]
            == "2"
        )


def _progress(plane: HeadlessPlane) -> str:
    condition = find_condition(status(plane, DEPLOYMENTS).get("conditions"), "Progressing")
    return (condition or {}).get("reason", "")


async def test_recreate_strategy_deletes_old_pods_before_creating_new_ones() -> None:
    async with headless_plane("deployment", "pods") as plane:
        created = await plane.create(
            "w", resource=DEPLOYMENTS, spec=workload(strategy={"type": "Recreate"}, replicas=2)
        )
        await plane.until(lambda: status(plane, DEPLOYMENTS).get("availableReplicas") == 2)
        saw_mixed_images = False

        def images() -> set[str]:
            return {one["spec"]["containers"][0]["image"] for one in plane.list(PODS)}

        def is_recreated() -> bool:
            nonlocal saw_mixed_images
            saw_mixed_images |= len(images()) > 1
            return images() == {"new"} and status(plane, DEPLOYMENTS).get("availableReplicas") == 2

        await plane.edit(
            created, lambda obj: obj["spec"].update(template=template("new")), DEPLOYMENTS
        )
        await plane.until(is_recreated)
        assert not saw_mixed_images


async def test_rollout_waits_for_unready_pods() -> None:
    async with headless_plane("deployment", "pods") as plane:
        created = await plane.create("w", resource=DEPLOYMENTS, spec=workload(replicas=2))
        await plane.until(lambda: status(plane, DEPLOYMENTS).get("availableReplicas") == 2)
        await plane.edit(
            created,
            lambda obj: obj["spec"].update(template=template("new", ready="false")),
            DEPLOYMENTS,
        )
        await plane.until(lambda: status(plane, DEPLOYMENTS).get("updatedReplicas"))
        await plane.until(
            lambda: (
                len([one for one in plane.list(PODS) if phase(plane, one["metadata"]["name"])]) == 3
            )
        )
        assert status(plane, DEPLOYMENTS)["availableReplicas"] == 2
        await plane.until(lambda: _progress(plane) == "ReplicaSetUpdated")


async def test_stateful_set_scales_one_pod_at_a_time() -> None:
    async with headless_plane("statefulset", "pods") as plane:
        claims = [{"metadata": {"name": "data"}, "spec": CLAIM}]
        spec = workload(replicas=3, serviceName="s", volumeClaimTemplates=claims)
        added: list[tuple[str, int]] = []

        def record_new_pod(resource: GroupResource, set_new_template: Change) -> None:
            if resource == PODS and set_new_template.type == "ADDED":
                added.append((set_new_template.record.name, sum(map(is_ready, plane.list(PODS)))))

        plane.core.store.journal.append(record_new_pod)
        created = await plane.create("w", resource=STATEFUL_SETS, spec=spec)
        await plane.until(lambda: status(plane, STATEFUL_SETS).get("readyReplicas") == 3)
        assert added == [("w-0", 0), ("w-1", 1), ("w-2", 2)]
        assert plane.names(CLAIMS) == {"data-w-0", "data-w-1", "data-w-2"}
        first = plane.get("w-0", PODS)
        assert first is not None
        assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("w-0", "s")
        assert labels_of(first)["apps.kubernetes.io/pod-index"] == "0"
        await plane.edit(created, lambda obj: obj["spec"].update(replicas=1), STATEFUL_SETS)
        await plane.until(lambda: plane.names(PODS) == {"w-0"})


async def test_stateful_set_updates_pods_down_to_the_partition() -> None:
    async with headless_plane("statefulset", "pods") as plane:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        created = await plane.create(
            "w", resource=STATEFUL_SETS, spec=workload(replicas=2, updateStrategy=strategy)
        )
        await plane.until(lambda: status(plane, STATEFUL_SETS).get("readyReplicas") == 2)
        await plane.edit(
            created, lambda obj: obj["spec"].update(template=template("new")), STATEFUL_SETS
        )

        def image(name: str) -> str:
            found = plane.get(name, PODS)
            return found["spec"]["containers"][0]["image"] if found else ""

        await plane.until(lambda: image("w-1") == "new")
        await plane.until(lambda: status(plane, STATEFUL_SETS).get("updatedReplicas") == 1)
        await plane.until(lambda: status(plane, STATEFUL_SETS).get("readyReplicas") == 2)
        assert image("w-0") == "i"


def job(**spec: Any) -> Object:
    created = template(**spec.pop("pod", {"phase": "Succeeded"}))
    created["spec"]["restartPolicy"] = "Never"
    created["metadata"]["labels"] = {"job": "w"}
    return {
        "template": created,
        "selector": {"matchLabels": {"job": "w"}},
        "manualSelector": True,
        **spec,
    }


def condition(plane: HeadlessPlane, kind: str) -> Object:
    return dict(find_condition(status(plane, JOBS).get("conditions"), kind) or {})


async def test_job_completes() -> None:
    async with headless_plane("job", "pods") as plane:
        await plane.create("w", resource=JOBS, spec=job(completions=3, parallelism=2))
        await plane.until(lambda: condition(plane, "Complete").get("status") == "True")
        assert status(plane, JOBS)["succeeded"] == 3
        assert status(plane, JOBS)["completionTime"]
        await plane.until(
            lambda: not any(one["metadata"].get("finalizers") for one in plane.list(PODS))
        )


async def test_job_fails_at_its_backoff_limit() -> None:
    async with headless_plane("job", "pods") as plane:
        await plane.create("w", resource=JOBS, spec=job(backoffLimit=1, pod={"phase": "Failed"}))
        await plane.until(lambda: status(plane, JOBS).get("failed") == 1)
        await plane.core.clock.advance(11)
        await plane.until(lambda: condition(plane, "Failed").get("status") == "True")
        assert condition(plane, "Failed")["reason"] == "BackoffLimitExceeded"
        assert status(plane, JOBS)["failed"] == 2


async def test_indexed_job_runs_each_index() -> None:
    async with headless_plane("job", "pods") as plane:
        await plane.create(
            "w", resource=JOBS, spec=job(completions=3, parallelism=3, completionMode="Indexed")
        )
        await plane.until(lambda: condition(plane, "Complete").get("status") == "True")
        assert status(plane, JOBS)["completedIndexes"] == "0-2"


async def test_success_policy_completes_the_job_and_deletes_other_pods() -> None:
    async with headless_plane("job") as plane:
        policy = {
            "rules": [{"succeededIndexes": "1-2", "succeededCount": 2}, {"succeededIndexes": "0"}]
        }
        spec = job(completions=3, parallelism=3, completionMode="Indexed", successPolicy=policy)
        await plane.create("w", resource=JOBS, spec=spec)
        await plane.until(lambda: len(plane.names(PODS)) == 3)
        for index in (1, 0):
            assert not condition(plane, "Complete")
            lead = next(one for one in plane.list(PODS) if annotations_of(one)[INDEX] == str(index))
            await plane.edit(
                lead,
                lambda obj: obj.update(status={"phase": "Succeeded"}),
                PODS,
                subresource="status",
            )
            await plane.until(
                lambda index=index: str(index) in status(plane, JOBS).get("completedIndexes", "")
            )
        await plane.until(lambda: condition(plane, "Complete").get("status") == "True")
        for kind in ("SuccessCriteriaMet", "Complete"):
            assert condition(plane, kind)["reason"] == "SuccessPolicy"
            assert condition(plane, kind)["message"] == "Matched rules at index 1"
        await plane.until(lambda: len(plane.names(PODS)) == 2)


async def test_smaller_indexed_job_loses_its_highest_indexes_and_a_suspended_one_its_start() -> (
    None
):
    async with headless_plane("job", "pods") as plane:
        spec = job(completions=12, parallelism=12, completionMode="Indexed", pod={})
        created = await plane.create("w", resource=JOBS, spec=spec)
        await plane.until(lambda: len(plane.names(PODS)) == 12)
        await plane.edit(
            created, lambda obj: obj["spec"].update(completions=3, parallelism=3), JOBS
        )
        await plane.until(
            lambda: {annotations_of(one)[INDEX] for one in plane.list(PODS)} == {"0", "1", "2"}
        )
        await plane.edit(created, lambda obj: obj["spec"].update(suspend=True), JOBS)
        await plane.until(lambda: condition(plane, "Suspended").get("status") == "True")
        assert plane.names(PODS) == set()
        assert not status(plane, JOBS).keys() & {"failed", "startTime"}
        await plane.edit(created, lambda obj: obj["spec"].update(suspend=False), JOBS)
        await plane.until(lambda: condition(plane, "Suspended").get("status") == "False")
        assert "startTime" in status(plane, JOBS)


async def test_suspended_job_has_no_pods() -> None:
    async with headless_plane("job", "pods") as plane:
        created = await plane.create("w", resource=JOBS, spec=job(suspend=True))
        await plane.until(lambda: condition(plane, "Suspended").get("status") == "True")
        assert plane.names(PODS) == set()
        await plane.edit(created, lambda obj: obj["spec"].update(suspend=False), JOBS)
        await plane.until(lambda: condition(plane, "Complete").get("status") == "True")


async def test_finished_job_is_deleted_after_its_ttl() -> None:
    async with headless_plane("job", "pods", "gc") as plane:
        await plane.create("w", resource=JOBS, spec=job(ttlSecondsAfterFinished=0))
        await plane.until(lambda: plane.get("w", JOBS) is None and not plane.names(PODS))


def test_percentages_are_rounded_up_for_surge_and_down_for_unavailable() -> None:
    assert (
        resolve_int_or_percent("25%", 10, up=True),
        resolve_int_or_percent("25%", 10, up=False),
        resolve_int_or_percent(2, 10, up=True),
    ) == (3, 2, 2)
    assert surge_and_unavailable({"replicas": 10}) == (3, 2)
    assert surge_and_unavailable(
        {"replicas": 1, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}}}
    ) == (0, 1)


def test_template_hash_depends_on_the_template() -> None:
    assert template_hash({"a": 1}) == template_hash({"a": 1}) != template_hash({"a": 2})
    assert len(template_hash({})) == 10


async def test_requests_are_handled_between_the_writes_of_controllers() -> None:
    async with headless_plane("job", "pods") as plane:
        spec = {"parallelism": 40, "completions": 40, "template": template()}
        spec["template"]["spec"]["restartPolicy"] = "Never"
        await plane.create("many", resource=JOBS, spec=spec)
        for _ in range(30):
            known = len(plane.list(PODS))
            await asyncio.sleep(0)  # what a request waits for
            assert len(plane.list(PODS)) <= known + 1
        await plane.until(lambda: len(plane.list(PODS)) == 40)
