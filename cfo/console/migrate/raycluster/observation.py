"""Reads what a migration depends on: a RayCluster with its objects, KubeRay, and the operator's configuration.

Lists are read in pages of 500. The content of Secrets is dropped as soon as it is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL, is_suspended
from cfo.api.raycluster.names import CLUSTER_LABEL, RAY_CLUSTER, label_value
from cfo.api.reading import items, path
from cfo.config.document import default_document, parse
from cfo.config.kuberay import KubeRayConfiguration
from cfo.console.migrate.raycluster.children import CHILD_KINDS, binding_names, is_binding_of
from cfo.console.migrate.raycluster.planning import ObservedCluster
from cfo.console.migrate.raycluster.targets import KubeRay
from cfo.runtime import (
    CONFIG_MAP,
    GVK,
    NETWORK_POLICY,
    POD,
    SECRET,
    Client,
    NamespacedName,
    NotFound,
    Object,
    UnknownKind,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.objects import CLUSTER_ROLE_BINDING, CUSTOM_RESOURCE_DEFINITION
from cfo.version import CONFIG_MAP_NAME

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
        return [key_of(cluster) for cluster in await self._list(RAY_CLUSTER, namespace)]

    async def cluster(self, key: NamespacedName) -> ObservedCluster | None:
        """Return the current state of one RayCluster, or ``None`` if it does not exist."""
        cluster = await self._client.get(RAY_CLUSTER, key, live=True)
        if cluster is None:
            return None
        children: dict[str, Object] = {}
        for gvk, label in _SELECTIONS:
            for obj in await self._list(gvk, key.namespace, f"{label}={label_value(key.name)}"):
                children[uid_of(obj)] = obj
        bindings = await self.bindings_of(cluster)
        has_pods = not is_suspended(cluster) or await self.has_pods(cluster)
        return ObservedCluster(cluster, tuple(children.values()), tuple(bindings), has_pods)

    async def clusters(self, namespace: str) -> list[ObservedCluster]:
        """Return the current state of the RayClusters in ``namespace``; in all namespaces if it is empty.

        Each kind is listed once, whatever the number of RayClusters.
        """
        found = await self._list(RAY_CLUSTER, namespace)
        children: defaultdict[NamespacedName, dict[str, Object]] = defaultdict(dict)
        for gvk, label in _SELECTIONS:
            for obj in await self._list(gvk, namespace, label):
                children[_cluster_key(obj, label)][uid_of(obj)] = obj
        bindings: defaultdict[str, dict[str, Object]] = defaultdict(dict)
        for binding in await self._list(CLUSTER_ROLE_BINDING):
            name = name_of(binding)
            bindings[name][name] = binding
            labelled = labels_of(binding).get(CLUSTER_LABEL)
            if labelled:
                bindings[labelled][name] = binding
        with_pods: set[NamespacedName] = set()
        if any(map(is_suspended, found)):
            pods = await self._list(POD, namespace, POD_CLUSTER_LABEL)
            with_pods = {_cluster_key(pod, POD_CLUSTER_LABEL) for pod in pods}
        observed: list[ObservedCluster] = []
        for cluster in found:
            key = NamespacedName(namespace_of(cluster), label_value(name_of(cluster)))
            candidates = dict(bindings[key.name])
            for name in binding_names(cluster):
                candidates |= bindings[name]
            own = [each for each in candidates.values() if is_binding_of(each, cluster)]
            has_pods = not is_suspended(cluster) or key in with_pods
            observed.append(
                ObservedCluster(cluster, tuple(children[key].values()), tuple(own), has_pods)
            )
        return observed

    async def bindings_of(self, cluster: Object) -> list[Object]:
        """Return the ClusterRoleBindings with the labels or a name of the RayCluster."""
        selector = f"{CLUSTER_LABEL}={label_value(name_of(cluster))}"
        found = await self._list(CLUSTER_ROLE_BINDING, selector=selector)
        listed = {name_of(binding) for binding in found}
        for name in sorted(set(binding_names(cluster)) - listed):
            key = NamespacedName("", name)
            binding = await self._client.get(CLUSTER_ROLE_BINDING, key, live=True)
            if binding is not None:
                found.append(binding)
        return [binding for binding in found if is_binding_of(binding, cluster)]

    async def has_pods(self, cluster: Object) -> bool:
        """Return whether a pod of the RayCluster exists."""
        selector = f"{POD_CLUSTER_LABEL}={label_value(name_of(cluster))}"
        return bool(await self._list(POD, namespace_of(cluster), selector))

    async def kuberay(self, features: Iterable[str]) -> KubeRay:
        """Return what the installed KubeRay supports; the feature gates of ``features`` are enabled."""
        crd = await self._client.get(CUSTOM_RESOURCE_DEFINITION, _RAY_CLUSTER_CRD, live=True)
        certificates = await self._client.get(
            CUSTOM_RESOURCE_DEFINITION, _CERTIFICATE_CRD, live=True
        )
        return KubeRay(_fields_of(crd or {}), frozenset(features), certificates is not None)

    async def configuration(self, namespace: str) -> KubeRayConfiguration:
        """Return the operator's configuration for RayClusters, or the defaults if there is none in ``namespace``.

        Raises :class:`cfo.config.document.ConfigurationError`.
        """
        key = NamespacedName(namespace, CONFIG_MAP_NAME)
        config_map = await self._client.get(CONFIG_MAP, key, live=True)
        text = path(config_map or {}, "data", "config.yaml") or default_document()
        return parse(text).configuration.kuberay

    async def _list(self, gvk: GVK, namespace: str = "", selector: str = "") -> list[Object]:
        if gvk in self._unserved:
            return []
        try:
            found = await self._client.list(
                gvk, namespace=namespace, label_selector=selector, live=True
            )
        except (UnknownKind, NotFound):
            self._unserved.add(gvk)
            return []
        if gvk == SECRET:
            for secret in found:
                secret.pop("data", None)
        return found


def _cluster_key(obj: Object, label: str) -> NamespacedName:
    """Return namespace and label value of the RayCluster that ``label`` names."""
    return NamespacedName(namespace_of(obj), labels_of(obj)[label])


def _fields_of(crd: Object) -> frozenset[str]:
    """Return the fields of RayClusters in their CRD, those of the head group with a prefix."""
    for version in items(path(crd, "spec", "versions")):
        if version.get("name") == "v1":
            properties = path(version, "schema", "openAPIV3Schema", "properties", "spec")
            fields = path(properties, "properties") or {}
            head = path(fields, "headGroupSpec", "properties") or {}
            return frozenset([*fields, *(f"headGroupSpec.{name}" for name in head)])
    return frozenset()
