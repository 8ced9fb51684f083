"""The four kinds of patches over HTTPS, and field ownership after server-side apply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envtest.api_client import APIClient
from test.support.config_maps import CONFIG_MAPS, config_map

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
A = f"{CONFIG_MAPS}/a"


def owned(obj: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Return the fields that each manager owns, by manager and operation."""
    entries = obj["metadata"]["managedFields"]
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": list(containers)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec},
    }


async def test_apply_creates_an_object_and_owns_its_fields(api: APIClient) -> None:
    response = await api.apply(A, config_map("a", {"k": "v"}, labels={"l": "1"}), "one")
    assert response.code == 201
    assert owned(response.body) == {
        ("one", "Apply"): {"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}
    }


async def test_repeated_apply_changes_nothing(api: APIClient) -> None:
    first = await api.apply(A, config_map("a", {"k": "v"}), "one")
    again = await api.apply(A, config_map("a", {"k": "v"}), "one")
    assert (again.code, again.body) == (200, first.body)


@pytest.mark.parametrize(("metadata", "writes"), [({"labels": {"l": "1"}}, 0), ({}, 1)])
async def test_namespace_without_fields_changes_once_on_repeated_apply(
    api: APIClient, metadata: dict[str, Any], writes: int
) -> None:
    """A manager that applies only a name owns nothing.

    The second apply then finds fields without an owner, and records the manager ``before-first-apply`` for them
    (conformance/notes.md: an object created with nothing to own).
    """
    path = "/api/v1/namespaces/twice"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "twice", **metadata}}
    versions = [
        (await api.apply(path, namespace, "one")).body["metadata"]["resourceVersion"]
        for _ in range(4)
    ]
    assert len(set(versions)) == 1 + writes
    assert versions[1] == versions[2] == versions[3]


async def test_body_of_an_apply_is_yaml_also_if_it_is_json(api: APIClient) -> None:
    body = config_map("a", {"separator": "x \u2028 y", "next-line": "x \x85 y"})
    applied = await api.apply(A, json.dumps(body, ensure_ascii=False).encode(), "one")
    assert applied.body["data"] == {"separator": "x\u2028y", "next-line": "x y"}
    escaped = await api.apply(A, json.dumps(body).encode(), "one")
    assert escaped.body["data"] == body["data"]


async def test_field_that_is_no_longer_applied_is_removed(api: APIClient) -> None:
    await api.apply(A, config_map("a", {"k": "v", "l": "w"}), "one")
    assert (await api.apply(A, config_map("a", {"k": "v"}), "one")).body["data"] == {"k": "v"}


async def test_field_with_another_owner_is_kept(api: APIClient) -> None:
    await api.apply(A, config_map("a", {"k": "v", "l": "w"}), "one")
    shared = await api.apply(A, config_map("a", {"k": "v"}), "two")
    assert owned(shared.body)["two", "Apply"] == {"f:data": {"f:k": {}}}
    remaining = await api.apply(A, config_map("a"), "one")
    assert remaining.body["data"] == {"k": "v"}
    assert list(owned(remaining.body)) == [("two", "Apply")]


async def test_different_value_is_a_conflict_unless_forced(api: APIClient) -> None:
    await api.apply(A, config_map("a", {"k": "v"}), "one")
    refused = await api.apply(A, config_map("a", {"k": "w"}), "two")
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert refused.body["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.k'
    assert refused.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}
    ]
    forced = await api.apply(A, config_map("a", {"k": "w"}), "two", {"force": "true"})
    assert forced.body["data"] == {"k": "w"}
    assert list(owned(forced.body)) == [("two", "Apply")]


async def test_update_takes_ownership_of_changed_fields(api: APIClient) -> None:
    await api.apply(A, config_map("a", {"k": "v", "l": "w"}), "one")
    changed = await api.request(
        "PATCH",
        A,
        {"data": {"k": "x"}},
        query={"fieldManager": "two"},
        content_type="application/merge-patch+json",
    )
    assert owned(changed.body) == {
        ("one", "Apply"): {"f:data": {"f:l": {}}},
        ("two", "Update"): {"f:data": {"f:k": {}}},
    }
    refused = await api.apply(A, config_map("a", {"k": "v", "l": "w"}), "one")
    assert refused.code == 409
    assert refused.body["message"].startswith(
        'Apply failed with 1 conflict: conflict with "two" using v1'
    )


