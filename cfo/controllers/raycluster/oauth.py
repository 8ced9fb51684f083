"""Exposes the dashboard of a RayCluster behind an OAuth proxy on OpenShift.

The proxy itself is injected into the head pod at admission. This controller creates the objects that the proxy needs: a
Route that targets it and a Service in front of it, a ServiceAccount that OpenShift accepts as an OAuth client, a Secret
for its cookies, and the permission to check tokens. That permission is a ClusterRoleBinding, which no owner reference
can tie to a namespaced cluster: a finalizer delays the cluster's deletion until the binding is deleted.

If OAuth is disabled, or another actor authenticates the users of the dashboard
(:mod:`cfo.api.raycluster.responsibility`), all of these objects are deleted, and the finalizer is removed. On vanilla
Kubernetes the proxy cannot work: nothing is created, and an Event reports this.
"""

from __future__ import annotations

import secrets as random
from base64 import b64decode, b64encode
from typing import Any

from cfo.api.raycluster.cluster import has_cluster_labels, is_suspended
from cfo.api.raycluster.kinds import RAY_CLUSTER, ROUTE
from cfo.api.raycluster.naming import FIELD_MANAGER, digest, fit, names_of
from cfo.api.raycluster.responsibility import Actor, Concern
from cfo.config import KubeRayConfiguration, NamespaceSettings, ProfileTable
from cfo.controllers.raycluster.children import Children, NameConflict
from cfo.controllers.raycluster.clusters import add_indexes, all_clusters
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.head_pods import HeadPodReplacer
from cfo.controllers.raycluster.host_collisions import older_colliding_clusters
from cfo.controllers.raycluster.oauth_informers import (
    OAuthInformers,
    OpenShiftInformers,
    OptionalOpenShiftInformers,
    add_binding_index,
    clusters_of_binding,
)
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS
from cfo.controllers.raycluster.predicates import (
    CHILD_CHANGED,
    CLUSTER_CHANGED,
    FINALIZERS_CHANGED,
    HEAD_SERVICE_CHANGED,
)
from cfo.controllers.raycluster.resources import (
    COOKIE_KEY,
    desired_client_route,
    desired_cluster_role_binding,
    desired_dashboard_route,
    desired_proxy_service,
    desired_proxy_service_account,
    desired_secret,
)
from cfo.controllers.raycluster.secrets import CLUSTER_SECRETS, NEVER, ClusterSecrets, secret_informer
from cfo.runtime import (
    CLUSTER_ROLE_BINDING,
    CRUD,
    READ,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Builder,
    Client,
    DiscoveryIncomplete,
    EnqueueRequestsFromMapFunc,
    EventRecorder,
    Manager,
    NamespacedName,
    NotFound,
    Object,
    Request,
    Result,
    Rule,
    has_finalizer,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    or_,
    resource_version_of,
    uid_of,
)

__all__ = ["FINALIZER", "FINALIZER_MANAGER", "OAuthReconciler", "is_oauth_proxy_binding", "setup"]

FINALIZER = "ray.openshift.ai/oauth-finalizer"
FINALIZER_MANAGER = "codeflare-operator"
"""The field manager of the finalizer, the same as the Go operator's."""

_SYNC_RETRY_SECONDS = 0.5
_COOKIE_BYTES = 20


