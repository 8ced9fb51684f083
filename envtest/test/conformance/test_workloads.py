"""Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs, and budgets of their pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from envtest import ControlPlane
from test.conformance.client import SpecClient, matching
from test.conformance.specs import plays

APPS = "/apis/apps/v1/namespaces/{}"
BATCH = "/apis/batch/v1/namespaces/{}"
PODS = "/api/v1/namespaces/{}/pods"
LABELS = {"app": "sample"}
REVISION = "deployment.kubernetes.io/revision"
HTTPD, AGNHOST = (
    "registry.k8s.io/e2e-test-images/httpd:2.4.38",
    "registry.k8s.io/e2e-test-images/agnhost:2.53",
)


def template(labels: dict[str, str] = LABELS, image: str = HTTPD, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "httpd", "image": image}]
    return {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": containers, **spec},
    }


def workload(kind: str, name: str, labels: dict[str, str] = LABELS, **spec: Any) -> dict[str, Any]:
    """Return an object of a kind in apps/v1 with a selector and a template."""
    spec = {"selector": {"matchLabels": labels}, "template": template(labels), **spec}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def status_is(**expected: Any) -> Callable[[Any], bool]:
    """Return a condition: the status has these fields and was written for the current generation."""

    def holds(body: Any) -> bool:
        status = body.get("status") or {}
        is_current = status.get("observedGeneration") == body["metadata"].get("generation")
        return bool(is_current and {key: status.get(key) for key in expected} == expected)

    return holds


KINDS = {
    "deployments": ("Deployment", {"replicas": 1}, {"readyReplicas": 1}),
    "replicasets": ("ReplicaSet", {"replicas": 1}, {"readyReplicas": 1}),
    "statefulsets": ("StatefulSet", {"replicas": 1, "serviceName": "test"}, {"readyReplicas": 1}),
    "daemonsets": ("DaemonSet", {}, {"numberReady": 2}),
}


@plays(
    "Deployment should validate Deployment Status endpoints",
    "ReplicaSet should validate Replicaset Status endpoints",
    "StatefulSet Basic StatefulSet functionality should validate Statefulset Status endpoints",
    "Daemon set should verify changes to a daemon set status",
)
@pytest.mark.parametrize("plural", KINDS)
async def test_status_is_updated_and_patched(
    client: SpecClient, namespace: str, plural: str
) -> None:
    kind, spec, ready = KINDS[plural]
    path = f"{APPS.format(namespace)}/{plural}"
    one = f"{path}/test"
    await client.create(path, workload(kind, "test", **spec))
    await client.eventually(one, status_is(**ready))
    assert (await client.read(f"{one}/status"))["kind"] == kind
    condition = {
        "type": "StatusUpdate",
        "status": "True",
        "reason": "E2E",
        "message": "Set from e2e test",
    }

    def change(obj: dict[str, Any]) -> None:
        obj["status"].setdefault("conditions", []).append(condition)

    async with client.watching(path, labelSelector="app=sample") as watch:
        updated = await client.update(one, change, "/status")
        assert "StatusUpdate" in [each["type"] for each in updated["status"]["conditions"]]

        def has(kind: str) -> Callable[[Any], bool]:
            return lambda obj: (
                kind in [each["type"] for each in obj["status"].get("conditions") or ()]
            )

        await matching(watch, "MODIFIED", has("StatusUpdate"))
        patch = {"status": {"conditions": [{"type": "StatusPatched", "status": "True"}]}}
        assert (await client.merge(f"{one}/status", patch)).code == 200
        await matching(watch, "MODIFIED", has("StatusPatched"))


@plays(
    "Deployment Deployment should have a working scale subresource",
    "ReplicaSet Replicaset should have a working scale subresource",
    "StatefulSet Basic StatefulSet functionality should have a working scale subresource",
)
@pytest.mark.parametrize("plural", ["deployments", "replicasets", "statefulsets"])
async def test_scale_is_read_updated_and_patched(
    client: SpecClient, namespace: str, plural: str
) -> None:
    kind, spec, ready = KINDS[plural]
    path = f"{APPS.format(namespace)}/{plural}"
    one = f"{path}/test"
    await client.create(path, workload(kind, "test", **spec))
    await client.eventually(one, status_is(**ready))
    scale = await client.read(f"{one}/scale")
    assert (scale["spec"], scale["status"]) == (
        {"replicas": 1},
        {"replicas": 1, "selector": "app=sample"},
    )
    scale["metadata"].pop("resourceVersion")
    scale["spec"]["replicas"] = 2
    assert (await client.put(f"{one}/scale", scale)).body["spec"] == {"replicas": 2}
    await client.eventually(one, status_is(readyReplicas=2))
    patched = await client.strategic(f"{one}/scale", {"spec": {"replicas": 4}})
    assert (patched.code, patched.body["spec"]) == (200, {"replicas": 4})
    await client.eventually(one, status_is(readyReplicas=4))


@plays(
    "ReplicaSet should list and delete a collection of ReplicaSets",
    "StatefulSet Basic StatefulSet functionality should list, patch and delete a collection of StatefulSets",
    "Daemon set should list and delete a collection of DaemonSets",
)
@pytest.mark.parametrize("plural", ["replicasets", "statefulsets", "daemonsets"])
async def test_workloads_are_listed_patched_and_deleted(
    client: SpecClient, namespace: str, plural: str
) -> None:
    kind, spec, ready = KINDS[plural]
    path = f"{APPS.format(namespace)}/{plural}"
    await client.create(path, workload(kind, "test", **spec))
    await client.eventually(f"{path}/test", status_is(**ready))
    assert await client.names(f"/apis/apps/v1/{plural}", labelSelector="app=sample") == ["test"]
    patch = {
        "metadata": {"labels": {"test": "patched"}},
        "spec": {"template": template(image=AGNHOST)},
    }
    patched = await client.strategic(f"{path}/test", patch)
    assert patched.body["spec"]["template"]["spec"]["containers"][0]["image"] == AGNHOST
    assert (await client.delete(path, query={"labelSelector": "app=sample"})).code == 200
    await client.eventually(path, lambda body: not body["items"])
    await client.eventually(PODS.format(namespace), lambda body: not body["items"])


@plays("Deployment should run the lifecycle of a Deployment")
async def test_lifecycle_of_a_deployment(client: SpecClient, namespace: str) -> None:
    path = f"{APPS.format(namespace)}/deployments"
    one = f"{path}/test-deployment"
    async with client.watching(path, labelSelector="test-deployment-static=true") as watch:
        body = workload(
            "Deployment", "test-deployment", {"test-deployment-static": "true"}, replicas=2
        )
        await client.create(path, body)
        await matching(watch, "MODIFIED", lambda obj: (obj["status"].get("availableReplicas")) == 2)
        patch = {
            "metadata": {"labels": {"test-deployment": "patched"}},
            "spec": {
                "replicas": 1,
                "template": {
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{"name": "httpd", "image": AGNHOST}],
                    }
                },
            },
        }
        assert (await client.strategic(one, patch)).code == 200
        await matching(watch, "MODIFIED", status_is(readyReplicas=1, replicas=1))
        await client.update(one, lambda obj: obj["spec"].update(replicas=2))
        # two replicas can also be ready before the rollout has deleted the pod of the old template
        await matching(watch, "MODIFIED", status_is(readyReplicas=2, updatedReplicas=2))
        status = {
            "metadata": {"labels": {"test-deployment": "patched"}},
            "status": {"readyReplicas": 2},
        }
        assert (await client.strategic(f"{one}/status", status)).code == 200
        assert (await client.read(f"{one}/status"))["status"]["readyReplicas"] == 2
        await client.update(
            one, lambda obj: obj["metadata"]["labels"].update({"test-deployment": "updated"})
        )
        assert (
            await client.delete(path, query={"labelSelector": "test-deployment-static=true"})
        ).code == 200
        await matching(watch, "DELETED", lambda obj: obj["metadata"]["name"] == "test-deployment")


async def replica_sets(client: SpecClient, namespace: str) -> dict[int, dict[str, Any]]:
    """Return the ReplicaSets by revision."""
    items = (await client.read(f"{APPS.format(namespace)}/replicasets"))["items"]
    return {int(each["metadata"]["annotations"][REVISION]): each for each in items}


@plays(
    "Deployment RollingUpdateDeployment should delete old pods and create new ones",
    "Deployment deployment should support rollover",
    "Deployment deployment should delete old replica sets",
)
@pytest.mark.parametrize("keeps", [True, False])
async def test_deployment_adopts_a_replica_set_and_replaces_it(
    client: SpecClient, namespace: str, keeps: bool
) -> None:
    apps = APPS.format(namespace)
    revision = "3546343826724305832"
    replica_set = workload("ReplicaSet", "test-rolling-update-controller", replicas=1)
    replica_set["metadata"]["annotations"] = {REVISION: revision}
    await client.create(f"{apps}/replicasets", replica_set)
    await client.eventually(
        f"{apps}/replicasets/test-rolling-update-controller", status_is(readyReplicas=1)
    )
    history = {} if keeps else {"revisionHistoryLimit": 0}
    body = workload("Deployment", "test", replicas=1, template=template(image=AGNHOST), **history)
    await client.create(f"{apps}/deployments", body)
    done = await client.eventually(
        f"{apps}/deployments/test", status_is(updatedReplicas=1, availableReplicas=1, replicas=1)
    )
    assert done["metadata"]["annotations"][REVISION] == str(int(revision) + 1)
    if not keeps:
        await client.eventually(f"{apps}/replicasets", lambda body: len(body["items"]) == 1)
        return
    sets = await replica_sets(client, namespace)
    assert [each["spec"]["replicas"] for _, each in sorted(sets.items())] == [0, 1]
    assert sets[int(revision)]["metadata"]["ownerReferences"][0]["uid"] == done["metadata"]["uid"]


@plays("Deployment RecreateDeployment should delete old pods and create new ones")
async def test_deployment_recreates_pods(client: SpecClient, namespace: str) -> None:
    path = f"{APPS.format(namespace)}/deployments"
    body = workload("Deployment", "test", replicas=1, strategy={"type": "Recreate"})
    await client.create(path, body)
    await client.eventually(f"{path}/test", status_is(availableReplicas=1))
    async with client.watching(PODS.format(namespace)) as watch:
        update = {
            "spec": {"template": {"spec": {"containers": [{"name": "httpd", "image": AGNHOST}]}}}
        }
        assert (await client.strategic(f"{path}/test", update)).code == 200
        deleted = False
        while True:
            event = await watch.event(30)
            deleted = deleted or event["type"] == "DELETED"
            if event["type"] == "ADDED":
                break
        assert deleted, "a new pod was created before the old one was deleted"
    await client.eventually(
        f"{path}/test", status_is(updatedReplicas=1, availableReplicas=1, replicas=1)
    )


@plays("Deployment deployment should support proportional scaling")
async def test_deployment_scales_proportionally(client: SpecClient, namespace: str) -> None:
    path = f"{APPS.format(namespace)}/deployments"
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    await client.create(path, workload("Deployment", "test", replicas=10, strategy=strategy))
    await client.eventually(f"{path}/test", status_is(availableReplicas=10))
    stuck = {"containers": [{"name": "httpd", "image": "webserver:404"}]}
    assert (
        await client.strategic(f"{path}/test", {"spec": {"template": {"spec": stuck}}})
    ).code == 200

    async def sizes(expected: tuple[int, int]) -> None:
        """Wait until the old and the new ReplicaSet have these sizes."""

        def sized(body: Any) -> bool:
            found = {
                each["metadata"]["annotations"][REVISION]: each["spec"]["replicas"]
                for each in body["items"]
            }
            return found == dict(zip(("1", "2"), expected, strict=True))

        await client.eventually(f"{APPS.format(namespace)}/replicasets", sized)

    await sizes((8, 5))
    await client.update(f"{path}/test", lambda obj: obj["spec"].update(replicas=30))
    await sizes((20, 13))


@plays("ReplicaSet Replace and Patch tests")
async def test_replica_set_is_scaled_and_patched(client: SpecClient, namespace: str) -> None:
    path = f"{APPS.format(namespace)}/replicasets"
    await client.create(path, workload("ReplicaSet", "test-rs", replicas=1))
    await client.eventually(f"{path}/test-rs", status_is(readyReplicas=1))
    await client.update(f"{path}/test-rs/scale", lambda scale: scale["spec"].update(replicas=2))
    await client.eventually(f"{path}/test-rs", status_is(readyReplicas=2))
    patch = {
        "metadata": {"labels": {"test-rs": "patched"}},
        "spec": {"replicas": 3, "template": template(image=AGNHOST)},
    }
    assert (await client.strategic(f"{path}/test-rs", patch)).code == 200
    await client.eventually(f"{path}/test-rs", status_is(readyReplicas=3))


@plays("ReplicaSet should adopt matching pods on creation and release no longer matching pods")
async def test_replica_set_adopts_and_releases_pods(client: SpecClient, namespace: str) -> None:
    pods, path = PODS.format(namespace), f"{APPS.format(namespace)}/replicasets"
    pod = {"apiVersion": "v1", "kind": "Pod", **template()}
    pod["metadata"] = {"name": "orphan", "labels": LABELS}
    await client.create(pods, pod)
    owner = await client.create(path, workload("ReplicaSet", "test", replicas=1))
    adopted = await client.eventually(
        f"{pods}/orphan", lambda body: body["metadata"].get("ownerReferences")
    )
    assert adopted["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    await client.update(f"{pods}/orphan", lambda obj: obj["metadata"]["labels"].update(app="other"))
    await client.eventually(
        f"{pods}/orphan", lambda body: "ownerReferences" not in body["metadata"]
    )


@plays("StatefulSet Basic StatefulSet functionality Should recreate evicted statefulset")
async def test_stateful_set_recreates_a_pod_that_the_node_rejected(
    client: SpecClient, namespace: str
) -> None:
    pods, path = PODS.format(namespace), f"{APPS.format(namespace)}/statefulsets"
    node = (await client.names("/api/v1/nodes"))[0]
    port = [{"name": "conflict", "containerPort": 21017, "hostPort": 21017}]
    taken = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "test-pod"},
        "spec": {"nodeName": node},
    }
    taken["spec"]["containers"] = [{"name": "webserver", "image": HTTPD, "ports": port}]  # type: ignore[index]
    await client.create(pods, taken)
    await client.eventually(
        f"{pods}/test-pod", lambda body: body["status"].get("phase") == "Running"
    )
    spec = template()
    spec["spec"] |= {
        "nodeName": node,
        "containers": [{"name": "webserver", "image": HTTPD, "ports": port}],
    }
    async with client.watching(pods) as watch:
        await client.create(
            path, workload("StatefulSet", "ss", replicas=1, serviceName="test", template=spec)
        )
        first = await matching(watch, "ADDED", lambda obj: obj["metadata"]["name"] == "ss-0")
        await matching(
            watch, "MODIFIED", lambda obj: (obj.get("status") or {}).get("phase") == "Failed"
        )
        await matching(
            watch, "ADDED", lambda obj: obj["metadata"]["uid"] != first["metadata"]["uid"]
        )
    assert (await client.delete(f"{pods}/test-pod")).code == 200
    await client.eventually(
        f"{pods}/ss-0",
        lambda body: body["kind"] == "Pod" and body["status"].get("phase") == "Running",
    )


async def running(client: SpecClient, namespace: str, count: int) -> list[dict[str, Any]]:
    """Wait until there are this many pods, and all run."""

    def all_run(body: Any) -> bool:
        phases = [(pod.get("status") or {}).get("phase") for pod in body["items"]]
        return phases == ["Running"] * count

    items: list[dict[str, Any]] = (await client.eventually(PODS.format(namespace), all_run))[
        "items"
    ]
    return items


@plays(
    "Daemon set should run and stop simple daemon",
    "Daemon set should retry creating failed daemon pods",
)
async def test_daemon_pods_are_replaced(client: SpecClient, namespace: str) -> None:
    await client.create(f"{APPS.format(namespace)}/daemonsets", workload("DaemonSet", "daemon-set"))
    first, second = await running(client, namespace, 2)
    assert {first["spec"]["nodeName"], second["spec"]["nodeName"]} == set(
        await client.names("/api/v1/nodes")
    )
    assert (
        await client.delete(f"{PODS.format(namespace)}/{first['metadata']['name']}")
    ).code == 200
    await client.vanished(f"{PODS.format(namespace)}/{first['metadata']['name']}")
    await running(client, namespace, 2)
    failed = f"{PODS.format(namespace)}/{second['metadata']['name']}"
    await client.update(failed, lambda obj: obj["status"].update(phase="Failed"), "/status")
    await client.vanished(failed)
    await running(client, namespace, 2)


@plays("Daemon set should run and stop complex daemon")
async def test_daemon_pods_follow_the_labels_of_nodes(client: SpecClient, namespace: str) -> None:
    path = f"{APPS.format(namespace)}/daemonsets"
    body = workload("DaemonSet", "daemon-set")
    body["spec"]["template"]["spec"]["nodeSelector"] = {"daemonset-color": "blue"}
    await client.create(path, body)
    node = f"/api/v1/nodes/{(await client.names('/api/v1/nodes'))[0]}"
    await client.eventually(f"{path}/daemon-set", status_is(desiredNumberScheduled=0))
    assert await client.names(PODS.format(namespace)) == []
    await client.update(
        node,
        lambda obj: obj["metadata"].setdefault("labels", {}).update({"daemonset-color": "blue"}),
    )
    await running(client, namespace, 1)
    await client.update(
        node, lambda obj: obj["metadata"]["labels"].update({"daemonset-color": "green"})
    )
    await client.eventually(PODS.format(namespace), lambda body: not body["items"])
    patch = {
        "spec": {
            "template": {"spec": {"nodeSelector": {"daemonset-color": "green"}}},
            "updateStrategy": {"type": "RollingUpdate"},
        }
    }
    assert (await client.strategic(f"{path}/daemon-set", patch)).code == 200
    await running(client, namespace, 1)


@plays("Daemon set should rollback without unnecessary restarts")
async def test_daemon_pods_are_not_restarted_by_a_rollback(
    client: SpecClient, namespace: str
) -> None:
    path = f"{APPS.format(namespace)}/daemonsets"
    await client.create(
        path, workload("DaemonSet", "daemon-set", updateStrategy={"type": "RollingUpdate"})
    )
    await running(client, namespace, 2)

    async def use(image: str) -> None:
        patch = {
            "spec": {"template": {"spec": {"containers": [{"name": "httpd", "image": image}]}}}
        }
        assert (await client.strategic(f"{path}/daemon-set", patch)).code == 200

    await use("foo:non-existent")

    def images(body: Any) -> list[str]:
        return sorted(pod["spec"]["containers"][0]["image"] for pod in body["items"])

    pods = PODS.format(namespace)
    found = await client.eventually(pods, lambda body: images(body) == ["foo:non-existent", HTTPD])
    (kept,) = [pod for pod in found["items"] if pod["spec"]["containers"][0]["image"] == HTTPD]
    await use(HTTPD)
    items = await running(client, namespace, 2)
    assert images({"items": items}) == [HTTPD, HTTPD]
    assert kept["metadata"]["uid"] in [pod["metadata"]["uid"] for pod in items]


@plays("Daemon set should update pod when spec was updated and update strategy is RollingUpdate")
async def test_daemon_pods_are_updated(client: SpecClient, namespace: str) -> None:
    path = f"{APPS.format(namespace)}/daemonsets"
    await client.create(
        path, workload("DaemonSet", "daemon-set", updateStrategy={"type": "RollingUpdate"})
    )
    await running(client, namespace, 2)
    revisions = f"{APPS.format(namespace)}/controllerrevisions"
    (first,) = (await client.read(revisions))["items"]
    assert first["metadata"]["labels"]["controller-revision-hash"]
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "httpd", "image": AGNHOST}]}}}}
    assert (await client.strategic(f"{path}/daemon-set", patch)).code == 200
    await client.eventually(
        f"{path}/daemon-set", status_is(updatedNumberScheduled=2, numberAvailable=2)
    )
    await client.eventually(
        revisions, lambda body: sorted(each["revision"] for each in body["items"]) == [1, 2]
    )


@pytest.mark.parametrize("plural", ["daemonsets", "statefulsets"])
async def test_revisions_are_renumbered_after_a_rollback_and_limited(
    client: SpecClient, namespace: str, plural: str
) -> None:
    kind, spec, _ = KINDS[plural]
    path, revisions = (
        f"{APPS.format(namespace)}/{each}" for each in (plural, "controllerrevisions")
    )
    await client.create(path, workload(kind, "test", **spec, revisionHistoryLimit=1))

    async def use(image: str, expected: list[int]) -> None:
        patch = {
            "spec": {"template": {"spec": {"containers": [{"name": "httpd", "image": image}]}}}
        }
        assert (await client.strategic(f"{path}/test", patch)).code == 200
        numbers = lambda body: sorted(each["revision"] for each in body["items"])  # noqa: E731
        await client.eventually(revisions, lambda body: numbers(body) == expected)

    await client.eventually(
        revisions, lambda body: [each["revision"] for each in body["items"]] == [1]
    )
    await use(AGNHOST, [1, 2])
    await use(HTTPD, [2, 3])
    await use("other:1", [3, 4])


@plays("ControllerRevision should manage the lifecycle of a ControllerRevision")
async def test_lifecycle_of_controller_revisions(client: SpecClient, namespace: str) -> None:
    path, revisions = (
        f"{APPS.format(namespace)}/{plural}" for plural in ("daemonsets", "controllerrevisions")
    )
    labels = {"daemonset-name": "e2e"}
    selector = {"labelSelector": "daemonset-name=e2e"}

    async def count(number: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (
            await client.eventually(revisions, lambda body: len(body["items"]) == number, selector)
        )["items"]
        return items

    await client.create(path, workload("DaemonSet", "e2e", labels))
    await running(client, namespace, 2)
    (initial,) = await count(1)
    name = initial["metadata"]["name"]
    patched = await client.strategic(
        f"{revisions}/{name}", {"metadata": {"labels": {name: "patched"}}}
    )
    assert patched.body["metadata"]["labels"][name] == "patched"
    metadata = {
        "name": "e2e-55554444",
        "labels": {**labels, "controller-revision-hash": "55554444"},
        "ownerReferences": initial["metadata"]["ownerReferences"],
    }
    new = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "data": initial["data"],
        "revision": 2,
    }
    await client.create(revisions, new)
    await count(2)
    assert (await client.delete(f"{revisions}/{name}")).code == 200
    (current,) = await count(1)
    name = current["metadata"]["name"]
    await client.update(
        f"{revisions}/{name}", lambda obj: obj["metadata"]["labels"].update({name: "updated"})
    )
    patch = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
    assert (await client.strategic(f"{path}/e2e", patch)).code == 200
    await count(2)
    assert (await client.delete(revisions, query={"labelSelector": f"{name}=updated"})).code == 200
    (last,) = await count(1)
    assert last["revision"] == 3


def job(name: str, **spec: Any) -> dict[str, Any]:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": AGNHOST, "args": ["pause"]}],
    }
    spec = {
        "parallelism": 2,
        "completions": 2,
        "template": {"metadata": {"labels": {"job": name}}, "spec": pod},
        **spec,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


@plays("Job should delete a job", "Job should adopt matching orphans and release non-matching pods")
async def test_job_adopts_releases_and_deletes_its_pods(client: SpecClient, namespace: str) -> None:
    path, pods = f"{BATCH.format(namespace)}/jobs", PODS.format(namespace)
    await client.create(path, job("foo"))
    first, second = await running(client, namespace, 2)
    one = f"{pods}/{first['metadata']['name']}"
    await client.update(one, lambda obj: obj["metadata"].pop("ownerReferences"))
    await client.eventually(one, lambda body: body["metadata"].get("ownerReferences"))
    other = f"{pods}/{second['metadata']['name']}"
    await client.update(other, lambda obj: obj["metadata"].update(labels={"job": "other"}))
    await client.eventually(other, lambda body: "ownerReferences" not in body["metadata"])
    deleted = await client.delete(
        f"{path}/foo",
        {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"},
    )
    assert deleted.code == 200
    await client.vanished(f"{path}/foo")
    await client.eventually(
        pods,
        lambda body: (
            [each["metadata"]["name"] for each in body["items"]] == [second["metadata"]["name"]]
        ),
    )


@plays("Job should create pods for an Indexed job with completion indexes and specified hostname")
async def test_indexed_job(client: SpecClient, namespace: str) -> None:
    path, pods = f"{BATCH.format(namespace)}/jobs", PODS.format(namespace)
    body = job("indexed-job", completionMode="Indexed", completions=4)
    body["spec"]["template"]["spec"]["containers"][0] |= {
        "command": ["/bin/sh", "-c"],
        "args": ["exit 0"],
    }
    await client.create(path, body)
    done = await client.eventually(
        f"{path}/indexed-job", lambda body: body["status"].get("succeeded") == 4
    )
    assert done["status"]["completedIndexes"] == "0-3"
    found = {}
    for pod in (await client.read(pods))["items"]:
        index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        found[index] = pod["spec"]["hostname"]
    assert found == {str(number): f"indexed-job-{number}" for number in range(4)}


@plays(
    "Job with successPolicy should succeeded when all indexes succeeded",
    "Job should terminate job execution when the number of failed indexes exceeds maxFailedIndexes",
)
@pytest.mark.parametrize(
    ("code", "rules", "conditions"),
    [
        (
            0,
            {"successPolicy": {"rules": [{"succeededIndexes": "0-1"}]}},
            [("SuccessCriteriaMet", "SuccessPolicy"), ("Complete", "SuccessPolicy")],
        ),
        (
            1,
            {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0},
            [("FailureTarget", "MaxFailedIndexesExceeded"), ("Failed", "MaxFailedIndexesExceeded")],
        ),
    ],
    ids=["success", "failure"],
)
async def test_policies_of_indexed_jobs(
    client: SpecClient, namespace: str, code: int, rules: dict[str, Any], conditions: Any
) -> None:
    path = f"{BATCH.format(namespace)}/jobs"
    body = job("policy", completionMode="Indexed", **rules)
    body["spec"]["template"]["spec"]["containers"][0] |= {
        "command": ["/bin/sh", "-c"],
        "args": [f"exit {code}"],
    }
    await client.create(path, body)
    done = await client.eventually(
        f"{path}/policy", lambda body: len((body.get("status") or {}).get("conditions") or ()) == 2
    )
    assert [(each["type"], each["reason"]) for each in done["status"]["conditions"]] == conditions


@plays("Job should apply changes to a job status", "Job should manage the lifecycle of a job")
async def test_lifecycle_and_status_of_a_job(client: SpecClient, namespace: str) -> None:
    path = f"{BATCH.format(namespace)}/jobs"
    one = f"{path}/e2e"
    body = job("e2e", suspend=True)
    body["metadata"]["labels"] = {"e2e-job": "e2e"}
    async with client.watching(path) as watch:
        await client.create(path, body)
        await matching(watch, "ADDED", lambda obj: obj["metadata"]["name"] == "e2e")
        patched = await client.strategic(one, {"metadata": {"labels": {"e2e-e2e": "patched"}}})
        assert patched.body["metadata"]["labels"]["e2e-e2e"] == "patched"
        update = {"spec": {"suspend": False}, "metadata": {"annotations": {"updated": "true"}}}
        assert (await client.merge(one, update)).body["metadata"]["annotations"][
            "updated"
        ] == "true"
        await matching(watch, "MODIFIED", lambda obj: obj["status"].get("ready") == 2)
        now = "2026-01-01T00:00:00Z"
        condition = {"type": "CustomConditionType", "status": "True", "lastTransitionTime": now}
        patch = {
            "metadata": {"annotations": {"patchedstatus": "true"}},
            "status": {"conditions": [condition]},
        }
        patched = await client.merge(f"{one}/status", patch)
        assert "CustomConditionType" in [
            each["type"] for each in patched.body["status"]["conditions"]
        ]
        assert patched.body["metadata"]["annotations"]["patchedstatus"] == "true"
        changed = await client.update(
            one, lambda obj: obj["status"].update(startTime=obj["status"]["startTime"]), "/status"
        )
        assert (await client.read(f"{one}/status"))["status"]["conditions"] == changed["status"][
            "conditions"
        ]
        assert await client.names("/apis/batch/v1/jobs", labelSelector="e2e-job=e2e") == ["e2e"]
        assert (
            await client.delete(
                path, query={"labelSelector": "e2e-job=e2e", "propagationPolicy": "Background"}
            )
        ).code == 200
        await matching(watch, "DELETED", lambda obj: obj["metadata"]["name"] == "e2e")


@plays(
    "CronJob should schedule multiple jobs concurrently",
    "CronJob should not schedule new jobs when ForbidConcurrent",
    "CronJob should replace jobs when ReplaceConcurrent",
    "CronJob should not schedule jobs when suspended",
)
@pytest.mark.parametrize(
    ("policy", "suspended", "active"),
    [("Allow", False, 2), ("Forbid", False, 1), ("Replace", False, 1), ("Allow", True, 0)],
)
async def test_concurrency_of_a_cron_job(
    cluster: ControlPlane,
    client: SpecClient,
    namespace: str,
    policy: str,
    suspended: bool,
    active: int,
) -> None:
    batch = BATCH.format(namespace)
    spec = job("x")["spec"] | {"parallelism": 1, "completions": 1}
    body = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "concurrency"},
        "spec": {
            "schedule": "*/1 * * * ?",
            "concurrencyPolicy": policy,
            "suspend": suspended,
            "jobTemplate": {"spec": spec},
        },
    }
    now = await cluster.advance(0)
    await cluster.advance(
        61 - now.second
    )  # one minute begins in each of the next two; Jobs follow it after 0.1 s
    await client.create(f"{batch}/cronjobs", body)
    await cluster.advance(60)
    first = await client.names(f"{batch}/jobs")
    assert len(first) == min(active, 1)
    await cluster.advance(60)
    cron_job = await client.eventually(
        f"{batch}/cronjobs/concurrency",
        lambda body: len((body.get("status") or {}).get("active") or ()) == active,
    )
    jobs = await client.names(f"{batch}/jobs")
    assert (len(jobs), first == jobs) == (active, policy == "Forbid" or suspended)
    assert ("lastScheduleTime" in cron_job["status"]) == (not suspended)


@plays(
    "DisruptionController should observe PodDisruptionBudget status updated",
    "DisruptionController should update/patch PodDisruptionBudget status",
)
async def test_status_of_a_budget(client: SpecClient, namespace: str) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    budget = {
        "metadata": {"name": "foo"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"foo": "bar"}}},
    }
    await client.create(path, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **budget})
    await client.eventually(f"{path}/foo", status_is(disruptionsAllowed=0))
    for number in range(3):
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": template()["spec"]}
        await client.create(
            PODS.format(namespace),
            {**pod, "metadata": {"name": f"pod-{number}", "labels": {"foo": "bar"}}},
        )
    await client.eventually(f"{path}/foo", status_is(disruptionsAllowed=2, currentHealthy=3))
    disrupted = {"pod-0": "2036-01-01T00:00:00Z"}

    await client.update(
        f"{path}/foo", lambda obj: obj["status"].update(disruptedPods=disrupted), "/status"
    )
    patched = await client.merge(
        f"{path}/foo/status", {"status": {"disruptedPods": {"pod-0": None}}}
    )
    assert patched.code == 200
    assert "pod-0" not in patched.body["status"].get("disruptedPods", {})


@plays("DisruptionController should block an eviction until the PDB is updated to allow it")
async def test_eviction_waits_for_the_budget(client: SpecClient, namespace: str) -> None:
    pods = PODS.format(namespace)
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    for number in range(3):
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": template()["spec"]}
        await client.create(
            pods, {**pod, "metadata": {"name": f"pod-{number}", "labels": {"foo": "bar"}}}
        )
    await running(client, namespace, 3)
    budget = {
        "metadata": {"name": "foo"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"foo": "bar"}}},
    }
    await client.create(path, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **budget})
    await client.eventually(f"{path}/foo", status_is(currentHealthy=3, disruptionsAllowed=0))
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "pod-0", "namespace": namespace},
    }
    refused = await client.post(f"{pods}/pod-0/eviction", eviction)
    assert (refused.code, refused.body["details"]["causes"][0]["reason"]) == (
        429,
        "DisruptionBudget",
    )
    await client.update(f"{path}/foo", lambda obj: obj["spec"].update(minAvailable=2))
    await client.eventually(f"{path}/foo", status_is(disruptionsAllowed=1))
    assert (await client.post(f"{pods}/pod-0/eviction", eviction)).code == 201
    assert (await client.merge(f"{path}/foo", {"spec": {"minAvailable": 3}})).code == 200
    await client.eventually(f"{path}/foo", status_is(disruptionsAllowed=0))
    assert (await client.delete(f"{path}/foo")).code == 200
    eviction["metadata"]["name"] = "pod-1"  # type: ignore[index]
    assert (await client.post(f"{pods}/pod-1/eviction", eviction)).code == 201
    await client.eventually(
        pods, lambda body: [each["metadata"]["name"] for each in body["items"]] == ["pod-2"]
    )
