"""Allows the pods of RayClusters to create CertificateSigningRequests, and to read them.

CertificateSigningRequests are cluster-scoped, so a Role cannot allow this. A ClusterRoleBinding for each namespace that
has a RayCluster whose pods request certificates binds one ClusterRole, :data:`REQUESTER_ROLE`, to the ServiceAccounts
of this namespace: KubeRay and users choose the ServiceAccounts of pods.

A binding belongs to a namespace, not to a RayCluster, so RayClusters need no finalizer: after a restart, the bindings
of namespaces without such RayClusters are deleted.
"""

from __future__ import annotations

from typing import Final

from anyio.lowlevel import checkpoint

from cfo.api.raycluster.certificates import REQUEST_VOLUME, requests_certificates
from cfo.api.raycluster.names import (
    FIELD_MANAGER,
    RAY_CLUSTER,
    REQUESTER_ROLE,
    REQUESTER_RULES,
    REQUESTERS_LABEL,
    fit,
)
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.raycluster.watches import CLUSTER_CHANGED
from cfo.runtime import (
    READ,
    AlreadyExists,
    Builder,
    EnqueueRequestsFromMapFunc,
    Manager,
    NamespacedName,
    Object,
    Request,
    Result,
    Rule,
    TerminalError,
    uid_of,
)
from cfo.runtime.client import apply_to
from cfo.runtime.manager import SelectionKeywords
from cfo.runtime.objects import CLUSTER_ROLE_BINDING, new_object

_SELECTION: Final[SelectionKeywords] = {
    "label_selector": REQUESTERS_LABEL,
    "max_bytes": MAX_CACHED_BYTES,
}


class CertificateRequesters:
    """Maintains the binding of one namespace, whose name is the name in the request.

    An operator that is limited to some namespaces ignores all others.
    """

    rules = (
        Rule(
            "rbac.authorization.k8s.io", "clusterrolebindings", (*READ, "create", "patch", "delete")
        ),
        *REQUESTER_RULES,  # RBAC escalation check: the operator must hold the permissions of the role to bind it
    )

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client.with_field_manager(FIELD_MANAGER)
        self._clusters = manager.cache.informer(RAY_CLUSTER).reader
        self._bindings = manager.cache.informer(CLUSTER_ROLE_BINDING, **_SELECTION).reader
        self._namespaces = manager.options.namespaces

    async def reconcile(self, request: Request) -> Result:
        """Create, restore or delete the binding. Raises :class:`TerminalError` if another object has its name."""
        namespace = request.name
        if self._namespaces is not None and namespace not in self._namespaces:
            return Result()
        desired = desired_binding(namespace)
        key = NamespacedName("", desired["metadata"]["name"])
        current = self._bindings.get(key)
        if not await self._are_requested(namespace):
            # The cache may be limited by labels, so another operator may reconcile other RayClusters of the namespace.
            if current is not None and not any(
                map(
                    requests_certificates,
                    await self._client.list(RAY_CLUSTER, namespace=namespace, live=True),
                )
            ):
                await self._client.delete(CLUSTER_ROLE_BINDING, key, uid=uid_of(current))
        elif current is None:
            try:
                await self._client.create(desired)
            except AlreadyExists as error:
                message = (
                    f"ClusterRoleBinding {key.name} exists without the label {REQUESTERS_LABEL}"
                )
                raise TerminalError(message) from error
        else:
            await apply_to(self._client, desired, uid_of(current))
        return Result()

    async def _are_requested(self, namespace: str) -> bool:
        """Return whether a RayCluster of the namespace requests certificates; large ones are decoded one at a time."""
        for entry in self._clusters.entries(namespace):
            if REQUEST_VOLUME.encode() in entry.raw:
                if requests_certificates(entry.object()):
                    return True
                await checkpoint()
        return False


def desired_binding(namespace: str) -> Object:
    """Return the ClusterRoleBinding for the ServiceAccounts in ``namespace``."""
    group = CLUSTER_ROLE_BINDING.group
    return new_object(
        CLUSTER_ROLE_BINDING,
        fit(f"codeflare-certificate-requesters-{namespace}"),
        labels={REQUESTERS_LABEL: namespace},
        roleRef={"apiGroup": group, "kind": "ClusterRole", "name": REQUESTER_ROLE},
        subjects=[
            {"apiGroup": group, "kind": "Group", "name": f"system:serviceaccounts:{namespace}"}
        ],
    )


def setup(manager: Manager) -> None:
    """Add the controller of the bindings to ``manager``."""
    (
        Builder(manager, "raycluster-certificate-requesters")
        .watches(
            RAY_CLUSTER,
            EnqueueRequestsFromMapFunc(lambda cluster: [Request("", cluster.namespace)]),
            CLUSTER_CHANGED,
        )
        .watches(
            CLUSTER_ROLE_BINDING,
            EnqueueRequestsFromMapFunc(
                lambda binding: [Request("", binding.meta.labels[REQUESTERS_LABEL])]
            ),
            **_SELECTION,
        )
        .complete(CertificateRequesters(manager))
    )
