"""The OAuth controller's informers, how its objects map to RayClusters, and the replacement of head pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cfo.api.raycluster.cluster import HEAD_LABELS, POD_CLUSTER_LABEL, head_pod_spec
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import CLUSTER_LABEL, NAMESPACE_LABEL, label_value
from cfo.controllers.raycluster.children import MAX_CACHED_BYTES, Children
from cfo.controllers.raycluster.clusters import clusters_with_label
from cfo.controllers.raycluster.platform import OptionalKind
from cfo.controllers.raycluster.predicates import CHILD_CHANGED
from cfo.runtime import (
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    Clock,
    Controller,
    EnqueueRequestForOwner,
    EnqueueRequestsFromMapFunc,
    Entry,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Reader,
    Request,
    is_controlled_by,
    key_of,
    namespace_of,
    on_update,
    rfc3339,
    uid_of,
)
from cfo.runtime.controller import Kind

__all__ = [
    "HeadPodReplacer",
    "HeadPods",
    "OAuthInformers",
    "OpenShiftInformers",
    "OptionalOpenShiftInformers",
    "ProxyInformers",
    "add_binding_index",
    "clusters_of_binding",
    "clusters_of_pod",
]

_BINDING_INDEX = "cluster"
_POD_INDEX = "cluster"


class HeadPods:
    """The informer of head pods, indexed by the RayCluster that their label names."""

    def __init__(self, informer: Informer) -> None:
        self.informer = informer
        self._reader = informer.add_index(_POD_INDEX, _index_pod).reader

    def of(self, cluster: Mapping[str, Any]) -> list[Entry]:
        """Return the pods whose label names ``cluster``; any client can set the label."""
        return self._reader.entries(index=(_POD_INDEX, _index_value(key_of(cluster))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyInformers:
    """Informers of the Services and ServiceAccounts with a cluster label."""

    services: Reader
    accounts: Reader


class OpenShiftInformers:
    """Informers of OpenShift's objects with a cluster label and, if OAuth is enabled, of head pods."""

    def __init__(self, *, routes: Informer, services: Informer, accounts: Informer, pods: Informer | None) -> None:
        self.informers = [informer for informer in (routes, services, accounts, pods) if informer is not None]
        self.routes = routes.reader
        self.services = services.reader
        self.accounts = accounts.reader
        self._pods = HeadPods(pods) if pods is not None else None

    @property
    def has_synced(self) -> bool:
        """Whether all of the informers have listed their objects."""
        return all(informer.has_synced for informer in self.informers)

    def head_pods(self, cluster: Mapping[str, Any]) -> list[Entry]:
        """Return the head pods of ``cluster``."""
        return self._pods.of(cluster) if self._pods is not None else []


