"""Integration tests of the conditions that the operator adds to the status of a RayCluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from anyio import Event

from cfo.api.raycluster.cluster import MULTIKUEUE_CONTROLLER
from cfo.api.raycluster.conditions import (
    CONDITION_TYPES,
    EXPOSED,
    MUTUAL_TLS,
    NETWORK_POLICIES,
)
from cfo.api.raycluster.names import RAY_CLUSTER, names_of
from cfo.controllers.raycluster.concern import ObservedCluster
from cfo.controllers.raycluster.networkpolicy import NetworkPolicies
from cfo.runtime.objects.kinds import NETWORK_POLICY
from cfo.runtime.objects.unstructured import (
    GVK,
    NamespacedName,
    Object,
    find_condition,
    new_object,
)
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


async def wait_for_reason(env: Environment, name: str, kind: str, reason: str) -> Object:
    async def holds() -> Object | None:
        found = find_condition(await conditions(env, name), kind)
        return found if found is not None and found["reason"] == reason else None

    return await eventually(holds, f"{kind} of {name} has the reason {reason}")


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


async def test_conditions_have_the_reasons_of_warnings_until_their_causes_are_removed() -> None:
    long = "k" * 50
    async with start_environment(with_conditions_schema(RAY_CLUSTER_CRD)) as env:
        await env.create_namespace()
        taken = new_object(NETWORK_POLICY, names_of(ray_cluster("taken")).head_policy, "ns")
        taken["spec"] = {"podSelector": {}}
        await env.create(taken)
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            refused = {"dashboard-port": "6379"}
            ports = await env.create(ray_cluster("ports"))
            names = names_of(ports)
            by_operator = f"By the operator: {names.head_policy}, {names.workers_policy}"
            await env.patch(ports, {"spec": {"headGroupSpec": {"rayStartParams": refused}}})
            await env.create(ray_cluster("taken"))
            await env.create(ray_cluster(long))
            await wait_for_reason(env, "taken", NETWORK_POLICIES, "NameTaken")
            # Also when it is not the first reconcile: the operator does not leave the host that a RayCluster has.
            await env.wait_until_idle()
            await env.client.delete(INGRESS, NamespacedName("ns", f"rayclient-{long}"))
            await env.wait_until_idle()
            exposed = await wait_for_reason(env, long, EXPOSED, "HostTooLong")
            assert exposed["status"] == "False"
            policies = await wait_for_reason(env, "ports", NETWORK_POLICIES, "PortRefused")
            assert policies["status"] == "True"
            assert policies["message"].startswith("Ports are refused: ")
            assert policies["message"].endswith(f"do not open them. {by_operator}")

            await env.patch(ports, {"spec": {"headGroupSpec": {"rayStartParams": None}}})
            policies = await wait_for_reason(env, "ports", NETWORK_POLICIES, "Operator")
            assert policies["message"] == by_operator


async def test_condition_keeps_a_problem_while_its_concern_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = Event()

    async def fail(concern: NetworkPolicies, cluster: ObservedCluster) -> None:
        failed.set()
        raise TimeoutError

    async with start_environment(with_conditions_schema(RAY_CLUSTER_CRD)) as env:
        await env.create_namespace()
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            cluster = ray_cluster()
            cluster["spec"]["headGroupSpec"]["rayStartParams"] = {"dashboard-port": "6379"}
            cluster = await env.create(cluster)
            refused = await wait_for_reason(env, "rc", NETWORK_POLICIES, "PortRefused")
            monkeypatch.setattr(NetworkPolicies, "observe", fail)
            await env.patch(cluster, {"spec": {"suspend": True}})
            await failed.wait()
            await wait_for_reason(env, "rc", EXPOSED, "Suspended")
            assert find_condition(await conditions(env), NETWORK_POLICIES) == refused


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
