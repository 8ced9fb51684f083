"""Pods without containers, and what makes them."""

from typing import Any

from envtest.controllers.deployments import resolve_int_or_percent, surge_and_unavailable, template_hash
from envtest.controllers.jobs import _intervals
from envtest.controllers.pod_state import is_ready
from envtest.errors import GroupResource
from envtest.objects import Object, annotations_of, find_condition, labels_of
from envtest.storage import Change
from test.support.planes import Plane, plane

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


def phase(world: Plane, name: str) -> str:
    return ((world.get(name, PODS) or {}).get("status") or {}).get("phase", "")


def status(world: Plane, resource: GroupResource, name: str = "w") -> Object:
    return (world.get(name, resource) or {}).get("status") or {}


async def pod(world: Plane, name: str = "p", **annotations: str) -> Object:
    made = template(**annotations)
    return await world.create(name, resource=PODS, metadata=made["metadata"], spec=made["spec"])


async def test_a_pod_runs_and_is_ready() -> None:
    async with plane("pods") as world:
        await pod(world)
        await world.until(lambda: phase(world, "p") == "Running")
        running = world.get("p", PODS)
        assert running is not None
        assert running["spec"]["nodeName"] == "envtest"
        assert (find_condition(running["status"]["conditions"], "Ready") or {})["status"] == "True"
        assert running["status"]["containerStatuses"][0]["ready"]
        assert running["status"]["podIP"].startswith("10.244.")
        assert world.get("envtest", GroupResource("", "nodes"), "") is not None


async def test_annotations_say_where_a_pod_ends() -> None:
    async with plane("pods") as world:
        await pod(world, "waits", phase="Pending")
        await pod(world, "well", phase="Succeeded")
        await pod(world, "badly", phase="Failed", exit_code="3")
        await pod(world, "busy", ready="false")
        await world.until(lambda: phase(world, "well") == "Succeeded" and phase(world, "badly") == "Failed")
        failed = world.get("badly", PODS)
        assert failed is not None
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        await world.until(lambda: phase(world, "busy") == "Running" and phase(world, "waits") == "Pending")
        conditions = status(world, PODS, "busy")["conditions"]
        assert (find_condition(conditions, "Ready") or {})["status"] == "False"


async def test_an_annotation_that_comes_later_moves_the_pod_on() -> None:
    async with plane("pods") as world:
        made = await pod(world)
        await world.until(lambda: phase(world, "p") == "Running")
        await world.edit(
            made,
            lambda obj: (
                annotations_of(obj).update({"envtest.cfo/phase": "Failed"})
                or obj["metadata"].update(annotations={"envtest.cfo/phase": "Failed"})
            ),
            PODS,
        )
        await world.until(lambda: phase(world, "p") == "Failed")


async def test_a_deleted_pod_goes() -> None:
    async with plane("pods") as world:
        made = await pod(world)
        await world.until(lambda: phase(world, "p") == "Running")
        await world.delete(made, resource=PODS)
        await world.until(lambda: world.get("p", PODS) is None)


async def test_a_replica_set_keeps_its_number() -> None:
    async with plane("replicaset", "pods") as world:
        made = await world.create("w", resource=REPLICA_SETS, spec=workload(replicas=2))
        await world.until(lambda: status(world, REPLICA_SETS).get("readyReplicas") == 2)
        await world.edit(made, lambda obj: obj["spec"].update(replicas=1), REPLICA_SETS)
        await world.until(lambda: len(world.names(PODS)) == 1 and status(world, REPLICA_SETS)["replicas"] == 1)
        await world.delete(world.list(PODS)[0], resource=PODS)
        await world.until(lambda: status(world, REPLICA_SETS).get("readyReplicas") == 1)


async def test_a_replica_set_adopts_and_releases() -> None:
    async with plane("replicaset") as world:
        orphan = await pod(world, "orphan")
        await world.create("w", resource=REPLICA_SETS, spec=workload(replicas=1))
        await world.until(lambda: (world.get("orphan", PODS) or {})["metadata"].get("ownerReferences"))
        assert world.names(PODS) == {"orphan"}
        await world.edit(orphan, lambda obj: obj["metadata"].update(labels={"app": "b"}), PODS)
        await world.until(lambda: not (world.get("orphan", PODS) or {})["metadata"].get("ownerReferences"))
        await world.until(lambda: len(world.names(PODS)) == 2)


