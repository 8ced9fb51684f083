"""The operator's ServiceAccount with the roles of the manifests: what an installation grants, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cfo.config.model import OperatorConfiguration
from cfo.features.roles import enabled_roles
from cfo.manifests.names import SERVICE_ACCOUNT
from cfo.manifests.rbac import access, optional_access
from cfo.runtime.objects.kinds import SERVICE_ACCOUNT as SERVICE_ACCOUNT_KIND
from cfo.runtime.objects.rbac import Rule, policy_rules
from cfo.runtime.objects.unstructured import NamespacedName, Object
from envtest.endpoints.audit import AuditLog

RBAC: Final = "rbac.authorization.k8s.io"

if TYPE_CHECKING:
    from test.support.raycluster_environment import Environment


async def install_roles(
    environment: Environment, configuration: OperatorConfiguration, namespace: str
) -> str:
    """Install the roles that an operator with ``configuration`` needs in ``namespace``; return its token."""
    objects = []
    if await environment.find(SERVICE_ACCOUNT_KIND, SERVICE_ACCOUNT, namespace) is None:
        objects += access(namespace)
    for role in await enabled_roles(environment.client, configuration):
        objects += optional_access(role, namespace)
    for obj in in_several_namespaces(objects, namespace):
        await environment.client.apply(obj)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {},
    }
    account = NamespacedName(namespace, SERVICE_ACCOUNT)
    response = await environment.client.create_subresource(
        SERVICE_ACCOUNT_KIND, account, "token", request
    )
    return str(response["status"]["token"])


def required_roles(namespace: str = "default") -> list[Object]:
    """Return the account in ``namespace``, and its roles that do not depend on the configuration."""
    return in_several_namespaces(access(namespace), namespace)


def in_several_namespaces(objects: list[Object], namespace: str) -> list[Object]:
    """Return the objects with names that differ for each namespace: a test can have operators in several of them."""
    for obj in objects:
        if obj["kind"] == "ClusterRoleBinding":
            obj["metadata"]["name"] += f"-{namespace}"
    return objects


async def grant(environment: Environment, *rules: Rule, namespace: str = "default") -> None:
    """Give the operator in ``namespace`` further permissions, for example for components of AppWrappers."""
    metadata = {"name": f"granted-{namespace}"}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": metadata["name"]}
    account = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace}
    role: Object = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    await environment.create({**role, "kind": "ClusterRole", "rules": policy_rules(list(rules))})
    await environment.create(
        {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [account]}
    )


def missing_permissions(audit: AuditLog) -> set[str]:
    """Return verb and resource of all requests of operators that RBAC refused."""
    found: set[str] = set()
    for event in audit.events:
        # A request that the server answered with an injected fault has no user.
        account = event["user"].get("username", "").rpartition(":")[2]
        decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
        if account == SERVICE_ACCOUNT and decision == "forbid":
            found.add(f"{event['verb']} {_resource_of(event)}")
    return found


def _resource_of(event: dict[str, Any]) -> str:
    reference = event.get("objectRef")
    if reference is None:
        return str(event["requestURI"])
    parts = [reference.get("apiGroup", ""), reference["resource"], reference.get("subresource", "")]
    return "/".join(part for part in parts if part)
