"""Binding, eviction, resize and ephemeral containers of pods, as clients observe them, and RuntimeClasses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient

CORE = "/api/v1/namespaces/default"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
async def api() -> AsyncIterator[APIClient]:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as requests:
        yield requests


def pod(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    metadata = {"name": name, "labels": {"app": "x"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def binding(pod_name: str, /, **target: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod_name}, "target": target}


def eviction(name: str, version: str = "policy/v1", **options: Any) -> dict[str, Any]:
    document = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": name}}
    return {**document, "deleteOptions": options} if options else document


async def test_binding_assigns_the_pod_and_copies_labels_of_the_node(api: APIClient) -> None:
    zone = {"topology.kubernetes.io/zone": "z", "other": "label"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": zone}}
    assert (await api.post("/api/v1/nodes", node)).code == 201
    created = (await api.post(f"{CORE}/pods", pod("p", schedulingGates=[{"name": "g"}]))).body
    gated = created["status"]["conditions"][0]
    assert (gated["status"], gated["reason"]) == ("False", "SchedulingGated")
    assert (await api.post(f"{CORE}/pods/p/binding", binding("p", name="n"))).code == 409
    await api.merge(f"{CORE}/pods/p", {"spec": {"schedulingGates": None}})
    assert (await api.post(f"{CORE}/pods/p/binding", binding("q", name="n"))).code == 400
    unnamed = await api.post(f"{CORE}/pods/p/binding", binding("p", kind="Rack"))
    assert (unnamed.code, unnamed.body["message"]) == (
        500,
        '[target.kind: Unsupported value: "Rack": supported values: "Node", "<empty>", target.name: Required value]',
    )
    stale = binding("p", name="n")
    stale["metadata"]["uid"] = "other"
    assert (await api.post(f"{CORE}/pods/p/binding", stale)).code == 409
    assert (await api.post(f"{CORE}/pods/p/binding", binding("p", name="n"))).code == 201
    bound = (await api.get(f"{CORE}/pods/p")).body
    assert bound["spec"]["nodeName"] == "n"
    assert bound["metadata"]["labels"] == {"app": "x", "topology.kubernetes.io/zone": "z"}
    assert bound["metadata"]["generation"] == 2, "a binding does not count"
    condition = bound["status"]["conditions"][0]
    assert (condition["type"], condition["status"], "reason" in condition) == (
        "PodScheduled",
        "True",
        False,
    )


async def test_eviction_spends_the_budget(api: APIClient) -> None:
    for name in ("a", "b", "sick"):
        await api.post(f"{CORE}/pods", pod(name, nodeName="n"))
        ready = {"type": "Ready", "status": "False" if name == "sick" else "True"}
        await api.merge(
            f"{CORE}/pods/{name}/status", {"status": {"phase": "Running", "conditions": [ready]}}
        )
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": spec,
    }
    await api.post(BUDGETS, budget)
    early = await api.post(f"{CORE}/pods/a/eviction", eviction("a"))
    assert (early.code, early.headers["Retry-After"]) == (429, "10")
    observed = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
    }
    await api.merge(f"{BUDGETS}/b/status", {"status": observed})

    odd = await api.post(f"{CORE}/pods/a/eviction", eviction("a", propagationPolicy="Odd"))
    assert odd.code == 422
    assert (await api.post(f"{CORE}/pods/a/eviction", eviction("a", dryRun=["All"]))).code == 201
    assert (await api.get(f"{BUDGETS}/b")).body["status"]["disruptionsAllowed"] == 1
    assert (await api.post(f"{CORE}/pods/a/eviction", eviction("a", "policy/v1beta1"))).code == 201
    evicted = (await api.get(f"{CORE}/pods/a")).body
    assert evicted["metadata"]["deletionTimestamp"]
    assert [each["type"] for each in evicted["status"]["conditions"]] == [
        "Ready",
        "DisruptionTarget",
    ]
    status = (await api.get(f"{BUDGETS}/b")).body["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["a"])

    rejected = await api.post(f"{CORE}/pods/b/eviction", eviction("b"))
    assert (rejected.code, "Retry-After" in rejected.headers) == (429, False)
    assert rejected.body["details"]["causes"][0]["message"] == (
        "The disruption budget b does not allow evicting pods currently"
    )
    assert (await api.post(f"{CORE}/pods/sick/eviction", eviction("sick"))).code == 201, (
        "it does not count"
    )


async def test_subresources_change_their_part_of_the_pod(api: APIClient) -> None:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    await api.post(f"{CORE}/pods", pod("p", containers=containers))
    change = [{"name": "c", "image": "j", "resources": {"requests": {"cpu": "2"}}}]
    resized = await api.merge(f"{CORE}/pods/p/resize", {"spec": {"containers": change}})
    container = resized.body["spec"]["containers"][0]
    assert (container["image"], container["resources"]) == ("i", {"requests": {"cpu": "2"}})
    debugger = {"name": "d", "image": "i", "targetContainerName": "c"}
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"ephemeralContainers": [debugger]}}
    debugged = await api.merge(f"{CORE}/pods/p/ephemeralcontainers", patch)
    assert debugged.body["spec"]["ephemeralContainers"][0]["name"] == "d"
    assert debugged.body["metadata"]["labels"] == {"app": "x"}


@pytest.mark.parametrize("subresource", ["status", "resize", "ephemeralcontainers"])
async def test_subresources_of_pods_do_not_change_their_deletion(
    plane: ControlPlane, subresource: str
) -> None:
    path = f"{CORE}/pods/p"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "o"}
    ignored = {"deletionTimestamp": "2030-01-01T00:00:00Z", "ownerReferences": [owner]}
    async with APIClient(plane) as api:
        await api.post(f"{CORE}/serviceaccounts", {"metadata": {"name": "default"}})
        created = await api.post(f"{CORE}/pods", pod("p"))
        assert created.code == 201, created
        updated = await api.merge(f"{path}/{subresource}", {"metadata": ignored})
        assert updated.code == 200, updated
        assert not updated.body["metadata"].keys() & ignored.keys()
        grace = {"metadata": {"deletionGracePeriodSeconds": 0}}
        refused = await api.merge(f"{path}/{subresource}", grace)
        message = "metadata.deletionGracePeriodSeconds: Invalid value: 0: field is immutable"
        assert (refused.code, message in refused.body["message"]) == (422, True)


async def test_runtime_class_completes_pods(api: APIClient) -> None:
    toleration = {"key": "sandbox", "operator": "Exists"}
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "rc"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {"nodeSelector": {"sandbox": "yes"}, "tolerations": [toleration]},
    }
    assert (await api.post("/apis/node.k8s.io/v1/runtimeclasses", runtime_class)).code == 201
    spec = (await api.post(f"{CORE}/pods", pod("p", runtimeClassName="rc"))).body["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "100m"}, {"sandbox": "yes"})
    assert toleration in spec["tolerations"]
    for rejected in (
        pod("q", runtimeClassName="none"),
        pod("q", runtimeClassName="rc", nodeSelector={"sandbox": "no"}),
        pod("q", runtimeClassName="rc", overhead={"cpu": "1"}),
        pod("q", overhead={"cpu": "1"}),
    ):
        assert (await api.post(f"{CORE}/pods", rejected)).code == 403


async def test_system_priority_classes_exist_and_stay(api: APIClient) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"
    assert (await api.get(path)).body["value"] == 2_000_001_000
    assert (await api.request("DELETE", path)).code == 403
