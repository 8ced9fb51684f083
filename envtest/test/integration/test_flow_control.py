"""API priority and fairness: how requests are classified, and the objects that decide it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from envtest import ControlPlane, EmbeddedControlPlane
from envtest.api_client import APIClient, Response

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
ALICE = {"Impersonate-User": "alice"}
EVERYTHING = {
    "verbs": ["*"],
    "apiGroups": ["*"],
    "resources": ["*"],
    "clusterScope": True,
    "namespaces": ["*"],
}


@pytest.fixture
async def plane() -> AsyncIterator[EmbeddedControlPlane]:
    """Run an embedded control plane: kube-apiserver applies such changes a little later."""
    async with ControlPlane.embedded() as running:
        yield running


def schema(name: str, level: str, precedence: int = 1000) -> dict[str, Any]:
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": precedence,
            "rules": [
                {
                    "subjects": [{"kind": "User", "user": {"name": "alice"}}],
                    "resourceRules": [EVERYTHING],
                }
            ],
        },
    }


def level(name: str) -> dict[str, Any]:
    limited = {"nominalConcurrencyShares": 4, "limitResponse": {"type": "Reject"}}
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": limited},
    }


async def names(api: APIClient, response: Response) -> tuple[str, str] | None:
    """Return the names of the objects whose uids are in the headers of a response."""
    uids = (
        response.headers.get("X-Kubernetes-Pf-Flowschema-Uid"),
        response.headers.get("X-Kubernetes-Pf-Prioritylevel-Uid"),
    )
    if uids == (None, None):
        return None
    found: list[str] = []
    for plural, uid in zip(("flowschemas", "prioritylevelconfigurations"), uids, strict=True):
        objects = (await api.get(f"{GROUP}/{plural}")).body["items"]
        found += [each["metadata"]["name"] for each in objects if each["metadata"]["uid"] == uid]
    return found[0], found[1]


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/api/v1/namespaces/default", {}, ("exempt", "exempt")),
        ("/api/v1/namespaces/none", {}, ("exempt", "exempt")),
        ("/none", {}, ("exempt", "exempt")),
        ("/api/v1/namespaces", ALICE, ("global-default", "global-default")),
        ("/healthz/ping", ALICE, ("probes", "exempt")),
        ("/version", ALICE, ("global-default", "global-default")),
        (
            "/apis/coordination.k8s.io/v1/namespaces/n/leases/x",
            {"Impersonate-User": "system:serviceaccount:kube-system:x"},
            ("system-leader-election", "leader-election"),
        ),
        ("/api/v1/namespaces/default/pods/x/log", {}, None),
        ("/api/v1/namespaces/default", {"Authorization": "Bearer unknown"}, None),
    ],
)
async def test_responses_name_schema_and_level(
    api: APIClient, path: str, headers: Mapping[str, str], expected: tuple[str, str] | None
) -> None:
    response = await api.get(path, headers=headers)
    assert await names(api, response) == expected


async def test_watch_names_schema_and_level(api: APIClient) -> None:
    response = await api.get("/api/v1/pods", {"watch": "true", "timeoutSeconds": "1"})
    assert await names(api, response) == ("exempt", "exempt")


async def test_schema_is_used_while_its_level_exists(api: APIClient) -> None:
    async def classified() -> tuple[str, str] | None:
        return await names(api, await api.get("/api/v1/namespaces", headers=ALICE))

    async def dangling() -> str:
        schema = (await api.get(f"{GROUP}/flowschemas/mine")).body
        (condition,) = schema["status"]["conditions"]
        status: str = condition["status"]
        return status

    assert (await api.post(f"{GROUP}/flowschemas", schema("mine", "own"))).code == 201
    assert await dangling() == "True"
    assert await classified() == ("global-default", "global-default")
    assert (await api.post(f"{GROUP}/prioritylevelconfigurations", level("own"))).code == 201
    assert await dangling() == "False"
    assert await classified() == ("mine", "own")
    metrics = (await api.get("/metrics")).body.splitlines()
    labels = '{flow_schema="mine",priority_level="own"}'
    assert f"apiserver_flowcontrol_dispatched_requests_total{labels} 1.0" in metrics
    nominal = 'apiserver_flowcontrol_nominal_limit_seats{priority_level="own"} 10.0'
    assert nominal in metrics
    await api.delete(f"{GROUP}/prioritylevelconfigurations/own")
    assert await dangling() == "True"
    assert await classified() == ("global-default", "global-default")


async def test_condition_has_the_manager_of_kube_apiserver(api: APIClient) -> None:
    await api.post(f"{GROUP}/flowschemas", schema("managed", "none"))
    stored = (await api.get(f"{GROUP}/flowschemas/managed")).body
    entry = stored["metadata"]["managedFields"][0]
    assert entry["manager"] == "api-priority-and-fairness-config-consumer-v1"
    assert (entry["operation"], entry["subresource"]) == ("Apply", "status")


async def test_lowest_precedence_decides_and_then_the_name(api: APIClient) -> None:
    for name, precedence in (("b", 500), ("a", 500), ("c", 499)):
        await api.post(f"{GROUP}/flowschemas", schema(name, "system", precedence))
    response = await api.get("/api/v1/namespaces", headers=ALICE)
    assert await names(api, response) == ("c", "system")
    await api.delete(f"{GROUP}/flowschemas/c")
    response = await api.get("/api/v1/namespaces", headers=ALICE)
    assert await names(api, response) == ("a", "system")


async def test_objects_of_every_control_plane_return(
    api: APIClient, plane: EmbeddedControlPlane
) -> None:
    for path in ("flowschemas/catch-all", "prioritylevelconfigurations/workload-low"):
        assert (await api.delete(f"{GROUP}/{path}")).code == 200
    probes = (await api.get(f"{GROUP}/flowschemas/probes")).body
    probes["spec"]["matchingPrecedence"] = 77
    assert (await api.put(f"{GROUP}/flowschemas/probes", probes)).code == 200
    await plane.advance(60)
    for path in ("flowschemas/catch-all", "prioritylevelconfigurations/workload-low"):
        assert (await api.get(f"{GROUP}/{path}")).code == 200
    restored = (await api.get(f"{GROUP}/flowschemas/probes")).body
    assert restored["spec"]["matchingPrecedence"] == 2
    assert restored["metadata"]["generation"] == 3


async def test_mandatory_schema_classifies_while_it_is_deleted(api: APIClient) -> None:
    await api.delete(f"{GROUP}/flowschemas/exempt")
    response = await api.get("/api/v1/namespaces")
    assert response.headers["X-Kubernetes-Pf-Flowschema-Uid"] == ""
    levels = (await api.get(f"{GROUP}/prioritylevelconfigurations/exempt")).body
    uid = levels["metadata"]["uid"]
    assert response.headers["X-Kubernetes-Pf-Prioritylevel-Uid"] == uid