async def test_list_items_are_owned_by_the_manager_that_applied_them(api: APIClient) -> None:
    path = f"{DEPLOYMENTS}/a"
    await api.apply(
        path, deployment({"name": "x", "image": "x", "ports": [{"containerPort": 80}]}), "one"
    )
    both = await api.apply(path, deployment({"name": "y", "image": "y"}), "two")
    containers = both.body["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in containers] == ["x", "y"]
    template = owned(both.body)["one", "Apply"]["f:spec"]["f:template"]["f:spec"]
    ports: dict[str, Any] = {
        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
    }
    assert template == {
        "f:containers": {'k:{"name":"x"}': {".": {}, "f:image": {}, "f:name": {}, "f:ports": ports}}
    }


async def test_status_and_scale_have_separate_ownership(api: APIClient) -> None:
    path = f"{DEPLOYMENTS}/a"
    await api.apply(path, deployment({"name": "x", "image": "x"}, replicas=1), "one")
    status = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "status": {"replicas": 1},
    }
    reported = await api.apply(f"{path}/status", status, "two")
    assert [entry.get("subresource") for entry in reported.body["metadata"]["managedFields"]] == [
        None,
        "status",
    ]
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "a"},
        "spec": {"replicas": 5},
    }
    refused = await api.apply(f"{path}/scale", scale, "three")
    assert refused.body["details"]["causes"][0]["field"] == ".spec.replicas"


async def test_managed_fields_can_be_reset(api: APIClient) -> None:
    await api.apply(A, config_map("a", {"k": "v"}), "one")
    cleared = await api.merge(A, {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in cleared.body["metadata"]
    reapplied = await api.apply(A, config_map("a", {"k": "v"}), "two")
    assert list(owned(reapplied.body)) == [("two", "Apply"), ("before-first-apply", "Update")]


@pytest.mark.parametrize(
    ("body", "query", "code", "message"),
    [
        (
            config_map("a"),
            {"fieldManager": ""},
            422,
            "fieldManager: Required value: is required for apply patch",
        ),
        (
            config_map("b"),
            {},
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (b"a: [", {}, 400, "error decoding YAML"),
        (
            b'{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"\x7f"}}',
            {},
            400,
            "error decoding YAML: error converting YAML to JSON: yaml: control characters are not allowed",
        ),
        (
            b'{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"v","k":"w"}}',
            {"fieldValidation": "Strict"},
            400,
            "line 1: key",
        ),
        (
            config_map("a", data={"k": "v"}, managedFields=[{}]),
            {},
            400,
            "metadata.managedFields must be nil",
        ),
        ({**config_map("a"), "nonsense": 1}, {}, 500, ".nonsense: field not declared in schema"),
    ],
)
async def test_invalid_configuration_cannot_be_applied(
    api: APIClient, body: Any, query: dict[str, str], code: int, message: str
) -> None:
    response = await api.apply(A, body, "one", query)
    assert response.code == code
    assert message in response.body["message"]
    assert (await api.get(A)).code == 404


async def test_strategic_merge_patch_merges_lists_by_key(api: APIClient) -> None:
    await api.post(
        DEPLOYMENTS, deployment({"name": "x", "image": "x"}, {"name": "y", "image": "y"})
    )
    patch = {
        "containers": [
            {"name": "w", "image": "w"},
            {"name": "x", "image": "z"},
            {"name": "y", "$patch": "delete"},
        ],
        "$setElementOrder/containers": [{"name": "w"}, {"name": "x"}],
    }
    response = await api.request(
        "PATCH",
        f"{DEPLOYMENTS}/a",
        {
            "spec": {
                "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
                "template": {"spec": patch},
            }
        },
        content_type="application/strategic-merge-patch+json",
    )
    containers = response.body["spec"]["template"]["spec"]["containers"]
    assert [(one["name"], one["image"]) for one in containers] == [("w", "w"), ("x", "z")]
    assert response.body["spec"]["strategy"] == {"type": "Recreate"}


async def test_json_patch_operations(api: APIClient) -> None:
    await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))

    async def patch(*operations: dict[str, Any]) -> Any:
        return await api.request(
            "PATCH", A, list(operations), content_type="application/json-patch+json"
        )

    moved = await patch(
        {"op": "test", "path": "/data/k", "value": "v"},
        {"op": "move", "from": "/data/k", "path": "/data/l"},
        {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}},
        {"op": "replace", "path": "/metadata/labels/a~1b", "value": "d"},
    )
    assert moved.body["data"] == {"l": "v"}
    assert moved.body["metadata"]["labels"] == {"a/b": "d"}
    failed = await patch({"op": "test", "path": "/data/l", "value": "other"})
    assert (failed.code, failed.body["reason"]) == (422, "Invalid")
    missing = await patch({"op": "remove", "path": "/data/none"})
    assert missing.code == 422
    assert (await api.get(A)).body == moved.body


