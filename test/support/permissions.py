"""Users with exactly the given RBAC rules."""

from __future__ import annotations

from cfo.runtime.kinds import SERVICE_ACCOUNT
from cfo.runtime.objects import NamespacedName
from cfo.runtime.reconcile import Rule, policy_rules
from test.support.raycluster_environment import (
    World,
)


async def token_with(here: World, granted: list[Rule]) -> str:
    """A token of a ServiceAccount that has these rights and no others."""
    account = NamespacedName("default", "operator")
    metadata = {"name": account.name, "namespace": account.namespace}
    await here.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "operator"}}
    await here.create({**role, "rules": policy_rules(granted)})
    await here.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "operator"},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}
    answer = await here.client.create(request, subresource="token", key=account, gvk=SERVICE_ACCOUNT)
    token: str = answer["status"]["token"]
    return token
