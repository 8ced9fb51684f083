"""The client: reads, writes, deletions, writes with unknown outcome, and apply."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web
from kubernetes_asyncio.client import V1ConfigMap, V1ObjectMeta

from cfo.runtime import (
    AlreadyExists,
    APIError,
    Client,
    ClientConfig,
    Conflict,
    NotFound,
    PatchType,
    Propagation,
    TerminalError,
    Transport,
    TransportError,
    UnknownKind,
)
from cfo.runtime.client import (
    Child,
    EncodingError,
    Expired,
    OwnerDeleted,
    UnknownSubresource,
    reconcile_children,
)
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.object_cache import StoredObject
from cfo.runtime.objects.kinds import CONFIG_MAP, NAMESPACE, POD
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    key_of,
    set_controller_owner,
    uid_of,
)
from cfo.runtime.process import UnreadableObject
from cfo.runtime.process.large_objects import MANY_VALUES, LargeObjects, RoomTaken, admit
from test.support.api_server import (
    APIS,
    CORE,
    ApiServer,
    AutoAdvancingClock,
    abort_connection,
    error_response,
    json,
    text,
)

KEY = NamespacedName("ns", "a")
COLLECTION = "/api/v1/namespaces/ns/configmaps"
PATH = f"{COLLECTION}/a"


class FakeCache:
    """A cache of the objects that a test stores; ``records`` lists the client's recording calls."""

    def __init__(self) -> None:
        self.covered = True
        self.objects: dict[NamespacedName, Object] = {}
        self.managers: tuple[dict[str, Any], ...] = ()
        self.uncertain: set[NamespacedName] = set()
        self.incomplete: set[str] = set()
        self.unselected: set[NamespacedName] = set()
        self.controllers_of_deleted: dict[NamespacedName, str] = {}
        self.records: list[tuple[str, NamespacedName, str]] = []

    def put(self, obj: Object) -> None:
        self.objects[key_of(obj)] = obj

    def covering_reader(
        self, gvk: GVK, namespace: str, label_selector: str = ""
    ) -> FakeCache | None:
        return self if self.covered else None

    def get(self, key: NamespacedName) -> Object | None:
        return self.objects.get(key)

    def is_complete(self, namespace: str) -> bool:
        return namespace not in self.incomplete

    def selects(self, obj: Object) -> bool:
        return key_of(obj) not in self.unselected

    def list(self, namespace: str, label_selector: str) -> list[Object]:
        return [{"arguments": [namespace, label_selector]}]

    def stored(self, gvk: GVK, key: NamespacedName) -> StoredObject | None:
        obj = self.objects.get(key)
        if obj is None:
            return None
        return StoredObject(
            orjson.dumps(obj),
            self.managers,
            uid_of(obj),
            obj["metadata"].get("resourceVersion", ""),
        )

    def controller_of_deleted(self, gvk: GVK, key: NamespacedName) -> str:
        return self.controllers_of_deleted.get(key, "")

    def record_write(self, gvk: GVK, response: bytes) -> None:
        obj = orjson.loads(response)
        self.uncertain.discard(key_of(obj))
        self.put(obj)
        self.records.append(("written", key_of(obj), uid_of(obj)))

    def record_deletion(self, gvk: GVK, key: NamespacedName, uid: str) -> None:
        self.uncertain.discard(key)
        self.records.append(("deleted", key, uid))

    def mark_uncertain(self, gvk: GVK, key: NamespacedName) -> None:
        self.uncertain.add(key)
        self.records.append(("uncertain", key, ""))

    def is_uncertain(self, gvk: GVK, key: NamespacedName) -> bool:
        return key in self.uncertain

    def uncertain_keys(self, gvk: GVK, namespace: str) -> set[NamespacedName]:
        return {key for key in self.uncertain if namespace in ("", key.namespace)}


def config_map(data: dict[str, str] | None = None, **metadata: Any) -> Object:
    defaults = {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "5"}
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {**defaults, **metadata},
        "data": data or {},
    }


def manifest(data: dict[str, str] | None = None, **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "ns", **metadata},
        "data": data if data is not None else {"k": "v"},
    }


OURS = {
    "manager": "me",
    "operation": "Apply",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:data": {"f:k": {}}},
}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().run() as server:
        server.answer("GET", "/api", json(CORE))
        server.answer("GET", "/apis", json(APIS))
        yield server


@pytest.fixture
def cache() -> FakeCache:
    return FakeCache()


@pytest.fixture
async def transport(server: ApiServer) -> AsyncIterator[Transport]:
    async with Transport(ClientConfig(server=server.url), clock=AutoAdvancingClock()) as transport:
        yield transport


@pytest.fixture
def live_client(transport: Transport) -> Client:
    """A client without a cache."""
    return Client(transport, RESTMapper(transport), field_manager="me")


@pytest.fixture
def client(transport: Transport, cache: FakeCache) -> Client:
    return Client(transport, RESTMapper(transport), field_manager="me", cache=cache)


# Reads.


async def test_get_returns_the_object(server: ApiServer, live_client: Client) -> None:
    server.answer("GET", PATH, json(config_map()))
    assert await live_client.get(CONFIG_MAP, KEY) == config_map()


async def test_get_of_missing_object_returns_none(server: ApiServer, live_client: Client) -> None:
    server.answer("GET", PATH, error_response(404, "NotFound", name="a", kind="configmaps"))
    assert await live_client.get(CONFIG_MAP, KEY) is None


async def test_kind_that_is_no_longer_served_raises_unknown_kind_and_refreshes_discovery(
    server: ApiServer, live_client: Client
) -> None:
    server.answer("GET", PATH, text("404 page not found\n", 404))
    with pytest.raises(UnknownKind, match=r"^get configmaps: 404 page not found$"):
        await live_client.get(CONFIG_MAP, KEY)
    before = len(server.all_requests)
    with pytest.raises(UnknownKind):
        await live_client.get(CONFIG_MAP, KEY)
    assert "/api" in [request.path for request in server.all_requests[before:]]


