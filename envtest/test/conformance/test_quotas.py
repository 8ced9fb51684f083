"""ResourceQuotas: the usage of each kind, scopes and the status. LimitRanges."""

from __future__ import annotations

from typing import Any

import pytest

from test.conformance.client import SpecClient
from test.conformance.specs import plays

EXTENDED = "example.com/dongle"


def pod(
    name: str,
    requests: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    **spec: Any,
) -> Any:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    container = {"name": "pause", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }
    # Without a node that exists, the pod is never scheduled, as if no kubelet started it.
    body["spec"]["nodeSelector"] = {"x-test.k8s.io/unsatisfiable": "not-schedulable"}
    return body


def quota(name: str, hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard, **spec},
    }


async def used(client: SpecClient, path: str, **expected: str) -> None:
    """Wait until the quota's status has the usage ``expected``, whose names have ``_`` for ``.``."""
    usage = {key.replace("_", "."): value for key, value in expected.items()}
    await client.eventually(
        path, lambda body: ((body.get("status") or {}).get("used") or {}).items() >= usage.items()
    )


@plays("ResourceQuota should create a ResourceQuota and ensure its status is promptly calculated.")
async def test_status_of_a_quota_is_calculated(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    hard = {
        "pods": "5",
        "services": "10",
        "services.nodeports": "1",
        "services.loadbalancers": "1",
        "replicationcontrollers": "10",
        "resourcequotas": "1",
        "cpu": "1",
        "memory": "500Mi",
        "configmaps": "10",
        "secrets": "10",
        "persistentvolumeclaims": "10",
        "requests.storage": "10Gi",
        "requests.ephemeral-storage": "50Gi",
        "requests.example.com/dongle": "3",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "10",
        "gold.storageclass.storage.k8s.io/requests.storage": "10Gi",
        "count/replicasets.apps": "5",
    }
    await client.create(f"{core}/resourcequotas", quota("test-quota", hard))
    body = await client.eventually(
        f"{core}/resourcequotas/test-quota", lambda body: (body.get("status") or {}).get("used")
    )
    assert body["status"]["hard"] == hard
    assert body["status"]["used"] == {
        **dict.fromkeys(hard, "0"),
        "resourcequotas": "1",
        "configmaps": "1",
    }


KINDS = {
    "ResourceQuota should create a ResourceQuota and capture the life of a configMap.": (
        "/api/v1/namespaces/{}/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}},
        {"configmaps": "1"},
    ),
    "ResourceQuota should create a ResourceQuota and capture the life of a secret.": (
        "/api/v1/namespaces/{}/secrets",
        {"apiVersion": "v1", "kind": "Secret", "data": {"a": "YQ=="}},
        {"secrets": "0"},
    ),
    "ResourceQuota should create a ResourceQuota and capture the life of a replica set.": (
        "/apis/apps/v1/namespaces/{}/replicasets",
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]},
            },
        },
        {"count/replicasets.apps": "0"},
    ),
    "ResourceQuota should create a ResourceQuota and capture the life of a replication controller.": (
        "/api/v1/namespaces/{}/replicationcontrollers",
        {
            "apiVersion": "v1",
            "kind": "ReplicationController",
            "spec": {
                "replicas": 0,
                "selector": {"a": "b"},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]},
            },
        },
        {"replicationcontrollers": "0"},
    ),
}


@plays(*KINDS)
@pytest.mark.parametrize("spec", KINDS)
async def test_quota_counts_the_objects_of_a_kind(
    client: SpecClient, namespace: str, spec: str
) -> None:
    path, body, before = KINDS[spec]
    path, quotas = path.format(namespace), f"/api/v1/namespaces/{namespace}/resourcequotas"
    await client.create(quotas, quota("test-quota", dict.fromkeys(before, "5")))
    one = f"{quotas}/test-quota"
    await client.eventually(one, lambda body: (body.get("status") or {}).get("used") == before)
    await client.create(path, {**body, "metadata": {"name": "test"}})
    after = {name: str(int(value) + 1) for name, value in before.items()}
    await client.eventually(one, lambda body: body["status"]["used"] == after)
    assert (await client.delete(f"{path}/test")).code == 200
    await client.eventually(one, lambda body: body["status"]["used"] == before)