class OAuthReconciler:
    """Creates, updates and deletes the objects that the OAuth proxy of one cluster needs."""

    rules = (
        Rule("ray.io", "rayclusters", (*READ, "patch")),
        Rule("", ("secrets", "services", "serviceaccounts"), (*READ, "create", "patch", "delete")),
        Rule("", "pods", ("list", "watch", "delete")),
        Rule(ROUTE.group, "routes", CRUD),
        Rule("rbac.authorization.k8s.io", "clusterrolebindings", (*READ, "create", "patch", "delete")),
        # RBAC escalation check: the operator must hold the permissions of system:auth-delegator to bind it.
        Rule("authentication.k8s.io", "tokenreviews", "create"),
        Rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    )

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        environment: Environment,
        informers: OAuthInformers,
    ) -> None:
        self._client = client
        self._events = events
        self._platform = environment.platform
        self._profiles = environment.profiles
        self._informers = informers
        self._cookies = ClusterSecrets(client, informers.secrets, content=(COOKIE_KEY,), valid_until=lambda _: NEVER)
        self._head_pods = HeadPodReplacer(environment.clock)

    async def reconcile(self, request: Request) -> Result:
        """Bring the objects of one cluster's proxy up to date."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            self._cookies.forget(request)
        if cluster is None:
            await self._collect_bindings(request)
            return Result()
        children = Children(self._client, self._events, cluster)
        if is_deleting(cluster):
            self._head_pods.forget(cluster)
            await self._release(children)
            return children.result()
        try:
            is_openshift = await self._platform.is_openshift()
        except DiscoveryIncomplete:
            return Result(requeue_after=UNKNOWN_RETRY_SECONDS)
        openshift = self._informers.openshift.current
        if is_openshift and (openshift is None or not openshift.has_synced):
            return Result(requeue_after=_SYNC_RETRY_SECONDS)
        settings = await self._profiles.settings(self._client, request.namespace)
        if settings.kuberay.ray_dashboard_oauth_enabled:
            kept = "OAuth proxy" if openshift is not None else ""
            features = settings.kuberay.kuberay_features
            actor = children.record_responsibility(Concern.AUTHENTICATION, features, kept)
            if actor is Actor.OPERATOR and openshift is not None:
                await self._create_or_update(children, openshift, settings)
                return children.result()
            if actor is Actor.OPERATOR:
                children.record_warning("OAuthUnavailable", _UNAVAILABLE)
        await self._delete(children, openshift)
        return children.result()

    async def _create_or_update(
        self, children: Children, openshift: OpenShiftInformers, settings: NamespaceSettings
    ) -> None:
        cluster: Object | None = children.cluster
        if not has_finalizer(children.cluster, FINALIZER):
            cluster = await self._set_finalizer(children.cluster, present=True)
        if cluster is None or is_deleting(cluster) or is_suspended(cluster):
            return
        for reader, desired, consequence in (
            (openshift.accounts, desired_proxy_service_account(cluster), "the OAuth proxy cannot log users in"),
            (
                openshift.services,
                desired_proxy_service(cluster),
                "the dashboard is not reachable through the OAuth proxy",
            ),
        ):
            await children.claim_and_apply(desired, reader.get(key_of(desired)), consequence)
        await self._claim_cookie(children)
        await self._create_or_update_binding(children)
        await self._expose(children, openshift, settings)
        await self._head_pods.replace(children, openshift)

    async def _expose(self, children: Children, openshift: OpenShiftInformers, settings: NamespaceSettings) -> None:
        exposes = children.may_expose(settings)
        for desired, consequence in (
            (desired_dashboard_route(children.cluster), "the dashboard has no Route"),
            (desired_client_route(children.cluster), "the Ray client has no Route"),
        ):
            current = openshift.routes.get(key_of(desired))
            if exposes:
                await children.claim_and_apply(desired, current, consequence)
            else:
                await children.delete(ROUTE, current)

    async def _claim_cookie(self, children: Children) -> None:
        cluster = children.cluster
        key = NamespacedName(namespace_of(cluster), names_of(cluster).cookie_secret)
        if self._cookies.known_validity(children, desired_secret(cluster, key.name, {})) is not None:
            return
        current = await self._cookies.read(key)

        async def desired(existing: Object | None) -> Object:
            encoded = ((existing or {}).get("data") or {}).get(COOKIE_KEY)
            cookie = b64decode(encoded) if encoded else b64encode(random.token_bytes(_COOKIE_BYTES))
            return desired_secret(cluster, key.name, {COOKIE_KEY: cookie})

        try:
            stored = await children.create_or_update(key, SECRET, current, desired, trust_labels=False)
        except NameConflict as error:
            children.report_name_conflict(error, "the OAuth proxy has no cookie secret")
            return
        if stored is not None:
            self._cookies.remember(key_of(cluster), stored)

    async def _create_or_update_binding(self, children: Children) -> None:
        """Create the ClusterRoleBinding, with the usual name if it is available.

        Two clusters can have the same usual name (``a-b`` in ``c``, ``a`` in ``b-c``). The newer cluster appends its
        hash and keeps that name.
        """
        cluster = children.cluster
        usual = names_of(cluster).cluster_role_binding
        hashed = fit(f"{usual}-{digest(f'{namespace_of(cluster)}/{name_of(cluster)}')}")
        names = [hashed] if self._prefers_hashed_name(cluster, usual, hashed) else [usual, hashed]
        for name in names:
            key = NamespacedName("", name)

            async def desired(_: Object | None, name: str = name) -> Object:
                return desired_cluster_role_binding(cluster, name)

            try:
                await children.create_or_update(key, CLUSTER_ROLE_BINDING, self._informers.bindings.get(key), desired)
            except NameConflict as error:
                if name == hashed:
                    children.report_name_conflict(error, "the OAuth proxy cannot check tokens")
                continue
            return

    def _prefers_hashed_name(self, cluster: Object, usual: str, hashed: str) -> bool:
        """Return whether an older cluster takes precedence for the usual name."""
        if self._informers.bindings.contains(NamespacedName("", usual)):
            return False  # create_or_update checks the owner
        if self._informers.bindings.contains(NamespacedName("", hashed)):
            return True
        return any(
            names_of(other).cluster_role_binding == usual and not is_deleting(other)
            for other in older_colliding_clusters(self._informers.clusters, cluster)
        )

    async def _delete(self, children: Children, openshift: OpenShiftInformers | None) -> None:
        cluster = children.cluster
        names, namespace = names_of(cluster), namespace_of(cluster)
        if openshift is not None:
            account = NamespacedName(namespace, names.proxy_service_account)
            for name in (names.dashboard, names.client):
                await children.delete(ROUTE, openshift.routes.get(NamespacedName(namespace, name)))
            await children.delete(SERVICE, openshift.services.get(NamespacedName(namespace, names.proxy_service)))
            await children.delete(SERVICE_ACCOUNT, openshift.accounts.get(account))
        self._cookies.forget(key_of(cluster))
        await children.delete(SECRET, self._cookies.metadata(NamespacedName(namespace, names.cookie_secret)))
        await self._release(children)

    async def _release(self, children: Children) -> None:
        """Delete the cluster's ClusterRoleBindings, regardless of their names, then remove the finalizer."""
        cluster = children.cluster
        for entry in self._informers.bindings_of(key_of(cluster)):
            await children.delete(
                CLUSTER_ROLE_BINDING, entry.object(), belongs=lambda obj: has_cluster_labels(obj, cluster)
            )
        if not children.failed and has_finalizer(cluster, FINALIZER):
            await self._set_finalizer(cluster, present=False)

    async def _collect_bindings(self, request: Request) -> None:
        """Delete the ClusterRoleBindings of a cluster that no longer exists.

        They are left over when another client removed the finalizer, and when the Go operator changed the names of a
        cluster's objects.
        """
        for entry in self._informers.bindings_of(request):
            if not is_oauth_proxy_binding(entry.object(), request.namespace):
                continue
            if await self._client.get(RAY_CLUSTER, request, live=True) is None:
                await self._client.delete(CLUSTER_ROLE_BINDING, entry.key, uid=entry.meta.uid)

    async def _set_finalizer(self, cluster: Object, *, present: bool) -> Object | None:
        """Add or remove the finalizer; return the cluster as stored, or ``None`` when it no longer exists."""
        finalizers: list[Any] = [item for item in cluster["metadata"].get("finalizers") or () if item != FINALIZER]
        if present:
            finalizers.append(FINALIZER)
        # The patch replaces the whole list, so the resourceVersion ensures that no other client has changed it.
        metadata = {
            "finalizers": finalizers or None,
            "uid": uid_of(cluster),
            "resourceVersion": resource_version_of(cluster),
        }
        client = self._client.with_field_manager(FINALIZER_MANAGER)
        try:
            return await client.patch(RAY_CLUSTER, key_of(cluster), {"metadata": metadata})
        except NotFound:
            return None


