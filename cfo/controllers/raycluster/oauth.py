"""OpenShift: the dashboard of a RayCluster behind an OAuth proxy.

The proxy itself is injected into the head pod at admission. What it needs is made here: a Route that leads to it and a
Service before it, a ServiceAccount that OpenShift takes for an OAuth client, a Secret for its cookies, and the
right to check tokens. That right is a ClusterRoleBinding, which no owner reference can tie to the cluster: a
finalizer holds the cluster until the binding is gone.

Where OAuth is off, or KubeRay guards the dashboard itself (``authOptions``), all that is taken away again. On
vanilla Kubernetes the proxy could not work: nothing is made, and an Event says so.
"""

from __future__ import annotations

import secrets as random
from base64 import b64decode, b64encode
from typing import Any

from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL, has_cluster_labels, is_suspended, uses_kuberay_auth
from cfo.api.raycluster.kinds import RAY_CLUSTER, ROUTE
from cfo.api.raycluster.naming import CLUSTER_LABEL, NAMESPACE_LABEL, digest, fit, label_value, names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import Children, Taken
from cfo.controllers.raycluster.host_collisions import older_namesakes
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS, Platform
from cfo.controllers.raycluster.resources import (
    COOKIE_KEY,
    desired_client_route,
    desired_cluster_role_binding,
    desired_dashboard_route,
    desired_proxy_service,
    desired_proxy_service_account,
    desired_secret,
)
from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.informer import Informer
from cfo.runtime.client.client import Client
from cfo.runtime.client.errors import NotFound
from cfo.runtime.clock import Clock, rfc3339
from cfo.runtime.discovery import DiscoveryIncomplete
from cfo.runtime.events import EventRecorder
from cfo.runtime.kinds import CLUSTER_ROLE_BINDING, POD, SECRET, SERVICE, SERVICE_ACCOUNT
from cfo.runtime.objects import (
    NamespacedName,
    Object,
    has_finalizer,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from cfo.runtime.reconcile import CRUD, READ, Request, Result, Rule

__all__ = ["FINALIZER", "FINALIZER_MANAGER", "OAuthReconciler", "OpenShiftInformers", "is_proxys_binding"]

FINALIZER = "ray.openshift.ai/oauth-finalizer"
FINALIZER_MANAGER = "codeflare-operator"
"""The field manager of the finalizer, the Go operator's."""

_SYNC_RETRY_SECONDS = 0.5
_COOKIE_BYTES = 20
_BINDING_INDEX = "cluster"
_POD_INDEX = "cluster"


def _index_binding(entry: Entry) -> list[str]:
    labels = entry.meta.labels
    return (
        [f"{labels[NAMESPACE_LABEL]}/{labels[CLUSTER_LABEL]}"]
        if {CLUSTER_LABEL, NAMESPACE_LABEL} <= set(labels)
        else []
    )


def _index_pod(entry: Entry) -> list[str]:
    name = entry.meta.labels.get(POD_CLUSTER_LABEL)
    return [f"{entry.key.namespace}/{name}"] if name else []


def _labelled(cluster: Object) -> str:
    return f"{namespace_of(cluster)}/{label_value(name_of(cluster))}"


class OpenShiftInformers:
    """What is followed on OpenShift alone: objects with a cluster label and, where OAuth is on, head pods."""

    def __init__(self, *, routes: Informer, services: Informer, accounts: Informer, pods: Informer | None) -> None:
        self._all = [informer for informer in (routes, services, accounts, pods) if informer is not None]
        self.routes = routes.reader
        self.services = services.reader
        self.accounts = accounts.reader
        self._pods = pods.add_index(_POD_INDEX, _index_pod).reader if pods is not None else None

    @property
    def has_synced(self) -> bool:
        """Whether all of it can be trusted to be whole."""
        return all(informer.has_synced for informer in self._all)

    def head_pods(self, cluster: Object) -> list[Entry]:
        """The head pods of ``cluster``."""
        return self._pods.entries(index=(_POD_INDEX, _labelled(cluster))) if self._pods is not None else []


class OAuthReconciler:
    """Makes, keeps and takes away what the OAuth proxy of one cluster needs.

    ``secrets`` holds the Secrets with a cluster label, ``bindings`` all ClusterRoleBindings; ``clusters`` has the
    indexes of :mod:`~cfo.controllers.raycluster.host_collisions`. Set :attr:`openshift` when Routes are served.
    """

    rules = (
        Rule("ray.io", "rayclusters", (*READ, "patch")),
        Rule("", ("secrets", "services", "serviceaccounts"), (*READ, "create", "patch", "delete")),
        Rule("", "pods", ("list", "watch", "delete")),
        Rule(ROUTE.group, "routes", CRUD),
        Rule("rbac.authorization.k8s.io", "clusterrolebindings", (*READ, "create", "patch", "delete")),
        # nobody may grant what he has not: these two are what system:auth-delegator gives
        Rule("authentication.k8s.io", "tokenreviews", "create"),
        Rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    )

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        clock: Clock,
        config: KubeRayConfiguration,
        platform: Platform,
        *,
        clusters: Informer,
        secrets: Informer,
        bindings: Informer,
    ) -> None:
        self._client = client
        self._events = events
        self._clock = clock
        self._config = config
        self._platform = platform
        self._clusters = clusters.reader
        self._secrets = secrets.reader
        self._bindings = bindings.add_index(_BINDING_INDEX, _index_binding).reader
        self.openshift: OpenShiftInformers | None = None
        self._pull_secrets_seen: dict[str, tuple[frozenset[str], str]] = {}

    async def reconcile(self, request: Request) -> Result:
        """Brings what belongs to one cluster's proxy up to date."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None:
            await self._collect(request)
            return Result()
        children = Children(self._client, self._events, cluster)
        if is_deleting(cluster):
            self._pull_secrets_seen.pop(uid_of(cluster), None)
            await self._release(children)
            return children.result()
        try:
            openshift = await self._platform.is_openshift()
        except DiscoveryIncomplete:
            return Result(requeue_after=UNKNOWN_RETRY_SECONDS)
        if openshift and (self.openshift is None or not self.openshift.has_synced):
            return Result(requeue_after=_SYNC_RETRY_SECONDS)
        enabled = self._config.ray_dashboard_oauth_enabled
        if not enabled or self.openshift is None or uses_kuberay_auth(cluster):
            if enabled and self.openshift is None:
                children.warn("OAuthUnavailable", _UNAVAILABLE)
            elif enabled:
                children.tell("OAuthByKubeRay", "KubeRay's own authOptions are used: there is no OAuth proxy")
            await self._take_away(children)
            return children.result()
        await self._provide(children, self.openshift)
        return children.result()

    async def _provide(self, children: Children, openshift: OpenShiftInformers) -> None:
        cluster = children.cluster
        if not has_finalizer(cluster, FINALIZER):
            cluster = await self._set_finalizer(cluster, present=True)
        if is_deleting(cluster) or is_suspended(cluster):
            return
        await children.apply(desired_proxy_service_account(cluster))
        await children.apply(desired_proxy_service(cluster))
        await self._claim_cookie(children)
        await self._claim_binding(children)
        await children.apply(desired_dashboard_route(cluster))
        await children.apply(desired_client_route(cluster))
        await self._replace_head_pods(children, openshift)

    async def _claim_cookie(self, children: Children) -> None:
        cluster = children.cluster
        key = NamespacedName(namespace_of(cluster), names_of(cluster).cookie_secret)

        async def desired(existing: Object | None) -> Object:
            encoded = ((existing or {}).get("data") or {}).get(COOKIE_KEY)
            cookie = b64decode(encoded) if encoded else b64encode(random.token_bytes(_COOKIE_BYTES))
            return desired_secret(cluster, key.name, {COOKIE_KEY: cookie})

        try:
            await children.claim(key, SECRET, self._secrets.get(key), desired)
        except Taken as taken:
            children.taken(taken, "the OAuth proxy has no cookie secret")

    async def _claim_binding(self, children: Children) -> None:
        """Makes the ClusterRoleBinding, under the usual name if that is free.

        The names of different clusters can be the same (``a-b`` in ``c``, ``a`` in ``b-c``); then the later one
        adds its hash to it, and keeps that name.
        """
        cluster = children.cluster
        usual = names_of(cluster).cluster_role_binding
        own = fit(f"{usual}-{digest(f'{namespace_of(cluster)}/{name_of(cluster)}')}")
        names = [own] if self._yields_binding(cluster, usual, own) else [usual, own]
        for name in names:
            key = NamespacedName("", name)

            async def desired(_: Object | None, name: str = name) -> Object:
                return desired_cluster_role_binding(cluster, name)

            try:
                await children.claim(key, CLUSTER_ROLE_BINDING, self._bindings.get(key), desired)
            except Taken as taken:
                if name == own:
                    children.taken(taken, "the OAuth proxy cannot check tokens")
                continue
            return

    def _yields_binding(self, cluster: Object, usual: str, own: str) -> bool:
        """Whether the usual name is left to another cluster, that was there before."""
        if self._bindings.contains(NamespacedName("", usual)):
            return False  # whose it is shows when it is claimed
        if self._bindings.contains(NamespacedName("", own)):
            return True
        return any(
            names_of(other).cluster_role_binding == usual and not is_deleting(other)
            for other in older_namesakes(self._clusters, cluster)
        )

    async def _replace_head_pods(self, children: Children, openshift: OpenShiftInformers) -> None:
        """Deletes head pods that lack pull secrets of the proxy's service account, for KubeRay to make them anew.

        OpenShift adds pull secrets to a new service account a moment later, and a pod takes them at its creation
        alone. Pods to which the user gave pull secrets never take any, nor do those of a service account that he
        chose. Where the template names no account (nothing was injected at admission), only pods are deleted that were
        there before the pull secrets were: their successors will not have them either.
        """
        cluster = children.cluster
        template = ((cluster.get("spec") or {}).get("headGroupSpec") or {}).get("template") or {}
        pod_spec = template.get("spec") or {}
        account_name = names_of(cluster).proxy_service_account
        chosen = pod_spec.get("serviceAccountName")
        if pod_spec.get("imagePullSecrets") or chosen not in (None, "", account_name):
            return
        account = openshift.accounts.get(NamespacedName(namespace_of(cluster), account_name)) or {}
        wanted = _pull_secrets(account)
        if not wanted:
            return
        seen, since = self._pull_secrets_seen.get(uid_of(cluster), (frozenset(), ""))
        if seen != wanted:
            since = rfc3339(self._clock.now())
            self._pull_secrets_seen[uid_of(cluster)] = (frozenset(wanted), since)
        for entry in openshift.head_pods(cluster):
            if not chosen and entry.meta.creation_timestamp > since:
                continue
            pod = entry.object()
            if not wanted <= _pull_secrets(pod.get("spec") or {}):
                await children.delete(POD, pod, belongs=lambda _: True)

    async def _take_away(self, children: Children) -> None:
        cluster = children.cluster
        names, namespace = names_of(cluster), namespace_of(cluster)
        openshift = self.openshift
        if openshift is not None:
            account = NamespacedName(namespace, names.proxy_service_account)
            for name in (names.dashboard, names.client):
                await children.delete(ROUTE, openshift.routes.get(NamespacedName(namespace, name)))
            await children.delete(SERVICE, openshift.services.get(NamespacedName(namespace, names.proxy_service)))
            await children.delete(SERVICE_ACCOUNT, openshift.accounts.get(account))
        await children.delete(SECRET, self._secrets.get(NamespacedName(namespace, names.cookie_secret)))
        await self._release(children)

    async def _release(self, children: Children) -> None:
        """Deletes the ClusterRoleBindings, whatever they are called, and then lets the cluster go."""
        cluster = children.cluster
        for entry in self._bindings.entries(index=(_BINDING_INDEX, _labelled(cluster))):
            await children.delete(
                CLUSTER_ROLE_BINDING, entry.object(), belongs=lambda obj: has_cluster_labels(obj, cluster)
            )
        if not children.failed and has_finalizer(cluster, FINALIZER):
            await self._set_finalizer(cluster, present=False)

    async def _collect(self, request: Request) -> None:
        """Deletes ClusterRoleBindings of a cluster that is gone.

        They are there when somebody took the finalizer away, and those with old names of clusters that the Go
        operator renamed.
        """
        label = f"{request.namespace}/{label_value(request.name)}"
        for entry in self._bindings.entries(index=(_BINDING_INDEX, label)):
            binding = entry.object()
            if not is_proxys_binding(binding, request.namespace):
                continue
            if await self._client.get(RAY_CLUSTER, request, live=True) is None:
                await self._client.delete(CLUSTER_ROLE_BINDING, entry.key, uid=entry.meta.uid)

    async def _set_finalizer(self, cluster: Object, *, present: bool) -> Object:
        finalizers: list[Any] = [item for item in cluster["metadata"].get("finalizers") or () if item != FINALIZER]
        if present:
            finalizers.append(FINALIZER)
        # the list is replaced as a whole, so nobody may have changed it since
        metadata = {
            "finalizers": finalizers or None,
            "uid": uid_of(cluster),
            "resourceVersion": resource_version_of(cluster),
        }
        client = self._client.with_field_manager(FINALIZER_MANAGER)
        try:
            return await client.patch(RAY_CLUSTER, key_of(cluster), {"metadata": metadata})
        except NotFound:
            return {**cluster, "metadata": {**cluster["metadata"], "deletionTimestamp": "gone"}}


_UNAVAILABLE = (
    "rayDashboardOAuthEnabled is set, but this is not OpenShift: the OAuth proxy cannot work here, so the dashboard is "
    "not exposed. Set kuberay.rayDashboardOAuthEnabled to false to get Ingresses (without authentication)"
)


def is_proxys_binding(binding: Object, namespace: str) -> bool:
    """Whether a ClusterRoleBinding gives what a proxy gets, to accounts of ``namespace`` alone."""
    return (binding.get("roleRef") or {}).get("name") == "system:auth-delegator" and all(
        subject.get("kind") == "ServiceAccount" and subject.get("namespace") == namespace
        for subject in binding.get("subjects") or ()
    )


def _pull_secrets(holder: Object) -> set[str]:
    return {reference.get("name") or "" for reference in holder.get("imagePullSecrets") or ()}
