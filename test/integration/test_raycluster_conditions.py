"""Integration tests of the conditions that the operator adds to the status of a RayCluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cfo.api.raycluster.cluster import MULTIKUEUE_CONTROLLER
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.controllers.raycluster.conditions import (
    CONDITION_TYPES,
    EXPOSED,
    MUTUAL_TLS,
    NETWORK_POLICIES,
)
from cfo.runtime.objects.unstructured import GVK, NamespacedName, Object, find_condition
from envtest import EmbeddedControlPlane
from envtest.faults import Fault
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    RAY_CLUSTER_CRD,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
)

CONDITIONS_SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}},
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}
"""As in KubeRay's CRD, so that several clients can write conditions."""
INGRESS = GVK("networking.k8s.io", "v1", "Ingress")
READY = {"type": "HeadPodReady", "status": "True", "reason": "Ready", "message": ""}


def with_conditions_schema(crd: Object) -> Object:
    crd = copy.deepcopy(crd)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    status = schema.setdefault("properties", {}).setdefault("status", {"type": "object"})
    status["x-kubernetes-preserve-unknown-fields"] = True
    status.setdefault("properties", {})["conditions"] = CONDITIONS_SCHEMA
    return crd


async def conditions(env: Environment, name: str = "rc") -> list[dict[str, Any]]:
    cluster = await env.client.get(RAY_CLUSTER, NamespacedName("ns", name))
    return list(((cluster or {}).get("status") or {}).get("conditions") or ())


async def wait_for(env: Environment, kind: str, status: str) -> Object:
    async def holds() -> Object | None:
        found = find_condition(await conditions(env), kind)
        return found if found is not None and found["status"] == status else None

    return await eventually(holds, f"{kind} is {status}")


async def test_conditions_have_what_the_operator_provides() -> None:
    async with start_environment(with_conditions_schema(RAY_CLUSTER_CRD)) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.create(ray_cluster())
            await env.create(ray_cluster("elsewhere", managedBy=MULTIKUEUE_CONTROLLER))
            exposed = await wait_for(env, EXPOSED, "True")
            assert exposed["message"].startswith("Dashboard: http://ray-dashboard-rc-ns.")
            assert (await wait_for(env, NETWORK_POLICIES, "True"))["reason"] == "Operator"
            assert (await wait_for(env, MUTUAL_TLS, "False"))["reason"] == "NotInjected"

            # KubeRay's conditions stay, and ours are written again when another client removes them.
            stamped = [{**READY, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
            await env.client.patch(
                RAY_CLUSTER,
                NamespacedName("ns", "rc"),
                {"status": {"conditions": stamped}},
                subresource="status",
            )
            await wait_for(env, EXPOSED, "True")
            assert {item["type"] for item in await conditions(env)} == {
                *CONDITION_TYPES,
                "HeadPodReady",
            }

            await env.client.patch(
                RAY_CLUSTER, NamespacedName("ns", "rc"), {"spec": {"suspend": True}}
            )
            await env.client.delete(INGRESS, NamespacedName("ns", "ray-dashboard-rc"))
            assert (await wait_for(env, EXPOSED, "False"))["reason"] == "Suspended"
            assert await conditions(env, "elsewhere") == []


@pytest.mark.embedded(reason="injects faults")
async def test_denial_in_one_namespace_leaves_the_conditions_of_others() -> None:
    async with start_environment(with_conditions_schema(RAY_CLUSTER_CRD)) as env:
        await env.create_namespace()
        await env.create_namespace("denied")
        assert isinstance(env.plane, EmbeddedControlPlane)
        status = {
            "verbs": ("patch",),
            "resources": ("rayclusters/status",),
            "namespaces": ("denied",),
        }
        denied = env.plane.faults.add(
            Fault(**status, code=403, reason="Forbidden", message="denied the request")
        )
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            for name in ("one", "two"):
                await env.create(ray_cluster(name, namespace="denied"))
                await env.wait_until_idle()
            await env.create(ray_cluster())
            await wait_for(env, NETWORK_POLICIES, "True")
            assert denied.injected == 1
