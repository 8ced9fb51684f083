"""Forms of responses that only some resources have, or that only some clients request."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp
import pytest

from envtest import ControlPlane
from envtest.api_client import TIMEOUT_SECONDS, APIClient
from envtest.endpoints.protobuf import decode_body, wire_fields
from test.support.config_maps import CONFIG_MAPS, config_map

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
METADATA = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
ATTRIBUTES = {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}
REVIEWS: dict[str, Any] = {
    "authorization.k8s.io/v1/selfsubjectaccessreviews": ATTRIBUTES,
    "authorization.k8s.io/v1/subjectaccessreviews": {**ATTRIBUTES, "user": "alice"},
    "authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews": {
        **ATTRIBUTES,
        "user": "alice",
    },
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
        assert (
            "dial tcp 127.0.0.1:10259: connect: connection refused" in found["scheduler"]["message"]
        )
        one = await api.get(f"{path}/etcd-0")
        assert (one.body["kind"], one.body["conditions"]) == ("ComponentStatus", [found["etcd-0"]])
        missing = await api.get(f"{path}/x")
        assert (missing.code, missing.body["message"]) == (500, "Component not found: x")
        selected = await api.get(path, {"fieldSelector": "metadata.name!=etcd-0"})
        assert len(selected.body["items"]) == 2
        table = await api.get(path, headers=TABLE)
        assert [each["name"] for each in table.body["columnDefinitions"]] == [
            "Name",
            "Status",
            "Message",
            "Error",
        ]
        assert [row["cells"][:2] for row in table.body["rows"]][-1] == ["etcd-0", "Healthy"]


PROTOBUF = "application/vnd.kubernetes.protobuf"
PARTIAL = f"{PROTOBUF};as=%s;g=meta.k8s.io;v=v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def get_protobuf(
    api: APIClient, path: str, accept: str = PROTOBUF, **options: Any
) -> tuple[int, dict[str, Any]]:
    response = await api.request(
        options.pop("method", "GET"), path, headers={"Accept": accept}, **options
    )
    assert response.headers["Content-Type"] == PROTOBUF
    return response.code, decode_body(response.body)


async def test_objects_lists_and_errors_in_protobuf(api: APIClient) -> None:
    body = config_map("a", {"k": "v"})
    code, created = await get_protobuf(api, CONFIG_MAPS, method="POST", body=body)
    assert (code, created["data"]) == (201, {"k": "v"})
    plain = (await api.get(f"{CONFIG_MAPS}/a")).body
    code, found = await get_protobuf(api, f"{CONFIG_MAPS}/a")
    assert (code, found) == (200, plain)
    code, listed = await get_protobuf(api, CONFIG_MAPS)
    assert (code, listed["kind"]) == (200, "ConfigMapList")
    assert {name: plain[name] for name in ("metadata", "data")} in listed["items"]
    assert listed["metadata"]["resourceVersion"]
    code, status = await get_protobuf(api, f"{CONFIG_MAPS}/missing")
    assert (code, status["reason"], status["details"]["name"]) == (404, "NotFound", "missing")
    anonymous = await api.get(CONFIG_MAPS, headers={"Accept": PROTOBUF, "Authorization": ""})
    assert (anonymous.code, decode_body(anonymous.body)["reason"]) == (403, "Forbidden")
    code, deleted = await get_protobuf(api, f"{CONFIG_MAPS}/a", method="DELETE")
    assert (code, deleted["status"], deleted["details"]["uid"]) == (
        200,
        "Success",
        plain["metadata"]["uid"],
    )


async def test_discovery_in_protobuf(api: APIClient) -> None:
    _, resources = await get_protobuf(api, "/apis/apps/v1")
    assert resources == (await api.get("/apis/apps/v1")).body
    _, versions = await get_protobuf(api, "/api")
    assert (versions["kind"], versions["versions"]) == ("APIVersions", ["v1"])
    paths = await api.get("/", headers={"Accept": PROTOBUF})
    assert "/apis/apps" in paths.body["paths"]
    _, groups = await get_protobuf(api, "/apis")
    assert groups == (await api.get("/apis")).body


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (f"{PROTOBUF},application/json", "application/json"),
        (f"{PROTOBUF},application/json;q=0.5", PROTOBUF),
        (f"{PROTOBUF},application/json;as=Table;v=v1;g=meta.k8s.io", PROTOBUF),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json", "application/json"),
        (f"{PARTIAL % 'PartialObjectMetadataList'},application/json", PROTOBUF),
    ],
)
async def test_protobuf_is_sent_if_it_is_preferred_and_costs_little(
    api: APIClient, accept: str, content_type: str
) -> None:
    listed = await api.get(CONFIG_MAPS, headers={"Accept": accept})
    assert (listed.code, listed.headers["Content-Type"]) == (200, content_type)


async def test_tables_do_not_exist_in_protobuf(api: APIClient) -> None:
    refused = await api.get(
        CONFIG_MAPS, headers={"Accept": f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io"}
    )
    assert refused.code == 406


async def test_custom_resources_have_only_metadata_in_protobuf(api: APIClient) -> None:
    schema = {"openAPIV3Schema": {"type": "object"}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    names = {"plural": "balls", "kind": "Ball"}
    spec = {
        "group": "proto.example.com",
        "scope": "Namespaced",
        "names": names,
        "versions": versions,
    }
    assert (
        await api.post(CRDS, {"metadata": {"name": "balls.proto.example.com"}, "spec": spec})
    ).code == 201
    path = "/apis/proto.example.com/v1/namespaces/default/balls"
    await api.until(path, 200)
    ball = {"apiVersion": "proto.example.com/v1", "kind": "Ball", "metadata": {"name": "a"}}
    assert (await api.post(path, ball)).code == 201
    refused = await api.get(path, headers={"Accept": PROTOBUF})
    assert (refused.code, decode_body(refused.body)["reason"]) == (406, "NotAcceptable")
    _, listed = await get_protobuf(api, path, PARTIAL % "PartialObjectMetadataList")
    assert (listed["kind"], listed["items"][0]["metadata"]["name"]) == (
        "PartialObjectMetadataList",
        "a",
    )
    _, one = await get_protobuf(api, f"{path}/a", PARTIAL % "PartialObjectMetadata")
    assert (one["kind"], one["metadata"]["name"]) == ("PartialObjectMetadata", "a")


async def test_watches_in_protobuf(plane: ControlPlane, api: APIClient) -> None:
    await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    headers = {"Authorization": f"Bearer {plane.token}", "Accept": PROTOBUF}
    query = {"watch": "true", "allowWatchBookmarks": "true", "sendInitialEvents": "true"}
    query |= {"resourceVersionMatch": "NotOlderThan", "fieldSelector": "metadata.name=a"}
    context = ssl.create_default_context(cadata=plane.ca_pem.decode())

    async with (
        aiohttp.ClientSession(
            plane.url, headers=headers, connector=aiohttp.TCPConnector(ssl=context)
        ) as session,
        asyncio.timeout(TIMEOUT_SECONDS),
        session.get(CONFIG_MAPS, params=query) as response,
    ):
        assert response.headers["Content-Type"] == f"{PROTOBUF};stream=watch"

        async def next_event() -> tuple[str, dict[str, Any]]:
            size = int.from_bytes(await response.content.readexactly(4), "big")
            kind, body = decode_event(await response.content.readexactly(size))
            return kind, decode_body(body)

        kind, obj = await next_event()
        assert (kind, obj["data"]) == ("ADDED", {"k": "v"})
        kind, obj = await next_event()
        assert (kind, obj["metadata"]["annotations"]) == (
            "BOOKMARK",
            {"k8s.io/initial-events-end": "true"},
        )
        await api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "w"}})
        assert await next_event() == ("MODIFIED", (await api.get(f"{CONFIG_MAPS}/a")).body)
        await api.delete(f"{CONFIG_MAPS}/a")
        assert (await next_event())[0] == "DELETED"


def decode_event(data: bytes) -> tuple[str, bytes]:
    """Return the type and the object of a watch event."""
    fields = dict(wire_fields(data))
    return fields[1].decode(), dict(wire_fields(fields[2]))[1]
