"""Writes of built-in kinds whose results depend on other objects or on earlier writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from envtest import ControlPlane
from envtest.api_client import TIMEOUT_SECONDS, APIClient

CORE = "/api/v1/namespaces/default"
DEVICES = "/apis/resource.k8s.io/v1/namespaces/default"
ADMIN = {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}


async def wait_for(
    api: APIClient, path: str, name: str, condition: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """Watch an object until it satisfies a condition, and return it."""
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        api.watch(path, {"fieldSelector": f"metadata.name={name}"}) as watch,
    ):
        while True:
            obj: dict[str, Any] = (await watch.event())["object"]
            if condition(obj):
                return obj


async def test_first_update_of_a_claim_is_stored_even_without_a_change() -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        path = f"{CORE}/persistentvolumeclaims"
        created = await api.post(path, {"metadata": {"name": "c"}, "spec": claim})
        first, second = [await api.merge(f"{path}/c", {"spec": claim}) for _ in range(2)]
    versions = [each.body["metadata"]["resourceVersion"] for each in (created, first, second)]
    assert versions[0] != versions[1] == versions[2]
    assert first.body["status"] == {"phase": "Pending"}


async def test_admin_access_to_devices_requires_a_label_of_the_namespace() -> None:
    spec = {"devices": {"requests": [ADMIN]}}
    allocation = {
        "devices": {
            "results": [
                {"request": "r", "driver": "d.io", "pool": "p", "device": "g", "adminAccess": True}
            ]
        }
    }
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        for plural, body in (("resourceclaims", spec), ("resourceclaimtemplates", {"spec": spec})):
            rejected = await api.post(
                f"{DEVICES}/{plural}", {"metadata": {"name": "c"}, "spec": body}
            )
            assert rejected.code == 422
            assert (
                rejected.body["details"]["causes"][0]["field"]
                == "spec.devices.requests[0].adminAccess"
            )
        await api.merge(
            CORE, {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        )
        claim = {"metadata": {"name": "c"}, "spec": spec}
        assert (await api.post(f"{DEVICES}/resourceclaims", claim)).code == 201
        await api.merge(
            CORE, {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}}
        )
        status = await api.merge(
            f"{DEVICES}/resourceclaims/c/status", {"status": {"allocation": allocation}}
        )
        assert status.code == 422
        assert (
            status.body["details"]["causes"][0]["field"]
            == "status.allocation.devices.results[0].adminAccess"
        )


async def test_resource_slices_are_selected_by_driver_and_node() -> None:
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    pool = {"name": "p", "resourceSliceCount": 1}
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        for name in ("a", "b"):
            spec = {"driver": f"{name}.io", "pool": pool, "nodeName": "n"}
            assert (await api.post(slices, {"metadata": {"name": name}, "spec": spec})).code == 201
        found = await api.get(slices, {"fieldSelector": "spec.driver=b.io,spec.nodeName=n"})
    assert [each["metadata"]["name"] for each in found.body["items"]] == ["b"]


async def test_nodes_are_tainted_and_policies_type_checked() -> None:
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["*"],
        "resources": ["deployments"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.nope == 1"}],
    }
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    controllers = ("nodelifecycle", "validatingadmissionpolicy-status")
    async with ControlPlane.embedded(controllers=controllers) as plane, APIClient(plane) as api:
        created = await api.post("/api/v1/nodes", {"metadata": {"name": "n"}, "status": ready})
        assert created.body["spec"]["taints"] == [
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        ]
        await wait_for(api, "/api/v1/nodes", "n", lambda node: "taints" not in node["spec"])
        await api.merge("/api/v1/nodes/n", {"spec": {"unschedulable": True}})
        await wait_for(api, "/api/v1/nodes", "n", lambda node: "taints" in node["spec"])
        await api.post(policies, {"metadata": {"name": "p"}, "spec": spec})
        policy = await wait_for(
            api, policies, "p", lambda each: "typeChecking" in each.get("status", {})
        )
    status = policy["status"]
    assert status["observedGeneration"] == 1
    assert [each["fieldRef"] for each in status["typeChecking"]["expressionWarnings"]] == [
        "spec.validations[0].expression"
    ]


async def test_grace_period_of_a_pod_is_not_shortened_into_the_past() -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        await api.post(f"{CORE}/pods", pod)
        await api.delete(f"{CORE}/pods/p", {"gracePeriodSeconds": 20})
        shorter = (await api.delete(f"{CORE}/pods/p", {"gracePeriodSeconds": 9})).body["metadata"]
        assert shorter["deletionGracePeriodSeconds"] == 9
        await plane.advance(10)
        expired = (await api.delete(f"{CORE}/pods/p", {"gracePeriodSeconds": 5})).body["metadata"]
    assert expired["deletionGracePeriodSeconds"] == 1
    assert expired["deletionTimestamp"] > shorter["deletionTimestamp"]


async def test_endpoints_and_slices_are_validated() -> None:
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    endpoint = {
        "addresses": ["127.0.0.1", "::2"],
        "hostname": "A",
        "nodeName": "-",
        "deprecatedTopology": {"a": "-"},  # dropped before validation
        "hints": {"forZones": [{"name": "z"}, {"name": "z"}]},
    }
    ports = [{"name": "A"}, {"name": "b", "protocol": "X", "appProtocol": "/"}, {"name": "b"}]
    subset = {
        "addresses": [{"ip": "127.0.0.1", "hostname": "A", "nodeName": "-"}],
        "ports": [{"port": 1, "protocol": "X"}],
    }
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        body = {
            "metadata": {"name": "s"},
            "addressType": "IPv4",
            "endpoints": [endpoint],
            "ports": ports,
        }
        rejected = await api.post(slices, body)
        fields = sorted(each["field"] for each in rejected.body["details"]["causes"])
        names = {
            "addressType": "FQDN",
            "endpoints": [{"addresses": ["a", "a.b.", "-"]}],
            "metadata": {"name": "s"},
        }
        domains = await api.post(slices, names)
        endpoints = await api.post(
            f"{CORE}/endpoints", {"metadata": {"name": "e"}, "subsets": [subset]}
        )
        accepted = await api.post(
            slices, {**names, "addressType": "IPv6", "endpoints": [{"addresses": ["2001:DB8::1"]}]}
        )
    assert sorted(set(fields)) == [
        "endpoints[0].addresses",
        "endpoints[0].addresses[0]",
        "endpoints[0].hints.forZones[1].name",
        "endpoints[0].hostname",
        "endpoints[0].nodeName",
        "ports[0].name",
        "ports[1].appProtocol",
        "ports[1].protocol",
        "ports[2].name",
    ]
    assert {each["field"] for each in domains.body["details"]["causes"]} == {
        "endpoints[0].addresses[0]",
        "endpoints[0].addresses[2]",
    }
    assert {
        each["field"].removeprefix("subsets[0].") for each in endpoints.body["details"]["causes"]
    } == {
        "addresses[0].ip",
        "addresses[0].hostname",
        "addresses[0].nodeName",
        "ports[0].protocol",
    }
    assert accepted.code == 201
    assert "RFC 5952" in accepted.headers["Warning"]


async def test_bodies_of_subresources_must_have_the_types_of_their_kind() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        for body in ({"metadata": -1}, {"metadata": {"name": "p"}, "target": "n"}):
            binding = await api.post(f"{CORE}/bindings", body)
            assert (binding.code, binding.body["reason"]) == (400, "BadRequest")
        eviction = await api.post(f"{CORE}/pods/p/eviction", {"metadata": {"name": 5}})
    assert 'Eviction in version "v1" cannot be handled as a Eviction' in eviction.body["message"]


async def test_runtime_classes_are_created_by_a_put() -> None:
    classes, label = "/apis/node.k8s.io/v1/runtimeclasses", "beta.kubernetes.io/os"
    body = {
        "metadata": {"name": "r"},
        "handler": "h",
        "scheduling": {"nodeSelector": {label: "linux"}},
    }
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        created = await api.put(f"{classes}/r", body)
        again = await api.put(f"{classes}/r", body)
    assert created.code == 201
    assert "scheduling.nodeSelector: deprecated since v1.14" in created.headers["Warning"]
    assert again.body["details"]["causes"][0]["field"] == "metadata.resourceVersion"


async def test_capacities_are_updated_with_a_resource_version() -> None:
    path = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
    body = {"metadata": {"name": "c"}, "storageClassName": "s"}
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        assert (await api.post(path, body)).code == 201
        updated = await api.put(f"{path}/c", body)
    assert updated.body["details"]["causes"][0]["field"] == "metadata.resourceVersion"
