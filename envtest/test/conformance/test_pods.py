"""Pods: their life, status, generation and scheduling, and taints that evict them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envtest import ControlPlane
from test.conformance.client import SpecClient, matching
from test.conformance.specs import plays

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/{}/pods"


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "pause", "image": "pause:3.10"}],
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }


def requesting(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return pod(
        name, containers=[{"name": "pause", "image": "pause:3.10", "resources": resources}], **spec
    )


def is_ready(body: dict[str, Any]) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_unschedulable(body: dict[str, Any]) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(
        each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable"
        for each in conditions
    )


@plays(
    "Pods should be submitted and removed", "Pods should get a host IP", "Pods should be updated"
)
async def test_life_of_a_pod(client: SpecClient, namespace: str) -> None:
    path = PODS.format(namespace)
    one = f"{path}/submit"
    async with client.watching(path, labelSelector="time=1") as watch:
        await client.create(path, pod("submit", {"time": "1"}, terminationGracePeriodSeconds=30))
        assert (await watch.event())["type"] == "ADDED"
        running = await matching(watch, "MODIFIED", is_ready)
        assert running["status"]["phase"] == "Running"
        assert running["status"]["hostIP"]
        assert await client.names(path, labelSelector="time=1") == ["submit"]
        await client.update(one, lambda obj: obj["metadata"]["labels"].update(more="2"))
        assert await client.names(path, labelSelector="more=2") == ["submit"]
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 30}
        deleted = await client.delete(one, options)
        assert (deleted.code, bool(deleted.body["metadata"]["deletionTimestamp"])) == (200, True)
        last = await matching(watch, "DELETED", lambda obj: obj["metadata"]["name"] == "submit")
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0
    assert await client.names(path, labelSelector="time=1") == []


@plays(
    "Pods should run through the lifecycle of Pods and PodStatus", "Pods should patch a pod status"
)
async def test_status_of_a_pod(client: SpecClient, namespace: str) -> None:
    path = PODS.format(namespace)
    one = f"{path}/pod-test"
    async with client.watching(path, labelSelector="test-pod-static=true") as watch:
        await client.create(path, pod("pod-test", {"test-pod-static": "true"}))
        await matching(watch, "MODIFIED", is_ready)
        patch = {
            "metadata": {"labels": {"test-pod": "patched"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "pause", "image": "agnhost:2"}],
            },
        }
        # The grace period of a running pod cannot change.
        assert (await client.strategic(one, patch)).code == 422
        del patch["spec"]["terminationGracePeriodSeconds"]  # type: ignore[attr-defined]
        patched = await client.strategic(one, patch)
        assert patched.body["spec"]["containers"][0]["image"] == "agnhost:2"
        await matching(
            watch, "MODIFIED", lambda obj: obj["metadata"]["labels"].get("test-pod") == "patched"
        )
        status = await client.read(f"{one}/status")
        for condition in status["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition["status"] = "False"
        assert (await client.put(f"{one}/status", status)).code == 200
        await matching(watch, "MODIFIED", lambda obj: not is_ready(obj))
        message = {"status": {"message": "Patched by e2e test", "reason": "E2E"}}
        assert (await client.strategic(f"{one}/status", message)).body["status"]["reason"] == "E2E"
        assert (
            await client.delete(path, query={"labelSelector": "test-pod-static=true"})
        ).code == 200
        await matching(watch, "DELETED", lambda obj: obj["metadata"]["name"] == "pod-test")


@plays(
    "Pods Extended Pods Set QOS Class should be set on Pods with matching resource requests and limits for memory and"
    " cpu"
)
async def test_quality_of_service_of_a_pod(client: SpecClient, namespace: str) -> None:
    amounts = {"cpu": "100m", "memory": "100Mi"}
    container = {
        "name": "c",
        "image": "agnhost",
        "resources": {"requests": amounts, "limits": amounts},
    }
    created = await client.create(PODS.format(namespace), pod("qos", containers=[container]))
    assert created["status"]["qosClass"] == "Guaranteed"


@plays(
    "Pods Extended (pod generation) Pod Generation custom-set generation on new pods and graceful delete",
    "Pods Extended (pod generation) Pod Generation pod generation should start at 1 and increment per update",
)
async def test_generation_of_a_pod(client: SpecClient, namespace: str) -> None:
    path = PODS.format(namespace)
    one = f"{path}/generation"
    body = pod("generation", terminationGracePeriodSeconds=30)
    body["metadata"]["generation"] = 100
    body["metadata"]["finalizers"] = ["e2e.example.com/finalizer"]
    assert (await client.create(path, body))["metadata"]["generation"] == 1
    await client.eventually(one, is_ready)

    async def write(change: Any, expected: int) -> None:
        assert (await client.update(one, change))["metadata"]["generation"] == expected
        await client.eventually(
            one, lambda body: body["status"].get("observedGeneration") == expected
        )

    toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    await write(lambda obj: obj["spec"]["tolerations"].append(toleration), 2)
    await write(lambda obj: obj["spec"]["containers"][0].update(image="agnhost:2"), 3)
    await write(lambda obj: obj["spec"].update(activeDeadlineSeconds=3000), 4)
    await write(lambda obj: obj["metadata"].update(annotations={"key": "value"}), 4)
    assert (await client.delete(one)).code == 200
    assert (await client.read(one))["metadata"]["generation"] == 5
    await client.update(one, lambda obj: obj["metadata"].pop("finalizers"))
    await client.vanished(one)


@plays("Pods should allow activeDeadlineSeconds to be updated")
async def test_active_deadline_of_a_pod(
    cluster: ControlPlane, client: SpecClient, namespace: str
) -> None:
    path = PODS.format(namespace)
    await client.create(path, pod("deadline"))
    await client.eventually(f"{path}/deadline", is_ready)
    await client.update(f"{path}/deadline", lambda obj: obj["spec"].update(activeDeadlineSeconds=5))
    await cluster.advance(6)
    failed = await client.eventually(
        f"{path}/deadline", lambda body: body["status"]["phase"] == "Failed"
    )
    assert failed["status"]["reason"] == "DeadlineExceeded"


@plays(
    "SchedulerPredicates validates that NodeSelector is respected if matching",
    "SchedulerPredicates validates that NodeSelector is respected if not matching",
    "SchedulerPredicates validates resource limits of pods that are allowed to run",
)
async def test_nodes_of_pods(client: SpecClient, namespace: str) -> None:
    path = PODS.format(namespace)
    node = (await client.names(NODES))[1]
    await client.strategic(f"{NODES}/{node}", {"metadata": {"labels": {"kubernetes.io/e2e": "42"}}})
    await client.create(path, pod("with-labels", nodeSelector={"kubernetes.io/e2e": "42"}))
    placed = await client.eventually(
        f"{path}/with-labels", lambda body: body["spec"].get("nodeName")
    )
    assert placed["spec"]["nodeName"] == node
    await client.create(path, pod("restricted-pod", nodeSelector={"label": "nonempty"}))
    await client.eventually(f"{path}/restricted-pod", is_unschedulable)
    for number in range(2):
        await client.create(path, requesting(f"filler-{number}", "6"))
        await client.eventually(f"{path}/filler-{number}", is_ready)
    await client.create(path, requesting("additional-pod", "4"))
    await client.eventually(f"{path}/additional-pod", is_unschedulable)
    events = f"/api/v1/namespaces/{namespace}/events"
    await client.eventually(
        events,
        lambda body: [each for each in body["items"] if each["reason"] == "FailedScheduling"],
    )


@plays(
    "SchedulerPredicates validates that there exists conflict between pods with same hostPort and protocol but one"
    " using 0.0.0.0 hostIP"
)
async def test_host_ports_conflict(client: SpecClient, namespace: str) -> None:
    path = PODS.format(namespace)
    selector = {"nodeSelector": {"kubernetes.io/hostname": (await client.names(NODES))[0]}}

    def with_port(name: str, address: str) -> dict[str, Any]:
        port = {"hostPort": 54322, "containerPort": 8080, "protocol": "TCP", "hostIP": address}
        return pod(
            name, containers=[{"name": "agnhost", "image": "agnhost", "ports": [port]}], **selector
        )

    await client.create(path, with_port("pod4", "0.0.0.0"))
    await client.eventually(f"{path}/pod4", is_ready)
    await client.create(path, with_port("pod5", "127.0.0.1"))
    await client.eventually(f"{path}/pod5", is_unschedulable)


@plays(
    "NoExecuteTaintManager Single Pod removing taint cancels eviction",
    "NoExecuteTaintManager Multiple Pods evicts pods with minTolerationSeconds",
)
async def test_taints_evict_pods(cluster: ControlPlane, client: SpecClient, namespace: str) -> None:
    path = PODS.format(namespace)
    node = (await client.names(NODES))[0]
    taint = {
        "key": "kubernetes.io/e2e-evict-taint-key",
        "value": "evictTaintVal",
        "effect": "NoExecute",
    }

    def tolerating(name: str, seconds: int) -> dict[str, Any]:
        toleration = {**taint, "operator": "Equal", "tolerationSeconds": seconds}
        return pod(name, nodeName=node, tolerations=[toleration])

    for name, seconds in (("short", 20), ("long", 100)):
        await client.create(path, tolerating(name, seconds))
        await client.eventually(f"{path}/{name}", is_ready)
    one = f"{NODES}/{node}"
    await client.update(one, lambda obj: obj["spec"].setdefault("taints", []).append(taint))
    await cluster.advance(10)
    await client.update(one, lambda obj: obj["spec"].pop("taints"))
    await cluster.advance(60)
    assert await client.names(path) == ["long", "short"]
    await client.update(one, lambda obj: obj["spec"].setdefault("taints", []).append(taint))
    await cluster.advance(21)
    await client.vanished(f"{path}/short")
    assert await client.names(path) == ["long"]


@plays(
    "Pods Extended (pod generation) Pod Generation issue 500 podspec updates and verify generation and"
    " observedGeneration eventually converge"
)
async def test_generation_after_many_updates(client: SpecClient, namespace: str) -> None:
    path = PODS.format(namespace)
    one = f"{path}/generation"
    await client.create(path, pod("generation"))
    for number in range(499):
        patch = {"spec": {"containers": [{"name": "pause", "image": f"pause:{number}"}]}}
        assert (await client.strategic(one, patch)).code == 200
    body = await client.eventually(
        one, lambda body: body["status"].get("observedGeneration") == 500
    )
    assert body["metadata"]["generation"] == 500


@plays(
    "EmptyDir wrapper volumes should not conflict",
    "EmptyDir wrapper volumes should not cause race condition when used for configmaps",
)
async def test_pods_with_volumes_start(client: SpecClient, namespace: str) -> None:
    core, path = f"/api/v1/namespaces/{namespace}", PODS.format(namespace)
    volumes = []
    for number in range(50):
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"racey-{number}"},
            "data": {"k": "v"},
        }
        await client.create(f"{core}/configmaps", body)
        volumes.append({"name": f"racey-{number}", "configMap": {"name": f"racey-{number}"}})
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"k": "dg=="},
    }
    await client.create(f"{core}/secrets", secret)
    volumes.append({"name": "secret-volume", "secret": {"secretName": "s"}})
    mounts = [{"name": each["name"], "mountPath": f"/etc/{each['name']}"} for each in volumes]
    container = {"name": "test", "image": "agnhost", "volumeMounts": mounts}
    await client.create(path, pod("wrapped", containers=[container], volumes=volumes))
    await client.eventually(f"{path}/wrapped", is_ready)


@plays(
    "Kubelet when scheduling a busybox command that always fails in a pod should have an terminated reason",
    "Kubelet when scheduling a busybox command that always fails in a pod should be possible to delete",
)
async def test_pod_with_a_failing_command(client: SpecClient, namespace: str) -> None:
    path = PODS.format(namespace)
    container = {"name": "bin-false", "image": "busybox", "command": ["/bin/false"]}
    await client.create(path, pod("bin-false", containers=[container], restartPolicy="Never"))
    body = await client.eventually(
        f"{path}/bin-false", lambda body: body["status"].get("phase") == "Failed"
    )
    terminated = body["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (1, "Error")
    assert (await client.delete(f"{path}/bin-false")).code == 200
    await client.vanished(f"{path}/bin-false")


@plays(
    "InitContainer should invoke init containers on a RestartAlways pod",
    "InitContainer should invoke init containers on a RestartNever pod",
    "InitContainer should not start app containers and fail the pod if init containers fail on a RestartNever pod",
    "InitContainer should not start app containers if init containers fail on a RestartAlways pod",
)
@pytest.mark.parametrize("policy", ["Always", "Never"])
@pytest.mark.parametrize("fails", [True, False])
async def test_init_containers(
    cluster: ControlPlane, client: SpecClient, namespace: str, policy: str, fails: bool
) -> None:
    def container(name: str, *command: str) -> dict[str, Any]:
        return {"name": name, "image": "busybox", **({"command": list(command)} if command else {})}

    last = container("init2", "/bin/false") if fails else container("init2", "/bin/true")
    app = container("run1") if policy == "Always" else container("run1", "/bin/true")
    spec = {
        "initContainers": [container("init1", "/bin/true"), last],
        "containers": [app],
        "restartPolicy": policy,
    }
    path = f"{PODS.format(namespace)}/pod-init"
    await client.create(path.rpartition("/")[0], pod("pod-init", **spec))
    await client.eventually(
        path, lambda body: (body.get("status") or {}).get("initContainerStatuses")
    )
    for _ in range(3):
        await cluster.advance(60)
    status = (await client.read(path))["status"]
    phase = {("Always", False): "Running", ("Never", False): "Succeeded", ("Never", True): "Failed"}
    assert status["phase"] == phase.get((policy, fails), "Pending")
    conditions = {each["type"]: each for each in status["conditions"]}
    assert conditions["Initialized"]["status"] == str(not fails)
    first, second = status["initContainerStatuses"]
    assert (first["ready"], first["state"]["terminated"]["exitCode"]) == (True, 0)
    if not fails:
        assert (second["ready"], second["state"]["terminated"]["exitCode"]) == (True, 0)
        return
    assert conditions["Initialized"]["reason"] == "ContainersNotInitialized"
    assert "init2" in conditions["Initialized"]["message"]
    assert "waiting" in status["containerStatuses"][0]["state"]
    assert (second["restartCount"] >= 3) == (policy == "Always")


@plays(
    "SchedulerPreemption validates basic preemption works",
    "SchedulerPreemption validates lower priority pod preemption by critical pod",
    "SchedulerPreemption validates pod disruption condition is added to the preempted pod",
)
@pytest.mark.parametrize("priority", ["high", "system-cluster-critical"])
async def test_pods_with_priority_preempt_others(
    client: SpecClient, namespace: str, priority: str
) -> None:
    path, classes = PODS.format(namespace), "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in (("low", 1), ("medium", 100), ("high", 1000)):
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
        }
        await client.create(classes, {**body, "value": value})
    for name in ("low", "medium"):
        body = requesting(name, "6", priorityClassName=name)
        body["metadata"]["finalizers"] = ["example.com/test-finalizer"]
        await client.create(path, body)
        await client.eventually(f"{path}/{name}", is_ready)
    # A pod that fits on no node even without the others removes none.
    await client.create(path, requesting("too-large", "60", priorityClassName="high"))
    await client.eventually(f"{path}/too-large", is_unschedulable)
    assert "deletionTimestamp" not in (await client.read(f"{path}/low"))["metadata"]
    await client.create(path, requesting("preemptor", "6", priorityClassName=priority))
    victim = await client.eventually(
        f"{path}/low", lambda body: body["metadata"].get("deletionTimestamp")
    )
    conditions = {each["type"]: each for each in victim["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
    nominated = (await client.read(f"{path}/preemptor"))["status"]["nominatedNodeName"]
    assert nominated == victim["spec"]["nodeName"]
    await client.update(f"{path}/low", lambda obj: obj["metadata"].pop("finalizers"))
    await client.eventually(f"{path}/preemptor", is_ready)
    assert "deletionTimestamp" not in (await client.read(f"{path}/medium"))["metadata"]
    assert (await client.merge(f"{path}/medium", {"metadata": {"finalizers": None}})).code == 200


@pytest.mark.parametrize("kind", ["Binding", "Eviction"])
async def test_fields_of_bindings_and_evictions_are_validated(
    client: SpecClient, namespace: str, kind: str
) -> None:
    path, version = PODS.format(namespace), "v1" if kind == "Binding" else "policy/v1"
    await client.create(path, requesting("a", "1", schedulerName="none"))
    target = (
        {"target": {"kind": "Node", "name": (await client.names(NODES))[0]}}
        if kind == "Binding"
        else {}
    )
    body = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "a", "odd": 1},
        "extra": 1,
        **target,
    }
    text = json.dumps(body)[:-1] + ', "extra": 2}'
    where, problems = (
        f"{path}/a/{kind.lower()}",
        ['unknown field "metadata.odd"', 'unknown field "extra"'],
    )
    strict = await client.request("POST", where, text.encode(), query={"fieldValidation": "Strict"})
    assert (strict.code, strict.body["reason"]) == (400, "BadRequest")
    expected = f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: {", ".join(problems)}'
    assert strict.body["message"] == expected
    wrong = await client.request(
        "POST", where, json.dumps({**body, "metadata": {"name": 1}}).encode()
    )
    assert (wrong.code, "cannot be handled as a" in wrong.body["message"]) == (400, True)
    warned = await client.request("POST", where, text.encode(), query={"dryRun": "All"})
    assert warned.code == 201, warned.body
    warnings = [value for name, value in warned.headers.items() if name == "Warning"]
    assert warnings == [f"299 - {json.dumps(problem)}" for problem in problems]
    ignored = await client.request(
        "POST", where, text.encode(), query={"fieldValidation": "Ignore"}
    )
    assert (ignored.code, ignored.headers.get("Warning")) == (201, None)


@plays(
    "SchedulerPreemption PreemptionExecutionPath runs ReplicaSets to verify preemption running path"
)
async def test_preempted_replica_sets_create_their_pods_once_again(
    cluster: ControlPlane, client: SpecClient, namespace: str
) -> None:
    resource, node = "example.com/fakecpu", (await client.names(NODES))[0]
    assert (
        await client.strategic(f"{NODES}/{node}/status", {"status": {"capacity": {resource: "1k"}}})
    ).code == 200
    for number in range(1, 5):
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"p{number}"},
        }
        await client.create("/apis/scheduling.k8s.io/v1/priorityclasses", {**body, "value": number})

    def on_node(name: str, amount: str) -> dict[str, Any]:
        resources = {"requests": {resource: amount}, "limits": {resource: amount}}
        container = {"name": "pause", "image": "pause:3.10", "resources": resources}
        selector = {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "priorityClassName": f"p{name[-1]}",
        }
        return pod(name, containers=[container], **selector)

    path, sets = PODS.format(namespace), f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    async with client.watching(path) as watch:
        for name, amount in (("pod1", "200"), ("pod2", "300"), ("pod3", "450")):
            spec, labels = on_node(name, amount)["spec"], {"name": name}
            template = {"metadata": {"labels": labels}, "spec": spec}
            body = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": f"rs-{name}"},
            }
            selected = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
            await client.create(sets, {**body, "spec": selected})
            await client.eventually(
                f"{sets}/rs-{name}",
                lambda body: (body.get("status") or {}).get("availableReplicas") == 1,
            )
        await client.create(path, on_node("pod4", "500"))
        await client.eventually(f"{path}/pod4", lambda body: body["spec"].get("nodeName") == node)
        await cluster.advance(60)
        await client.create(path, on_node("end4", "1"))
        seen: list[str] = []
        while "end4" not in seen:
            event = await watch.event(30)
            seen += [event["object"]["metadata"]["name"]] if event["type"] == "ADDED" else []
    counts = [sum(name.startswith(f"rs-pod{number}-") for name in seen) for number in (1, 2, 3)]
    assert counts == [2, 2, 1]
