"""LimitRanges and ResourceQuotas, as clients that create pods and other objects observe them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from envtest import ControlPlane
from envtest.admission.resources import format_quantities, pod_resources
from envtest.api_client import APIClient
from test.support.config_maps import CONFIG_MAPS, config_map

CORE = "/api/v1/namespaces/default"


@pytest.fixture
async def api() -> AsyncIterator[APIClient]:
    async with (
        ControlPlane.embedded(controllers=("resourcequota",)) as plane,
        APIClient(plane) as requests,
    ):
        yield requests


def container(name: str = "c", **resources: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": resources}


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    spec = {"containers": list(containers or (container(),)), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def create_limit_range(api: APIClient, *limits: dict[str, Any]) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits"},
        "spec": {"limits": list(limits)},
    }
    assert (await api.post(f"{CORE}/limitranges", body)).code == 201


async def create_quota(api: APIClient, name: str, hard: dict[str, str], **spec: Any) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard, **spec},
    }
    assert (await api.post(f"{CORE}/resourcequotas", body)).code == 201
    await wait_for_usage(api, name, {**dict.fromkeys(hard, "0")}, at_least=True)


async def wait_for_usage(
    api: APIClient, name: str, usage: dict[str, str], *, at_least: bool = False
) -> None:
    """Watch the quota until its status reports this usage."""
    query = {"fieldSelector": f"metadata.name={name}"}
    async with asyncio.timeout(120), api.watch(f"{CORE}/resourcequotas", query) as watch:
        while True:
            status = (await watch.event())["object"].get("status") or {}
            reported = status.get("used")
            if reported == usage or (at_least and (reported or {}).keys() == usage.keys()):
                return


async def test_limit_range_sets_container_defaults(api: APIClient) -> None:
    await create_limit_range(
        api,
        {
            "type": "Container",
            "default": {"cpu": "500m"},
            "defaultRequest": {"cpu": "100m", "memory": "1Gi"},
        },
    )
    body = pod("a", container("x"), container("y", requests={"cpu": "1"}, limits={"cpu": "2"}))
    created = (await api.post(f"{CORE}/pods", body)).body
    x, y = (each["resources"] for each in created["spec"]["containers"])
    assert x == {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m", "memory": "1Gi"}}
    assert y == {"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    assert created["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container x; cpu limit for container x; "
        "memory request for container y"
    )


@pytest.mark.parametrize(
    ("bounds", "resources", "problem"),
    [
        (
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "100m"}},
            "minimum cpu usage per Pod is 1, but request is 100m",
        ),
        ({"min": {"cpu": "1"}}, {}, "minimum cpu usage per Pod is 1.  No request is specified"),
        (
            {"max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Pod is 1, but limit is 2",
        ),
        ({"max": {"cpu": "1"}}, {}, "maximum cpu usage per Pod is 1.  No limit is specified"),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000",
        ),
        (
            {"max": {"memory": "1Gi"}, "min": {"cpu": "1"}},
            {"requests": {"cpu": "1m"}, "limits": {"memory": "2Gi"}},
            (
                "[minimum cpu usage per Pod is 1, but request is 1m, "
                "maximum memory usage per Pod is 1Gi, but limit is 2Gi]"
            ),
        ),
    ],
)
async def test_limit_range_limits_pods(
    api: APIClient, bounds: dict[str, Any], resources: dict[str, Any], problem: str
) -> None:
    await create_limit_range(api, {"type": "Pod", **bounds})
    response = await api.post(f"{CORE}/pods", pod("a", container(**resources)))
    assert (response.code, response.body["message"]) == (403, f'pods "a" is forbidden: {problem}')


async def test_limit_range_limits_claims(api: APIClient) -> None:
    await create_limit_range(
        api, {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}
    )
    for size, problem in (
        ("1Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
        ("3Gi", "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
    ):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "a"},
            "spec": spec,
        }
        response = await api.post(f"{CORE}/persistentvolumeclaims", claim)
        assert response.body["message"] == f'persistentvolumeclaims "a" is forbidden: {problem}'


async def test_quota_limits_object_counts(api: APIClient) -> None:
    await create_quota(
        api, "maps", {"configmaps": "2", "count/configmaps": "5", "count/deployments.apps": "1"}
    )
    assert (await api.post(CONFIG_MAPS, config_map("a"))).code == 201
    dry = await api.post(CONFIG_MAPS, config_map("dry"), {"dryRun": "All"})
    assert dry.code == 201
    assert (await api.post(CONFIG_MAPS, config_map("b"))).code == 201
    response = await api.post(CONFIG_MAPS, config_map("c"))
    assert response.code == 403
    assert response.body["message"] == (
        'configmaps "c" is forbidden: exceeded quota: maps, requested: configmaps=1, used: configmaps=2, '
        "limited: configmaps=2"
    )
    assert (await api.delete(f"{CONFIG_MAPS}/a")).code == 200
    await wait_for_usage(
        api, "maps", {"configmaps": "1", "count/configmaps": "1", "count/deployments.apps": "0"}
    )
    assert (await api.post(CONFIG_MAPS, config_map("c"))).code == 201


async def test_quota_limits_requests_and_limits_of_pods(api: APIClient) -> None:
    await create_quota(api, "compute", {"requests.cpu": "1", "limits.memory": "2Gi", "pods": "10"})
    response = await api.post(
        f"{CORE}/pods", pod("a", container("x"), container("y", requests={"cpu": "1"}))
    )
    assert response.body["message"] == (
        'pods "a" is forbidden: failed quota: compute: must specify limits.memory for: x,y; requests.cpu for: x'
    )
    fitting = container(requests={"cpu": "600m"}, limits={"memory": "1Gi"})
    assert (await api.post(f"{CORE}/pods", pod("a", fitting))).code == 201
    await wait_for_usage(
        api, "compute", {"limits.memory": "1Gi", "pods": "1", "requests.cpu": "600m"}
    )
    response = await api.post(f"{CORE}/pods", pod("b", fitting))
    assert response.body["message"] == (
        'pods "b" is forbidden: exceeded quota: compute, requested: requests.cpu=600m, used: requests.cpu=600m, '
        "limited: requests.cpu=1"
    )
    finished = {**(await api.get(f"{CORE}/pods/a")).body, "status": {"phase": "Succeeded"}}
    assert (await api.put(f"{CORE}/pods/a/status", finished)).code == 200
    await wait_for_usage(api, "compute", {"limits.memory": "0", "pods": "0", "requests.cpu": "0"})
    assert (await api.post(f"{CORE}/pods", pod("b", fitting))).code == 201


async def test_quota_scopes(api: APIClient) -> None:
    await create_quota(api, "short", {"pods": "0"}, scopes=["Terminating"])
    await create_quota(
        api,
        "free",
        {"pods": "1"},
        scopeSelector={"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]},
    )
    assert (
        await api.post(f"{CORE}/pods", pod("long", container(requests={"cpu": "1"})))
    ).code == 201
    response = await api.post(
        f"{CORE}/pods", pod("short", container(requests={"cpu": "1"}), activeDeadlineSeconds=5)
    )
    assert (
        "exceeded quota: short, requested: pods=1, used: pods=0, limited: pods=0"
        in response.body["message"]
    )
    assert (await api.post(f"{CORE}/pods", pod("free"))).code == 201
    assert (await api.post(f"{CORE}/pods", pod("freer"))).code == 403


async def test_quota_counts_node_ports_on_update(api: APIClient) -> None:
    await create_quota(api, "services", {"services": "5", "services.nodeports": "1"})
    ports = [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"ports": ports},
    }
    created = await api.post(f"{CORE}/services", service)
    assert created.code == 201
    created.body["spec"]["type"] = "NodePort"
    response = await api.put(f"{CORE}/services/a", created.body)
    assert response.code == 403
    assert "exceeded quota: services, requested: services.nodeports=2" in response.body["message"]


def test_pod_resources_include_init_containers_and_overhead() -> None:
    def requesting(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    init_containers = [
        requesting("3"),
        requesting("1", restartPolicy="Always"),
        requesting("2500m"),
    ]
    spec = {
        "containers": [requesting("1"), requesting("500m")],
        "initContainers": init_containers,
        "overhead": {"cpu": "10m"},
    }
    assert format_quantities(pod_resources({"spec": spec}, "requests")) == {"cpu": "3510m"}
    assert pod_resources({"spec": spec}, "limits") == {}


def device_claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    named = [{"name": f"r{number}", **request} for number, request in enumerate(requests)]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": named}}}


async def test_devices_of_a_class_are_counted(api: APIClient) -> None:
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    gold = "gold.deviceclass.resource.k8s.io/devices"
    await create_quota(api, "q", {gold: "5", "count/resourceclaims.resource.k8s.io": "10"})
    options = [
        {"name": "a", "deviceClassName": "gold", "count": 2},
        {"name": "b", "deviceClassName": "gold", "count": 3},
        {"name": "c", "deviceClassName": "other", "count": 9},
    ]
    body = device_claim("a", {"exactly": {"deviceClassName": "gold"}}, {"firstAvailable": options})
    created = await api.post(path, body)
    assert created.code == 201, created.body
    await wait_for_usage(api, "q", {gold: "4", "count/resourceclaims.resource.k8s.io": "1"})
    everything = {"exactly": {"deviceClassName": "gold", "allocationMode": "All"}}
    refused = await api.post(path, device_claim("b", everything))
    assert refused.code == 403
    assert (
        f"exceeded quota: q, requested: {gold}=32, used: {gold}=4, limited: {gold}=5"
        in refused.body["message"]
    )
    assert (await api.delete(f"{path}/a")).code == 200
    await wait_for_usage(api, "q", {gold: "0", "count/resourceclaims.resource.k8s.io": "0"})


def volume_claim(
    name: str, volume_class: str | None = None, storage: str = "1Gi", **metadata: Any
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage}},
    }
    if volume_class:
        spec["volumeAttributesClassName"] = volume_class
    return {"metadata": {"name": name, **metadata}, "spec": spec}


async def test_scopes_of_volume_attributes_classes_select_claims(api: APIClient) -> None:
    def selector(operator: str, *values: str) -> dict[str, Any]:
        expression = {"scopeName": "VolumeAttributesClass", "operator": operator}
        return {
            "matchExpressions": [{**expression, "values": list(values)} if values else expression]
        }

    count = "persistentvolumeclaims"
    await create_quota(api, "gold", {count: "1"}, scopeSelector=selector("In", "gold"))
    await create_quota(api, "rest", {count: "5"}, scopeSelector=selector("NotIn", "gold"))
    await create_quota(api, "any", {count: "5"}, scopes=["VolumeAttributesClass"])
    path = f"{CORE}/persistentvolumeclaims"
    for name, volume_class in (("a", "gold"), ("b", "silver"), ("c", None)):
        assert (await api.post(path, volume_claim(name, volume_class))).code == 201
    for quota, number in (("gold", "1"), ("rest", "2"), ("any", "2")):
        await wait_for_usage(api, quota, {count: number})
    refused = await api.post(path, volume_claim("d", "gold"))
    assert (refused.code, "exceeded quota: gold" in refused.body["message"]) == (403, True)
    status = {"status": {"currentVolumeAttributesClassName": "gold"}}
    assert (
        await api.merge(f"{path}/b/status", status)
    ).code == 200  # a status is charged, but never refused
    await wait_for_usage(api, "gold", {count: "2"})


async def test_storage_of_claims_is_whole_bytes_and_what_is_allocated(api: APIClient) -> None:
    old = "slow.storageclass.storage.k8s.io/requests.storage"
    await create_quota(api, "q", {"requests.storage": "10Gi", old: "10Gi"})
    path = f"{CORE}/persistentvolumeclaims"
    annotations = {"volume.beta.kubernetes.io/storage-class": "slow"}
    created = await api.post(path, volume_claim("a", storage="1500m", annotations=annotations))
    assert created.code == 201, created.body
    await wait_for_usage(api, "q", {"requests.storage": "2", old: "2"})
    status = {"status": {"allocatedResources": {"storage": "3"}}}
    assert (await api.merge(f"{path}/a/status", status)).code == 200
    await wait_for_usage(api, "q", {"requests.storage": "3", old: "3"})
