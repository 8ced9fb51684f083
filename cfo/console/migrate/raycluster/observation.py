"""Reads what a migration depends on: a RayCluster with its objects, KubeRay, and the operator's configuration.

One RayCluster is in memory at a time, because users can create many large ones. The content of Secrets is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL, is_suspended
from cfo.api.raycluster.names import CLUSTER_LABEL, RAY_CLUSTER, label_value
from cfo.api.reading import items, path
from cfo.config.document import parse, single_document
from cfo.config.kuberay import KubeRayConfiguration
from cfo.console.doctor.arguments import configuration_name, first_configuration
from cfo.console.migrate.raycluster.children import (
    CHILD_KINDS,
    binding_names,
    is_binding_of,
    is_read_with_content,
    needed_part,
)
from cfo.console.migrate.raycluster.planning import ObservedCluster
from cfo.console.migrate.raycluster.targets import KubeRay
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    NETWORK_POLICY,
    POD,
    Client,
    NamespacedName,
    NotFound,
    Object,
    UnknownKind,
    is_controlled_by,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.objects import CLUSTER_ROLE_BINDING, CUSTOM_RESOURCE_DEFINITION

T = TypeVar("T")

_RAY_CLUSTER_CRD: Final = NamespacedName("", "rayclusters.ray.io")
_CERTIFICATE_CRD: Final = NamespacedName("", "certificates.cert-manager.io")

_SELECTIONS: Final = (
    *((gvk, CLUSTER_LABEL) for gvk in CHILD_KINDS),
    (NETWORK_POLICY, POD_CLUSTER_LABEL),  # KubeRay's own
)
"""The kinds of objects that belong to a RayCluster, each with the label that names it."""


class Observer:
    """Reads live objects with ``client``.

    All methods raise :class:`cfo.runtime.client.errors.APIError` and its relatives.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._unserved: set[GVK] = set()
        """Kinds that the API server does not serve: each lookup reads the discovery, which is rate-limited."""

    async def keys(self, namespace: str) -> list[NamespacedName]:
        """Return the keys of the RayClusters in ``namespace``; in all namespaces if it is empty."""
        return await self._select(RAY_CLUSTER, key_of, namespace)

    async def cluster(self, key: NamespacedName) -> ObservedCluster | None:
        """Return the current state of one RayCluster, or ``None`` if it does not exist.

        Its children have what :func:`.needed_part` returns.
        """
        cluster = await self._client.get(RAY_CLUSTER, key, live=True)
        if cluster is None:
            return None
        children: dict[str, Object] = {}
        needed = partial(needed_part, cluster)
        for gvk, label in _SELECTIONS:
            selector = f"{label}={label_value(key.name)}"
            has_content = is_read_with_content(gvk)
            found = await self._select(
                gvk, needed, key.namespace, selector, metadata_only=not has_content
            )
            for obj in found:
                children[uid_of(obj)] = obj
        bindings = await self.bindings_of(cluster)
        has_pods = not is_suspended(cluster) or bool(await self.pods_of(cluster))
        return ObservedCluster(cluster, tuple(children.values()), tuple(bindings), has_pods)

    async def bindings_of(self, cluster: Object) -> list[Object]:
        """Return the ClusterRoleBindings with the labels or a name of the RayCluster."""
        selector = f"{CLUSTER_LABEL}={label_value(name_of(cluster))}"
        found = await self._client.list(CLUSTER_ROLE_BINDING, label_selector=selector, live=True)
        listed = {name_of(binding) for binding in found}
        for name in sorted(set(binding_names(cluster)) - listed):
            key = NamespacedName("", name)
            binding = await self._client.get(CLUSTER_ROLE_BINDING, key, live=True)
            if binding is not None:
                found.append(binding)
        return [binding for binding in found if is_binding_of(binding, cluster)]

    async def pods_of(self, cluster: Object) -> dict[str, bool]:
        """Return the names of the pods that the RayCluster controls, each with whether it is being deleted.

        Anyone who can create pods can write the label to others, which KubeRay may never delete.
        """
        selector = f"{POD_CLUSTER_LABEL}={label_value(name_of(cluster))}"

        def own_pod(pod: Object) -> tuple[str, bool] | None:
            return (name_of(pod), is_deleting(pod)) if is_controlled_by(pod, cluster) else None

        return dict(await self._select(POD, own_pod, namespace_of(cluster), selector))

    async def kuberay(self, features: Iterable[str]) -> KubeRay:
        """Return what the installed KubeRay supports; the feature gates of ``features`` are enabled."""
        crd = await self._client.get(CUSTOM_RESOURCE_DEFINITION, _RAY_CLUSTER_CRD, live=True)
        certificates = await self._client.get(
            CUSTOM_RESOURCE_DEFINITION, _CERTIFICATE_CRD, live=True
        )
        return KubeRay(_fields_of(crd or {}), frozenset(features), certificates is not None)

    async def configuration(self, namespace: str) -> KubeRayConfiguration | None:
        """Return the configuration for RayClusters of the operator in ``namespace``; ``None`` if there is no operator.

        Without a ConfigMap, it is the one with which the Deployment creates it. Raises
        :class:`cfo.config.document.ConfigurationError`.
        """
        key = NamespacedName(namespace, DEPLOYMENT_NAME)
        deployment = await self._client.get(DEPLOYMENT, key, live=True)
        key = NamespacedName(namespace, configuration_name(deployment))
        config_map = await self._client.get(CONFIG_MAP, key, live=True)
        if config_map is not None:
            _, document = single_document(config_map.get("data") or {})
            return parse(document).configuration.kuberay
        if deployment is None:
            return None
        return first_configuration(deployment).configuration.kuberay

    async def _select(
        self,
        gvk: GVK,
        select: Callable[[Object], T | None],
        namespace: str,
        selector: str = "",
        *,
        metadata_only: bool = True,
    ) -> list[T]:
        if gvk in self._unserved:
            return []
        try:
            return await self._client.select(
                gvk,
                select,
                namespace=namespace,
                label_selector=selector,
                metadata_only=metadata_only,
            )
        except (UnknownKind, NotFound):
            self._unserved.add(gvk)
            return []


def _fields_of(crd: Object) -> frozenset[str]:
    """Return the fields of RayClusters in their CRD, those of the head group with a prefix."""
    for version in items(path(crd, "spec", "versions")):
        if version.get("name") == "v1":
            properties = path(version, "schema", "openAPIV3Schema", "properties", "spec")
            fields = path(properties, "properties") or {}
            head = path(fields, "headGroupSpec", "properties") or {}
            return frozenset([*fields, *(f"headGroupSpec.{name}" for name in head)])
    return frozenset()
