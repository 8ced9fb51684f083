"""Tokens with exactly the given RBAC permissions."""

from __future__ import annotations

from cfo.runtime.objects.kinds import SERVICE_ACCOUNT
from cfo.runtime.objects.rbac import Rule, policy_rules
from cfo.runtime.objects.unstructured import NamespacedName
from test.support.raycluster_environment import (
    Environment,
)


async def create_token(env: Environment, rules: list[Rule]) -> str:
    """Create a ServiceAccount with these cluster-wide permissions and no others, and return a token of it."""
    account = NamespacedName("default", "operator")
    metadata = {"name": account.name, "namespace": account.namespace}
    await env.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "operator"}}
    await env.create({**role, "rules": policy_rules(rules)})
    await env.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "operator"},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}
    response = await env.client.create(request, subresource="token", key=account, gvk=SERVICE_ACCOUNT)
    token: str = response["status"]["token"]
    return token
