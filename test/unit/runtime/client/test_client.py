from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web

from cfo.runtime import (
    AlreadyExists,
    APIError,
    Client,
    ClientConfig,
    Conflict,
    Expired,
    NotFound,
    PatchType,
    Propagation,
    Transport,
    TransportError,
    UnknownKind,
)
from cfo.runtime.client.object_cache import StoredObject
from cfo.runtime.discovery import RESTMapper
from cfo.runtime.kinds import CONFIG_MAP, NAMESPACE, POD
from cfo.runtime.objects import GVK, NamespacedName, Object, key_of, uid_of
from test.support.api_server import (
    APIS,
    CORE,
    ApiServer,
    ImpatientClock,
    cut,
    json,
    refusal,
    text,
)

KEY = NamespacedName("ns", "a")
COLLECTION = "/api/v1/namespaces/ns/configmaps"
PATH = f"{COLLECTION}/a"


class FakeCache:
    """A cache that holds what it is told, and remembers what it was told."""

    def __init__(self) -> None:
        self.covered = True
        self.objects: dict[NamespacedName, Object] = {}
        self.managers: tuple[dict[str, Any], ...] = ()
        self.doubted: set[NamespacedName] = set()
        self.told: list[tuple[str, NamespacedName, str]] = []

    def put(self, obj: Object) -> None:
        self.objects[key_of(obj)] = obj

    def covers(self, gvk: GVK, namespace: str) -> bool:
        return self.covered

    def get(self, gvk: GVK, key: NamespacedName) -> Object | None:
        return self.objects.get(key)

    def list(self, gvk: GVK, namespace: str, label_selector: str) -> list[Object]:
        return [{"asked": [namespace, label_selector]}]

    def stored(self, gvk: GVK, key: NamespacedName) -> StoredObject | None:
        obj = self.objects.get(key)
        if obj is None:
            return None
        return StoredObject(orjson.dumps(obj), self.managers, uid_of(obj), obj["metadata"].get("resourceVersion", ""))

    def record_write(self, gvk: GVK, answer: bytes) -> None:
        obj = orjson.loads(answer)
        self.doubted.discard(key_of(obj))
        self.put(obj)
        self.told.append(("wrote", key_of(obj), uid_of(obj)))

    def record_deletion(self, gvk: GVK, key: NamespacedName, uid: str) -> None:
        self.doubted.discard(key)
        self.told.append(("deleted", key, uid))

    def mark_uncertain(self, gvk: GVK, key: NamespacedName) -> None:
        self.doubted.add(key)
        self.told.append(("uncertain", key, ""))

    def is_uncertain(self, gvk: GVK, key: NamespacedName) -> bool:
        return key in self.doubted

    def uncertain_keys(self, gvk: GVK, namespace: str) -> set[NamespacedName]:
        return {key for key in self.doubted if namespace in ("", key.namespace)}


def config_map(data: dict[str, str] | None = None, **metadata: Any) -> Object:
    defaults = {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "5"}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {**defaults, **metadata}, "data": data or {}}


def wanted(data: dict[str, str] | None = None, **metadata: Any) -> Object:
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
    async with Transport(ClientConfig(server=server.url), clock=ImpatientClock()) as transport:
        yield transport


@pytest.fixture
def live(transport: Transport) -> Client:
    """A client without a cache."""
    return Client(transport, RESTMapper(transport), field_manager="me")


@pytest.fixture
def client(transport: Transport, cache: FakeCache) -> Client:
    return Client(transport, RESTMapper(transport), field_manager="me", cache=cache)


# Reads.


async def test_get(server: ApiServer, live: Client) -> None:
    server.answer("GET", PATH, json(config_map()))
    assert await live.get(CONFIG_MAP, KEY) == config_map()


async def test_get_of_what_is_not_there(server: ApiServer, live: Client) -> None:
    server.answer("GET", PATH, refusal(404, "NotFound", name="a", kind="configmaps"))
    assert await live.get(CONFIG_MAP, KEY) is None


async def test_a_kind_that_is_not_served_any_more(server: ApiServer, live: Client) -> None:
    server.answer("GET", PATH, text("404 page not found\n", 404))
    with pytest.raises(UnknownKind, match=r"^get configmaps: 404 page not found$"):
        await live.get(CONFIG_MAP, KEY)
    before = len(server.asked)
    with pytest.raises(UnknownKind):
        await live.get(CONFIG_MAP, KEY)
    assert "/api" in [asked.path for asked in server.asked[before:]]