_UNAVAILABLE = (
    "kuberay.rayDashboardOAuthEnabled is set, but this cluster is not OpenShift: the OAuth proxy cannot work here, so "
    "the dashboard is not exposed. Set kuberay.rayDashboardOAuthEnabled to false to get Ingresses without "
    "authentication"
)


def is_oauth_proxy_binding(binding: Object, namespace: str) -> bool:
    """Return whether a ClusterRoleBinding binds the proxy's role, and only to ServiceAccounts in ``namespace``."""
    return (binding.get("roleRef") or {}).get("name") == "system:auth-delegator" and all(
        subject.get("kind") == "ServiceAccount" and subject.get("namespace") == namespace
        for subject in binding.get("subjects") or ()
    )


def setup(manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
    """Add the controller of OAuth proxies to ``manager``."""
    name = "raycluster-oauth"
    clusters = manager.cache.informer(RAY_CLUSTER)
    add_indexes(clusters)
    secrets = secret_informer(manager)
    bindings = manager.cache.informer(CLUSTER_ROLE_BINDING)
    add_binding_index(bindings)
    with_pods = ProfileTable(config).strictest().kuberay.ray_dashboard_oauth_enabled
    openshift = OptionalOpenShiftInformers(manager, environment.routes, with_pods=with_pods)
    reconciler = OAuthReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        environment,
        OAuthInformers(clusters=clusters.reader, secrets=secrets.reader, bindings=bindings.reader, openshift=openshift),
    )
    controller = (
        Builder(manager, name)
        .for_(RAY_CLUSTER, or_(CLUSTER_CHANGED, HEAD_SERVICE_CHANGED, FINALIZERS_CHANGED))
        .owns(SECRET, **CLUSTER_SECRETS)
        .watches(
            CLUSTER_ROLE_BINDING,
            EnqueueRequestsFromMapFunc(lambda binding: clusters_of_binding(clusters.reader, binding)),
            CHILD_CHANGED,
        )
        .complete(reconciler)
    )
    openshift.start(controller, clusters.reader)
    environment.profiles.subscribe(controller, clusters.reader)
    environment.routes.enqueue_when_served(controller, lambda: all_clusters(clusters.reader))
