"""Forms of responses that only some resources have."""

from __future__ import annotations

from typing import Any

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
METADATA = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
ATTRIBUTES = {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}
REVIEWS: dict[str, Any] = {
    "authorization.k8s.io/v1/selfsubjectaccessreviews": ATTRIBUTES,
    "authorization.k8s.io/v1/subjectaccessreviews": {**ATTRIBUTES, "user": "alice"},
    "authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews": {**ATTRIBUTES, "user": "alice"},
    "authorization.k8s.io/v1/selfsubjectrulesreviews": {"namespace": "default"},
    "authentication.k8s.io/v1/tokenreviews": {"token": "t"},
    "authentication.k8s.io/v1/selfsubjectreviews": None,
}


@pytest.mark.parametrize("path", REVIEWS)
async def test_reviews_have_no_tables(api: APIClient, path: str) -> None:
    body = {"spec": REVIEWS[path]} if REVIEWS[path] else {}
    refused = await api.request("POST", f"/apis/{path}", body, headers=TABLE)
    assert (refused.code, refused.body["reason"]) == (406, "NotAcceptable")
    reduced = await api.request("POST", f"/apis/{path}", body, headers=METADATA)
    assert (reduced.code, reduced.body["kind"]) == (201, "PartialObjectMetadata")


async def test_component_statuses_are_composed() -> None:
    path = "/api/v1/componentstatuses"
    async with ControlPlane.embedded() as plane, APIClient(plane) as api:
        listed = await api.get(path)
        assert listed.body["kind"] == "ComponentStatusList"
        assert "resourceVersion" not in listed.body["metadata"]
        found = {each["metadata"]["name"]: each["conditions"][0] for each in listed.body["items"]}
        assert found["etcd-0"] == {"type": "Healthy", "status": "True", "message": "ok"}
        assert {name: each["status"] for name, each in found.items()} == {
            "scheduler": "False",
            "controller-manager": "False",
            "etcd-0": "True",
        }
        assert "dial tcp 127.0.0.1:10259: connect: connection refused" in found["scheduler"]["message"]
        one = await api.get(f"{path}/etcd-0")
        assert (one.body["kind"], one.body["conditions"]) == ("ComponentStatus", [found["etcd-0"]])
        missing = await api.get(f"{path}/x")
        assert (missing.code, missing.body["message"]) == (500, "Component not found: x")
        selected = await api.get(path, {"fieldSelector": "metadata.name!=etcd-0"})
        assert len(selected.body["items"]) == 2
        table = await api.get(path, headers=TABLE)
        assert [each["name"] for each in table.body["columnDefinitions"]] == ["Name", "Status", "Message", "Error"]
        assert [row["cells"][:2] for row in table.body["rows"]][-1] == ["etcd-0", "Healthy"]