async def test_a_deployment_rolls_from_one_template_to_the_next() -> None:
    async with plane("deployment", "pods", "gc") as world:
        made = await world.create("w", resource=DEPLOYMENTS, spec=workload(replicas=3))
        await world.until(lambda: status(world, DEPLOYMENTS).get("availableReplicas") == 3)
        least = 3

        def change(obj: Object) -> None:
            obj["spec"]["template"] = template("new")

        def rolled() -> bool:
            nonlocal least
            least = min(least, status(world, DEPLOYMENTS).get("availableReplicas") or 0)
            images = {one["spec"]["containers"][0]["image"] for one in world.list(PODS)}
            return images == {"new"} and status(world, DEPLOYMENTS).get("updatedReplicas") == 3

        await world.edit(made, change, DEPLOYMENTS)
        await world.until(rolled)
        await world.until(lambda: _progress(world) == "NewReplicaSetAvailable" and len(world.names(PODS)) == 3)
        assert least >= 2
        sets = world.list(REPLICA_SETS)
        assert sorted(annotations_of(each)["deployment.kubernetes.io/revision"] for each in sets) == ["1", "2"]
        assert sorted(each["spec"]["replicas"] for each in sets) == [0, 3]
        assert annotations_of(world.get("w", DEPLOYMENTS) or {})["deployment.kubernetes.io/revision"] == "2"


def _progress(world: Plane) -> str:
    condition = find_condition(status(world, DEPLOYMENTS).get("conditions"), "Progressing")
    return (condition or {}).get("reason", "")


async def test_recreate_stops_the_old_before_it_starts_the_new() -> None:
    async with plane("deployment", "pods") as world:
        made = await world.create("w", resource=DEPLOYMENTS, spec=workload(strategy={"type": "Recreate"}, replicas=2))
        await world.until(lambda: status(world, DEPLOYMENTS).get("availableReplicas") == 2)
        mixed = False

        def images() -> set[str]:
            return {one["spec"]["containers"][0]["image"] for one in world.list(PODS)}

        def done() -> bool:
            nonlocal mixed
            mixed |= len(images()) > 1
            return images() == {"new"} and status(world, DEPLOYMENTS).get("availableReplicas") == 2

        await world.edit(made, lambda obj: obj["spec"].update(template=template("new")), DEPLOYMENTS)
        await world.until(done)
        assert not mixed


async def test_a_rollout_waits_for_pods_that_are_not_ready() -> None:
    async with plane("deployment", "pods") as world:
        made = await world.create("w", resource=DEPLOYMENTS, spec=workload(replicas=2))
        await world.until(lambda: status(world, DEPLOYMENTS).get("availableReplicas") == 2)
        await world.edit(made, lambda obj: obj["spec"].update(template=template("new", ready="false")), DEPLOYMENTS)
        await world.until(lambda: status(world, DEPLOYMENTS).get("updatedReplicas"))
        await world.until(lambda: len([one for one in world.list(PODS) if phase(world, one["metadata"]["name"])]) == 3)
        assert status(world, DEPLOYMENTS)["availableReplicas"] == 2
        assert _progress(world) == "ReplicaSetUpdated"


async def test_a_stateful_set_goes_one_by_one_up_and_down() -> None:
    async with plane("statefulset", "pods") as world:
        claims = [{"metadata": {"name": "data"}, "spec": CLAIM}]
        spec = workload(replicas=3, serviceName="s", volumeClaimTemplates=claims)
        added: list[tuple[str, int]] = []

        def note(resource: GroupResource, change: Change) -> None:
            if resource == PODS and change.type == "ADDED":
                added.append((change.record.name, sum(map(is_ready, world.list(PODS)))))

        world.core.store.journal.append(note)
        made = await world.create("w", resource=STATEFUL_SETS, spec=spec)
        await world.until(lambda: status(world, STATEFUL_SETS).get("readyReplicas") == 3)
        assert added == [("w-0", 0), ("w-1", 1), ("w-2", 2)]
        assert world.names(CLAIMS) == {"data-w-0", "data-w-1", "data-w-2"}
        first = world.get("w-0", PODS)
        assert first is not None
        assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("w-0", "s")
        assert labels_of(first)["apps.kubernetes.io/pod-index"] == "0"
        await world.edit(made, lambda obj: obj["spec"].update(replicas=1), STATEFUL_SETS)
        await world.until(lambda: world.names(PODS) == {"w-0"})


