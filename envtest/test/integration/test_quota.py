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
    async with ControlPlane.embedded(controllers=("resourcequota",)) as plane, APIClient(plane) as requests:
        yield requests


def container(name: str = "c", **resources: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": resources}


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    spec = {"containers": list(containers or (container(),)), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def create_limit_range(api: APIClient, *limits: dict[str, Any]) -> None:
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}, "spec": {"limits": list(limits)}}
    assert (await api.post(f"{CORE}/limitranges", body)).code == 201


async def create_quota(api: APIClient, name: str, hard: dict[str, str], **spec: Any) -> None:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard, **spec}}
    assert (await api.post(f"{CORE}/resourcequotas", body)).code == 201
    await wait_for_usage(api, name, {**dict.fromkeys(hard, "0")}, at_least=True)


async def wait_for_usage(api: APIClient, name: str, usage: dict[str, str], *, at_least: bool = False) -> None:
    """Watch the quota until its status reports this usage."""
    query = {"fieldSelector": f"metadata.name={name}"}
    async with asyncio.timeout(10), api.watch(f"{CORE}/resourcequotas", query) as watch:
        while True:
            status = (await watch.event())["object"].get("status") or {}
            reported = status.get("used")
            if reported == usage or (at_least and (reported or {}).keys() == usage.keys()):
                return


async def test_limit_range_sets_container_defaults(api: APIClient) -> None:
    await create_limit_range(
        api, {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m", "memory": "1Gi"}}
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
        ({"min": {"cpu": "1"}}, {"requests": {"cpu": "100m"}}, "minimum cpu usage per Pod is 1, but request is 100m"),
        ({"min": {"cpu": "1"}}, {}, "minimum cpu usage per Pod is 1.  No request is specified"),
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "maximum cpu usage per Pod is 1, but limit is 2"),
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
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "spec": spec}
        response = await api.post(f"{CORE}/persistentvolumeclaims", claim)
        assert response.body["message"] == f'persistentvolumeclaims "a" is forbidden: {problem}'


async def test_quota_limits_object_counts(api: APIClient) -> None:
    await create_quota(api, "maps", {"configmaps": "2", "count/configmaps": "5", "count/deployments.apps": "1"})
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
    await wait_for_usage(api, "maps", {"configmaps": "1", "count/configmaps": "1", "count/deployments.apps": "0"})
    assert (await api.post(CONFIG_MAPS, config_map("c"))).code == 201


async def test_quota_limits_requests_and_limits_of_pods(api: APIClient) -> None:
    await create_quota(api, "compute", {"requests.cpu": "1", "limits.memory": "2Gi", "pods": "10"})
    response = await api.post(f"{CORE}/pods", pod("a", container("x"), container("y", requests={"cpu": "1"})))
    assert response.body["message"] == (
        'pods "a" is forbidden: failed quota: compute: must specify limits.memory for: x,y; requests.cpu for: x'
    )
    fitting = container(requests={"cpu": "600m"}, limits={"memory": "1Gi"})
    assert (await api.post(f"{CORE}/pods", pod("a", fitting))).code == 201
    await wait_for_usage(api, "compute", {"limits.memory": "1Gi", "pods": "1", "requests.cpu": "600m"})
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
    assert (await api.post(f"{CORE}/pods", pod("long", container(requests={"cpu": "1"})))).code == 201
    response = await api.post(f"{CORE}/pods", pod("short", container(requests={"cpu": "1"}), activeDeadlineSeconds=5))
    assert "exceeded quota: short, requested: pods=1, used: pods=0, limited: pods=0" in response.body["message"]
    assert (await api.post(f"{CORE}/pods", pod("free"))).code == 201
    assert (await api.post(f"{CORE}/pods", pod("freer"))).code == 403


async def test_quota_counts_node_ports_on_update(api: APIClient) -> None:
    await create_quota(api, "services", {"services": "5", "services.nodeports": "1"})
    ports = [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": ports}}
    created = await api.post(f"{CORE}/services", service)
    assert created.code == 201
    created.body["spec"]["type"] = "NodePort"
    response = await api.put(f"{CORE}/services/a", created.body)
    assert response.code == 403
    assert "exceeded quota: services, requested: services.nodeports=2" in response.body["message"]


def test_pod_resources_include_init_containers_and_overhead() -> None:
    def requesting(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    init_containers = [requesting("3"), requesting("1", restartPolicy="Always"), requesting("2500m")]
    spec = {
        "containers": [requesting("1"), requesting("500m")],
        "initContainers": init_containers,
        "overhead": {"cpu": "10m"},
    }
    assert format_quantities(pod_resources({"spec": spec}, "requests")) == {"cpu": "3510m"}
    assert pod_resources({"spec": spec}, "limits") == {}
