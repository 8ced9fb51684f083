"""The dashboard on a control plane: with the permissions of a user, and behind the metrics server of the operator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import anyio
import orjson
import pytest

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.demo import crds
from cfo.dashboard import in_cluster
from cfo.dashboard.feed import MAX_STREAMS, PageFeed
from cfo.dashboard.in_cluster import client_source
from cfo.features import all_views
from cfo.manifests.overlays import crds as own_crds
from cfo.manifests.rbac import user_roles
from cfo.runtime import (
    POD,
    Client,
    ClientConfig,
    Manager,
    ManagerOptions,
    NamespacedName,
    Object,
    RESTMapper,
    SystemClock,
    Transport,
    name_of,
)
from cfo.runtime.client import Exchange
from cfo.runtime.manager import MetricsTLS
from cfo.summaries import raycluster
from cfo.summaries.kind_view import related_kinds
from cfo.summaries.overview import Overview
from cfo.summaries.summary import Level
from envtest import ControlPlane
from test.support.tenant_clients import new_account_token

RBAC = "rbac.authorization.k8s.io/v1"
HEAD = {"name": "head", "image": "ray"}


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    needed = [
        crd
        for crd in [*crds.load(), *own_crds()]
        if crd["spec"]["names"]["kind"] in ("RayCluster", "AppWrapper")
    ]
    async with ControlPlane.embedded(crds=needed) as running:
        yield running


def cluster(name: str) -> Object:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "headGroupSpec": {
                "rayStartParams": {},
                "template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}},
            }
        },
    }


@asynccontextmanager
async def client_of(plane: ControlPlane) -> AsyncIterator[Client]:
    async with Transport(ClientConfig.for_control_plane(plane)) as transport:
        yield Client(transport, RESTMapper(transport), field_manager="test")


async def next_event(content: aiohttp.StreamReader) -> tuple[str, dict[str, Any]]:
    name = ""
    with anyio.fail_after(120):
        while line := await content.readline():
            if line.startswith(b"event: "):
                name = line[7:].decode().strip()
            elif line.startswith(b"data: "):
                return name, orjson.loads(line[6:])
    raise EOFError


async def grant(client: Client, account: str, role: Mapping[str, Any]) -> None:
    """Create the ClusterRole ``role``, and bind it to a service account of the namespace default."""
    await client.apply(dict(role))
    await client.apply(
        {
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{account}-{name_of(role)}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name_of(role),
            },
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
        }
    )


def viewer_role() -> Object:
    return next(role for role in user_roles() if name_of(role).endswith("dashboard-viewer"))


async def test_operator_serves_the_dashboard_only_to_authorized_users(plane: ControlPlane) -> None:
    async with client_of(plane) as client:
        await client.create(cluster("shown"))
        options = ManagerOptions(metrics_bind_address="127.0.0.1:0", metrics_tls=MetricsTLS())
        manager = Manager(ClientConfig.for_control_plane(plane), options)
        clusters = manager.cache.informer(RAY_CLUSTER)
        in_cluster.setup(manager, [*raycluster.VIEWS])
        async with manager, aiohttp.ClientSession() as session:
            await manager.started()
            url = f"https://127.0.0.1:{manager.metrics_port}"

            def get(path: str, token: str = "") -> Any:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                return session.get(url + path, headers=headers, ssl=False)

            async with get("/dashboard") as response:
                assert response.url.path == "/dashboard/"
                assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            for path in (
                "/dashboard/stream",
                "/dashboard/object?id=x",
                "/metrics",
            ):
                async with get(path) as response:
                    assert response.status == 401, path
            async with get("/dashboard/unknown") as response:
                assert response.status == 404
            # the permission to read metrics, or all objects, is not the permission to see the dashboard
            token = await new_account_token(
                manager.api_reader, NamespacedName("default", "scraper")
            )
            rules = [
                {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            ]
            role = {
                "apiVersion": RBAC,
                "kind": "ClusterRole",
                "metadata": {"name": "reader"},
                "rules": rules,
            }
            await grant(client, "scraper", role)
            async with get("/dashboard/stream", token) as response:
                assert response.status == 403
            assert {informer.gvk for informer in manager.cache.informers} == {RAY_CLUSTER}

            viewer = await new_account_token(
                manager.api_reader, NamespacedName("default", "viewer")
            )
            await grant(client, "viewer", viewer_role())
            async with get("/metrics", viewer) as response:
                assert response.status == 403
            async with get("/dashboard/stream", viewer) as response:
                name, data = await next_event(response.content)
                assert (name, [row["name"] for row in data["rows"]]) == ("snapshot", ["shown"])
                await client.create(cluster("created"))
                while not data.get("rows") or data["rows"][0]["name"] != "created":
                    _, data = await next_event(response.content)
            assert {informer.gvk for informer in manager.cache.informers} == {
                RAY_CLUSTER
            }  # shared, and not extended
            assert clusters.has_synced

            async with AsyncExitStack() as opened:
                for _ in range(MAX_STREAMS):
                    response = await opened.enter_async_context(get("/dashboard/stream", viewer))
                    assert response.status == 200
                async with get("/dashboard/stream", viewer) as response:
                    assert response.status == 503
                other = await new_account_token(
                    manager.api_reader, NamespacedName("default", "other")
                )
                await grant(client, "other", viewer_role())
                async with get("/dashboard/stream", other) as response:
                    assert (await next_event(response.content))[0] == "snapshot"
                    async with get("/dashboard/stream", viewer) as refused:
                        assert refused.status == 503, "no one else has more"


async def test_unknown_tokens_and_paths_have_a_budget_of_reviews(plane: ControlPlane) -> None:
    reviews = 0

    def count(exchange: Exchange) -> None:
        nonlocal reviews
        reviews += exchange.resource.startswith("tokenreviews")

    options = ManagerOptions(metrics_bind_address="127.0.0.1:0", metrics_tls=MetricsTLS())
    target = ClientConfig.for_control_plane(plane)
    async with (
        client_of(plane) as client,
        Transport(target, observe=count) as transport,
        aiohttp.ClientSession() as session,
    ):
        manager = Manager(transport, options)
        in_cluster.setup(manager, raycluster.VIEWS)
        async with manager:
            await manager.started()
            url = f"https://127.0.0.1:{manager.metrics_port}"

            async def status(path: str, token: str) -> int:
                headers = {"Authorization": f"Bearer {token}"}
                async with session.get(url + path, headers=headers, ssl=False) as response:
                    return response.status

            viewer = await new_account_token(client, NamespacedName("default", "viewer"))
            await grant(client, "viewer", viewer_role())
            assert await status("/dashboard/object?id=x", viewer) == 404
            before = reviews
            for number in range(50):
                assert await status(f"/dashboard/{number}", viewer) == 404
            assert reviews == before, "what is not served needs no review"
            found = [await status("/dashboard/object", f"random-{n}") for n in range(200)]
            assert set(found) == {401, 429}
            assert reviews - before < 200
            assert await status("/dashboard/object?id=x", viewer) == 404, "it is remembered"


async def test_page_and_terminal_show_one_level_of_a_finished_cluster(plane: ControlPlane) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "done-head",
            "namespace": "default",
            "labels": {POD_CLUSTER_LABEL: "done"},
        },
        "spec": {"containers": [HEAD]},
    }
    async with client_of(plane) as client:
        await client.create(cluster("done"))
        await client.create(pod)
        ended = {"status": {"phase": "Succeeded"}}
        await client.patch(POD, NamespacedName("default", "done-head"), ended, subresource="status")
        manager = Manager(ClientConfig.for_control_plane(plane))
        terminal = Overview(
            manager.cache, raycluster.VIEWS, related=related_kinds(raycluster.VIEWS)
        )
        known = set(manager.cache.informers)
        async with manager, in_cluster.manager_source(manager, raycluster.VIEWS)() as page:
            await manager.started()
            for overview in (terminal, page):
                for informer in (
                    each for each in overview.informers if each.gvk in (RAY_CLUSTER, POD)
                ):
                    await informer.wait_for_sync(unless_forbidden=True)
            levels = [
                [(each.key.name, each.level) for each in await one.snapshot()]
                for one in (terminal, page)
            ]
            assert levels[0] == levels[1] == [("done", Level.WARNING)]
            assert set(manager.cache.informers) == known  # the page shares them


async def test_page_shows_what_the_user_may_read(plane: ControlPlane) -> None:
    async with client_of(plane) as client:
        manager = Manager(ClientConfig.for_control_plane(plane))
        async with manager:
            await manager.started()
            token = await new_account_token(
                manager.api_reader, NamespacedName("default", "scientist")
            )
        rules = [
            {
                "apiGroups": ["ray.io"],
                "resources": ["rayclusters"],
                "verbs": ["get", "list", "watch"],
            }
        ]
        role = {
            "apiVersion": RBAC,
            "kind": "ClusterRole",
            "metadata": {"name": "rays"},
            "rules": rules,
        }
        await grant(client, "scientist", role)
        await client.apply(cluster("mine"))
        stored = await client.get(RAY_CLUSTER, NamespacedName("default", "mine"), live=True)
        assert stored is not None
        warning = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "mine.1", "namespace": "default"},
            "involvedObject": {
                "apiVersion": "ray.io/v1",
                "kind": "RayCluster",
                "namespace": "default",
                "name": "mine",
                "uid": stored["metadata"]["uid"],
            },
            "type": "Warning",
            "reason": "NameTaken",
            "message": "taken",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
        await client.create(warning)

        async def snapshot(config: ClientConfig) -> dict[str, Any]:
            async with Transport(config) as transport, anyio.create_task_group() as tasks:
                mapper = RESTMapper(transport)
                source = client_source(transport, mapper, all_views(), "default")
                feed = PageFeed(source, SystemClock(), {})
                tasks.start_soon(feed.run)
                async with feed.open(lambda: False) as (_, message):
                    data: dict[str, Any] = orjson.loads(message.partition(b"data: ")[2])
                tasks.cancel_scope.cancel()
            return data

        full = await snapshot(ClientConfig.for_control_plane(plane))
        assert "mine" in [row["name"] for row in full["rows"]]
        assert [(event["reason"], event["name"]) for event in full["events"]] == [
            ("NameTaken", "mine")
        ]
        assert full["kinds"] == []
        limited = await snapshot(ClientConfig.for_control_plane(plane, token=token))
        assert "mine" in [row["name"] for row in limited["rows"]]
        assert limited["events"] == []
        missing = {kind["title"]: kind["level"] for kind in limited["kinds"]}
        assert missing["AppWrapper"] == "warning"
        assert missing["Secret"] == "idle"