async def test_a_stateful_set_replaces_from_the_last_to_the_partition() -> None:
    async with plane("statefulset", "pods") as world:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        made = await world.create("w", resource=STATEFUL_SETS, spec=workload(replicas=2, updateStrategy=strategy))
        await world.until(lambda: status(world, STATEFUL_SETS).get("readyReplicas") == 2)
        await world.edit(made, lambda obj: obj["spec"].update(template=template("new")), STATEFUL_SETS)

        def image(name: str) -> str:
            found = world.get(name, PODS)
            return found["spec"]["containers"][0]["image"] if found else ""

        await world.until(lambda: image("w-1") == "new" and status(world, STATEFUL_SETS).get("readyReplicas") == 2)
        assert image("w-0") == "i"
        assert status(world, STATEFUL_SETS)["updatedReplicas"] == 1


def job(**spec: Any) -> Object:
    made = template(**spec.pop("pod", {"phase": "Succeeded"}))
    made["spec"]["restartPolicy"] = "Never"
    made["metadata"]["labels"] = {"job": "w"}
    return {"template": made, "selector": {"matchLabels": {"job": "w"}}, "manualSelector": True, **spec}


def condition(world: Plane, kind: str) -> Object:
    return dict(find_condition(status(world, JOBS).get("conditions"), kind) or {})


async def test_a_job_completes() -> None:
    async with plane("job", "pods") as world:
        await world.create("w", resource=JOBS, spec=job(completions=3, parallelism=2))
        await world.until(lambda: condition(world, "Complete").get("status") == "True")
        assert status(world, JOBS)["succeeded"] == 3
        assert status(world, JOBS)["completionTime"]
        await world.until(lambda: not any(one["metadata"].get("finalizers") for one in world.list(PODS)))


async def test_a_job_gives_up() -> None:
    async with plane("job", "pods") as world:
        await world.create("w", resource=JOBS, spec=job(backoffLimit=1, pod={"phase": "Failed"}))
        await world.until(lambda: condition(world, "Failed").get("status") == "True")
        assert condition(world, "Failed")["reason"] == "BackoffLimitExceeded"
        assert status(world, JOBS)["failed"] == 2


async def test_an_indexed_job_runs_each_index() -> None:
    async with plane("job", "pods") as world:
        await world.create("w", resource=JOBS, spec=job(completions=3, parallelism=3, completionMode="Indexed"))
        await world.until(lambda: condition(world, "Complete").get("status") == "True")
        assert status(world, JOBS)["completedIndexes"] == "0-2"


async def test_a_suspended_job_has_no_pods() -> None:
    async with plane("job", "pods") as world:
        made = await world.create("w", resource=JOBS, spec=job(suspend=True))
        await world.until(lambda: condition(world, "Suspended").get("status") == "True")
        assert world.names(PODS) == set()
        await world.edit(made, lambda obj: obj["spec"].update(suspend=False), JOBS)
        await world.until(lambda: condition(world, "Complete").get("status") == "True")


async def test_a_finished_job_can_expire() -> None:
    async with plane("job", "pods", "gc") as world:
        await world.create("w", resource=JOBS, spec=job(ttlSecondsAfterFinished=0))
        await world.until(lambda: world.get("w", JOBS) is None and not world.names(PODS))


def test_percentages_are_rounded_up_for_surge_and_down_for_absence() -> None:
    assert (
        resolve_int_or_percent("25%", 10, up=True),
        resolve_int_or_percent("25%", 10, up=False),
        resolve_int_or_percent(2, 10, up=True),
    ) == (3, 2, 2)
    assert surge_and_unavailable({"replicas": 10}) == (3, 2)
    assert surge_and_unavailable(
        {"replicas": 1, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}}}
    ) == (0, 1)


def test_template_hashes_tell_templates_apart() -> None:
    assert template_hash({"a": 1}) == template_hash({"a": 1}) != template_hash({"a": 2})
    assert len(template_hash({})) == 10


def test_intervals() -> None:
    assert _intervals([0, 2, 3, 4, 7]) == "0,2-4,7"
