"""Allows the pods of RayClusters to create CertificateSigningRequests, and to read them.

CertificateSigningRequests are cluster-scoped, so a Role cannot allow this. A ClusterRoleBinding for each namespace that
has a RayCluster whose pods request certificates binds one ClusterRole, :data:`REQUESTER_ROLE`, to the ServiceAccounts
of this namespace: KubeRay and users choose the ServiceAccounts of pods.

A binding belongs to a namespace, not to a RayCluster, so RayClusters need no finalizer: after a restart, the bindings
of namespaces without such RayClusters are deleted.
"""

from __future__ import annotations

from typing import Final

import orjson
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
    NAMESPACE,
    READ,
    Builder,
    EnqueueRequestsFromMapFunc,
    Manager,
    Object,
    Request,
    Result,
    Rule,
    TerminalError,
    key_of,
    labels_of,
)
from cfo.runtime.client import (
    APIRequest,
    BucketRateLimiters,
    Child,
    Outcome,
    listed_items,
    reconcile_children,
)
from cfo.runtime.manager import SelectionKeywords
from cfo.runtime.objects import CLUSTER_ROLE_BINDING, new_object
from cfo.runtime.process import decode_object

_SELECTION: Final[SelectionKeywords] = {
    "label_selector": REQUESTERS_LABEL,
    "max_bytes": MAX_CACHED_BYTES,
}


_PAGE_SIZE: Final = 20

_LISTS_PER_SECOND: Final = 1 / 30
_LIST_BURST: Final = 2
"""How often the RayClusters of a namespace are listed: on average, and at once."""

_LIST_RETRY_SECONDS: Final = 30.0


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
        self._lists = BucketRateLimiters(_LISTS_PER_SECOND, _LIST_BURST, manager.clock)

    async def reconcile(self, request: Request) -> Result:
        """Create, restore or delete the binding. Raises :class:`TerminalError` if another object has its name."""
        namespace = request.name
        if self._namespaces is not None and namespace not in self._namespaces:
            return Result()
        is_wanted = await self._is_wanted(namespace)
        if is_wanted is None:
            return Result(requeue_after=_LIST_RETRY_SECONDS)
        child = decide_binding(namespace, is_wanted=is_wanted)
        owner = new_object(NAMESPACE, namespace)
        results = await reconcile_children(self._client, owner, [child])
        results.raise_errors()
        for result in results:
            if result.outcome is Outcome.TAKEN:
                raise TerminalError(
                    f"ClusterRoleBinding {child.key.name} exists without the label {REQUESTERS_LABEL}"
                )
        return Result()

    async def _is_wanted(self, namespace: str) -> bool | None:
        """Return whether a RayCluster of the namespace requests certificates; ``None``: ask again later.

        The API server is asked if the cache leaves out RayClusters of the namespace, and before a binding is deleted:
        the cache may be limited by labels, so another operator may reconcile other RayClusters of the namespace.
        """
        if await self._are_requested(namespace):
            return True
        has_binding = self._bindings.contains(key_of(desired_binding(namespace)))
        if not has_binding and self._clusters.is_complete(namespace):
            return False
        if not self._lists.try_take(namespace):
            return None
        return await self._are_requested_live(namespace)

    async def _are_requested_live(self, namespace: str) -> bool:
        """Like :meth:`_are_requested`, according to the API server; 20 RayClusters are in memory at a time."""
        request = APIRequest(
            "GET",
            f"/apis/{RAY_CLUSTER.api_version}/namespaces/{namespace}/rayclusters",
            compress=True,
            verb="list",
            resource="rayclusters",
        )
        async for raw in listed_items(self._client.transport, request, _PAGE_SIZE):
            if REQUEST_VOLUME.encode() in raw:
                if requests_certificates(await decode_object(orjson.loads, raw)):
                    return True
                await checkpoint()
        return False

    async def _are_requested(self, namespace: str) -> bool:
        """Return whether a RayCluster of the namespace requests certificates; large ones are decoded one at a time."""
        for entry in self._clusters.entries(namespace):
            if REQUEST_VOLUME.encode() in entry.raw:
                if requests_certificates(entry.object()):
                    return True
                await checkpoint()
        return False


def decide_binding(namespace: str, *, is_wanted: bool) -> Child:
    """Return the binding of a namespace, which exists while it is wanted."""
    desired = desired_binding(namespace)
    if not is_wanted:
        return Child.absent(CLUSTER_ROLE_BINDING, key_of(desired), belongs=_is_ours)
    return Child.present(desired, belongs=_is_ours, has_owner_reference=False)


def _is_ours(binding: Object) -> bool:
    return REQUESTERS_LABEL in labels_of(binding)


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
