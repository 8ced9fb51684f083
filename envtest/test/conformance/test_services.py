"""Services, Endpoints and EndpointSlices."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from envtest import ControlPlane
from test.conformance.client import SpecClient, matching
from test.conformance.specs import plays

SERVICE_NAME = "kubernetes.io/service-name"


def service(name: str, selector: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"ports": [{"name": "example", "port": 80, "protocol": "TCP"}], **spec}
    if selector is not None:
        spec["selector"] = selector
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def pod(name: str, labels: dict[str, str], *ports: tuple[str, int]) -> dict[str, Any]:
    named = [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports]
    spec = {"containers": [{"name": "container1", "image": "nginx", "ports": named}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


def slice_addresses(slices: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the addresses and ports of all ready endpoints."""
    return sorted(
        (address, port["port"])
        for each in slices["items"]
        for endpoint in each.get("endpoints") or ()
        for address in endpoint["addresses"]
        for port in each.get("ports") or ()
        if endpoint["conditions"]["ready"]
    )


@plays(
    "EndpointSliceMirroring should mirror a custom Endpoints resource through create update and delete"
)
async def test_endpoints_of_users_are_mirrored(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    query = {"labelSelector": f"{SERVICE_NAME}=example-custom-endpoints"}
    await client.create(f"{core}/services", service("example-custom-endpoints"))
    endpoints: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "example-custom-endpoints", "labels": {"color": "blue"}},
        "subsets": [{"ports": [{"port": 80}], "addresses": [{"ip": "10.1.2.3"}]}],
    }
    created = await client.create(f"{core}/endpoints", endpoints)
    found = await client.eventually(
        slices, lambda body: slice_addresses(body) == [("10.1.2.3", 80)], query
    )
    (mirrored,) = found["items"]
    assert mirrored["metadata"]["labels"] == {
        "color": "blue",
        SERVICE_NAME: "example-custom-endpoints",
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
    }
    assert mirrored["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
    assert mirrored["endpoints"] == [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}]
    assert mirrored["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    endpoints["subsets"][0]["addresses"] = [{"ip": "10.2.3.4"}]
    assert (await client.put(f"{core}/endpoints/example-custom-endpoints", endpoints)).code == 200
    found = await client.eventually(
        slices, lambda body: slice_addresses(body) == [("10.2.3.4", 80)], query
    )
    assert [each["metadata"]["uid"] for each in found["items"]] == [mirrored["metadata"]["uid"]]
    # Other ports use the same slice; further ones need another.
    endpoints["subsets"][0]["ports"] = [{"port": 81}]
    endpoints["subsets"].append(
        {"ports": [{"port": 82}], "notReadyAddresses": [{"ip": "10.2.3.5"}]}
    )
    assert (await client.put(f"{core}/endpoints/example-custom-endpoints", endpoints)).code == 200
    found = await client.eventually(
        slices,
        lambda body: len(body["items"]) == 2 and slice_addresses(body) == [("10.2.3.4", 81)],
        query,
    )
    assert mirrored["metadata"]["uid"] in [each["metadata"]["uid"] for each in found["items"]]
    assert (await client.delete(f"{core}/endpoints/example-custom-endpoints")).code == 200
    await client.eventually(slices, lambda body: not body["items"], query)


async def test_endpoints_are_not_mirrored_while_the_service_has_a_selector_or_they_opt_out(
    cluster: ControlPlane, client: SpecClient, namespace: str
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    subsets = [{"ports": [{"port": 80}], "addresses": [{"ip": "10.1.2.3"}]}]
    metadata = {"name": "opts-out", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
    await client.create(f"{core}/services", service("opts-out"))
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
    await client.create(f"{core}/endpoints", endpoints)
    await client.create(f"{core}/endpoints", {**endpoints, "metadata": {"name": "without-service"}})
    await cluster.advance(0)
    assert await client.names(slices) == []
    await client.create(f"{core}/services", service("without-service"))
    await client.eventually(slices, lambda body: len(body["items"]) == 1)
    await client.update(
        f"{core}/services/without-service", lambda obj: obj["spec"].update(selector={"a": "b"})
    )
    await client.eventually(
        slices,
        lambda body: (
            [
                each["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
                for each in body["items"]
            ]
            == ["endpointslice-controller.k8s.io"]
        ),
    )


@plays(
    "EndpointSlice should create and delete EndpointSlices for a Service with a selector that matches no pods",
    "EndpointsController should create and delete Endpoints for a Service with a selector that matches no pods",
)
async def test_service_without_pods_has_empty_endpoints(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    await client.create(
        f"{core}/services",
        service("example-empty-selector", {"does-not-match-anything": "endpoints"}),
    )
    body = await client.until(f"{core}/endpoints/example-empty-selector", 200)
    assert not body.body.get("subsets")
    query = {"labelSelector": f"{SERVICE_NAME}=example-empty-selector"}
    found = await client.eventually(slices, lambda body: body["items"], query)
    assert slice_addresses(found) == []
    assert (await client.delete(f"{core}/services/example-empty-selector")).code == 200
    await client.vanished(f"{core}/endpoints/example-empty-selector")
    await client.eventually(slices, lambda body: not body["items"], query)


@plays(
    "EndpointSlice should create Endpoints and EndpointSlices for Pods matching a Service",
    "EndpointsController should create Endpoints for Pods matching a Service",
)
async def test_endpoints_of_pods(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    first = {"name": "example-int-port", "port": 80, "targetPort": 3000, "protocol": "TCP"}
    second = {
        "name": "example-named-port",
        "port": 80,
        "targetPort": "example-name",
        "protocol": "TCP",
    }
    await client.create(
        f"{core}/services", service("example-int-port", {"foo": "bar"}, ports=[first])
    )
    await client.create(
        f"{core}/services", service("example-named-port", {"foo": "bar"}, ports=[second])
    )
    await client.create(f"{core}/pods", pod("pod1", {"foo": "bar"}, ("example-name", 3000)))
    await client.create(
        f"{core}/pods", pod("pod2", {"foo": "bar"}, ("example-name", 3001), ("other-port", 3002))
    )
    running = lambda body: (body.get("status") or {}).get("podIP")  # noqa: E731
    addresses = [
        (await client.eventually(f"{core}/pods/{name}", running))["status"]["podIP"]
        for name in ("pod1", "pod2")
    ]
    for name, ports in (("example-int-port", (3000, 3000)), ("example-named-port", (3000, 3001))):
        query = {"labelSelector": f"{SERVICE_NAME}={name}"}
        expected = sorted(zip(addresses, ports, strict=True))
        found = await client.eventually(
            slices, lambda body, expected=expected: slice_addresses(body) == expected, query
        )
        owner = await client.read(f"{core}/services/{name}")
        for each in found["items"]:
            assert each["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
            assert {endpoint["targetRef"]["kind"] for endpoint in each["endpoints"]} == {"Pod"}
            assert all(endpoint["nodeName"] for endpoint in each["endpoints"])
        subsets = (await client.read(f"{core}/endpoints/{name}"))["subsets"]
        reported = [
            (address["ip"], subset["ports"][0]["port"])
            for subset in subsets
            for address in subset["addresses"]
        ]
        assert sorted(reported) == expected


@plays("API Server should have Endpoints and EndpointSlices pointing to API Server")
async def test_service_of_the_api_server_has_endpoints(client: SpecClient) -> None:
    endpoints = await client.read("/api/v1/namespaces/default/endpoints/kubernetes")
    assert len(endpoints["subsets"]) == 1
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    found = (await client.read(slices, labelSelector=f"{SERVICE_NAME}=kubernetes"))["items"]
    assert sum(len(each["endpoints"]) for each in found) == len(
        endpoints["subsets"][0]["addresses"]
    )


@plays(
    "API Server should provide secure master service",
    "Services should find a service from listing all namespaces",
)
async def test_service_of_the_api_server_exists(client: SpecClient) -> None:
    found = (await client.read("/api/v1/services"))["items"]
    assert ("default", "kubernetes") in [
        (each["metadata"]["namespace"], each["metadata"]["name"]) for each in found
    ]


@plays("Services should complete a service status lifecycle")
async def test_status_of_a_service(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    one = f"{path}/test-service"
    async with client.watching(path) as watch:
        body = service(
            "test-service",
            type="LoadBalancer",
            ports=[{"name": "http", "port": 80, "targetPort": 80}],
        )
        body["metadata"]["labels"] = {"test-service-static": "true"}
        await client.create(path, body)
        await matching(watch, "ADDED", lambda obj: obj["metadata"]["name"] == "test-service")
        assert (await client.read(f"{one}/status"))["status"] == {"loadBalancer": {}}
        patch = {
            "metadata": {"annotations": {"patchedstatus": "true"}},
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}},
        }
        patched = await client.merge(f"{one}/status", patch)
        assert patched.body["metadata"]["annotations"] == {"patchedstatus": "true"}
        assert patched.body["status"]["loadBalancer"]["ingress"] == [
            {"ip": "203.0.113.1", "ipMode": "VIP"}
        ]
        condition = {
            "type": "StatusUpdate",
            "status": "True",
            "reason": "E2E",
            "message": "Set from e2e test",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await client.update(
            one, lambda obj: obj["status"].update(conditions=[condition]), "/status"
        )
        await matching(watch, "MODIFIED", lambda obj: obj["status"].get("conditions"))
        labels = {"metadata": {"labels": {"test-service": "patched"}}}
        assert (await client.strategic(one, labels)).body["metadata"]["labels"][
            "test-service"
        ] == "patched"
        assert (await client.delete(one)).code == 200
        await matching(watch, "DELETED", lambda obj: obj["metadata"]["name"] == "test-service")


@plays("Services should delete a collection of services")
async def test_collection_of_services_is_deleted(client: SpecClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    for number in range(3):
        body = service(f"e2e-svc-{number}", {"testkey": "example"})
        body["metadata"]["labels"] = {"e2e-set": "kept" if number == 0 else "deleted"}
        await client.create(path, body)
    assert (await client.delete(path, query={"labelSelector": "e2e-set=deleted"})).code == 200
    assert await client.names(path) == ["e2e-svc-0"]


@plays("Service endpoints latency should not be very high")
async def test_many_services_get_endpoints(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    await client.create(f"{core}/pods", pod("svc-latency-rc", {"name": "svc-latency-rc"}))
    started = time.monotonic()
    async with client.watching(f"{core}/endpoints") as watch:
        body = service("unused", {"name": "svc-latency-rc"})
        names = {f"latency-svc-{number}" for number in range(50)}
        await asyncio.gather(
            *(
                client.create(f"{core}/services", {**body, "metadata": {"name": name}})
                for name in names
            )
        )
        while names:
            obj = (await watch.event(30))["object"]
            if obj.get("subsets"):
                names.discard(obj["metadata"]["name"])
    assert time.monotonic() - started < 20