@plays("ResourceQuota should create a ResourceQuota and capture the life of a service.")
async def test_quota_counts_services_by_type(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    hard = {"services": "4", "services.nodeports": "1", "services.loadbalancers": "1"}
    await client.create(f"{core}/resourcequotas", quota("test-quota", hard))
    one = f"{core}/resourcequotas/test-quota"
    await used(client, one, services="0")

    def service(name: str, kind: str, **spec: Any) -> dict[str, Any]:
        spec = {"type": kind, "ports": [{"port": 80, "targetPort": 80}], **spec}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}

    await client.create(f"{core}/services", service("cluster-ip", "ClusterIP"))
    await client.create(f"{core}/services", service("node-port", "NodePort"))
    balancer = service("balancer", "LoadBalancer")
    refused = await client.post(f"{core}/services", balancer)
    assert refused.code == 403, refused.body
    await used(client, one, services="2", services_nodeports="1", services_loadbalancers="0")
    without_ports = service("balancer", "LoadBalancer", allocateLoadBalancerNodePorts=False)
    await client.create(f"{core}/services", without_ports)
    await used(client, one, services="3", services_nodeports="1", services_loadbalancers="1")
    for name in ("cluster-ip", "node-port", "balancer"):
        assert (await client.delete(f"{core}/services/{name}")).code == 200
    await used(client, one, services="0", services_nodeports="0", services_loadbalancers="0")


