"""Tests of the NetworkPolicies that deny everything by default in whole namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.names import DEFAULT_DENY_LABEL, DEFAULT_DENY_NAME
from cfo.controllers.raycluster.policies import desired_default_deny
from cfo.runtime.objects.kinds import NAMESPACE, NETWORK_POLICY
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import Object, resource_version_of
from test.support.network_policies import NAMES
from test.support.raycluster_environment import (
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    run_controllers,
    start_environment,
    wait_until_deleted,
)
from test.support.tenant_clients import service_account_token

SELECTED = {"ray.example.com/isolate": "true"}
SETTINGS = {
    **PLAIN_SETTINGS,
    "mTLSEnabled": False,
    "networkPolicy": {"defaultDeny": {"namespaceSelector": "ray.example.com/isolate=true"}},
}


async def create_selected_namespace(env: Environment, name: str = "ns") -> Object:
    """Create a namespace that :data:`SETTINGS` select."""
    return await env.create(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": dict(SELECTED)},
        }
    )


async def wait_for_policy(env: Environment, namespace: str = "ns") -> Object:
    """Wait until the policy of a namespace exists with the desired content, and return it."""

    async def desired_policy() -> Object | None:
        found = await env.find(NETWORK_POLICY, DEFAULT_DENY_NAME, namespace)
        return (
            found
            if found is not None and found["spec"] == desired_default_deny(namespace)["spec"]
            else None
        )

    found: Object = await eventually(desired_policy, f"the default-deny policy of {namespace}")
    return found


def writes(env: Environment) -> list[tuple[str, str]]:
    """Return verb and resource of each write of the controllers since they started."""
    return [request for request in env.requests() if request[0] not in ("get", "discover")]


def ray_pod() -> Object:
    """Return a head pod as KubeRay creates it."""
    labels = {"ray.io/cluster": "rc", "ray.io/node-type": "head"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "rc-head", "namespace": "ns", "labels": labels},
        "spec": {"containers": [{"name": "ray-head", "image": "ray"}]},
    }


async def test_selected_namespaces_have_the_policy_before_their_first_pod() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await env.create_namespace("other")
        async with run_controllers(env, kuberay_config(**SETTINGS)):
            namespace = await create_selected_namespace(env)
            policy = await wait_for_policy(env)
            pod = await env.create(ray_pod())
            assert int(resource_version_of(policy)) < int(resource_version_of(pod))
            await env.create(ray_cluster())
            await env.wait_until_idle()
            assert await env.find(NETWORK_POLICY, DEFAULT_DENY_NAME, "other") is None
            await env.patch(policy, {"spec": {"ingress": [{}]}})
            await wait_for_policy(env)
            await env.delete(policy)
            await wait_for_policy(env)
            assert await env.find(NETWORK_POLICY, NAMES.head_policy) is not None
        async with run_controllers(env, kuberay_config(**SETTINGS)):
            assert writes(env) == [], "a restart writes nothing"
            await env.patch(namespace, {"metadata": {"labels": {next(iter(SELECTED)): "false"}}})
            await wait_until_deleted(env, [(NETWORK_POLICY, DEFAULT_DENY_NAME)])
            await env.patch(namespace, {"metadata": {"labels": SELECTED}})
            await wait_for_policy(env)


async def test_policies_are_deleted_when_the_setting_is_removed_but_not_when_a_permission_is_missing() -> (
    None
):
    async with start_environment(*VANILLA_CRDS) as env:
        await create_selected_namespace(env)
        async with run_controllers(env, kuberay_config(**SETTINGS)):
            policy = await wait_for_policy(env)
        token = await service_account_token(
            env,
            Rule("ray.io", "rayclusters", ("get", "list", "watch", "patch")),
            Rule("networking.k8s.io", "networkpolicies", "*"),
        )
        async with run_controllers(
            env, kuberay_config(**SETTINGS), token=token, wait=False
        ) as manager:
            informer = manager.cache.informer(
                NAMESPACE, label_selector="ray.example.com/isolate=true", metadata_only=True
            )

            async def is_forbidden() -> bool:
                return informer.is_forbidden

            await eventually(is_forbidden, "the operator is not allowed to list Namespaces")
            await env.create(ray_cluster())

            async def has_own_policy() -> bool:
                return await env.find(NETWORK_POLICY, NAMES.head_policy) is not None

            await eventually(has_own_policy, "the policy of the RayCluster")
            assert await env.get(NETWORK_POLICY, DEFAULT_DENY_NAME) == policy
        foreign = await env.create(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {
                    "name": "other",
                    "namespace": "ns",
                    "labels": {DEFAULT_DENY_LABEL: "true"},
                },
                "spec": {"podSelector": {}},
            }
        )
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await wait_until_deleted(env, [(NETWORK_POLICY, DEFAULT_DENY_NAME)])
            assert await env.get(NETWORK_POLICY, "other") == foreign


@pytest.mark.parametrize("padding", [0, 70_000], ids=["cached", "too-large-for-the-cache"])
async def test_policy_of_another_client_is_reported_and_not_changed(padding: int) -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        await create_selected_namespace(env)
        metadata: dict[str, Any] = {
            "name": DEFAULT_DENY_NAME,
            "namespace": "ns",
            "annotations": {"a": "x" * padding},
        }
        spec: dict[str, Any] = {"podSelector": {}, "ingress": [{}]}
        foreign = await env.create(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": metadata,
                "spec": spec,
            }
        )
        async with run_controllers(env, kuberay_config(**SETTINGS)):
            note = await env.wait_for_event("NameTaken", DEFAULT_DENY_LABEL)
            assert DEFAULT_DENY_NAME in note
            await env.wait_until_idle()
            assert await env.get(NETWORK_POLICY, DEFAULT_DENY_NAME) == foreign
            if not padding:
                await env.delete(foreign)
                await wait_for_policy(env)
        async with run_controllers(env, kuberay_config(**PLAIN_SETTINGS)):
            await env.wait_until_idle()
            assert (await env.find(NETWORK_POLICY, DEFAULT_DENY_NAME) is None) is (padding == 0)
