"""NetworkPolicies of RayClusters, and the RBAC objects that the operator derives namespaces from."""

from __future__ import annotations

from typing import Any

from cfo.api.raycluster.naming import names_of
from cfo.runtime.kinds import NETWORK_POLICY
from cfo.runtime.objects import Object
from test.support.raycluster_environment import (
    World,
    eventually,
    ray_cluster,
)

NAMES = names_of(ray_cluster())


def operators_of(policy: Object) -> list[str]:
    """The namespaces from which a head policy lets the KubeRay operator in."""
    for rule in policy["spec"]["ingress"]:
        for peer in rule.get("from", ()):
            if "app.kubernetes.io/component" in (peer.get("podSelector") or {}).get("matchLabels", {}):
                (expression,) = peer["namespaceSelector"]["matchExpressions"]
                found: list[str] = expression["values"]
                return found
    raise AssertionError("no rule for the KubeRay operator")


async def operators(here: World, name: str = NAMES.head_policy) -> list[str]:
    return operators_of(await here.get(NETWORK_POLICY, name))


async def let_in(here: World, *namespaces: str) -> None:
    async def look() -> bool:
        return await operators(here) == list(namespaces)

    await eventually(look, f"the KubeRay operator let in from {namespaces}")


def role(name: str = "kuberay-operator", **rule: Any) -> Object:
    granted = {"apiGroups": ["ray.io"], "resources": ["rayclusters/status"], "verbs": ["get", "update"], **rule}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [granted],
    }


def binding(
    namespace: str, name: str = "kuberay-operator", *, role: str = "kuberay-operator", account: str = "kuberay"
) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