async def test_namespace_is_ignored_for_cluster_scoped_kinds(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("GET", "/api/v1/namespaces/x", {"kind": "Namespace", "metadata": {"name": "x"}})
    assert await client.get(NAMESPACE, NamespacedName("ignored", "x"), live=True) is not None
    cache.put({"kind": "Namespace", "metadata": {"name": "x", "uid": "cached"}})
    assert uid_of(await client.get(NAMESPACE, NamespacedName("ignored", "x")) or {}) == "cached"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
async def test_invalid_names_are_rejected_without_a_request(
    server: ApiServer, live_client: Client, name: str
) -> None:
    for request in (
        live_client.get(CONFIG_MAP, NamespacedName("ns", name)),
        live_client.delete(CONFIG_MAP, NamespacedName("ns", name)),
        live_client.apply(manifest(name=name)),
    ):
        with pytest.raises(ValueError, match=r"ConfigMap\.v1: name"):
            await request
    assert server.all_requests == []


async def test_missing_namespace_is_rejected_without_a_request(
    server: ApiServer, live_client: Client
) -> None:
    for request in (
        live_client.get(CONFIG_MAP, NamespacedName("", "a")),
        live_client.create(manifest(namespace="")),
    ):
        with pytest.raises(ValueError, match=r"ConfigMap\.v1: namespace is missing"):
            await request
    assert server.requests() == []


async def test_reads_of_objects_for_which_the_cache_has_no_room_send_a_request(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("GET", PATH, json(config_map({"is": "live"})))
    server.answer("GET", COLLECTION, json({"kind": "ConfigMapList", "items": []}))
    cache.incomplete.add("ns")
    assert await client.get(CONFIG_MAP, KEY) == config_map({"is": "live"})
    assert await client.list(CONFIG_MAP, namespace="ns") == []
    cache.put(config_map())
    assert await client.get(CONFIG_MAP, KEY) == config_map(), "the cache has it"


async def test_object_that_a_limited_cache_does_not_select_is_not_found_if_the_cache_is_incomplete(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("GET", PATH, json(config_map()))
    items = json({"kind": "ConfigMapList", "items": [config_map()]})
    server.answer("GET", COLLECTION, items)
    cache.incomplete.add("ns")
    cache.unselected.add(KEY)
    assert await client.get(CONFIG_MAP, KEY) is None
    assert await client.get(CONFIG_MAP, KEY, live=True) == config_map()
    assert await client.list(CONFIG_MAP, namespace="ns") == []
    assert await client.list(CONFIG_MAP, namespace="ns", live=True) == [config_map()]
    cache.unselected.clear()
    assert await client.list(CONFIG_MAP, namespace="ns") == [config_map()]


@pytest.mark.parametrize("name", ["a/b", "..", "", "%2f", "x" * 2000])
async def test_name_that_no_object_can_have_is_not_retried(
    server: ApiServer, client: Client, cache: FakeCache, name: str
) -> None:
    """Owner references contain such names if a tenant writes them."""
    cache.incomplete.add("ns")
    with pytest.raises(TerminalError, match=r"name '.*': must not") as raised:
        await client.get(CONFIG_MAP, NamespacedName("ns", name))
    assert len(str(raised.value)) < 500
    assert server.all_requests == []


async def test_reads_covered_by_the_cache_send_no_request(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(config_map())
    assert await client.get(CONFIG_MAP, KEY) == config_map()
    assert await client.get(CONFIG_MAP, NamespacedName("ns", "b")) is None
    assert await client.list(CONFIG_MAP, namespace="ns", label_selector="x=y") == [
        {"arguments": ["ns", "x=y"]}
    ]
    assert server.all_requests == []


async def test_reads_not_covered_by_the_cache_are_live(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("GET", PATH, json(config_map({"is": "live"})))
    server.answer("GET", COLLECTION, json({"kind": "ConfigMapList", "items": []}))
    cache.put(config_map())
    assert await client.get(CONFIG_MAP, KEY, live=True) == config_map({"is": "live"})
    assert await client.list(CONFIG_MAP, namespace="ns", live=True) == []
    assert await client.list(CONFIG_MAP, namespace="ns", field_selector="metadata.name=a") == []
    cache.covered = False
    assert await client.get(CONFIG_MAP, KEY) == config_map({"is": "live"})
    assert await client.list(CONFIG_MAP, namespace="ns") == []


async def test_list_reads_all_pages(server: ApiServer, live_client: Client) -> None:
    pages = [
        json(
            {
                "kind": "ConfigMapList",
                "metadata": {"continue": "t"},
                "items": [{"metadata": {"name": "a"}}],
            }
        ),
        json(
            {
                "kind": "ConfigMapList",
                "metadata": {},
                "items": [{"metadata": {"name": "b"}, "kind": "Kept"}],
            }
        ),
    ]
    server.answer("GET", "/api/v1/configmaps", *pages)
    objects = await live_client.list(
        CONFIG_MAP, label_selector="a in (b,c)", field_selector="metadata.name!=x"
    )
    assert objects == [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "Kept", "metadata": {"name": "b"}},
    ]
    selectors = {"labelSelector": "a in (b,c)", "fieldSelector": "metadata.name!=x", "limit": "500"}
    assert [request.query for request in server.requests()] == [
        selectors,
        {**selectors, "continue": "t"},
    ]
    assert server.requests()[0].headers["Accept-Encoding"] == "gzip"


async def test_expired_pages_restart_the_list_and_then_disable_paging(
    server: ApiServer, live_client: Client
) -> None:
    first = json({"metadata": {"continue": "t"}, "items": [{"metadata": {"name": "a"}}]})
    server.answer(
        "GET",
        COLLECTION,
        first,
        error_response(410, "Expired"),
        first,
        error_response(410, "Expired"),
    )
    server.answer("GET", COLLECTION, json({"items": [{"metadata": {"name": "b"}}]}))
    objects = await live_client.list(CONFIG_MAP, namespace="ns")
    assert [key_of(obj).name for obj in objects] == ["b"]
    assert [request.query.get("limit") for request in server.requests()] == [
        "500",
        "500",
        "500",
        "500",
        None,
    ]


async def test_expired_list_without_paging_is_an_error(
    server: ApiServer, live_client: Client
) -> None:
    server.answer("GET", COLLECTION, error_response(410, "Expired"))
    with pytest.raises(Expired):
        await live_client.list(CONFIG_MAP, namespace="ns")
    assert len(server.requests()) == 3


async def test_get_subresource(server: ApiServer, live_client: Client) -> None:
    path = "/apis/apps/v1/namespaces/ns/deployments/a/scale"
    server.answer("GET", path, {"kind": "Scale", "spec": {"replicas": 2}})
    scale = await live_client.get_subresource(GVK("apps", "v1", "Deployment"), KEY, "scale")
    assert scale is not None
    assert scale["spec"] == {"replicas": 2}
    server.answer("GET", path, error_response(404, "NotFound", name="a"))
    assert (
        await live_client.get_subresource(GVK("apps", "v1", "Deployment"), KEY, "scale") is not None
    )
    assert await live_client.get_subresource(GVK("apps", "v1", "Deployment"), KEY, "scale") is None


async def test_metadata_of_an_object_that_is_nested_too_deeply(
    server: ApiServer, live_client: Client
) -> None:
    metadata = {
        "name": "a",
        "namespace": "ns",
        "uid": "u",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    identity = orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    whole = identity[:-1] + b',"data":' + b'{"a":' * 3000 + b"1" + b"}" * 3001

    async def answer(request: web.Request) -> web.Response:
        partial = "as=PartialObjectMetadata;" in request.headers["Accept"]
        return web.Response(body=identity if partial else whole, content_type="application/json")

    server.answer("GET", PATH, answer)
    server.answer("DELETE", PATH, answer)
    with pytest.raises(UnreadableObject):
        await live_client.get(CONFIG_MAP, KEY)
    found = await live_client.get_metadata(CONFIG_MAP, KEY)
    assert found == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    assert await live_client.delete(CONFIG_MAP, KEY)
    server.answer("GET", PATH, error_response(404, "NotFound", name="a"))
    assert await live_client.get_metadata(CONFIG_MAP, KEY) is not None
    assert await live_client.get_metadata(CONFIG_MAP, KEY) is None


async def test_selection_has_what_is_selected_of_each_object(
    server: ApiServer, live_client: Client
) -> None:
    items: list[Object] = [config_map(), config_map(name="b")]
    for item in items:
        del item["kind"], item["apiVersion"]
    path = "/api/v1/configmaps"
    server.answer("GET", path, json({"metadata": {}, "items": items}))

    def select(obj: Object) -> Object | None:
        return obj if obj["metadata"]["name"] == "b" else None

    assert await live_client.select(CONFIG_MAP, select) == [config_map(name="b")]
    found = await live_client.select(
        CONFIG_MAP, select, label_selector="l", field_selector="f", metadata_only=True
    )
    expected = config_map(name="b")
    del expected["data"]
    assert found == [expected], "also if the API server sends whole objects"
    whole, metadata = server.requests()
    assert whole.query == {"limit": "500"}
    assert metadata.query == {"labelSelector": "l", "fieldSelector": "f", "limit": "500"}
    assert "as=PartialObjectMetadataList" in metadata.headers["Accept"]


async def test_selection_of_a_kind_that_is_no_longer_served_fails(
    server: ApiServer, live_client: Client
) -> None:
    server.answer("GET", "/api/v1/configmaps", error_response(404, "NotFound"))
    with pytest.raises(UnknownKind):
        await live_client.select(CONFIG_MAP, key_of)


# Writes.


async def test_create_sends_the_object_and_records_the_response(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("POST", COLLECTION, json(config_map(), 201))
    assert await client.create(manifest()) == config_map()
    request = server.requests()[0]
    assert (request.query, request.body) == ({"fieldManager": "me"}, manifest())
    assert cache.records == [("written", KEY, "u1")]


async def test_create_with_generated_name_records_the_name_in_the_response(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("POST", COLLECTION, json(config_map(name="a-x7"), 201), abort_connection)
    obj = manifest(generateName="a-")
    del obj["metadata"]["name"]
    assert key_of(await client.create(obj)).name == "a-x7"
    with pytest.raises(TransportError):
        await client.create(obj)
    assert cache.records == [("written", NamespacedName("ns", "a-x7"), "u1")]


async def test_create_of_existing_object_raises_already_exists(
    server: ApiServer, live_client: Client
) -> None:
    server.answer(
        "POST",
        COLLECTION,
        error_response(409, "AlreadyExists", 'configmaps "a" already exists', name="a"),
    )
    with pytest.raises(AlreadyExists, match=r'^create configmaps: configmaps "a" already exists$'):
        await live_client.create(manifest())


async def test_create_in_missing_namespace_raises_not_found(
    server: ApiServer, live_client: Client
) -> None:
    server.answer("POST", COLLECTION, error_response(404, "NotFound", name="ns", kind="namespaces"))
    with pytest.raises(NotFound):
        await live_client.create(manifest())


async def test_create_of_subresource_records_nothing(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "ns"},
    }
    server.answer(
        "POST",
        "/api/v1/namespaces/ns/pods/p/eviction",
        json({"kind": "Status", "status": "Success"}, 201),
    )
    assert (await client.create_subresource(POD, NamespacedName("ns", "p"), "eviction", eviction))[
        "kind"
    ] == "Status"
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    server.answer("POST", "/api/v1/namespaces/ns/serviceaccounts/s/token", json(token, 201))
    account = GVK("", "v1", "ServiceAccount")
    assert (
        await client.create_subresource(account, NamespacedName("ns", "s"), "token", token) == token
    )
    assert cache.records == []


async def test_update_records_the_response(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer(
        "PUT",
        PATH,
        json(config_map(resourceVersion="6")),
        error_response(409, "Conflict", name="a"),
    )
    assert await client.update(config_map()) == config_map(resourceVersion="6")
    with pytest.raises(Conflict):
        await client.update(config_map())
    assert cache.records == [("written", KEY, "u1")]


async def test_write_is_recorded_also_if_its_large_response_cannot_be_decoded_now(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    large = {**config_map(resourceVersion="6"), "data": [{}] * MANY_VALUES}
    server.answer("PATCH", PATH, json(large))
    room = LargeObjects()
    with room.reconcile("another", "ns"):
        admit(orjson.dumps(large))
        with room.reconcile("this", "ns"), pytest.raises(RoomTaken):
            await client.patch(CONFIG_MAP, KEY, {"metadata": {"labels": {"a": "b"}}})
    assert cache.records == [("written", KEY, "u1")]


async def test_patch_of_metadata_returns_it_and_records_the_response(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    large = {**config_map(labels={"a": "b"}), "data": [{}] * MANY_VALUES}
    server.answer("PATCH", PATH, json(large))
    room = LargeObjects()
    with room.reconcile("another", "ns"):
        admit(orjson.dumps(large))
        with room.reconcile("this", "ns"):
            found = await client.patch_metadata(CONFIG_MAP, KEY, {"labels": {"a": "b"}}, uid="u1")
    expected = config_map(labels={"a": "b"})
    assert found == {name: expected[name] for name in ("apiVersion", "kind", "metadata")}
    assert server.requests()[0].body == {"metadata": {"labels": {"a": "b"}, "uid": "u1"}}
    assert cache.records == [("written", KEY, "u1")]


async def test_patch_of_subresource_of_another_kind_records_nothing(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "a", "namespace": "ns"},
    }
    server.answer("PATCH", "/apis/apps/v1/namespaces/ns/deployments/a/scale", json(scale))
    assert (
        await client.patch(GVK("apps", "v1", "Deployment"), KEY, {}, subresource="scale") == scale
    )
    assert cache.records == []


@pytest.mark.parametrize(
    ("patch_type", "body"),
    [
        (PatchType.MERGE, {"data": {"k": None}}),
        (PatchType.STRATEGIC, {"data": {"k": "v"}}),
        (PatchType.JSON, [{"op": "remove", "path": "/data/k"}]),
    ],
)
async def test_patch_sends_the_content_type_of_its_patch_type(
    server: ApiServer, client: Client, cache: FakeCache, patch_type: PatchType, body: Any
) -> None:
    server.answer("PATCH", PATH, json(config_map()))
    await client.patch(CONFIG_MAP, KEY, body, patch_type)
    request = server.requests()[0]
    assert (request.headers["Content-Type"], request.body) == (patch_type.value, body)
    assert cache.records == [("written", KEY, "u1")]


async def test_patch_of_status_is_sent_to_the_subresource(
    server: ApiServer, client: Client
) -> None:
    path = "/api/v1/namespaces/ns/pods/a/status"
    server.answer("PATCH", path, {"kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}})
    await client.patch(POD, KEY, {"status": {"phase": "Failed"}}, subresource="status")
    (request,) = server.requests()
    assert (request.method, request.path, request.body) == (
        "PATCH",
        path,
        {"status": {"phase": "Failed"}},
    )


async def test_dry_runs_record_nothing(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("POST", COLLECTION, json(config_map(), 201))
    server.answer("PUT", PATH, json(config_map()))
    server.answer("PATCH", PATH, json(config_map()), json(config_map()), abort_connection)
    server.answer("DELETE", PATH, json(config_map()))
    cache.put(config_map({"k": "v"}))
    cache.managers = (OURS,)
    await client.create(manifest(), dry_run=True)
    await client.update(config_map(), dry_run=True)
    await client.patch(CONFIG_MAP, KEY, {}, dry_run=True)
    await client.apply(manifest(), dry_run=True)
    with pytest.raises(TransportError):
        await client.patch(CONFIG_MAP, KEY, {}, dry_run=True)
    assert [request.query["dryRun"] for request in server.requests()] == ["All"] * 5
    await client.delete(CONFIG_MAP, KEY, dry_run=True)
    assert server.requests()[-1].body["dryRun"] == ["All"]
    assert cache.records == []


async def test_with_field_manager_does_not_change_the_original_client(
    server: ApiServer, client: Client
) -> None:
    server.answer("PATCH", PATH, json(config_map()))
    await client.with_field_manager("other").patch(CONFIG_MAP, KEY, {})
    await client.patch(CONFIG_MAP, KEY, {})
    assert [request.query["fieldManager"] for request in server.requests()] == ["other", "me"]


@pytest.mark.parametrize(
    ("metadata", "record"),
    [
        (
            {"deletionTimestamp": "T", "finalizers": ["f"], "deletionGracePeriodSeconds": 0},
            "written",
        ),
        ({"deletionTimestamp": "T", "finalizers": []}, "deleted"),
        ({"deletionTimestamp": "T", "deletionGracePeriodSeconds": 0}, "deleted"),
        ({"deletionTimestamp": "T", "deletionGracePeriodSeconds": 30}, "written"),
        ({"finalizers": []}, "written"),
    ],
)
async def test_removal_of_the_last_finalizer_is_recorded_as_deletion(
    server: ApiServer, client: Client, cache: FakeCache, metadata: dict[str, Any], record: str
) -> None:
    server.answer("PATCH", PATH, json(config_map(**metadata)))
    await client.patch(CONFIG_MAP, KEY, {"metadata": {"finalizers": None}})
    assert cache.records == [(record, KEY, "u1")]


async def test_namespace_is_deleted_only_without_spec_finalizers(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    obj = {"kind": "Namespace", "metadata": {"name": "x", "uid": "n", "deletionTimestamp": "T"}}
    path = "/api/v1/namespaces/x"
    server.answer("DELETE", path, {**obj, "spec": {"finalizers": ["kubernetes"]}}, obj)
    await client.delete(NAMESPACE, NamespacedName("", "x"))
    await client.delete(NAMESPACE, NamespacedName("", "x"))
    assert [record[0] for record in cache.records] == ["written", "deleted"]


# Deletions.


async def test_delete_records_the_deletion(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer(
        "DELETE",
        PATH,
        {"kind": "Status", "status": "Success", "details": {"name": "a", "uid": "u1"}},
    )
    assert await client.delete(CONFIG_MAP, KEY)
    assert server.requests()[0].body is None
    assert cache.records == [("deleted", KEY, "u1")]


async def test_delete_sends_its_options(server: ApiServer, live_client: Client) -> None:
    server.answer(
        "DELETE",
        PATH,
        {"kind": "Status", "status": "Success"},
        error_response(409, "Conflict", name="a"),
    )
    options: dict[str, Any] = {
        "uid": "u1",
        "resource_version": "5",
        "propagation_policy": Propagation.FOREGROUND,
        "grace_period_seconds": 0,
    }
    assert await live_client.delete(CONFIG_MAP, KEY, **options)
    assert server.requests()[0].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1", "resourceVersion": "5"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }
    with pytest.raises(Conflict):
        await live_client.delete(CONFIG_MAP, KEY, **options)


async def test_delete_of_missing_object_returns_false_and_records_the_deletion(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("DELETE", PATH, error_response(404, "NotFound", name="a"))
    cache.put(config_map())
    assert not await client.delete(CONFIG_MAP, KEY)
    assert cache.records == [("deleted", KEY, "u1")]


@pytest.mark.parametrize(
    ("response", "record"),
    [
        (config_map(), "deleted"),
        (config_map(deletionTimestamp="T", finalizers=["f"]), "written"),
        (config_map(deletionTimestamp="T"), "deleted"),
    ],
)
async def test_delete_response_with_an_object_records_its_state(
    server: ApiServer, client: Client, cache: FakeCache, response: Object, record: str
) -> None:
    server.answer("DELETE", PATH, response)
    assert await client.delete(CONFIG_MAP, KEY)
    assert cache.records == [(record, KEY, "u1")]


async def test_lost_delete_is_retried_only_with_a_uid(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer(
        "DELETE",
        PATH,
        abort_connection,
        abort_connection,
        error_response(404, "NotFound", name="a"),
    )
    with pytest.raises(TransportError):
        await client.delete(CONFIG_MAP, KEY)
    assert cache.records == [("uncertain", KEY, "")]
    assert not await client.delete(CONFIG_MAP, KEY, uid="u1")


# Writes with unknown outcome.


@pytest.mark.parametrize(
    "response",
    [
        abort_connection,
        error_response(500, "InternalError"),
        error_response(504, "Timeout"),
        text("", 502),
    ],
)
async def test_read_after_a_write_with_unknown_outcome_is_live(
    server: ApiServer, client: Client, cache: FakeCache, response: Any
) -> None:
    cache.put(config_map())
    server.answer("PUT", PATH, response)
    with pytest.raises((TransportError, APIError)):
        await client.update(config_map())
    assert cache.records == [("uncertain", KEY, "")]
    server.answer("GET", PATH, json(config_map({"k": "new"}, resourceVersion="6")))
    assert await client.get(CONFIG_MAP, KEY) == config_map({"k": "new"}, resourceVersion="6")
    assert await client.get(CONFIG_MAP, KEY) == config_map({"k": "new"}, resourceVersion="6")
    assert len(server.requests("GET")) == 1


async def test_list_first_reads_uncertain_objects(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.uncertain = {KEY, NamespacedName("elsewhere", "b")}
    server.answer("GET", PATH, json(config_map()))
    assert await client.list(CONFIG_MAP, namespace="ns") == [{"arguments": ["ns", ""]}]
    assert cache.records == [("written", KEY, "u1")]
    assert cache.uncertain == {NamespacedName("elsewhere", "b")}


async def test_create_with_unknown_outcome_makes_the_key_uncertain(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("POST", COLLECTION, abort_connection)
    with pytest.raises(TransportError):
        await client.create(manifest())
    assert cache.records == [("uncertain", KEY, "")]
    server.answer("GET", PATH, error_response(404, "NotFound", name="a"))
    assert await client.get(CONFIG_MAP, KEY) is None
    assert cache.records[1:] == [("deleted", KEY, "")]


async def test_rejected_write_does_not_make_the_key_uncertain(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("PUT", PATH, error_response(409, "Conflict", name="a"))
    with pytest.raises(Conflict):
        await client.update(config_map())
    assert cache.records == []


async def test_object_added_by_a_watch_during_a_live_read_is_kept(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    """The 404 response is older than the object that a watch event has added in the meantime."""
    received, released = asyncio.Event(), asyncio.Event()

    async def not_found(request: web.Request) -> web.StreamResponse:
        received.set()
        await released.wait()
        return await error_response(404, "NotFound", name="a")(request)

    server.answer("GET", PATH, not_found)
    cache.mark_uncertain(CONFIG_MAP, KEY)
    read = asyncio.create_task(client.get(CONFIG_MAP, KEY))
    await received.wait()
    cache.put(config_map(uid="u2"))
    released.set()
    assert await read is None
    assert cache.records == [("uncertain", KEY, "")]
    assert cache.is_uncertain(CONFIG_MAP, KEY)


# Apply.


async def test_apply_sends_a_forced_server_side_apply(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("PATCH", PATH, json(config_map({"k": "v"}), 201))
    assert await client.apply(manifest()) == config_map({"k": "v"})
    request = server.requests()[0]
    assert request.query == {"fieldManager": "me", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.body == manifest()
    assert cache.records == [("written", KEY, "u1")]


def generated_manifest() -> V1ConfigMap:
    """Return the generated model of :func:`manifest`."""
    metadata = V1ObjectMeta(name="a", namespace="ns")
    return V1ConfigMap(api_version="v1", kind="ConfigMap", metadata=metadata, data={"k": "v"})


async def test_generated_models_are_written_and_returned_as_dicts(
    server: ApiServer, live_client: Client
) -> None:
    stored = config_map({"k": "v"})
    collection = PATH.rpartition("/")[0]
    server.answer("POST", collection, json(stored, 201))
    server.answer("PUT", PATH, json(stored))
    server.answer("PATCH", PATH, json(stored))
    model = generated_manifest()
    assert await live_client.create(model) == stored
    assert await live_client.update(model) == stored
    assert await live_client.apply(model) == stored
    assert await live_client.patch(CONFIG_MAP, KEY, V1ConfigMap(data={"k": "v"})) == stored
    bodies = [request.body for request in server.requests()]
    assert bodies == [manifest(), manifest(), manifest(), {"data": {"k": "v"}}]


async def test_generated_model_can_be_an_owner(server: ApiServer, live_client: Client) -> None:
    server.answer("GET", PATH, json(config_map()))
    server.answer("PATCH", PATH, json(config_map()))
    owner = generated_manifest()
    owner.metadata.name, owner.metadata.uid = "owner", "u9"
    server.answer("GET", f"{PATH.rpartition('/')[0]}/owner", json(config_map(uid="u9")))
    await reconcile_children(live_client, owner, [Child.present(manifest())])
    reference = server.requests("PATCH")[0].body["metadata"]["ownerReferences"][0]
    assert reference == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": "u9",
        "controller": True,
    }


async def test_apply_of_an_applied_generated_model_sends_no_request(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(config_map({"k": "v", "theirs": "x"}))
    cache.managers = (OURS,)
    assert await client.apply(generated_manifest()) == config_map({"k": "v", "theirs": "x"})
    assert server.all_requests == []


async def test_generated_model_without_kind_is_an_error(
    server: ApiServer, live_client: Client
) -> None:
    with pytest.raises(ValueError, match="V1ConfigMap: api_version and kind must be set"):
        await live_client.create(V1ConfigMap(metadata=V1ObjectMeta(name="a", namespace="ns")))
    assert server.all_requests == []


async def test_apply_of_an_applied_object_sends_no_request(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(config_map({"k": "v", "theirs": "x"}))
    cache.managers = (OURS,)
    assert await client.apply(manifest()) == config_map({"k": "v", "theirs": "x"})
    assert server.all_requests == []


async def test_apply_by_another_field_manager_is_sent(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(config_map({"k": "v"}))
    cache.managers = (OURS,)
    server.answer("PATCH", PATH, json(config_map({"k": "v"}, resourceVersion="6")))
    await client.apply(manifest(), field_manager="other", force=False)
    assert server.requests()[0].query == {"fieldManager": "other", "force": "false"}


async def test_apply_of_a_different_object_is_sent(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(config_map({"k": "v"}))
    cache.managers = (OURS,)
    server.answer("PATCH", PATH, json(config_map({"k": "w"}, resourceVersion="6")))
    assert (await client.apply(manifest({"k": "w"})))["data"] == {"k": "w"}


async def test_apply_that_changed_nothing_is_not_sent_again(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    """The server normalizes a value, so that the stored value never equals the desired one."""
    cache.put(config_map({"k": "normalized"}))
    cache.managers = (OURS,)
    server.answer("PATCH", PATH, json(config_map({"k": "normalized"})))
    for _ in range(3):
        await client.apply(manifest())
    await client.with_field_manager("me").apply(manifest())
    assert len(server.requests()) == 1
    cache.put(config_map({"k": "changed by another"}, resourceVersion="7"))
    await client.apply(manifest())
    assert len(server.requests()) == 2


async def test_object_that_cannot_be_encoded_is_a_terminal_error(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    """A reconcile that raises it is logged once and not retried."""
    nested: Any = {}
    for _ in range(300):
        nested = {"a": nested}
    deep: Object = {**manifest(), "data": {"k": nested}}
    for unencodable in (deep, {**manifest(), "data": {"k": {1, 2}}}):
        for write in (client.apply, client.create, client.update):
            with pytest.raises(
                EncodingError, match=r"cannot encode the object for (apply|create|update) of "
            ) as error:
                await write(unencodable)
            assert isinstance(error.value, TerminalError)
            assert "configmaps" in str(error.value)
    assert server.requests() == []


async def test_apply_of_an_uncertain_object_is_sent(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(config_map({"k": "v"}))
    cache.managers = (OURS,)
    cache.uncertain.add(KEY)
    server.answer("PATCH", PATH, json(config_map({"k": "v"})))
    await client.apply(manifest())
    assert len(server.requests()) == 1
    assert not cache.uncertain


async def test_lost_apply_is_retried(server: ApiServer, live_client: Client) -> None:
    server.answer("PATCH", PATH, abort_connection, json(config_map()))
    assert await live_client.apply(manifest()) == config_map()


async def test_lost_apply_with_a_resource_version_is_not_retried(
    server: ApiServer, live_client: Client
) -> None:
    server.answer("PATCH", PATH, abort_connection, json(config_map()))
    with pytest.raises(TransportError):
        await live_client.apply(manifest(resourceVersion="5"))


async def test_apply_with_a_controller_keeps_other_owner_references(
    server: ApiServer, live_client: Client
) -> None:
    server.answer("PATCH", PATH, json(config_map()))
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r", "namespace": "ns", "uid": "o"},
    }
    desired = manifest(ownerReferences=[{"uid": "other"}, {"uid": "o", "stale": True}])
    await live_client.apply(set_controller_owner(desired, owner))
    reference = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": "r",
        "uid": "o",
        "controller": True,
    }
    assert server.requests()[0].body["metadata"]["ownerReferences"] == [{"uid": "other"}, reference]
    assert desired == manifest(ownerReferences=[{"uid": "other"}, {"uid": "o", "stale": True}])


async def test_owner_in_another_namespace_is_rejected(
    server: ApiServer, live_client: Client
) -> None:
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r", "namespace": "x", "uid": "o"},
    }
    with pytest.raises(ValueError, match="its owner x/r is in another namespace"):
        await live_client.apply(set_controller_owner(manifest(), owner))
    assert server.all_requests == []


async def test_string_data_of_secrets_is_applied_as_data(
    server: ApiServer, live_client: Client
) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a", "namespace": "ns"},
        "stringData": {"k": "v"},
        "data": {"k": "b2xk", "j": "dw=="},
    }
    server.answer("PATCH", "/api/v1/namespaces/ns/secrets/a", json(secret))
    await live_client.apply(secret)
    body = server.requests()[0].body
    assert "stringData" not in body
    assert body["data"] == {"k": base64.b64encode(b"v").decode(), "j": "dw=="}


async def test_apply_of_status_is_compared_and_sent_to_the_subresource(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    status = {"f:status": {"f:phase": {}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ns"},
        "status": {"phase": "Running"},
    }
    cache.put({**pod, "metadata": {**pod["metadata"], "uid": "u1", "resourceVersion": "5"}})
    cache.managers = ({**OURS, "fieldsV1": status, "subresource": "status"},)
    await client.apply(pod, subresource="status")
    assert server.all_requests == []
    failed = {**pod, "status": {"phase": "Failed"}}
    server.answer("PATCH", "/api/v1/namespaces/ns/pods/a/status", json(failed))
    assert await client.apply(failed, subresource="status") == failed


# The uid of a status, which API servers do not compare for custom resources.

POD_PATH = "/api/v1/namespaces/ns/pods/a"
STALE = error_response(409, "Conflict", "the object has been modified")


def pod(phase: str, version: str = "5", uid: str = "u1") -> Object:
    metadata = {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": phase}}


async def apply_failed(client: Client) -> Object:
    return await client.apply(without_version(pod("Failed")), subresource="status")


async def patch_failed(client: Client) -> Object:
    return await client.patch_object(pod("Running"), {"status": {}}, subresource="status")


def without_version(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}


def sent_versions(server: ApiServer) -> list[str]:
    metadata = [request.body["metadata"] for request in server.requests("PATCH")]
    assert all(each["uid"] == "u1" for each in metadata)
    return [each["resourceVersion"] for each in metadata]


write_of_status = pytest.mark.parametrize("write", [apply_failed, patch_failed])


@write_of_status
async def test_uid_of_a_status_is_sent_with_the_cached_version(
    server: ApiServer, client: Client, cache: FakeCache, write: Any
) -> None:
    cache.put(pod("Running"))
    server.answer("PATCH", f"{POD_PATH}/status", json(pod("Failed", "6")))
    assert await write(client) == pod("Failed", "6")
    assert sent_versions(server) == ["5"]
    assert len(server.requests()) == 1


@write_of_status
async def test_status_reaches_a_newer_state_of_the_same_object(
    server: ApiServer, client: Client, cache: FakeCache, write: Any
) -> None:
    cache.put(pod("Running"))
    server.answer("PATCH", f"{POD_PATH}/status", STALE, json(pod("Failed", "8")))
    server.answer("GET", POD_PATH, json(pod("Running", "7")))
    assert await write(client) == pod("Failed", "8")
    assert sent_versions(server) == ["5", "7"]


@write_of_status
@pytest.mark.parametrize(
    "live",
    [
        pytest.param(pod("Pending", "7", uid="u2"), id="recreated"),
        pytest.param(pod("Pending", "4"), id="the database was restored"),
        pytest.param(pod("Pending", "5"), id="unchanged"),
    ],
)
async def test_status_reaches_no_other_and_no_older_object(
    server: ApiServer, client: Client, cache: FakeCache, live: Object, write: Any
) -> None:
    cache.put(pod("Running"))
    server.answer("PATCH", f"{POD_PATH}/status", STALE)
    server.answer("GET", POD_PATH, json(live))
    with pytest.raises(Conflict):
        await write(client)
    assert sent_versions(server) == ["5"]


@write_of_status
async def test_status_of_an_object_that_is_not_cached_gets_the_live_version(
    server: ApiServer, live_client: Client, write: Any
) -> None:
    server.answer("PATCH", f"{POD_PATH}/status", json(pod("Failed", "8")))
    server.answer("GET", POD_PATH, json(pod("Running", "7")), json(pod("Running", uid="u2")))
    await write(live_client)
    assert sent_versions(server) == ["7"]
    with pytest.raises(Conflict, match="ns/a was recreated: its uid is u2, not u1"):
        await write(live_client)
    assert len(server.requests("PATCH")) == 1


@write_of_status
async def test_status_of_a_deleted_object_is_not_sent(
    server: ApiServer, live_client: Client, write: Any
) -> None:
    server.answer("GET", POD_PATH, error_response(404, "NotFound", name="a"))
    with pytest.raises(NotFound, match="ns/a does not exist"):
        await write(live_client)
    assert not server.requests("PATCH")


async def test_status_that_another_manager_owns_is_sent_once(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(pod("Running"))
    causes = [{"reason": "FieldManagerConflict", "field": ".status.phase"}]
    server.answer("PATCH", f"{POD_PATH}/status", error_response(409, "Conflict", causes=causes))
    with pytest.raises(Conflict):
        await apply_failed(client)
    assert len(server.requests()) == 1


async def test_status_of_an_object_that_changes_all_the_time_is_not_sent_forever(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(pod("Running"))
    server.answer("PATCH", f"{POD_PATH}/status", STALE)
    states = (json(pod("Running", str(version))) for version in range(6, 100))
    server.answer("GET", POD_PATH, *states)
    with pytest.raises(Conflict):
        await apply_failed(client)
    assert sent_versions(server) == ["5", "6", "7", "8", "9"]


# Objects that another client deleted, perhaps because it deleted their controller.

OWNER_KEY = NamespacedName("ns", "owner")
OWNER_PATH = f"{COLLECTION}/owner"
OWNER_REFERENCE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "owner",
    "uid": "owner-uid",
    "controller": True,
}
CHILD = manifest(ownerReferences=[OWNER_REFERENCE])


def owner(**metadata: Any) -> Object:
    return config_map(**{"name": "owner", "uid": "owner-uid", **metadata})


NO_OWNER = error_response(404, "NotFound", name="owner", kind="configmaps")
DELETING = owner(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["f"])


@pytest.mark.parametrize(
    ("response", "record"),
    [
        pytest.param(NO_OWNER, ("deleted", OWNER_KEY, "owner-uid"), id="deleted"),
        pytest.param(json(owner(uid="next")), ("written", OWNER_KEY, "next"), id="replaced"),
        pytest.param(json(DELETING), ("written", OWNER_KEY, "owner-uid"), id="deleting"),
    ],
)
async def test_deleted_object_of_a_deleted_controller_is_not_recreated(
    server: ApiServer,
    client: Client,
    cache: FakeCache,
    response: Any,
    record: tuple[str, NamespacedName, str],
) -> None:
    cache.put(owner())
    cache.controllers_of_deleted = {KEY: "owner-uid"}
    server.answer("GET", OWNER_PATH, response)
    with pytest.raises(OwnerDeleted, match=r"ns/a: not recreated, because .* ns/owner"):
        await client.create(CHILD)
    assert cache.records == [record]
    cache.put(owner())
    with pytest.raises(OwnerDeleted):
        await client.apply(CHILD)
    assert {request.method for request in server.requests()} == {"GET"}


@pytest.mark.parametrize(
    ("response", "cached"),
    [
        pytest.param(json(owner()), owner(), id="exists"),
        pytest.param(json(DELETING), DELETING, id="known to be deleting"),
        pytest.param(error_response(403, "Forbidden"), owner(), id="forbidden"),
    ],
)
async def test_deleted_object_is_recreated_after_one_read_of_its_controller(
    server: ApiServer, client: Client, cache: FakeCache, response: Any, cached: Object
) -> None:
    cache.put(cached)
    cache.controllers_of_deleted = {KEY: "owner-uid"}
    server.answer("GET", OWNER_PATH, response)
    server.answer("POST", COLLECTION, json(config_map(), 201))
    await client.create(CHILD)
    assert [request.method for request in server.requests()] == ["GET", "POST"]


async def test_object_of_another_controller_than_the_deleted_one_is_created_without_a_read(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.controllers_of_deleted = {KEY: "previous-uid"}
    server.answer("POST", COLLECTION, json(config_map(), 201))
    await client.create(CHILD)
    assert [request.method for request in server.requests()] == ["POST"]


@pytest.mark.parametrize("subresource", ["status", "scale"])
async def test_write_of_a_subresource_that_does_not_find_it_keeps_the_object(
    server: ApiServer, client: Client, cache: FakeCache, subresource: str
) -> None:
    """The API server gives the same response if the object, or only the subresource is missing."""
    cache.put(config_map())
    path = f"{PATH}/{subresource}"
    server.answer("PATCH", path, error_response(404, "NotFound", name="a", kind="configmaps"))
    with pytest.raises(
        UnknownSubresource,
        match=f"configmaps ns/a: .* no subresource {subresource}; a CRD declares",
    ):
        await client.patch(CONFIG_MAP, KEY, {"data": {"k": "w"}}, subresource=subresource)
    assert cache.records == [("uncertain", KEY, "")]


async def test_subresource_that_is_served_does_not_find_a_deleted_object(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer(
        "PATCH",
        "/api/v1/namespaces/ns/pods/a/status",
        error_response(404, "NotFound", name="a", kind="pods"),
    )
    with pytest.raises(NotFound):
        await client.patch(POD, KEY, {"status": {"phase": "Failed"}}, subresource="status")
    assert cache.records == [("uncertain", KEY, "")]


async def test_write_that_does_not_find_the_object_records_its_deletion(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(config_map())
    server.answer("PATCH", PATH, error_response(404, "NotFound", name="a", kind="configmaps"))
    with pytest.raises(NotFound):
        await client.patch(CONFIG_MAP, KEY, {"data": {"k": "w"}})
    assert cache.records == [("deleted", KEY, "u1")]