async def test_a_namespace_does_not_matter_to_a_cluster_scoped_kind(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    server.answer("GET", "/api/v1/namespaces/x", {"kind": "Namespace", "metadata": {"name": "x"}})
    assert await client.get(NAMESPACE, NamespacedName("ignored", "x"), live=True) is not None
    cache.put({"kind": "Namespace", "metadata": {"name": "x", "uid": "cached"}})
    assert uid_of(await client.get(NAMESPACE, NamespacedName("ignored", "x")) or {}) == "cached"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
async def test_names_that_are_none(server: ApiServer, live: Client, name: str) -> None:
    for request in (
        live.get(CONFIG_MAP, NamespacedName("ns", name)),
        live.delete(CONFIG_MAP, NamespacedName("ns", name)),
        live.apply(wanted(name=name)),
    ):
        with pytest.raises(ValueError, match=r"ConfigMap\.v1: name"):
            await request
    assert server.asked == []


async def test_a_missing_namespace(server: ApiServer, live: Client) -> None:
    for request in (
        live.get(CONFIG_MAP, NamespacedName("", "a")),
        live.create(wanted(namespace="")),
        live.delete_collection(CONFIG_MAP),
    ):
        with pytest.raises(ValueError, match=r"ConfigMap\.v1: namespace is missing"):
            await request
    assert server.requests() == []


async def test_reads_that_the_cache_can_answer_make_no_request(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    cache.put(config_map())
    assert await client.get(CONFIG_MAP, KEY) == config_map()
    assert await client.get(CONFIG_MAP, NamespacedName("ns", "b")) is None
    assert await client.list(CONFIG_MAP, namespace="ns", label_selector="x=y") == [{"asked": ["ns", "x=y"]}]
    assert server.asked == []


async def test_reads_that_the_cache_cannot_answer(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("GET", PATH, json(config_map({"is": "live"})))
    server.answer("GET", COLLECTION, json({"kind": "ConfigMapList", "items": []}))
    cache.put(config_map())
    assert await client.get(CONFIG_MAP, KEY, live=True) == config_map({"is": "live"})
    assert await client.list(CONFIG_MAP, namespace="ns", live=True) == []
    assert await client.list(CONFIG_MAP, namespace="ns", field_selector="metadata.name=a") == []
    cache.covered = False
    assert await client.get(CONFIG_MAP, KEY) == config_map({"is": "live"})
    assert await client.list(CONFIG_MAP, namespace="ns") == []


async def test_list_in_pages(server: ApiServer, live: Client) -> None:
    pages = [
        json({"kind": "ConfigMapList", "metadata": {"continue": "t"}, "items": [{"metadata": {"name": "a"}}]}),
        json({"kind": "ConfigMapList", "metadata": {}, "items": [{"metadata": {"name": "b"}, "kind": "Kept"}]}),
    ]
    server.answer("GET", "/api/v1/configmaps", *pages)
    objects = await live.list(CONFIG_MAP, label_selector="a in (b,c)", field_selector="metadata.name!=x")
    assert objects == [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "Kept", "metadata": {"name": "b"}},
    ]
    selectors = {"labelSelector": "a in (b,c)", "fieldSelector": "metadata.name!=x", "limit": "500"}
    assert [asked.query for asked in server.requests()] == [selectors, {**selectors, "continue": "t"}]
    assert server.requests()[0].headers["Accept-Encoding"] == "gzip"


async def test_pages_that_expire_are_read_anew(server: ApiServer, live: Client) -> None:
    first = json({"metadata": {"continue": "t"}, "items": [{"metadata": {"name": "a"}}]})
    server.answer("GET", COLLECTION, first, refusal(410, "Expired"), first, refusal(410, "Expired"))
    server.answer("GET", COLLECTION, json({"items": [{"metadata": {"name": "b"}}]}))
    objects = await live.list(CONFIG_MAP, namespace="ns")
    assert [key_of(obj).name for obj in objects] == ["b"]
    assert [asked.query.get("limit") for asked in server.requests()] == ["500", "500", "500", "500", None]


async def test_a_whole_list_that_expires_is_an_error(server: ApiServer, live: Client) -> None:
    server.answer("GET", COLLECTION, refusal(410, "Expired"))
    with pytest.raises(Expired):
        await live.list(CONFIG_MAP, namespace="ns")
    assert len(server.requests()) == 3


async def test_get_a_subresource(server: ApiServer, live: Client) -> None:
    path = "/apis/apps/v1/namespaces/ns/deployments/a/scale"
    server.answer("GET", path, {"kind": "Scale", "spec": {"replicas": 2}})
    scale = await live.get_subresource(GVK("apps", "v1", "Deployment"), KEY, "scale")
    assert scale is not None
    assert scale["spec"] == {"replicas": 2}
    server.answer("GET", path, refusal(404, "NotFound", name="a"))
    assert await live.get_subresource(GVK("apps", "v1", "Deployment"), KEY, "scale") is not None
    assert await live.get_subresource(GVK("apps", "v1", "Deployment"), KEY, "scale") is None


# Writes.


async def test_create(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("POST", COLLECTION, json(config_map(), 201))
    assert await client.create(wanted()) == config_map()
    asked = server.requests()[0]
    assert (asked.query, asked.body) == ({"fieldManager": "me"}, wanted())
    assert cache.told == [("wrote", KEY, "u1")]


async def test_create_with_a_generated_name(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("POST", COLLECTION, json(config_map(name="a-x7"), 201), cut)
    obj = wanted(generateName="a-")
    del obj["metadata"]["name"]
    assert key_of(await client.create(obj)).name == "a-x7"
    with pytest.raises(TransportError):
        await client.create(obj)
    assert cache.told == [("wrote", NamespacedName("ns", "a-x7"), "u1")]


async def test_create_what_exists(server: ApiServer, live: Client) -> None:
    server.answer("POST", COLLECTION, refusal(409, "AlreadyExists", 'configmaps "a" already exists', name="a"))
    with pytest.raises(AlreadyExists, match=r'^create configmaps: configmaps "a" already exists$'):
        await live.create(wanted())


async def test_create_in_a_namespace_that_is_not_there(server: ApiServer, live: Client) -> None:
    server.answer("POST", COLLECTION, refusal(404, "NotFound", name="ns", kind="namespaces"))
    with pytest.raises(NotFound):
        await live.create(wanted())


async def test_create_a_subresource(server: ApiServer, client: Client, cache: FakeCache) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "ns"}}
    server.answer("POST", "/api/v1/namespaces/ns/pods/p/eviction", json({"kind": "Status", "status": "Success"}, 201))
    assert (await client.create(eviction, subresource="eviction", gvk=POD))["kind"] == "Status"
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    server.answer("POST", "/api/v1/namespaces/ns/serviceaccounts/s/token", json(token, 201))
    account = GVK("", "v1", "ServiceAccount")
    assert await client.create(token, subresource="token", gvk=account, key=NamespacedName("ns", "s")) == token
    assert cache.told == []


async def test_update(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("PUT", PATH, json(config_map(resourceVersion="6")), refusal(409, "Conflict", name="a"))
    assert await client.update(config_map()) == config_map(resourceVersion="6")
    with pytest.raises(Conflict):
        await client.update(config_map())
    assert cache.told == [("wrote", KEY, "u1")]


async def test_update_a_subresource_of_its_own_kind(server: ApiServer, client: Client, cache: FakeCache) -> None:
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "ns"}}
    server.answer("PUT", "/apis/apps/v1/namespaces/ns/deployments/d/scale", json(scale))
    assert await client.update(scale, subresource="scale", gvk=GVK("apps", "v1", "Deployment")) == scale
    assert cache.told == []


@pytest.mark.parametrize(
    ("patch_type", "body"),
    [
        (PatchType.MERGE, {"data": {"k": None}}),
        (PatchType.STRATEGIC, {"data": {"k": "v"}}),
        (PatchType.JSON, [{"op": "remove", "path": "/data/k"}]),
    ],
)
async def test_patch(server: ApiServer, client: Client, cache: FakeCache, patch_type: PatchType, body: Any) -> None:
    server.answer("PATCH", PATH, json(config_map()))
    await client.patch(CONFIG_MAP, KEY, body, patch_type)
    asked = server.requests()[0]
    assert (asked.headers["Content-Type"], asked.body) == (patch_type.value, body)
    assert cache.told == [("wrote", KEY, "u1")]


async def test_patch_a_status(server: ApiServer, client: Client) -> None:
    path = "/api/v1/namespaces/ns/pods/a/status"
    server.answer("PATCH", path, {"kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}})
    await client.patch(POD, KEY, {"status": {}}, subresource="status")
    server.answer("PATCH", path, refusal(422, "Invalid", name="a"))


async def test_dry_runs_teach_nothing(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("POST", COLLECTION, json(config_map(), 201))
    server.answer("PUT", PATH, json(config_map()))
    server.answer("PATCH", PATH, json(config_map()), json(config_map()), cut)
    cache.put(config_map({"k": "v"}))
    cache.managers = (OURS,)
    await client.create(wanted(), dry_run=True)
    await client.update(config_map(), dry_run=True)
    await client.patch(CONFIG_MAP, KEY, {}, dry_run=True)
    await client.apply(wanted(), dry_run=True)
    with pytest.raises(TransportError):
        await client.patch(CONFIG_MAP, KEY, {}, dry_run=True)
    assert [asked.query["dryRun"] for asked in server.requests()] == ["All"] * 5
    assert cache.told == []


async def test_another_field_manager(server: ApiServer, client: Client) -> None:
    server.answer("PATCH", PATH, json(config_map()))
    await client.with_field_manager("other").patch(CONFIG_MAP, KEY, {})
    await client.patch(CONFIG_MAP, KEY, {})
    assert [asked.query["fieldManager"] for asked in server.requests()] == ["other", "me"]


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"deletionTimestamp": "T", "finalizers": ["f"], "deletionGracePeriodSeconds": 0}, "wrote"),
        ({"deletionTimestamp": "T", "finalizers": []}, "deleted"),
        ({"deletionTimestamp": "T", "deletionGracePeriodSeconds": 0}, "deleted"),
        ({"deletionTimestamp": "T", "deletionGracePeriodSeconds": 30}, "wrote"),
        ({"finalizers": []}, "wrote"),
    ],
)
async def test_removing_the_last_finalizer_is_the_end(
    server: ApiServer, client: Client, cache: FakeCache, metadata: dict[str, Any], told: str
) -> None:
    server.answer("PATCH", PATH, json(config_map(**metadata)))
    await client.patch(CONFIG_MAP, KEY, {"metadata": {"finalizers": None}})
    assert cache.told == [(told, KEY, "u1")]


