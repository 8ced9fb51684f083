"""Several operators in one cluster: one for each version, by a label, or one for each team, by namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.controllers import raycluster
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Transport
from cfo.runtime.kinds import CLUSTER_ROLE_BINDING, NETWORK_POLICY, SERVICE_ACCOUNT
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import NamespacedName, Object
from cfo.runtime.reconcile import policy_rules
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
async def limited(
    here: Environment, settings: dict[str, Any], *, token: str | None = None, **options: Any
) -> AsyncIterator[Manager]:
    """The RayCluster controllers with these options of the manager."""
    here.clear_requests()
    async with Transport(
        ClientConfig.for_control_plane(here.plane, token=token), observe=here.exchanges.append
    ) as transport:
        manager = Manager(
            transport,
            ManagerOptions(field_manager="codeflare-operator", field_managers=[raycluster.FIELD_MANAGER], **options),
        )
        raycluster.setup(manager, kuberay_config(**settings))
        here.manager = manager
        try:
            async with manager:
                await manager.started()
                yield manager
        finally:
            here.manager = None


def labelled(name: str, version: str) -> Object:
    cluster = ray_cluster(name)
    cluster["metadata"]["labels"] = {LABEL: version}
    return cluster


async def test_an_operator_looks_after_the_clusters_with_its_label_alone() -> None:
    async with start_environment(*OPENSHIFT_CRDS) as here:
        await here.create_namespace()
        for cluster in (labelled("mine", "v1"), labelled("theirs", "v2"), ray_cluster("nobodys")):
            await here.create(cluster)
        async with limited(here, OAUTH_SETTINGS, selectors={RAY_CLUSTER: f"{LABEL}=v1"}):
            await here.wait_until_idle()
            assert {name.partition("-")[0] for name in await here.child_names(NETWORK_POLICY)} == {"mine"}
            assert not (await here.get(RAY_CLUSTER, "theirs"))["metadata"].get("finalizers")
            reads = [exchange for exchange in here.exchanges if exchange.verb == "get"]
            assert [exchange for exchange in reads if "rayclusters" in exchange.resource] == []

            await here.patch(ray_cluster("nobodys"), {"metadata": {"labels": {LABEL: "v1"}}})
            await here.wait_until_idle()
            assert {name.partition("-")[0] for name in await here.child_names(NETWORK_POLICY)} == {"mine", "nobodys"}

            # Handed over to another operator, nothing of it is touched any more, nor taken for a leftover.
            bindings = await here.client.list(CLUSTER_ROLE_BINDING, label_selector="ray.openshift.ai/cluster-name")
            await here.patch(ray_cluster("mine"), {"metadata": {"labels": {LABEL: "v2"}}})
            await here.wait_until_idle()
            here.clear_requests()
            for policy in await here.client.list(NETWORK_POLICY, namespace="ns"):
                if policy["metadata"]["name"].startswith("mine"):
                    await here.delete(policy)
            await here.wait_until_idle()
            assert {name.partition("-")[0] for name in await here.child_names(NETWORK_POLICY)} == {"nobodys"}
            left = await here.client.list(CLUSTER_ROLE_BINDING, label_selector="ray.openshift.ai/cluster-name")
            assert [item["metadata"]["name"] for item in left] == [item["metadata"]["name"] for item in bindings]


async def test_an_operator_of_some_namespaces_needs_no_rights_to_others() -> None:
    async with start_environment(*VANILLA_CRDS) as here:
        for namespace in ("team-a", "team-b", "other"):
            await here.create_namespace(namespace)
            await here.create(ray_cluster(namespace=namespace))
        token = await account_with_rights(here, "team-a", "team-b")
        settings = {**PLAIN_SETTINGS, "operatorNamespaces": ["kuberay"]}
        async with limited(here, settings, token=token, namespaces=["team-a", "team-b"]) as manager:

            async def look() -> bool:
                return all([len(await here.child_names(NETWORK_POLICY, name)) == 2 for name in ("team-a", "team-b")])

            await eventually(look, "policies")
            assert await here.child_names(NETWORK_POLICY, "other") == set()
            assert await manager.health.failures() == {}
            refused = {exchange.resource for exchange in here.exchanges if exchange.code == "403"}
            # which kinds come later can then not be told; that concerns those that are optional alone
            assert refused <= {"customresourcedefinitions.apiextensions.k8s.io"}


async def account_with_rights(here: Environment, *namespaces: str) -> str:
    """The token of a ServiceAccount that has the operator's rights in these namespaces, and no other."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "cfo", "namespace": namespaces[0]}}
    await here.create(account)
    rbac = "rbac.authorization.k8s.io"
    events = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}
    for namespace in namespaces:
        metadata = {"name": "cfo", "namespace": namespace}
        rules = [*policy_rules(raycluster.rules()), events]
        await here.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
        await here.create(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "cfo"},
                "subjects": [{"kind": "ServiceAccount", "name": "cfo", "namespace": namespaces[0]}],
            }
        )
    answer = await here.client.create(
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        subresource="token",
        key=NamespacedName(namespaces[0], "cfo"),
        gvk=SERVICE_ACCOUNT,
    )
    return str(answer["status"]["token"])
