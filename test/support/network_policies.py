"""NetworkPolicies of RayClusters, and the RBAC objects from which the operator derives KubeRay's namespaces."""

from __future__ import annotations

from typing import Any

from cfo.api.raycluster.names import names_of
from cfo.api.raycluster.ports import CLIENT_PORT
from cfo.runtime.objects.kinds import NETWORK_POLICY
from cfo.runtime.objects.unstructured import Object
from test.support.raycluster_environment import (
    Environment,
    eventually,
    ray_cluster,
)

NAMES = names_of(ray_cluster())


def allowed_namespaces_in(policy: Object) -> list[str]:
    """Return the namespaces from which a head policy admits the KubeRay operator."""
    for rule in policy["spec"]["ingress"]:
        for peer in rule.get("from", ()):
            if "app.kubernetes.io/component" in (peer.get("podSelector") or {}).get(
                "matchLabels", {}
            ):
                (expression,) = peer["namespaceSelector"]["matchExpressions"]
                found: list[str] = expression["values"]
                return found
    raise AssertionError("no rule for the KubeRay operator")


def ports_open_to_namespace(policy: Object, namespace: str) -> set[int]:
    """Return the ports that a policy opens to all pods of ``namespace``."""
    found: set[int] = set()
    for rule in policy["spec"]["ingress"]:
        selectors = [
            peer["namespaceSelector"]
            for peer in rule.get("from", ())
            if "namespaceSelector" in peer and "podSelector" not in peer
        ]
        values = [each["values"] for item in selectors for each in item["matchExpressions"]]
        if any(namespace in names for names in values):
            found.update(port["port"] for port in rule["ports"])
    return found


async def allowed_kuberay_namespaces(env: Environment, name: str = NAMES.head_policy) -> list[str]:
    """Return the namespaces from which the head policy ``name`` admits the KubeRay operator."""
    return allowed_namespaces_in(await env.get(NETWORK_POLICY, name))


async def wait_until_allowed(env: Environment, *namespaces: str) -> None:
    """Wait until the head policy admits the KubeRay operator from exactly these namespaces."""

    async def is_allowed() -> bool:
        return await allowed_kuberay_namespaces(env) == list(namespaces)

    await eventually(is_allowed, f"the KubeRay operator is admitted from {namespaces}")


def kuberay_role(name: str = "kuberay-operator", **rule: Any) -> Object:
    """Return a ClusterRole with the rule of a KubeRay operator; ``rule`` replaces fields of it."""
    granted = {
        "apiGroups": ["ray.io"],
        "resources": ["rayclusters/status"],
        "verbs": ["get", "update"],
        **rule,
    }
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [granted],
    }


def kuberay_role_binding(
    namespace: str,
    name: str = "kuberay-operator",
    *,
    role: str = "kuberay-operator",
    account: str = "kuberay",
) -> Object:
    """Return a ClusterRoleBinding of ``role`` to a ServiceAccount in ``namespace``."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def without_open_client_port(policy: Object) -> Object:
    """Return a head policy in which the client port is not open to all sources."""
    rules = [
        rule
        if "from" in rule
        else {**rule, "ports": [port for port in rule["ports"] if port["port"] != CLIENT_PORT]}
        for rule in policy["spec"]["ingress"]
    ]
    return {**policy, "spec": {**policy["spec"], "ingress": rules}}