async def test_a_namespace_has_finalizers_of_its_own(server: ApiServer, client: Client, cache: FakeCache) -> None:
    obj = {"kind": "Namespace", "metadata": {"name": "x", "uid": "n", "deletionTimestamp": "T"}}
    path = "/api/v1/namespaces/x"
    server.answer("DELETE", path, {**obj, "spec": {"finalizers": ["kubernetes"]}}, obj)
    await client.delete(NAMESPACE, NamespacedName("", "x"))
    await client.delete(NAMESPACE, NamespacedName("", "x"))
    assert [told[0] for told in cache.told] == ["wrote", "deleted"]


# Deletion.


async def test_delete(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("DELETE", PATH, {"kind": "Status", "status": "Success", "details": {"name": "a", "uid": "u1"}})
    assert await client.delete(CONFIG_MAP, KEY)
    assert server.requests()[0].body is None
    assert cache.told == [("deleted", KEY, "u1")]


async def test_delete_with_options(server: ApiServer, live: Client) -> None:
    server.answer("DELETE", PATH, {"kind": "Status", "status": "Success"}, refusal(409, "Conflict", name="a"))
    options: dict[str, Any] = {
        "uid": "u1",
        "resource_version": "5",
        "propagation_policy": Propagation.FOREGROUND,
        "grace_period_seconds": 0,
    }
    assert await live.delete(CONFIG_MAP, KEY, **options)
    assert server.requests()[0].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1", "resourceVersion": "5"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }
    with pytest.raises(Conflict):
        await live.delete(CONFIG_MAP, KEY, **options)


async def test_delete_what_is_gone(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("DELETE", PATH, refusal(404, "NotFound", name="a"))
    cache.put(config_map())
    assert not await client.delete(CONFIG_MAP, KEY)
    assert cache.told == [("deleted", KEY, "u1")]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (config_map(), "deleted"),
        (config_map(deletionTimestamp="T", finalizers=["f"]), "wrote"),
        (config_map(deletionTimestamp="T"), "deleted"),
    ],
)
async def test_a_delete_that_answers_with_the_object(
    server: ApiServer, client: Client, cache: FakeCache, answer: Object, told: str
) -> None:
    server.answer("DELETE", PATH, answer)
    assert await client.delete(CONFIG_MAP, KEY)
    assert cache.told == [(told, KEY, "u1")]


