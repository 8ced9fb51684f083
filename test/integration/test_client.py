"""The client with and without a cache, on a control plane."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from cfo.runtime import (
    AlreadyExists,
    Client,
    ClientConfig,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PatchType,
    Transport,
    UnknownKind,
    load_config,
)
from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.store import Event
from cfo.runtime.client import Exchange, Unauthorized
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    gvk_of,
    is_deleting,
    key_of,
    labels_of,
    resource_version_of,
    set_controller_owner,
    uid_of,
)
from envtest import ControlPlane

FIELD_MANAGER = "integration-test"
WIDGET = GVK("client.example.com", "v1", "Widget")
KEY = NamespacedName("default", "a")

WIDGET_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.client.example.com"},
    "spec": {
        "group": "client.example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "widgets",
            "singular": "widget",
            "kind": "Widget",
            "listKind": "WidgetList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer", "maximum": 9},
                                    "tags": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "set",
                                        "items": {"type": "string"},
                                    },
                                    "ports": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                                        "items": {
                                            "type": "object",
                                            "required": ["port"],
                                            "properties": {
                                                "port": {"type": "integer"},
                                                "protocol": {"type": "string", "default": "TCP"},
                                                "name": {"type": "string"},
                                            },
                                        },
                                    },
                                    "plain": {"type": "array", "items": {"type": "string"}},
                                    "free": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {"phase": {"type": "string"}},
                            },
                        },
                    }
                },
            }
        ],
    },
}


class Session(NamedTuple):
    """A client with its cache, and the requests that it has sent."""

    client: Client
    cache: Cache
    exchanges: list[Exchange]

    @property
    def writes(self) -> list[str]:
        """Verb and resource of each write request."""
        return [
            f"{exchange.verb} {exchange.resource}"
            for exchange in self.exchanges
            if exchange.method != "GET"
        ]


@asynccontextmanager
async def start_session(config: ClientConfig, *kinds: GVK) -> AsyncIterator[Session]:
    """Return a client with a cache whose informers of ``kinds`` have synced, as after the start of an operator."""
    exchanges: list[Exchange] = []
    async with Transport(config, observe=exchanges.append) as transport:
        mapper = RESTMapper(transport)
        cache = Cache(transport, mapper, field_managers=[FIELD_MANAGER])
        for kind in kinds:
            cache.informer(kind, namespace="default" if kind.kind == "Secret" else "")
        async with anyio.create_task_group() as tasks:
            await tasks.start(cache.run)
            with anyio.fail_after(120):
                await cache.wait_for_sync()
            yield Session(
                Client(transport, mapper, field_manager=FIELD_MANAGER, cache=cache),
                cache,
                exchanges,
            )
            tasks.cancel_scope.cancel()


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    """Return a client without a cache."""
    async with Transport(ClientConfig.for_control_plane(plane)) as transport:
        yield Client(transport, RESTMapper(transport), field_manager=FIELD_MANAGER)


def config_map(data: dict[str, str], **metadata: Any) -> Object:
    metadata = {"name": "a", "namespace": "default", **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_verbs(client: Client) -> None:
    created = await client.create(config_map({"k": "v"}, labels={"x": "y"}))
    assert await client.get(CONFIG_MAP, KEY) == created
    with pytest.raises(AlreadyExists, match=r'^create configmaps: configmaps "a" already exists$'):
        await client.create(config_map({}))
    updated = await client.update({**created, "data": {"k": "w"}})
    assert updated["data"] == {"k": "w"}
    with pytest.raises(Conflict, match=r"^update configmaps: "):
        await client.update(created)
    patched = await client.patch(CONFIG_MAP, KEY, {"data": {"l": "x"}})
    assert patched["data"] == {"k": "w", "l": "x"}
    operations = [{"op": "remove", "path": "/data/l"}]
    assert (await client.patch(CONFIG_MAP, KEY, operations, PatchType.JSON))["data"] == {"k": "w"}
    assert (await client.patch(CONFIG_MAP, KEY, {"data": {"m": "n"}}, PatchType.STRATEGIC))["data"][
        "m"
    ] == "n"
    listed = await client.list(CONFIG_MAP, namespace="default", label_selector="x=y")
    assert [(gvk_of(obj), key_of(obj)) for obj in listed] == [(CONFIG_MAP, KEY)]
    assert (
        await client.list(CONFIG_MAP, field_selector="metadata.name=a", label_selector="x!=y") == []
    )
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAP, KEY, uid="another")
    assert await client.delete(CONFIG_MAP, KEY, uid=uid_of(created))
    assert not await client.delete(CONFIG_MAP, KEY)
    assert await client.get(CONFIG_MAP, KEY) is None
    with pytest.raises(NotFound):
        await client.update(updated)


async def test_generate_name(client: Client) -> None:
    for _ in range(3):
        obj = config_map({}, labels={"test": "generated"}, generateName="b-")
        del obj["metadata"]["name"]
        await client.create(obj)
    names = {
        key_of(obj).name for obj in await client.list(CONFIG_MAP, label_selector="test=generated")
    }
    assert len(names) == 3


async def test_dry_run_stores_nothing(client: Client) -> None:
    assert uid_of(await client.create(config_map({}), dry_run=True))
    assert uid_of(await client.apply(config_map({"k": "v"}), dry_run=True))
    assert await client.get(CONFIG_MAP, KEY) is None
    created = await client.create(config_map({}))
    assert await client.delete(CONFIG_MAP, KEY, uid=uid_of(created), dry_run=True)
    assert await client.get(CONFIG_MAP, KEY) is not None
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAP, KEY, uid="another", dry_run=True)


async def test_long_lists_are_paginated(plane: ControlPlane) -> None:
    async with start_session(ClientConfig.for_control_plane(plane)) as (client, _, exchanges):
        async with anyio.create_task_group() as tasks:
            for number in range(501):
                tasks.start_soon(
                    client.create, config_map({}, name=f"many-{number:03}", labels={"many": "x"})
                )
        exchanges.clear()
        objects = await client.list(CONFIG_MAP, label_selector="many=x", live=True)
        assert [key_of(obj).name for obj in objects] == [
            f"many-{number:03}" for number in range(501)
        ]
        assert [exchange.verb for exchange in exchanges] == ["list", "list"]


async def test_cluster_scoped_kind(client: Client) -> None:
    namespace = await client.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "created"}}
    )
    gvk = gvk_of(namespace)
    assert uid_of(await client.get(gvk, NamespacedName("", "created")) or {}) == uid_of(namespace)
    assert "created" in {key_of(obj).name for obj in await client.list(gvk)}


async def test_kind_is_unknown_until_its_crd_is_installed(
    plane: ControlPlane, client: Client
) -> None:
    with pytest.raises(
        UnknownKind, match=r"no matches for kind \"Widget\" in version \"client\.example\.com/v1\""
    ):
        await client.list(WIDGET)
    assert not await client.mapper.serves_group(WIDGET.group)
    await plane.install_crds(WIDGET_CRD)
    assert await client.list(WIDGET) == []
    assert await client.mapper.serves_group(WIDGET.group)
    resource = await client.mapper.resource(WIDGET)
    assert (resource.plural, resource.namespaced, resource.subresources) == (
        "widgets",
        True,
        {"status"},
    )


async def test_invalid_object_error_contains_field(plane: ControlPlane, client: Client) -> None:
    await plane.install_crds(WIDGET_CRD)
    with pytest.raises(Invalid, match=r"^create widgets\.client\.example\.com: ") as raised:
        await client.create(widget({"size": 10}))
    assert [cause["field"] for cause in raised.value.causes] == ["spec.size"]


async def test_unauthenticated_and_unauthorized_requests_are_rejected(plane: ControlPlane) -> None:
    async with Transport(ClientConfig.for_control_plane(plane, token="unknown")) as transport:
        with pytest.raises(Unauthorized):
            await Client(transport, RESTMapper(transport), field_manager=FIELD_MANAGER).list(
                CONFIG_MAP
            )
    admin = ClientConfig.for_control_plane(plane)
    unprivileged = ClientConfig(
        server=admin.server,
        ca_pem=admin.ca_pem,
        token=admin.token,
        headers=(("Impersonate-User", "unprivileged"),),
    )
    async with Transport(unprivileged) as transport:
        with pytest.raises(Forbidden, match="unprivileged"):
            await Client(transport, RESTMapper(transport), field_manager=FIELD_MANAGER).list(
                CONFIG_MAP
            )


async def test_kubeconfig_of_control_plane_is_usable(plane: ControlPlane, tmp_path: Path) -> None:
    plane.kubeconfig(tmp_path / "kubeconfig")
    config = await load_config(environ={**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")})
    async with Transport(config) as transport:
        assert (
            await Client(transport, RESTMapper(transport), field_manager=FIELD_MANAGER).list(
                CONFIG_MAP
            )
            is not None
        )


# With a cache


async def test_own_writes_are_read_from_cache(plane: ControlPlane) -> None:
    async with start_session(ClientConfig.for_control_plane(plane), CONFIG_MAP) as (
        client,
        _,
        exchanges,
    ):
        exchanges.clear()
        for number in range(20):
            await client.apply(config_map({"n": str(number)}))
            assert ((await client.get(CONFIG_MAP, KEY)) or {})["data"] == {"n": str(number)}
        await client.delete(CONFIG_MAP, KEY)
        assert await client.get(CONFIG_MAP, KEY) is None
        await client.create(config_map({"new": "one"}))
        assert ((await client.get(CONFIG_MAP, KEY)) or {})["data"] == {"new": "one"}
        assert {exchange.verb for exchange in exchanges if exchange.method == "GET"} <= {"watch"}


async def test_removal_of_last_finalizer_deletes_from_cache(plane: ControlPlane) -> None:
    async with start_session(ClientConfig.for_control_plane(plane), CONFIG_MAP) as (client, _, _):
        await client.create(config_map({}, finalizers=["example.com/held"]))
        await client.delete(CONFIG_MAP, KEY)
        assert is_deleting(await client.get(CONFIG_MAP, KEY) or {})
        await client.patch(CONFIG_MAP, KEY, {"metadata": {"finalizers": None}})
        assert await client.get(CONFIG_MAP, KEY) is None


def widget(spec: dict[str, Any]) -> Object:
    metadata = {"name": "w", "namespace": "default"}
    return {
        "apiVersion": "client.example.com/v1",
        "kind": "Widget",
        "metadata": metadata,
        "spec": spec,
    }


def applied_objects() -> list[Object]:
    """Return objects of many kinds as an operator applies them, with defaults in atomics and canonical quantities."""
    metadata = {
        "name": "a",
        "namespace": "default",
        "labels": {"app.kubernetes.io/name": "x"},
        "annotations": {"a/b": ""},
    }
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": metadata,
            "spec": {
                "ingressClassName": "nginx",
                "rules": [
                    {
                        "host": "a.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "s", "port": {"number": 8265}}},
                                }
                            ]
                        },
                    }
                ],
            },
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata,
            "spec": {
                "podSelector": {"matchLabels": {"ray.io/cluster": "a"}},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"from": [{"podSelector": {}}]},
                    {
                        "ports": [{"protocol": "TCP", "port": 10001}],
                        "from": [{"namespaceSelector": {}}],
                    },
                ],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
            "stringData": {"ca.key": "x", "ca.crt": "y"},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "selector": {"x": "y"},
                "ports": [
                    {"name": "one", "port": 443, "targetPort": "oauth", "protocol": "TCP"},
                    {"name": "two", "port": 53, "protocol": "UDP"},
                    {"name": "three", "port": 53},
                ],
            },
        },
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "a", "labels": {"x": "y"}},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:auth-delegator",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "default"}],
        },
        widget(
            {
                "size": 3,
                "tags": ["b", "a"],
                "ports": [
                    {"port": 81},
                    {"port": 80, "protocol": "TCP", "name": "n"},
                    {"port": 80, "protocol": "UDP"},
                ],
                "plain": ["y", "x"],
                "free": {"deep": {"list": [{"a": 1}], "null": None}},
            }
        ),
    ]


APPLIED_KINDS = [gvk_of(obj) for obj in applied_objects()]


def owned(obj: Object, owner: Object) -> Object:
    """Return ``obj`` with ``owner`` as its controller, if it can have one."""
    return obj if obj["kind"] == "ClusterRoleBinding" else set_controller_owner(obj, owner)


async def test_unchanged_apply_sends_no_request_even_after_restart(plane: ControlPlane) -> None:
    await plane.install_crds(WIDGET_CRD)
    async with start_session(
        ClientConfig.for_control_plane(plane), CONFIG_MAP, *APPLIED_KINDS
    ) as session:
        owner = await session.client.create(config_map({}, name="owner"))
        for obj in applied_objects():
            await session.client.apply(owned(obj, owner))
        session.exchanges.clear()
        for obj in applied_objects():
            await session.client.apply(owned(obj, owner))
        assert session.writes == []
    async with start_session(
        ClientConfig.for_control_plane(plane), CONFIG_MAP, *APPLIED_KINDS
    ) as session:
        for obj in applied_objects():
            await session.client.apply(owned(obj, owner))
        assert session.writes == []


async def test_apply_stores_each_character_although_servers_read_it_as_yaml(
    plane: ControlPlane,
) -> None:
    codes = (0x00, 0x1B, 0x7F, 0x80, 0x85, 0x9F, 0xA0, 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0x1F600)
    desired = config_map({f"{code:x}": f"before {chr(code)} after" for code in codes})
    async with start_session(ClientConfig.for_control_plane(plane), CONFIG_MAP) as session:
        stored = await session.client.apply(desired)
        assert stored["data"] == desired["data"]
        session.exchanges.clear()
        await session.client.apply(desired)
        assert session.writes == []


@pytest.mark.parametrize(
    "edit",
    [
        {"metadata": {"labels": {"app.kubernetes.io/name": "edited"}}},
        {"metadata": {"labels": {"app.kubernetes.io/name": None}}},
        {"metadata": {"ownerReferences": None}},
        {"spec": {"ports": [{"name": "one", "port": 443, "targetPort": 8443, "protocol": "TCP"}]}},
        {"spec": {"selector": {"x": "edited", "z": "added"}}},
    ],
)
async def test_drift_is_repaired(plane: ControlPlane, client: Client, edit: Object) -> None:
    service = next(obj for obj in applied_objects() if obj["kind"] == "Service")
    gvk = gvk_of(service)
    async with start_session(ClientConfig.for_control_plane(plane), gvk) as session:
        owner = await client.create(config_map({}, name="owner"))
        applied = await session.client.apply(set_controller_owner(service, owner))
        edited = await client.with_field_manager("other").patch(gvk, KEY, edit)
        assert resource_version_of(edited) != resource_version_of(applied)
        await wait_for_version(session, gvk, resource_version_of(edited))
        repaired = await session.client.apply(set_controller_owner(service, owner))
        for part in ("spec", "metadata"):
            for field, value in {**service, "metadata": {"labels": labels_of(service)}}[
                part
            ].items():
                assert repaired[part][field] == applied[part][field], (field, value)
        assert repaired["metadata"]["ownerReferences"] == applied["metadata"]["ownerReferences"]
        session.exchanges.clear()
        await session.client.apply(set_controller_owner(service, owner))
        assert session.writes == []


async def test_additions_of_other_managers_cause_no_apply(
    plane: ControlPlane, client: Client
) -> None:
    service = next(obj for obj in applied_objects() if obj["kind"] == "Service")
    gvk = gvk_of(service)
    async with start_session(ClientConfig.for_control_plane(plane), gvk) as session:
        await session.client.apply(service)
        other_client = client.with_field_manager("other")
        edited = await other_client.patch(
            gvk, KEY, {"metadata": {"annotations": {"theirs": "x"}, "finalizers": ["a/b"]}}
        )
        await wait_for_version(session, gvk, resource_version_of(edited))
        session.exchanges.clear()
        await session.client.apply(service)
        assert session.writes == []
        await other_client.patch(gvk, KEY, {"metadata": {"finalizers": None}})


async def test_value_normalized_by_server_is_applied_once(plane: ControlPlane) -> None:
    policy = next(obj for obj in applied_objects() if obj["kind"] == "NetworkPolicy")
    del policy["spec"]["ingress"][1]["ports"][0][
        "protocol"
    ]  # the server sets this default inside an atomic list
    async with start_session(ClientConfig.for_control_plane(plane), gvk_of(policy)) as session:
        await session.client.apply(policy)
        session.exchanges.clear()
        for _ in range(3):
            await session.client.apply(policy)
        assert session.writes == ["apply networkpolicies.networking.k8s.io"]


async def test_fields_no_longer_applied_are_removed(plane: ControlPlane) -> None:
    async with start_session(ClientConfig.for_control_plane(plane), CONFIG_MAP) as session:
        await session.client.apply(config_map({"k": "v", "l": "w"}, labels={"x": "y"}))
        applied = await session.client.apply(config_map({"k": "v"}))
        assert (applied["data"], labels_of(applied)) == ({"k": "v"}, {})


async def test_status_is_applied_separately(plane: ControlPlane) -> None:
    await plane.install_crds(WIDGET_CRD)
    async with start_session(ClientConfig.for_control_plane(plane), WIDGET) as session:
        await session.client.apply(widget({"size": 1}))
        status = {key: value for key, value in widget({}).items() if key != "spec"} | {
            "status": {"phase": "Ready"}
        }
        assert (await session.client.apply(status, subresource="status"))["status"] == {
            "phase": "Ready"
        }
        session.exchanges.clear()
        await session.client.apply(widget({"size": 1}))
        await session.client.apply(status, subresource="status")
        assert session.writes == []
        status["status"] = {"phase": "Failed"}
        assert (await session.client.apply(status, subresource="status"))["status"] == {
            "phase": "Failed"
        }


async def test_conflict_error_contains_field(plane: ControlPlane, client: Client) -> None:
    await client.apply(config_map({"k": "v"}))
    with pytest.raises(Conflict) as raised:
        await client.apply(config_map({"k": "w"}), field_manager="another", force=False)
    assert [cause["field"] for cause in raised.value.causes] == [".data.k"]


async def test_uid_precondition_protects_foreign_object(
    plane: ControlPlane, client: Client
) -> None:
    await client.create(config_map({"k": "theirs"}))
    with pytest.raises((Conflict, Invalid)):
        await client.apply(config_map({"k": "ours"}, uid="11111111-2222-3333-4444-555555555555"))
    assert ((await client.get(CONFIG_MAP, KEY)) or {})["data"] == {"k": "theirs"}


async def wait_for_version(session: Session, gvk: GVK, version: str) -> None:
    """Wait until the cache has received this version of the object."""
    arrived = anyio.Event()

    def set_arrived(_: Event) -> None:
        stored = session.cache.stored(gvk, KEY)
        if stored is not None and int(stored.resource_version) >= int(version):
            arrived.set()

    session.cache.informer(gvk).add_handler(set_arrived)
    with anyio.fail_after(120):
        await arrived.wait()
