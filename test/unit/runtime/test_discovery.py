from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from aiohttp import web

from cfo.runtime import ClientConfig, Transport, TransportError, UnknownKind
from cfo.runtime.discovery import DiscoveryIncomplete, Resource, RESTMapper
from cfo.runtime.objects import GVK, GVR
from test.support.api_server import (
    APIS,
    CORE,
    ApiServer,
    ImpatientClock,
    cut,
    discovery,
    group,
    json,
    refusal,
    resource,
    text,
)

RAY = GVK("ray.io", "v1", "RayCluster")
WITH_RAY = discovery(*APIS["items"], group("ray.io", resource("rayclusters", "RayCluster", subresources=("status",))))
ROUTES_DOWN = discovery(*APIS["items"], group("route.openshift.io", freshness="Stale"))


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().run() as server:
        yield server


@pytest.fixture
async def mapper(server: ApiServer) -> AsyncIterator[RESTMapper]:
    clock = ImpatientClock()
    async with Transport(ClientConfig(server=server.url), clock=clock) as transport:
        yield RESTMapper(transport, clock=clock)


def serve(server: ApiServer, *apis: object) -> None:
    server.answer("GET", "/api", json(CORE))
    server.answer("GET", "/apis", *(json(document) for document in apis or (APIS,)))


def reads(server: ApiServer) -> int:
    return sum(asked.path == "/apis" for asked in server.asked)


async def test_finds_kinds_in_two_requests(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server)
    assert mapper.cached(GVK("", "v1", "Pod")) is None
    pod = await mapper.resource(GVK("", "v1", "Pod"))
    assert (pod.plural, pod.singular, pod.namespaced, pod.subresources) == ("pods", "pod", True, {"status", "eviction"})
    assert pod.gvr == GVR("", "v1", "pods")
    assert "watch" in pod.verbs
    assert mapper.cached(GVK("", "v1", "Pod")) == pod
    deployment = await mapper.resource_for(GVR("apps", "v1", "deployments"))
    assert deployment.gvk == GVK("apps", "v1", "Deployment")
    assert not (await mapper.resource(GVK("", "v1", "Namespace"))).namespaced
    assert [asked.path for asked in server.asked] == ["/api", "/apis"]
    assert "as=APIGroupDiscoveryList" in server.asked[0].headers["Accept"]


async def test_a_kind_that_comes_later(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server, APIS, WITH_RAY)
    with pytest.raises(UnknownKind, match=r"no matches for kind \"RayCluster\" in version \"ray\.io/v1\""):
        await mapper.resource(RAY)
    assert (await mapper.resource(RAY)).plural == "rayclusters"


async def test_a_kind_that_goes(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server, WITH_RAY, APIS)
    await mapper.resource(RAY)
    await mapper.resource(RAY)
    assert reads(server) == 1
    mapper.invalidate()
    assert mapper.cached(RAY) is not None
    with pytest.raises(UnknownKind):
        await mapper.resource(RAY)


async def test_another_version_is_another_resource(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server, WITH_RAY)
    with pytest.raises(UnknownKind):
        await mapper.resource(RAY._replace(version="v1alpha1"))
    with pytest.raises(UnknownKind, match=r"rayjobs\.ray\.io"):
        await mapper.resource_for(GVR("ray.io", "v1", "rayjobs"))


async def test_what_has_not_changed_is_not_sent_again(server: ApiServer, mapper: RESTMapper) -> None:
    server.answer("GET", "/api", json(CORE, headers={"ETag": '"c1"'}), text("", 304))
    server.answer("GET", "/apis", json(WITH_RAY, headers={"ETag": '"a1"'}), text("", 304))
    await mapper.resource(RAY)
    mapper.invalidate()
    await mapper.resource(RAY)
    await mapper.resource(GVK("", "v1", "Pod"))
    mapper.invalidate()
    await mapper.resource(GVK("", "v1", "Pod"))
    assert [asked.headers.get("If-None-Match") for asked in server.asked] == [None, '"a1"', None, '"c1"']


async def test_missing_kinds_cost_ten_requests_a_second_at_most(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server)
    for _ in range(20):
        with pytest.raises(UnknownKind):
            await mapper.resource(RAY)
    clock = mapper._clock
    assert isinstance(clock, ImpatientClock)
    assert reads(server) == 20
    assert clock.elapsed == pytest.approx(1.5)


async def test_lookups_at_the_same_time_share_a_request(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server)
    missed = 0

    async def look_up() -> None:
        nonlocal missed
        try:
            await mapper.resource(RAY)
        except UnknownKind:
            missed += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(look_up)
    assert missed == 10
    assert reads(server) == 1


async def test_a_lookup_is_answered_by_the_reading_that_is_under_way(server: ApiServer, mapper: RESTMapper) -> None:
    asked, go_on = anyio.Event(), anyio.Event()

    async def slowly(request: web.Request) -> web.StreamResponse:
        asked.set()
        await go_on.wait()
        return await json(WITH_RAY)(request)

    server.answer("GET", "/apis", slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mapper.resource, RAY)
        await asked.wait()
        tasks.start_soon(mapper.resource, RAY)
        tasks.start_soon(mapper.serves_group, "ray.io")
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert reads(server) == 1


