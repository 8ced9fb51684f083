"""Two tenants who have the aggregated role ``edit`` in one namespace each: the attacker and the victim.

The roles that the operator's installation adds to ``edit`` and KubeRay's editor role are aggregated, so the tenants
have exactly the permissions that administrators usually grant. Neither the operator nor its webhooks run: use
:func:`test.support.operator_process.run_operator`, or a manager of the test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.api.flux.models.minicluster import minicluster_crd
from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd
from cfo.api.inferencestack.models import inference_stack_crds
from cfo.features.contract import UserRole
from cfo.manifests.rbac import aggregated, user_roles
from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.rbac import CRUD, Rule, policy_rules
from cfo.runtime.objects.unstructured import NamespacedName, Object
from envtest.configuration.controller_names import DEFAULT
from test.support.gateways import GATEWAY_CRDS
from test.support.operator_roles import RBAC
from test.support.planes import local_config, new_plane
from test.support.raycluster_environment import VANILLA_CRDS, Environment, crd, eventually
from test.support.tenant_clients import new_account_token

ATTACKER: Final = "attacker"
VICTIM: Final = "victim"
"""The namespaces of the tenants; each tenant is the ServiceAccount ``tenant`` in it."""

OPERATOR_CRDS: Final = (
    *VANILLA_CRDS,
    appwrapper_crd(),
    *inference_stack_crds(),
    fluxjob_crd(),
    fluxsetup_crd(),
    minicluster_crd(),
)
"""The CRDs of all kinds that the operator reconciles."""

OPTIONAL_CRDS: Final = (
    *GATEWAY_CRDS,
    crd("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
    crd("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
)
"""The CRDs of kinds that the operator creates where they are served; ``edit`` does not allow them."""

CONTROLLERS: Final = (*DEFAULT, "clusterrole-aggregation")


class TenantPlane(Environment):
    """An environment with the clients :attr:`attacker` and :attr:`victim`; :attr:`client` is an administrator's."""

    attacker: Client
    victim: Client

    def user_of(self, namespace: str) -> str:
        """Return the user name of the tenant of ``namespace``."""
        return f"system:serviceaccount:{namespace}:tenant"

    async def is_allowed(self, namespace: str, verb: str, group: str, resource: str) -> bool:
        """Return whether the tenant of ``namespace`` has this permission there, according to the API server."""
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        review = await self.client.create(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": self.user_of(namespace), "resourceAttributes": attributes},
            }
        )
        return bool(review["status"]["allowed"])

    async def grant(self, namespace: str, *rules: Rule, name: str = "granted") -> None:
        """Give the tenant of ``namespace`` further permissions there."""
        await self.create(_rbac("Role", name, namespace, rules=policy_rules(list(rules))))
        await self.create(
            _rbac("RoleBinding", name, namespace, **_binding("Role", name, namespace))
        )


def _rbac(kind: str, name: str, namespace: str, **fields: Any) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        **fields,
    }


def _binding(kind: str, role: str, namespace: str) -> dict[str, Any]:
    return {
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
    }


def editor_roles() -> list[Object]:
    """Return the ClusterRoles that the installation and KubeRay aggregate into ``admin``, ``edit`` and ``view``."""
    kuberay = [Rule("ray.io", ("rayclusters", "rayjobs", "rayservices"), CRUD)]
    return [
        *user_roles(),
        aggregated(UserRole("raycluster-editor-role", kuberay, ("admin", "edit")), "kuberay"),
    ]


@asynccontextmanager
async def start_tenant_plane(
    *crds: Object, controllers: Sequence[str] = CONTROLLERS
) -> AsyncIterator[TenantPlane]:
    """Run a control plane with :data:`OPERATOR_CRDS` and ``crds``, the roles, and both tenants.

    ``controllers`` must contain ``clusterrole-aggregation``.
    """
    async with (
        new_plane([*OPERATOR_CRDS, *crds], controllers) as plane,
        Transport(local_config(plane)) as transport,
    ):
        tenants = TenantPlane(
            plane, Client(transport, RESTMapper(transport), field_manager="tester")
        )
        for role in editor_roles():
            await tenants.create(role)
        async with (
            _connect_tenant(tenants, ATTACKER) as attacker,
            _connect_tenant(tenants, VICTIM) as victim,
        ):
            tenants.attacker, tenants.victim = attacker, victim
            yield tenants


@asynccontextmanager
async def _connect_tenant(tenants: TenantPlane, namespace: str) -> AsyncIterator[Client]:
    """Create ``namespace`` with its tenant, wait until the tenant has the permissions, and return a client."""
    await tenants.create_namespace(namespace)
    token = await new_account_token(tenants.client, NamespacedName(namespace, "tenant"))
    await tenants.create(
        _rbac("RoleBinding", "edit", namespace, **_binding("ClusterRole", "edit", namespace))
    )

    async def is_authorized() -> bool:
        own = (
            ("workload.codeflare.dev", "appwrappers"),
            ("ray.io", "rayclusters"),
            ("", "configmaps"),
        )
        return all([await tenants.is_allowed(namespace, "create", *resource) for resource in own])

    await eventually(is_authorized, f"the permissions of the tenant of {namespace}")
    async with Transport(local_config(tenants.plane, token=token)) as transport:
        yield Client(transport, RESTMapper(transport), field_manager=f"{namespace}-tenant")