class OptionalOpenShiftInformers:
    """Creates the :class:`OpenShiftInformers` once Routes are served; ``with_pods`` includes head pods."""

    def __init__(self, manager: Manager, routes: OptionalKind, *, with_pods: bool) -> None:
        self._manager = manager
        self._routes = routes
        self._with_pods = with_pods
        self._current: OpenShiftInformers | None = None

    @property
    def current(self) -> OpenShiftInformers | None:
        """The informers; ``None`` until Routes are served."""
        return self._current

    def start(self, controller: Controller, clusters: Reader) -> None:
        """Create the informers and feed ``controller`` with their events, once Routes are served.

        ``clusters`` has the index of :mod:`~cfo.controllers.raycluster.clusters`.
        """
        self._routes.when_served(lambda routes: self._create(routes, controller, clusters))

    def _create(self, routes: Informer, controller: Controller, clusters: Reader) -> None:
        cache, mapper = self._manager.cache, self._manager.mapper
        owner = EnqueueRequestForOwner(RAY_CLUSTER)
        services = cache.informer(SERVICE, label_selector=CLUSTER_LABEL, max_bytes=MAX_CACHED_BYTES)
        accounts = cache.informer(SERVICE_ACCOUNT, label_selector=CLUSTER_LABEL, max_bytes=MAX_CACHED_BYTES)
        pods = None
        if self._with_pods:
            pods = cache.informer(POD, label_selector=HEAD_LABELS)
            clusters_of = EnqueueRequestsFromMapFunc(lambda pod: clusters_of_pod(clusters, pod))
            deletion_began = on_update(lambda old, new: old.meta.is_deleting != new.meta.is_deleting)
            controller.watch(Kind(pods, clusters_of, deletion_began, mapper=mapper))
        controller.watch(Kind(routes, owner, CHILD_CHANGED, mapper=mapper))
        controller.watch(Kind(services, owner, CHILD_CHANGED, mapper=mapper))
        controller.watch(Kind(accounts, owner, mapper=mapper))
        self._current = OpenShiftInformers(routes=routes, services=services, accounts=accounts, pods=pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthInformers:
    """Informers that the OAuth reconciler reads.

    ``clusters``: all RayClusters. ``secrets``: the metadata of the Secrets with a cluster label. ``bindings``: all
    ClusterRoleBindings, with the index of :func:`add_binding_index`. ``proxy``: for the operator's own proxies;
    ``None`` if the configuration disables them. ``oidc_secrets``: the metadata of the Secrets with the OIDC client.
    """

    clusters: Reader
    secrets: Reader
    bindings: Reader
    openshift: OptionalOpenShiftInformers
    proxy: ProxyInformers | None = None
    oidc_secrets: Informer | None = None

    def bindings_of(self, cluster: NamespacedName) -> list[Entry]:
        """Return the ClusterRoleBindings whose labels name ``cluster``, even if the cluster no longer exists."""
        return self.bindings.entries(index=(_BINDING_INDEX, _index_value(cluster)))


def add_binding_index(bindings: Informer) -> None:
    """Add the index that :class:`OAuthInformers` reads to the informer of ClusterRoleBindings."""
    bindings.add_index(_BINDING_INDEX, _index_binding)


def clusters_of_binding(clusters: Reader, binding: Entry) -> Collection[Request]:
    """Return the clusters that the labels of a ClusterRoleBinding name."""
    namespace, label = binding.meta.labels.get(NAMESPACE_LABEL), binding.meta.labels.get(CLUSTER_LABEL)
    if not namespace or not label:
        return ()
    # The binding of a deleted cluster is deleted by a reconcile of the name in its label.
    return clusters_with_label(clusters, namespace, label) or (Request(namespace, label),)


def clusters_of_pod(clusters: Reader, pod: Entry) -> Collection[Request]:
    """Return the clusters to which KubeRay's label assigns a pod."""
    return clusters_with_label(clusters, pod.key.namespace, pod.meta.labels.get(POD_CLUSTER_LABEL, ""))


class HeadPodReplacer:
    """Deletes head pods that lack pull secrets, so that KubeRay recreates them.

    OpenShift adds pull secrets to a new ServiceAccount a moment after its creation, and a pod gets the pull secrets of
    its account only when it is created. Pods that set their own pull secrets, or use a ServiceAccount chosen by the
    user, never get any. If the pod template names no account (nothing was injected at admission), only pods older than
    the pull secrets are deleted: a newer pod that lacks them shows that its successor would lack them as well.

    Only pods whose controller is the cluster, by uid, are deleted: any client can set the labels of a head pod.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[frozenset[str], str]] = {}
        """By uid of the cluster: the account's pull secrets, and when they were first observed (RFC 3339)."""

    def forget(self, cluster: Object) -> None:
        """Forget the pull secrets of ``cluster``, which is being deleted."""
        self._seen.pop(uid_of(cluster), None)

    async def replace(self, children: Children, openshift: OpenShiftInformers) -> None:
        """Delete the head pods of one cluster that lack pull secrets."""
        cluster = children.cluster
        pod_spec = head_pod_spec(cluster)
        account_name = children.facts.names.proxy_service_account
        chosen = pod_spec.get("serviceAccountName")
        if pod_spec.get("imagePullSecrets") or chosen not in (None, "", account_name):
            return
        account = openshift.accounts.get(NamespacedName(namespace_of(cluster), account_name)) or {}
        required = _pull_secrets(account)
        if not required:
            return
        seen, since = self._seen.get(uid_of(cluster), (frozenset(), ""))
        if seen != required:
            since = rfc3339(self._clock.now())
            self._seen[uid_of(cluster)] = (frozenset(required), since)
        for entry in openshift.head_pods(cluster):
            if not chosen and entry.meta.creation_timestamp > since:
                continue
            pod = entry.object()
            if not required <= _pull_secrets(pod.get("spec") or {}):
                await children.delete(POD, pod, belongs=lambda pod: is_controlled_by(pod, cluster))


def _pull_secrets(obj: Object) -> set[str]:
    return {reference.get("name") or "" for reference in obj.get("imagePullSecrets") or ()}


def _index_binding(binding: Entry) -> list[str]:
    labels = binding.meta.labels
    if {CLUSTER_LABEL, NAMESPACE_LABEL} <= set(labels):
        return [f"{labels[NAMESPACE_LABEL]}/{labels[CLUSTER_LABEL]}"]
    return []


def _index_pod(pod: Entry) -> list[str]:
    name = pod.meta.labels.get(POD_CLUSTER_LABEL)
    return [f"{pod.key.namespace}/{name}"] if name else []


def _index_value(cluster: NamespacedName) -> str:
    return f"{cluster.namespace}/{label_value(cluster.name)}"
