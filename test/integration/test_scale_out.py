"""Tests of several operators in one cluster: one per version, selected by a label, or one per team, by namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER
from cfo.controllers import raycluster
from cfo.runtime.client.transport import Transport
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import CLUSTER_ROLE_BINDING, NETWORK_POLICY, SERVICE_ACCOUNT
from cfo.runtime.objects.rbac import policy_rules
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.planes import local_config
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    start_environment,
)

LABEL = "operatorVersion"


@asynccontextmanager
async def run_with_options(
    env: Environment, settings: dict[str, Any], *, token: str | None = None, **options: Any
) -> AsyncIterator[Manager]:
    """Run the RayCluster controllers with these options of the manager until the end of the block."""
    env.clear_requests()
    async with Transport(
        local_config(env.plane, token=token), observe=env.exchanges.append
    ) as transport:
        manager = Manager(
            transport,
            ManagerOptions(
                field_manager="codeflare-operator", field_managers=[FIELD_MANAGER], **options
            ),
        )
        raycluster.setup(manager, kuberay_config(**settings))
        env.manager = manager
        try:
            async with manager:
                await manager.started()
                yield manager
        finally:
            env.manager = None


def labeled_cluster(name: str, version: str) -> Object:
    """Return a RayCluster with the label of an operator's version."""
    cluster = ray_cluster(name)
    cluster["metadata"]["labels"] = {LABEL: version}
    return cluster


async def test_operator_with_label_selector_manages_only_matching_clusters() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as env:
        await env.create_namespace()
        for cluster in (
            labeled_cluster("own", "v1"),
            labeled_cluster("other", "v2"),
            ray_cluster("unlabeled"),
        ):
            await env.create(cluster)
        async with run_with_options(env, OAUTH_SETTINGS, selectors={RAY_CLUSTER: f"{LABEL}=v1"}):
            await env.wait_until_idle()
            assert {name.partition("-")[0] for name in await env.child_names(NETWORK_POLICY)} == {
                "own"
            }
            assert not (await env.get(RAY_CLUSTER, "other"))["metadata"].get("finalizers")
            reads = [exchange for exchange in env.exchanges if exchange.verb == "get"]
            assert [exchange for exchange in reads if "rayclusters" in exchange.resource] == []

            await env.patch(ray_cluster("unlabeled"), {"metadata": {"labels": {LABEL: "v1"}}})
            await env.wait_until_idle()
            assert {name.partition("-")[0] for name in await env.child_names(NETWORK_POLICY)} == {
                "own",
                "unlabeled",
            }

            # A cluster handed over to another operator is no longer reconciled, and its binding is not deleted.
            bindings = await env.client.list(
                CLUSTER_ROLE_BINDING, label_selector="ray.openshift.ai/cluster-name"
            )
            await env.patch(ray_cluster("own"), {"metadata": {"labels": {LABEL: "v2"}}})
            await env.wait_until_idle()
            env.clear_requests()
            for policy in await env.client.list(NETWORK_POLICY, namespace="ns"):
                if policy["metadata"]["name"].startswith("own"):
                    await env.delete(policy)
            await env.wait_until_idle()
            assert {name.partition("-")[0] for name in await env.child_names(NETWORK_POLICY)} == {
                "unlabeled"
            }
            remaining = await env.client.list(
                CLUSTER_ROLE_BINDING, label_selector="ray.openshift.ai/cluster-name"
            )
            assert [item["metadata"]["name"] for item in remaining] == [
                item["metadata"]["name"] for item in bindings
            ]


async def test_operator_limited_to_namespaces_needs_no_permissions_elsewhere() -> None:
    async with start_environment(*VANILLA_CRDS) as env:
        for namespace in ("team-a", "team-b", "other"):
            await env.create_namespace(namespace)
            await env.create(ray_cluster(namespace=namespace))
        token = await create_account(env, "team-a", "team-b")
        settings = {**PLAIN_SETTINGS, "operatorNamespaces": ["kuberay"]}
        async with run_with_options(
            env, settings, token=token, namespaces=["team-a", "team-b"]
        ) as manager:

            async def has_policies() -> bool:
                return all(
                    [
                        len(await env.child_names(NETWORK_POLICY, name)) == 2
                        for name in ("team-a", "team-b")
                    ]
                )

            await eventually(has_policies, "the policies of both namespaces exist")
            assert await env.child_names(NETWORK_POLICY, "other") == set()
            assert await manager.health.failures() == {}
            denied = {exchange.resource for exchange in env.exchanges if exchange.code == "403"}
            # CRDs installed later are then not noticed, which concerns only the optional kinds, and hosts of other
            # namespaces are not known
            assert denied <= {
                "customresourcedefinitions.apiextensions.k8s.io",
                "ingresses.networking.k8s.io",
            }


async def create_account(env: Environment, *namespaces: str) -> str:
    """Create a ServiceAccount with the operator's permissions in only these namespaces, and return a token of it."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "cfo", "namespace": namespaces[0]},
    }
    await env.create(account)
    rbac = "rbac.authorization.k8s.io"
    events = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}
    for namespace in namespaces:
        metadata = {"name": "cfo", "namespace": namespace}
        rules = [*policy_rules(raycluster.RULES), events]
        await env.create(
            {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
        )
        await env.create(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "cfo"},
                "subjects": [{"kind": "ServiceAccount", "name": "cfo", "namespace": namespaces[0]}],
            }
        )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    key = NamespacedName(namespaces[0], "cfo")
    response = await env.client.create_subresource(SERVICE_ACCOUNT, key, "token", request)
    return str(response["status"]["token"])