async def test_a_group_is_served_or_not(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server)
    assert await mapper.serves_group("apps")
    assert not await mapper.serves_group("route.openshift.io")
    assert await mapper.serves_group("")


async def test_an_api_that_is_down_is_not_absent(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server, ROUTES_DOWN)
    with pytest.raises(DiscoveryIncomplete, match=r"route\.openshift\.io is registered, but"):
        await mapper.serves_group("route.openshift.io")
    with pytest.raises(DiscoveryIncomplete):
        await mapper.resource(GVK("route.openshift.io", "v1", "Route"))


async def test_another_api_that_is_down_is_no_reason(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server, ROUTES_DOWN)
    assert not await mapper.serves_group("config.openshift.io")
    with pytest.raises(UnknownKind):
        await mapper.resource(RAY)


async def test_a_stale_api_may_still_be_known(server: ApiServer, mapper: RESTMapper) -> None:
    stale = group("metrics.k8s.io", resource("pods", "PodMetrics"), version="v1beta1", freshness="Stale")
    serve(server, discovery(stale))
    assert (await mapper.resource(GVK("metrics.k8s.io", "v1beta1", "PodMetrics"))).plural == "pods"


async def test_an_api_comes_back(server: ApiServer, mapper: RESTMapper) -> None:
    back = discovery(group("route.openshift.io", resource("routes", "Route")))
    serve(server, ROUTES_DOWN, ROUTES_DOWN, back)
    with pytest.raises(DiscoveryIncomplete):
        await mapper.serves_group("route.openshift.io")
    mapper.invalidate()
    with pytest.raises(DiscoveryIncomplete):
        await mapper.serves_group("route.openshift.io")
    mapper.invalidate()
    assert await mapper.serves_group("route.openshift.io")


async def test_discovery_that_fails_says_nothing(server: ApiServer, mapper: RESTMapper) -> None:
    server.answer("GET", "/api", json(CORE))
    server.answer("GET", "/apis", refusal(503, "ServiceUnavailable", "not ready"), json(APIS))
    with pytest.raises(DiscoveryIncomplete, match="not ready"):
        await mapper.serves_group("route.openshift.io")
    assert not await mapper.serves_group("route.openshift.io")


async def test_what_was_known_counts_while_discovery_fails(server: ApiServer, mapper: RESTMapper) -> None:
    server.answer("GET", "/api", json(CORE))
    server.answer("GET", "/apis", json(WITH_RAY), cut)
    await mapper.resource(RAY)
    mapper.invalidate()
    assert (await mapper.resource(RAY)).plural == "rayclusters"
    assert await mapper.serves_group("ray.io")
    with pytest.raises(TransportError):
        await mapper.resource(RAY._replace(kind="RayJob"))
    with pytest.raises(DiscoveryIncomplete):
        await mapper.serves_group("route.openshift.io")


LEGACY_GROUPS = {
    "kind": "APIGroupList",
    "groups": [
        {"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]},
        {"name": "route.openshift.io", "versions": [{"groupVersion": "route.openshift.io/v1", "version": "v1"}]},
    ],
}
LEGACY_APPS = {
    "kind": "APIResourceList",
    "groupVersion": "apps/v1",
    "resources": [
        {
            "name": "deployments",
            "singularName": "deployment",
            "namespaced": True,
            "kind": "Deployment",
            "verbs": ["get"],
        },
        {"name": "deployments/scale", "namespaced": True, "group": "autoscaling", "version": "v1", "kind": "Scale"},
    ],
}


async def test_a_server_without_aggregated_discovery(server: ApiServer, mapper: RESTMapper) -> None:
    server.answer("GET", "/api", json({"kind": "APIVersions", "versions": ["v1"]}))
    server.answer("GET", "/apis", json(LEGACY_GROUPS))
    server.answer("GET", "/apis/apps/v1", json(LEGACY_APPS))
    server.answer("GET", "/apis/route.openshift.io/v1", text("service unavailable", 503), json({"resources": []}))
    assert await mapper.resource(GVK("apps", "v1", "Deployment")) == Resource(
        gvk=GVK("apps", "v1", "Deployment"),
        plural="deployments",
        singular="deployment",
        namespaced=True,
        verbs=frozenset({"get"}),
        subresources=frozenset({"scale"}),
    )
    assert [asked.path for asked in server.asked] == ["/apis", "/apis/apps/v1"]
    with pytest.raises(DiscoveryIncomplete):
        await mapper.serves_group("route.openshift.io")
    assert await mapper.serves_group("route.openshift.io")
    assert not await mapper.serves_group("config.openshift.io")


def test_paths() -> None:
    roles = Resource(gvk=GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"), plural="clusterroles", namespaced=False)
    pods = Resource(gvk=GVK("", "v1", "Pod"), plural="pods", namespaced=True)
    assert pods.path() == "/api/v1/pods"
    assert pods.path("ns", "p", "status") == "/api/v1/namespaces/ns/pods/p/status"
    assert roles.path("ignored", "system:auth-delegator") == (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:auth-delegator"
    )
    assert roles.path("", "a b?#") == "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%20b%3F%23"