async def test_a_lost_delete_is_repeated_only_with_a_uid(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("DELETE", PATH, cut, cut, refusal(404, "NotFound", name="a"))
    with pytest.raises(TransportError):
        await client.delete(CONFIG_MAP, KEY)
    assert cache.told == [("uncertain", KEY, "")]
    assert not await client.delete(CONFIG_MAP, KEY, uid="u1")


async def test_delete_a_collection(server: ApiServer, client: Client, cache: FakeCache) -> None:
    items = [
        {"metadata": {"name": "a", "namespace": "ns", "uid": "1"}},
        {"metadata": {"name": "b", "namespace": "ns", "uid": "2", "deletionTimestamp": "T", "finalizers": ["f"]}},
    ]
    server.answer("DELETE", COLLECTION, {"kind": "ConfigMapList", "items": items})
    await client.delete_collection(
        CONFIG_MAP, namespace="ns", label_selector="x=y", propagation_policy=Propagation.BACKGROUND
    )
    asked = server.requests()[0]
    assert asked.query == {"labelSelector": "x=y"}
    assert asked.body["propagationPolicy"] == "Background"
    assert cache.told == [("deleted", KEY, "1"), ("wrote", NamespacedName("ns", "b"), "2")]


# Doubt.


@pytest.mark.parametrize("answer", [cut, refusal(500, "InternalError"), refusal(504, "Timeout"), text("", 502)])
async def test_after_a_write_of_unknown_outcome_the_next_read_is_live(
    server: ApiServer, client: Client, cache: FakeCache, answer: Any
) -> None:
    cache.put(config_map())
    server.answer("PUT", PATH, answer)
    with pytest.raises((TransportError, APIError)):
        await client.update(config_map())
    assert cache.told == [("uncertain", KEY, "")]
    server.answer("GET", PATH, json(config_map({"k": "new"}, resourceVersion="6")))
    assert await client.get(CONFIG_MAP, KEY) == config_map({"k": "new"}, resourceVersion="6")
    assert await client.get(CONFIG_MAP, KEY) == config_map({"k": "new"}, resourceVersion="6")
    assert len(server.requests("GET")) == 1


async def test_a_list_settles_doubts_first(server: ApiServer, client: Client, cache: FakeCache) -> None:
    cache.doubted = {KEY, NamespacedName("elsewhere", "b")}
    server.answer("GET", PATH, json(config_map()))
    assert await client.list(CONFIG_MAP, namespace="ns") == [{"asked": ["ns", ""]}]
    assert cache.told == [("wrote", KEY, "u1")]
    assert cache.doubted == {NamespacedName("elsewhere", "b")}


async def test_a_create_of_unknown_outcome(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("POST", COLLECTION, cut)
    with pytest.raises(TransportError):
        await client.create(wanted())
    assert cache.told == [("uncertain", KEY, "")]
    server.answer("GET", PATH, refusal(404, "NotFound", name="a"))
    assert await client.get(CONFIG_MAP, KEY) is None
    assert cache.told[1:] == [("deleted", KEY, "")]


async def test_a_refused_write_leaves_no_doubt(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("PUT", PATH, refusal(409, "Conflict", name="a"))
    with pytest.raises(Conflict):
        await client.update(config_map())
    assert cache.told == []


async def test_what_a_watch_brings_while_we_ask_is_not_forgotten(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    """The 404 is older than the object which a watch has told of meanwhile."""
    asked, told = asyncio.Event(), asyncio.Event()

    async def gone(request: web.Request) -> web.StreamResponse:
        asked.set()
        await told.wait()
        return await refusal(404, "NotFound", name="a")(request)

    server.answer("GET", PATH, gone)
    cache.mark_uncertain(CONFIG_MAP, KEY)
    reading = asyncio.create_task(client.get(CONFIG_MAP, KEY))
    await asked.wait()
    cache.put(config_map(uid="u2"))
    told.set()
    assert await reading is None
    assert cache.told == [("uncertain", KEY, "")]
    assert cache.is_uncertain(CONFIG_MAP, KEY)


# Apply.


async def test_apply(server: ApiServer, client: Client, cache: FakeCache) -> None:
    server.answer("PATCH", PATH, json(config_map({"k": "v"}), 201))
    assert await client.apply(wanted()) == config_map({"k": "v"})
    asked = server.requests()[0]
    assert asked.query == {"fieldManager": "me", "force": "true"}
    assert asked.headers["Content-Type"] == "application/apply-patch+yaml"
    assert asked.body == wanted()
    assert cache.told == [("wrote", KEY, "u1")]


async def test_apply_what_is_applied(server: ApiServer, client: Client, cache: FakeCache) -> None:
    cache.put(config_map({"k": "v", "theirs": "x"}))
    cache.managers = (OURS,)
    assert await client.apply(wanted()) == config_map({"k": "v", "theirs": "x"})
    assert server.asked == []


async def test_apply_what_is_applied_by_another_manager(server: ApiServer, client: Client, cache: FakeCache) -> None:
    cache.put(config_map({"k": "v"}))
    cache.managers = (OURS,)
    server.answer("PATCH", PATH, json(config_map({"k": "v"}, resourceVersion="6")))
    await client.apply(wanted(), field_manager="other", force=False)
    assert server.requests()[0].query == {"fieldManager": "other", "force": "false"}


async def test_apply_what_is_different(server: ApiServer, client: Client, cache: FakeCache) -> None:
    cache.put(config_map({"k": "v"}))
    cache.managers = (OURS,)
    server.answer("PATCH", PATH, json(config_map({"k": "w"}, resourceVersion="6")))
    assert (await client.apply(wanted({"k": "w"})))["data"] == {"k": "w"}


async def test_an_apply_that_changed_nothing_is_not_repeated(
    server: ApiServer, client: Client, cache: FakeCache
) -> None:
    """The server writes a value in its own way, so that it is never equal to ours."""
    cache.put(config_map({"k": "normalized"}))
    cache.managers = (OURS,)
    server.answer("PATCH", PATH, json(config_map({"k": "normalized"})))
    for _ in range(3):
        await client.apply(wanted())
    await client.with_field_manager("me").apply(wanted())
    assert len(server.requests()) == 1
    cache.put(config_map({"k": "changed by another"}, resourceVersion="7"))
    await client.apply(wanted())
    assert len(server.requests()) == 2


async def test_an_apply_in_doubt_is_sent(server: ApiServer, client: Client, cache: FakeCache) -> None:
    cache.put(config_map({"k": "v"}))
    cache.managers = (OURS,)
    cache.doubted.add(KEY)
    server.answer("PATCH", PATH, json(config_map({"k": "v"})))
    await client.apply(wanted())
    assert len(server.requests()) == 1
    assert not cache.doubted


async def test_a_lost_apply_is_repeated(server: ApiServer, live: Client) -> None:
    server.answer("PATCH", PATH, cut, json(config_map()))
    assert await live.apply(wanted()) == config_map()


async def test_a_lost_apply_of_one_version_is_not_repeated(server: ApiServer, live: Client) -> None:
    server.answer("PATCH", PATH, cut, json(config_map()))
    with pytest.raises(TransportError):
        await live.apply(wanted(resourceVersion="5"))


async def test_apply_with_an_owner(server: ApiServer, live: Client) -> None:
    server.answer("PATCH", PATH, json(config_map()))
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r", "namespace": "ns", "uid": "o"}}
    desired = wanted(ownerReferences=[{"uid": "other"}, {"uid": "o", "stale": True}])
    await live.apply(desired, owner=owner)
    reference = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "r", "uid": "o", "controller": True}
    assert server.requests()[0].body["metadata"]["ownerReferences"] == [{"uid": "other"}, reference]
    assert desired == wanted(ownerReferences=[{"uid": "other"}, {"uid": "o", "stale": True}])


async def test_an_owner_in_another_namespace(server: ApiServer, live: Client) -> None:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r", "namespace": "x", "uid": "o"}}
    with pytest.raises(ValueError, match="its owner x/r is in another namespace"):
        await live.apply(wanted(), owner=owner)
    assert server.asked == []


async def test_secrets_are_applied_as_data(server: ApiServer, live: Client) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a", "namespace": "ns"},
        "stringData": {"k": "v"},
        "data": {"k": "b2xk", "j": "dw=="},
    }
    server.answer("PATCH", "/api/v1/namespaces/ns/secrets/a", json(secret))
    await live.apply(secret)
    body = server.requests()[0].body
    assert "stringData" not in body
    assert body["data"] == {"k": base64.b64encode(b"v").decode(), "j": "dw=="}


async def test_apply_a_status(server: ApiServer, client: Client, cache: FakeCache) -> None:
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
    assert server.asked == []
    moved = {**pod, "status": {"phase": "Failed"}}
    server.answer("PATCH", "/api/v1/namespaces/ns/pods/a/status", json(moved))
    assert await client.apply(moved, subresource="status") == moved