@plays("ResourceQuota should create a ResourceQuota and capture the life of a pod.")
async def test_quota_limits_the_resources_of_pods(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    hard = {
        "pods": "5",
        "cpu": "1",
        "memory": "500Mi",
        "requests.ephemeral-storage": "50Gi",
        f"requests.{EXTENDED}": "3",
    }
    await client.create(f"{core}/resourcequotas", quota("test-quota", hard))
    one = f"{core}/resourcequotas/test-quota"
    await used(client, one, pods="0")
    requests = {"cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", EXTENDED: "2"}
    await client.create(f"{core}/pods", pod("test-pod", requests, {EXTENDED: "2"}))
    usage = {
        "pods": "1",
        "cpu": "500m",
        "memory": "252Mi",
        "requests.ephemeral-storage": "30Gi",
        f"requests.{EXTENDED}": "2",
    }
    await client.eventually(one, lambda body: body["status"]["used"] == usage)
    for name, amounts in (
        ("fail-pod", {"cpu": "600m", "memory": "100Mi"}),
        ("fail-pod-for-extended-resource", {"cpu": "500m", "memory": "100Mi", EXTENDED: "2"}),
    ):
        limits = {EXTENDED: amounts[EXTENDED]} if EXTENDED in amounts else None
        refused = await client.post(f"{core}/pods", pod(name, amounts, limits))
        assert refused.code == 403, refused.body
    live = await client.read(f"{core}/pods/test-pod")
    live["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    assert (await client.put(f"{core}/pods/test-pod", live)).code == 422
    await client.eventually(one, lambda body: body["status"]["used"] == usage)
    assert (
        await client.delete(f"{core}/pods/test-pod", query={"gracePeriodSeconds": "0"})
    ).code == 200
    await client.eventually(one, lambda body: body["status"]["used"] == dict.fromkeys(usage, "0"))


@plays(
    "ResourceQuota should verify ResourceQuota with terminating scopes.",
    "ResourceQuota should verify ResourceQuota with best effort scope.",
)
@pytest.mark.parametrize(
    ("scopes", "hard", "pods"),
    [
        (
            ("Terminating", "NotTerminating"),
            {
                "pods": "5",
                "requests.cpu": "1",
                "requests.memory": "500Mi",
                "limits.cpu": "2",
                "limits.memory": "1Gi",
            },
            (
                pod(
                    "terminating",
                    {"cpu": "500m", "memory": "200Mi"},
                    {"cpu": "1", "memory": "400Mi"},
                    activeDeadlineSeconds=3600,
                ),
                pod(
                    "long-running",
                    {"cpu": "500m", "memory": "200Mi"},
                    {"cpu": "1", "memory": "400Mi"},
                ),
            ),
        ),
        (
            ("BestEffort", "NotBestEffort"),
            {"pods": "5"},
            (
                pod("best-effort"),
                pod(
                    "burstable", {"cpu": "500m", "memory": "200Mi"}, {"cpu": "1", "memory": "400Mi"}
                ),
            ),
        ),
    ],
    ids=["terminating", "best-effort"],
)
async def test_quota_with_scopes_counts_the_pods_of_the_scope(
    client: SpecClient,
    namespace: str,
    scopes: tuple[str, str],
    hard: dict[str, str],
    pods: tuple[Any, Any],
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    for scope in scopes:
        await client.create(
            f"{core}/resourcequotas", quota(f"quota-{scope.lower()}", hard, scopes=[scope])
        )
    paths = [f"{core}/resourcequotas/quota-{scope.lower()}" for scope in scopes]
    for path in paths:
        await used(client, path, pods="0")
    for mine, other, body in ((paths[0], paths[1], pods[0]), (paths[1], paths[0], pods[1])):
        await client.create(f"{core}/pods", body)
        await used(client, mine, pods="1")
        await used(client, other, pods="0")
        deleted = await client.delete(
            f"{core}/pods/{body['metadata']['name']}", query={"gracePeriodSeconds": "0"}
        )
        assert deleted.code == 200
        await used(client, mine, pods="0")


@plays("ResourceQuota should be able to update and delete ResourceQuota.")
async def test_hard_limits_of_a_quota_are_updated(client: SpecClient, namespace: str) -> None:
    one = f"/api/v1/namespaces/{namespace}/resourcequotas/test-quota"
    await client.create(
        one.rpartition("/")[0], quota("test-quota", {"cpu": "1", "memory": "500Mi"})
    )
    updated = await client.update(
        one, lambda obj: obj["spec"]["hard"].update(cpu="2", memory="1Gi")
    )
    assert updated["spec"]["hard"] == {"cpu": "2", "memory": "1Gi"}
    assert (await client.delete(one)).code == 200
    assert (await client.get(one)).code == 404


@plays("ResourceQuota should apply changes to a resourcequota status")
async def test_status_of_a_quota_is_written(client: SpecClient, namespace: str) -> None:
    one = f"/api/v1/namespaces/{namespace}/resourcequotas/e2e-rq-status"
    hard = {"cpu": "500m", "memory": "500Mi"}
    await client.create(one.rpartition("/")[0], quota("e2e-rq-status", hard))
    await client.eventually(one, lambda body: (body.get("status") or {}).get("hard") == hard)
    await client.update(one, lambda obj: obj["status"]["hard"].update(cpu="600m"), "/status")
    # The controller restores the status.
    await client.eventually(one, lambda body: body["status"]["hard"] == hard)
    more = {"cpu": "1", "memory": "1Gi"}
    assert (await client.merge(one, {"spec": {"hard": more}})).body["spec"]["hard"] == more
    await client.eventually(one, lambda body: body["status"]["hard"] == more)
    patched = await client.merge(
        f"{one}/status", {"status": {"hard": {"cpu": "2", "memory": "2Gi"}}}
    )
    assert patched.body["spec"]["hard"] == more
    assert (await client.read(f"{one}/status"))["spec"]["hard"] == more
    await client.eventually(one, lambda body: body["status"]["hard"] == more)


@plays(
    "LimitRange should create a LimitRange with defaults and ensure pod has those defaults applied."
)
async def test_limit_range_sets_and_checks_resources(client: SpecClient, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"

    def amounts(cpu: str, memory: str, storage: str) -> dict[str, str]:
        return {"cpu": cpu, "memory": memory, "ephemeral-storage": storage}

    limit = {
        "type": "Container",
        "min": amounts("50m", "100Mi", "100Gi"),
        "max": amounts("500m", "500Mi", "500Gi"),
        "default": amounts("100m", "200Mi", "200Gi"),
        "defaultRequest": amounts("300m", "150Mi", "150Gi"),
    }
    body = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits"},
        "spec": {"limits": [limit]},
    }
    refused = await client.post(f"{core}/limitranges", body)
    assert refused.code == 422, "the default request is above the default limit"
    limit |= {
        "defaultRequest": amounts("100m", "200Mi", "200Gi"),
        "default": amounts("300m", "500Mi", "500Gi"),
    }
    async with client.watching(f"{core}/limitranges") as watch:
        await client.create(f"{core}/limitranges", body)
        assert (await watch.event())["type"] == "ADDED"
    resources = (await client.create(f"{core}/pods", pod("defaults")))["spec"]["containers"][0][
        "resources"
    ]
    assert resources == {"requests": limit["defaultRequest"], "limits": limit["default"]}
    partial = await client.create(
        f"{core}/pods", pod("partial", {"memory": "150Mi", "ephemeral-storage": "150Gi"})
    )
    assert partial["spec"]["containers"][0]["resources"]["requests"] == amounts(
        "100m", "150Mi", "150Gi"
    )
    for name, cpu in (("too-small", "10m"), ("too-large", "600m")):
        refused = await client.post(f"{core}/pods", pod(name, {"cpu": cpu}, {"cpu": cpu}))
        assert refused.code == 403, refused.body
    await client.update(
        f"{core}/limitranges/limits",
        lambda obj: obj["spec"]["limits"][0].update(min=amounts("9m", "49Mi", "49Gi")),
    )
    await client.create(f"{core}/pods", pod("small", amounts("10m", "50Mi", "50Gi")))
    assert (await client.delete(f"{core}/limitranges/limits")).code == 200
    await client.vanished(f"{core}/limitranges/limits")
    await client.create(f"{core}/pods", pod("unlimited", amounts("600m", "600Mi", "600Gi")))
