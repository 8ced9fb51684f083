"""Reads what a migration depends on: RayClusters with their objects, KubeRay, operators and webhooks.

Lists are read in pages of 500. The content of Secrets is dropped as soon as it is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL, is_suspended
from cfo.api.raycluster.names import CLUSTER_LABEL, NAMESPACE_LABEL, RAY_CLUSTER, label_value
from cfo.api.reading import time_of
from cfo.config.document import default_document, parse
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.model import LeaderElection
from cfo.console.migrate.raycluster.children import CHILD_KINDS, binding_names, is_binding_of
from cfo.console.migrate.raycluster.planning import ObservedCluster
from cfo.console.migrate.raycluster.targets import GATES, KubeRay
from cfo.manifests.names import DEPLOYMENT as DEPLOYMENT_NAME
from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    GVK,
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    Client,
    NamespacedName,
    NotFound,
    Object,
    UnknownKind,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from cfo.runtime.objects import (
    CLUSTER_ROLE_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from cfo.runtime.process import printable
from cfo.version import CONFIG_MAP_NAME

_LEASE_NAME: Final = LeaderElection().resource_name
"""The name of the Lease of both operators, unless the configuration sets another one."""
_WEBHOOK_SUFFIX: Final = "raycluster.ray.openshift.ai"
_WEBHOOK_RESOURCES: Final = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
_RAY_CLUSTER_CRD: Final = NamespacedName("", "rayclusters.ray.io")
_CERTIFICATE_CRD: Final = NamespacedName("", "certificates.cert-manager.io")
_KUBERAY_SELECTOR: Final = "app.kubernetes.io/component=kuberay-operator"
_GATES_FLAG: Final = "--feature-gates"


class Observer:
    """Reads one namespace, or all of them if ``namespace`` is empty; only the RayClusters called ``names``, if any.

    Kinds that the API server does not serve are looked up again by :meth:`clusters` only: each lookup reads the
    discovery, which is limited to ten reads per second.

    All methods raise :class:`cfo.runtime.client.errors.APIError` and its relatives.
    """

    def __init__(self, client: Client, namespace: str = "", names: Collection[str] = ()) -> None:
        self._client = client
        self.namespace = namespace
        self.names = frozenset(names)
        self._unserved: set[GVK] = set()

    async def clusters(self) -> list[ObservedCluster]:
        """Return all RayClusters, with one list for each kind of object around them."""
        self._unserved.clear()
        clusters = await self._list(RAY_CLUSTER, self.namespace)
        children = await self._children(self.namespace)
        bindings = await self._list(CLUSTER_ROLE_BINDING)
        by_name: dict[str, Object] = {name_of(binding): binding for binding in bindings}
        by_label: dict[str, list[Object]] = {}
        for binding in bindings:
            by_label.setdefault(labels_of(binding).get(CLUSTER_LABEL, ""), []).append(binding)
        found = []
        for cluster in clusters:
            if self.names and name_of(cluster) not in self.names:
                continue
            named = [by_name[name] for name in binding_names(cluster) if name in by_name]
            labelled = by_label.get(label_value(name_of(cluster)), [])
            own = children.get((namespace_of(cluster), label_value(name_of(cluster))), [])
            found.append(await self._observed(cluster, own, [*labelled, *named]))
        return found

    async def cluster(self, key: NamespacedName) -> ObservedCluster | None:
        """Return the current state of one RayCluster, or ``None`` if it does not exist."""
        cluster = await self._client.get(RAY_CLUSTER, key, live=True)
        if cluster is None:
            return None
        value = label_value(key.name)
        children = (await self._children(key.namespace, f"={value}")).get(
            (key.namespace, value), []
        )
        return await self._observed(cluster, children, await self.bindings_of(cluster))

    async def _children(
        self, namespace: str, value: str = ""
    ) -> dict[tuple[str, str], list[Object]]:
        """Return the objects by their namespace and by the RayCluster in their label, only those with ``=value``."""
        found: dict[tuple[str, str], list[Object]] = {}
        for gvk, label in _SELECTIONS:
            for obj in await self._list(gvk, namespace, f"{label}{value}"):
                found.setdefault((namespace_of(obj), labels_of(obj)[label]), []).append(obj)
        return found

    async def bindings_of(self, cluster: Object) -> list[Object]:
        """Return the ClusterRoleBindings with the label or a name of the RayCluster; others can have the same label."""
        found = await self._list(
            CLUSTER_ROLE_BINDING, selector=f"{CLUSTER_LABEL}={label_value(name_of(cluster))}"
        )
        for name in sorted({*binding_names(cluster)} - {*map(name_of, found)}):
            binding = await self._client.get(
                CLUSTER_ROLE_BINDING, NamespacedName("", name), live=True
            )
            if binding is not None:
                found.append(binding)
        return found

    async def _observed(
        self, cluster: Object, children: Iterable[Object], bindings: Iterable[Object]
    ) -> ObservedCluster:
        own = {uid_of(item): item for item in bindings if is_binding_of(item, cluster)}
        has_pods = not is_suspended(cluster) or await self.has_pods(cluster)
        unique = {uid_of(item): item for item in children}
        return ObservedCluster(cluster, tuple(unique.values()), tuple(own.values()), has_pods)

    async def has_pods(self, cluster: Object) -> bool:
        """Return whether a pod of the RayCluster exists."""
        selector = f"{POD_CLUSTER_LABEL}={label_value(name_of(cluster))}"
        return bool(await self._list(POD, namespace_of(cluster), selector))

    async def wrappers(self) -> list[Object]:
        """Return the AppWrappers."""
        return await self._list(APPWRAPPER, self.namespace)

    async def orphaned_bindings(self) -> list[tuple[Object, str]]:
        """Return the ClusterRoleBindings of RayClusters that do not exist, each with the namespace in its labels."""
        existing = {
            (namespace_of(cluster), label_value(name_of(cluster)))
            for cluster in await self._list(RAY_CLUSTER, self.namespace)
        }
        found = []
        for binding in await self._list(
            CLUSTER_ROLE_BINDING, selector=f"{CLUSTER_LABEL},{NAMESPACE_LABEL}"
        ):
            namespace, name = labels_of(binding)[NAMESPACE_LABEL], labels_of(binding)[CLUSTER_LABEL]
            in_scope = (self.namespace in ("", namespace)) and (
                not self.names or name in self.names
            )
            if in_scope and (namespace, name) not in existing:
                found.append((binding, namespace))
        return found

    async def kuberay(self, features: Iterable[str]) -> KubeRay:
        """Return what the installed KubeRay supports; ``features`` are known to be enabled."""
        crd = await self._client.get(CUSTOM_RESOURCE_DEFINITION, _RAY_CLUSTER_CRD, live=True)
        certificates = await self._client.get(
            CUSTOM_RESOURCE_DEFINITION, _CERTIFICATE_CRD, live=True
        )
        deployments = await self._list(DEPLOYMENT, selector=_KUBERAY_SELECTOR)
        return KubeRay(
            fields=_fields_of(crd or {}),
            features=frozenset(features) | _enabled_features(deployments),
            cert_manager=certificates is not None,
        )

    async def configuration(self, namespace: str) -> KubeRayConfiguration:
        """Return the operator's configuration for RayClusters, or the defaults if there is none in ``namespace``.

        Raises :class:`cfo.config.document.ConfigurationError`.
        """
        config_map = await self._client.get(
            CONFIG_MAP, NamespacedName(namespace, CONFIG_MAP_NAME), live=True
        )
        text = ((config_map or {}).get("data") or {}).get("config.yaml") or default_document()
        return parse(text).configuration.kuberay

    async def obstacles(self, namespace: str) -> list[str]:
        """Return the operators, also in ``namespace``, and webhooks that would revert the migration."""
        deployments = await self._client.list(
            DEPLOYMENT, field_selector=f"metadata.name={DEPLOYMENT_NAME}", live=True
        )
        leases = await self._client.list(
            LEASE, field_selector=f"metadata.name={_LEASE_NAME}", live=True
        )
        configurations = [
            configuration
            for gvk in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
            for configuration in await self._list(gvk)
        ]
        bindings = await self._list(CLUSTER_ROLE_BINDING)
        own = {namespace} | operator_namespaces(deployments, bindings, configurations)
        deployments, leases = (
            [obj for obj in found if namespace_of(obj) in own] for found in (deployments, leases)
        )
        return list(find_obstacles(deployments, leases, configurations, datetime.now(UTC)))

    async def identity(self) -> str:
        """Return a string that identifies the Kubernetes cluster: the uid of the namespace ``kube-system``."""
        namespace = await self._client.get(NAMESPACE, NamespacedName("", "kube-system"), live=True)
        return uid_of(namespace) if namespace is not None else ""

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
        if gvk.kind == "Secret":
            for secret in found:
                secret.pop("data", None)
        return found


_SELECTIONS: Final[Sequence[tuple[GVK, str]]] = (
    *((gvk, CLUSTER_LABEL) for gvk in CHILD_KINDS),
    (NETWORK_POLICY, POD_CLUSTER_LABEL),  # KubeRay's own
)


def _fields_of(crd: Object) -> frozenset[str]:
    versions = [
        item for item in (crd.get("spec") or {}).get("versions") or () if item.get("name") == "v1"
    ]
    schema: Any = (
        ((versions[0].get("schema") or {}).get("openAPIV3Schema") or {}) if versions else {}
    )
    spec = (schema.get("properties") or {}).get("spec") or {}
    fields = spec.get("properties") or {}
    head = (fields.get("headGroupSpec") or {}).get("properties") or {}
    return frozenset((*fields, *(f"headGroupSpec.{name}" for name in head)))


def _enabled_features(deployments: Sequence[Object]) -> frozenset[str]:
    """Return the fields whose feature gate all Deployments of KubeRay enable."""
    enabled = [_features_of(deployment) for deployment in deployments]
    return frozenset.intersection(*enabled) if enabled else frozenset()


def _features_of(deployment: Object) -> frozenset[str]:
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    found = set()
    for container in pod.get("containers") or ():
        words = [
            str(word)
            for word in (*(container.get("command") or ()), *(container.get("args") or ()))
        ]
        for at, word in enumerate(words):
            flag, _, value = word.partition("=")
            if flag == _GATES_FLAG:
                value = value or (words[at + 1] if at + 1 < len(words) else "")
                gates = dict(item.partition("=")[::2] for item in value.split(","))
                found |= {name for name, gate in GATES.items() if gates.get(gate) == "true"}
    return frozenset(found)


def operator_namespaces(
    deployments: Iterable[Object],
    bindings: Iterable[Object],
    webhook_configurations: Iterable[Object],
) -> set[str]:
    """Return the namespaces of operators.

    They have the Service of a webhook, or a Deployment whose ServiceAccount has a ClusterRoleBinding. Users can create
    Deployments and Leases with the operator's names in their own namespaces, but neither of these.
    """
    subjects = {
        (subject.get("namespace"), subject.get("name"))
        for binding in bindings
        for subject in binding.get("subjects") or ()
        if subject.get("kind") == "ServiceAccount"
    }
    bound = {
        namespace_of(deployment)
        for deployment in deployments
        if (namespace_of(deployment), _service_account(deployment)) in subjects
    }
    return bound | {
        str(((webhook.get("clientConfig") or {}).get("service") or {}).get("namespace"))
        for configuration in webhook_configurations
        for webhook in configuration.get("webhooks") or ()
        if str(webhook.get("name") or "").endswith(_WEBHOOK_SUFFIX)
    }


def _service_account(deployment: Object) -> str:
    template = (deployment.get("spec") or {}).get("template") or {}
    return str((template.get("spec") or {}).get("serviceAccountName") or "default")


def find_obstacles(
    deployments: Iterable[Object],
    leases: Iterable[Object],
    webhook_configurations: Iterable[Object],
    now: datetime,
) -> Iterator[str]:
    """Yield one line for each operator and webhook that would revert or reject the migration, with its remedy.

    The webhook of a running operator injects its entries again and rejects their removal. Without its server, it
    rejects every change, because it fails closed. Both must be removed before RayClusters are changed.

    ``deployments`` and ``leases`` are those with the operator's names in :func:`operator_namespaces`.
    """
    for deployment in deployments:
        wanted = (deployment.get("spec") or {}).get("replicas", 1)
        existing = (deployment.get("status") or {}).get("replicas", 0)
        if wanted or existing:
            namespace, name = namespace_of(deployment), name_of(deployment)
            yield (
                f"Deployment {namespace}/{name} is running; stop it: "
                f"kubectl -n {namespace} scale deployment {name} --replicas 0"
            )
    for lease in leases:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") and not _is_expired(spec, now):
            holder = printable(str(spec["holderIdentity"]), 200)
            yield f"Lease {namespace_of(lease)}/{name_of(lease)} is held by {holder}; stop that operator"
    for configuration in webhook_configurations:
        for webhook in configuration.get("webhooks") or ():
            name = str(webhook.get("name") or "")
            if name.endswith(_WEBHOOK_SUFFIX):
                resource = str(configuration.get("kind")).lower()
                yield (
                    f"webhook {name} is registered; remove it: kubectl delete {resource} {name_of(configuration)}"
                    if resource in _WEBHOOK_RESOURCES
                    else f"webhook {name} is registered"
                )


def _is_expired(spec: Mapping[str, Any], now: datetime) -> bool:
    renewed = time_of(spec.get("renewTime"))
    return (
        renewed is not None
        and renewed + timedelta(seconds=spec.get("leaseDurationSeconds") or 15) < now
    )
