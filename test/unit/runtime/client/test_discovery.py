"""The RESTMapper: lookups, refreshes, unavailable API groups, and discovery without aggregation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from aiohttp import web

from cfo.runtime import ClientConfig, Transport, TransportError, UnknownKind
from cfo.runtime.client.discovery import DiscoveryIncomplete, Resource, RESTMapper
from cfo.runtime.objects.unstructured import GVK, GVR
from test.support.api_server import (
    APIS,
    CORE,
    ApiServer,
    AutoAdvancingClock,
    Handler,
    abort_connection,
    discovery,
    error_response,
    group,
    json,
    resource,
    text,
)

RAY = GVK("ray.io", "v1", "RayCluster")
WITH_RAY = discovery(
    *APIS["items"], group("ray.io", resource("rayclusters", "RayCluster", subresources=("status",)))
)
ROUTES_STALE = discovery(*APIS["items"], group("route.openshift.io", freshness="Stale"))


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().run() as server:
        yield server


@pytest.fixture
async def mapper(server: ApiServer) -> AsyncIterator[RESTMapper]:
    clock = AutoAdvancingClock()
    async with Transport(ClientConfig(server=server.url), clock=clock) as transport:
        yield RESTMapper(transport, clock=clock)


def serve(server: ApiServer, *apis: object) -> None:
    server.answer("GET", "/api", json(CORE))
    server.answer("GET", "/apis", *(json(document) for document in apis or (APIS,)))


def count_reads(server: ApiServer) -> int:
    return sum(request.path == "/apis" for request in server.all_requests)


async def test_kinds_are_found_with_two_requests(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server)
    assert mapper.cached(GVK("", "v1", "Pod")) is None
    pod = await mapper.resource(GVK("", "v1", "Pod"))
    assert (pod.plural, pod.singular, pod.namespaced, pod.subresources) == (
        "pods",
        "pod",
        True,
        {"status", "eviction"},
    )
    assert pod.gvr == GVR("", "v1", "pods")
    assert "watch" in pod.verbs
    assert mapper.cached(GVK("", "v1", "Pod")) == pod
    assert (await mapper.resource(GVK("apps", "v1", "Deployment"))).plural == "deployments"
    assert not (await mapper.resource(GVK("", "v1", "Namespace"))).namespaced
    assert [request.path for request in server.all_requests] == ["/api", "/apis"]
    assert "as=APIGroupDiscoveryList" in server.all_requests[0].headers["Accept"]


async def test_kind_is_found_after_it_becomes_available(
    server: ApiServer, mapper: RESTMapper
) -> None:
    serve(server, APIS, WITH_RAY)
    with pytest.raises(
        UnknownKind, match=r"no matches for kind \"RayCluster\" in version \"ray\.io/v1\""
    ):
        await mapper.resource(RAY)
    assert (await mapper.resource(RAY)).plural == "rayclusters"


async def test_unknown_version_of_a_kind_names_those_that_are_served(
    server: ApiServer, mapper: RESTMapper
) -> None:
    serve(server, WITH_RAY)
    with pytest.raises(
        UnknownKind,
        match=r"no matches for kind \"RayCluster\" in version \"ray\.io/v9\"; the API server has it in ray\.io/v1$",
    ):
        await mapper.resource(RAY._replace(version="v9"))


@pytest.mark.parametrize("name", ["rayclusters", "raycluster", "Raycluster"])
async def test_name_of_a_resource_in_place_of_its_kind_is_explained(
    server: ApiServer, mapper: RESTMapper, name: str
) -> None:
    serve(server, WITH_RAY)
    with pytest.raises(
        UnknownKind, match=r'no matches for kind .*; the kind of rayclusters is "RayCluster"$'
    ):
        await mapper.resource(RAY._replace(kind=name))


async def test_removed_kind_is_unknown_after_invalidation(
    server: ApiServer, mapper: RESTMapper
) -> None:
    serve(server, WITH_RAY, APIS)
    await mapper.resource(RAY)
    await mapper.resource(RAY)
    assert count_reads(server) == 1
    mapper.invalidate()
    assert mapper.cached(RAY) is not None
    with pytest.raises(UnknownKind):
        await mapper.resource(RAY)


async def test_lookup_fails_for_other_versions_and_resources_of_a_served_group(
    server: ApiServer, mapper: RESTMapper
) -> None:
    serve(server, WITH_RAY)
    with pytest.raises(UnknownKind):
        await mapper.resource(RAY._replace(version="v1alpha1"))


async def test_discovery_sends_the_etag_of_the_last_response(
    server: ApiServer, mapper: RESTMapper
) -> None:
    server.answer("GET", "/api", json(CORE, headers={"ETag": '"c1"'}), text("", 304))
    server.answer("GET", "/apis", json(WITH_RAY, headers={"ETag": '"a1"'}), text("", 304))
    await mapper.resource(RAY)
    mapper.invalidate()
    await mapper.resource(RAY)
    await mapper.resource(GVK("", "v1", "Pod"))
    mapper.invalidate()
    await mapper.resource(GVK("", "v1", "Pod"))
    assert [request.headers.get("If-None-Match") for request in server.all_requests] == [
        None,
        '"a1"',
        None,
        '"c1"',
    ]


async def test_lookups_since_the_same_position_share_a_read(
    server: ApiServer, mapper: RESTMapper
) -> None:
    serve(server, APIS, WITH_RAY)
    position = mapper.position()
    for version in ("v1", "v1alpha1"):
        with pytest.raises(UnknownKind):
            await mapper.resource(RAY._replace(version=version), since=position)
    assert count_reads(server) == 1
    assert (await mapper.resource(RAY, since=mapper.position())).plural == "rayclusters", (
        "a read after the position"
    )
    assert count_reads(server) == 2


async def test_lookups_of_missing_kinds_send_at_most_ten_requests_per_second(
    server: ApiServer, mapper: RESTMapper
) -> None:
    serve(server)
    for _ in range(20):
        with pytest.raises(UnknownKind):
            await mapper.resource(RAY)
    clock = mapper._clock
    assert isinstance(clock, AutoAdvancingClock)
    assert count_reads(server) == 20
    assert clock.elapsed == pytest.approx(1.5)


async def test_concurrent_lookups_share_one_request(server: ApiServer, mapper: RESTMapper) -> None:
    serve(server)
    misses = 0

    async def look_up() -> None:
        nonlocal misses
        try:
            await mapper.resource(RAY)
        except UnknownKind:
            misses += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(look_up)
    assert misses == 10
    assert count_reads(server) == 1


async def test_lookup_shares_a_request_that_is_in_progress(
    server: ApiServer, mapper: RESTMapper
) -> None:
    received, released = anyio.Event(), anyio.Event()

    async def delayed(request: web.Request) -> web.StreamResponse:
        received.set()
        await released.wait()
        return await json(WITH_RAY)(request)

    server.answer("GET", "/apis", delayed)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mapper.resource, RAY)
        await received.wait()
        tasks.start_soon(mapper.resource, RAY)
        tasks.start_soon(mapper.serves_group, "ray.io")
        await anyio.wait_all_tasks_blocked()
        released.set()
    assert count_reads(server) == 1


async def test_serves_group_distinguishes_served_and_missing_groups(
    server: ApiServer, mapper: RESTMapper
) -> None:
    serve(server)
    assert await mapper.serves_group("apps")
    assert not await mapper.serves_group("route.openshift.io")
    assert await mapper.serves_group("")


async def test_stale_api_group_is_not_reported_as_absent(
    server: ApiServer, mapper: RESTMapper
) -> None:
    serve(server, ROUTES_STALE)
    with pytest.raises(DiscoveryIncomplete, match=r"route\.openshift\.io is registered, but"):
        await mapper.serves_group("route.openshift.io")
    with pytest.raises(DiscoveryIncomplete):
        await mapper.resource(GVK("route.openshift.io", "v1", "Route"))


async def test_stale_api_group_does_not_affect_lookups_in_other_groups(
    server: ApiServer, mapper: RESTMapper
) -> None:
    serve(server, ROUTES_STALE)
    assert not await mapper.serves_group("config.openshift.io")
    with pytest.raises(UnknownKind):
        await mapper.resource(RAY)


async def test_resources_of_a_stale_api_group_are_found(
    server: ApiServer, mapper: RESTMapper
) -> None:
    stale = group(
        "metrics.k8s.io", resource("pods", "PodMetrics"), version="v1beta1", freshness="Stale"
    )
    serve(server, discovery(stale))
    assert (await mapper.resource(GVK("metrics.k8s.io", "v1beta1", "PodMetrics"))).plural == "pods"


async def test_stale_api_group_can_recover(server: ApiServer, mapper: RESTMapper) -> None:
    recovered = discovery(group("route.openshift.io", resource("routes", "Route")))
    serve(server, ROUTES_STALE, ROUTES_STALE, recovered)
    with pytest.raises(DiscoveryIncomplete):
        await mapper.serves_group("route.openshift.io")
    mapper.invalidate()
    with pytest.raises(DiscoveryIncomplete):
        await mapper.serves_group("route.openshift.io")
    mapper.invalidate()
    assert await mapper.serves_group("route.openshift.io")


async def test_failed_discovery_does_not_prove_absence(
    server: ApiServer, mapper: RESTMapper
) -> None:
    server.answer("GET", "/api", json(CORE))
    server.answer(
        "GET", "/apis", error_response(503, "ServiceUnavailable", "not ready"), json(APIS)
    )
    with pytest.raises(DiscoveryIncomplete, match="not ready"):
        await mapper.serves_group("route.openshift.io")
    assert not await mapper.serves_group("route.openshift.io")


async def test_known_resources_are_used_while_discovery_fails(
    server: ApiServer, mapper: RESTMapper
) -> None:
    server.answer("GET", "/api", json(CORE))
    server.answer("GET", "/apis", json(WITH_RAY), abort_connection)
    await mapper.resource(RAY)
    mapper.invalidate()
    assert (await mapper.resource(RAY)).plural == "rayclusters"
    assert await mapper.serves_group("ray.io")
    with pytest.raises(TransportError):
        await mapper.resource(RAY._replace(kind="RayJob"))
    with pytest.raises(DiscoveryIncomplete):
        await mapper.serves_group("route.openshift.io")


def test_paths_of_resources_are_built_and_quoted() -> None:
    roles = Resource(
        gvk=GVK("rbac.authorization.k8s.io", "v1", "ClusterRole"),
        plural="clusterroles",
        namespaced=False,
    )
    pods = Resource(gvk=GVK("", "v1", "Pod"), plural="pods", namespaced=True)
    assert pods.path() == "/api/v1/pods"
    assert pods.path("ns", "p", "status") == "/api/v1/namespaces/ns/pods/p/status"
    assert roles.path("ignored", "system:auth-delegator") == (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:auth-delegator"
    )
    assert roles.path("", "a b?#") == "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%20b%3F%23"


@pytest.mark.parametrize(
    "response",
    [
        text("<html>maintenance</html>"),
        text("[" * 5000),
        json([]),
        json({}),
        json({"kind": "Status"}),
        json({"kind": "APIGroupDiscoveryList", "items": ["x"]}),
        json({"kind": "APIGroupList", "groups": []}),  # of Kubernetes 1.26
    ],
)
async def test_response_that_is_no_discovery_does_not_prove_that_a_kind_is_missing(
    server: ApiServer, mapper: RESTMapper, response: Handler
) -> None:
    server.answer("GET", "/apis", response, json(WITH_RAY), response)
    with pytest.raises(
        DiscoveryIncomplete,
        match="get /apis: the response is not an aggregated discovery document",
    ):
        await mapper.resource(RAY)
    assert (await mapper.resource(RAY)).plural == "rayclusters"
    mapper.invalidate()
    assert (await mapper.resource(RAY)).plural == "rayclusters"  # from the previous result