async def test_unknown_patch_type_is_rejected(api: APIClient) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    response = await api.request("PATCH", A, {}, content_type="application/json")
    assert (response.code, response.body["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    "accept", ["application/json;as=Table;v=v1;g=meta.k8s.io,application/json"]
)
async def test_table_of_a_list_and_a_watch(api: APIClient, accept: str) -> None:
    await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    response = await api.get(
        CONFIG_MAPS, {"fieldSelector": "metadata.name=a"}, headers={"Accept": accept}
    )
    table = response.body
    assert (table["apiVersion"], table["kind"]) == ("meta.k8s.io/v1", "Table")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:2] == ["a", 1]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in row["object"]
    async with api.watch(
        CONFIG_MAPS, {"fieldSelector": "metadata.name=a"}, {"Accept": accept}
    ) as watch:
        event = await watch.event()
    assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")
    assert event["object"]["rows"][0]["cells"][0] == "a"


async def test_empty_lists_are_shown_and_owned_as_they_were_sent(api: APIClient) -> None:
    """The store keeps no empty lists, but the request that contains one is validated and owns the field."""
    quotas, slices = (
        "/api/v1/namespaces/default/resourcequotas",
        "/apis/discovery.k8s.io/v1/namespaces/default",
    )
    await api.post(quotas, {"metadata": {"name": "q"}, "spec": {"scopes": ["NotTerminating"]}})
    kind = {"apiVersion": "v1", "kind": "ResourceQuota"}
    rejected = await api.apply(
        f"{quotas}/q",
        {**kind, "metadata": {"name": "q"}, "spec": {"scopes": []}},
        "a",
        {"force": "true"},
    )
    assert [each["message"] for each in rejected.body["details"]["causes"]] == [
        "Invalid value: []: field is immutable"
    ]
    ingress = await api.post(
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
        {"metadata": {"name": "i"}, "spec": {"rules": []}},
    )
    assert "spec: Invalid value: []: either" in ingress.body["message"]
    body = {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [], "ports": None}
    await api.post(f"{slices}/endpointslices", body, {"fieldManager": "one"})
    patched = await api.merge(f"{slices}/endpointslices/s", {"ports": []}, {"fieldManager": "two"})
    assert patched.body["ports"] is None
    owners = {
        entry["manager"]: entry["fieldsV1"] for entry in patched.body["metadata"]["managedFields"]
    }
    assert owners["two"] == {"f:ports": {}}
    assert "f:ports" not in owners["one"]


async def test_names_that_are_not_strings_are_empty_in_messages(api: APIClient) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": ["y"]}}
    applied = await api.apply("/api/v1/namespaces/default/configmaps/x", body, "a")
    assert applied.code == 500
    assert applied.body["message"].startswith(
        "failed to create typed patch object (/x; /v1, Kind=ConfigMap): "
    )
