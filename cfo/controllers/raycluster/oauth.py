"""Creates the objects of the proxy that authenticates users of a RayCluster's dashboard, and on OpenShift its Routes.

The proxy itself is injected into the head pod at admission: OpenShift's OAuth proxy or, with
``kuberay.authentication``, oauth2-proxy and kube-rbac-proxy. This controller creates the objects that it needs: a
Service in front of it, the ServiceAccount of the head pod, a Secret for its cookies, and the permission to check
tokens. That permission is a ClusterRoleBinding, which no owner reference can tie to a namespaced cluster: a finalizer
delays the cluster's deletion until the binding is deleted. OpenShift accepts the ServiceAccount as an OAuth client and
issues the Service's certificate; for the operator's own proxies, :mod:`~cfo.controllers.raycluster.auth_proxy` does.

If OAuth is disabled, or another actor authenticates the users (:mod:`cfo.api.raycluster.responsibility`), all of these
objects are deleted, and the finalizer is removed; Routes of a cluster whose Ray requires tokens (``authOptions``)
target Ray itself. Without anything that authenticates users, nothing is created, and an Event reports this.
"""

from __future__ import annotations

from cfo.api.raycluster.authentication import Authentication, Backend
from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.kinds import RAY_CLUSTER, ROUTE
from cfo.api.raycluster.naming import CLUSTER_LABEL, FIELD_MANAGER, FINALIZER, FINALIZER_MANAGER
from cfo.config import AuthenticationConfiguration, KubeRayConfiguration, ProfileTable
from cfo.controllers.raycluster.auth_proxy import AuthProxySecrets, CookieSecret
from cfo.controllers.raycluster.children import MAX_CACHED_BYTES, Children
from cfo.controllers.raycluster.clusters import add_indexes, all_clusters
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.oauth_informers import (
    HeadPodReplacer,
    OAuthInformers,
    OpenShiftInformers,
    OptionalOpenShiftInformers,
    ProxyInformers,
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
from cfo.controllers.raycluster.proxy_bindings import ProxyBindings
from cfo.controllers.raycluster.resources import (
    desired_client_route,
    desired_dashboard_route,
    desired_proxy_service,
    desired_proxy_service_account,
)
from cfo.controllers.raycluster.responsibility_events import record_authentication, record_missing_client
from cfo.controllers.raycluster.secrets import CLUSTER_SECRETS, secret_informer
from cfo.runtime import (
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
    Object,
    Request,
    Result,
    Rule,
    is_deleting,
    key_of,
    on_update,
    or_,
    set_finalizer,
    uid_of,
)
from cfo.runtime.manager import SelectionKeywords
from cfo.runtime.objects import CLUSTER_ROLE_BINDING

__all__ = ["OAuthReconciler", "setup"]

_SYNC_RETRY_SECONDS = 0.5


class OAuthReconciler:
    """Creates, updates and deletes the objects that the OAuth proxy of one cluster needs."""

    proxy_rules = (
        Rule("ray.io", "rayclusters", (*READ, "patch")),
        Rule("", ("secrets", "services", "serviceaccounts"), (*READ, "create", "patch", "delete")),
        Rule("rbac.authorization.k8s.io", "clusterrolebindings", (*READ, "create", "patch", "delete")),
        # RBAC escalation check: the operator must hold the permissions of system:auth-delegator to bind it.
        Rule("authentication.k8s.io", "tokenreviews", "create"),
        Rule("authorization.k8s.io", "subjectaccessreviews", "create"),
    )
    rules = (
        *proxy_rules,
        Rule("", "pods", ("list", "watch", "delete")),
        Rule(ROUTE.group, "routes", CRUD),
    )

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        config: KubeRayConfiguration,
        environment: Environment,
        informers: OAuthInformers,
    ) -> None:
        self._client = client
        self._finalizer_client = client.with_field_manager(FINALIZER_MANAGER)
        self._events = events
        self._config = config
        self._platform = environment.platform
        self._profiles = environment.profiles
        self._access = environment.access
        self._informers = informers
        self._auth_proxy = AuthProxySecrets(client, config.authentication, informers.secrets, environment.clock)
        self._cookie = CookieSecret(client, informers.secrets)
        self._bindings = ProxyBindings(client, informers)
        self._head_pods = HeadPodReplacer(environment.clock)
        self._recorded: dict[Request, tuple[str, str]] = {}

    async def reconcile(self, request: Request) -> Result:
        """Bring the objects of one cluster's proxy up to date."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            self._cookie.forget(request)
            self._auth_proxy.forget(request)
            self._recorded.pop(request, None)
        if cluster is None:
            await self._bindings.collect(request)
            return Result()
        children = Children(self._client, self._events, cluster)
        if is_deleting(cluster):
            self._head_pods.forget(cluster)
            await self._release(children)
            return children.result()
        settings = await self._profiles.settings(self._client, request.namespace)
        try:
            is_openshift = await self._platform.is_openshift()
            exposure = await self._access.exposure_of(children.facts, settings)
        except DiscoveryIncomplete:
            return Result(requeue_after=UNKNOWN_RETRY_SECONDS)
        openshift = self._informers.openshift.current
        if is_openshift and (openshift is None or not openshift.has_synced):
            return Result(requeue_after=_SYNC_RETRY_SECONDS)
        required = settings.kuberay.ray_dashboard_oauth_enabled
        recorded = (uid_of(cluster), exposure.message)
        is_new = self._recorded.get(request) != recorded
        self._recorded[request] = recorded
        record_authentication(children, exposure, settings, has_routes=openshift is not None, is_new=is_new)
        record_missing_client(children, exposure, self._config.authentication.oidc, self._informers.oidc_secrets)
        match exposure.authentication:
            case Authentication.OAUTH_PROXY if openshift is not None and exposure.backend is not None:
                await self._create_or_update_openshift_proxy(children, openshift, exposure.route_backend)
            case Authentication.AUTH_PROXY if exposure.backend is not None and self._informers.proxy is not None:
                renewal = await self._create_or_update_auth_proxy(
                    children, exposure.route_backend, self._informers.proxy, openshift
                )
                return children.result(requeue_after=renewal)
            case _:
                await self._delete(children, openshift, exposure.route_backend if required else None)
        return children.result()

    async def _create_or_update_auth_proxy(
        self, children: Children, backend: Backend | None, proxy: ProxyInformers, openshift: OpenShiftInformers | None
    ) -> float:
        """Write the objects of the operator's own proxies; return in how many seconds their certificate is renewed."""
        facts = children.facts
        if not await self._may_write(facts.cluster):
            return 0.0
        account = desired_proxy_service_account(facts, openshift_client=False)
        service = desired_proxy_service(facts, openshift_certificate=False)
        for reader, desired, consequence in (
            (proxy.accounts, account, "the proxies cannot check tokens"),
            (proxy.services, service, "the dashboard is not reachable through the proxies"),
        ):
            await children.claim_and_apply(desired, reader.get(key_of(desired)), consequence)
        await self._auth_proxy.write_config(children)
        renewal = await self._auth_proxy.write_certificate(children)
        await self._bindings.create_or_update(children)
        if openshift is not None:
            destination_ca = self._auth_proxy.certificate_ca(facts)
            if destination_ca:
                await self._write_routes(children, openshift, backend, destination_ca)
        return renewal

    async def _create_or_update_openshift_proxy(
        self, children: Children, openshift: OpenShiftInformers, backend: Backend | None
    ) -> None:
        """Write the objects of OpenShift's OAuth proxy, and replace head pods that started before they existed."""
        facts = children.facts
        if not await self._may_write(facts.cluster):
            return
        account, service = desired_proxy_service_account(facts), desired_proxy_service(facts)
        for reader, desired, consequence in (
            (openshift.accounts, account, "the OAuth proxy cannot log users in"),
            (openshift.services, service, "the dashboard is not reachable through the OAuth proxy"),
        ):
            await children.claim_and_apply(desired, reader.get(key_of(desired)), consequence)
        await self._auth_proxy.delete_certificate(children)  # OpenShift issues one of the same name
        await self._cookie.write(children)
        await self._bindings.create_or_update(children)
        await self._write_routes(children, openshift, backend)
        await self._head_pods.replace(children, openshift)

    async def _may_write(self, cluster: Object) -> bool:
        """Set the finalizer; return whether the proxy's objects may be written: the cluster exists and may run."""
        stored = await set_finalizer(self._finalizer_client, cluster, FINALIZER, present=True)
        return stored is not None and not is_deleting(stored) and not is_suspended(stored)

    async def _write_routes(
        self, children: Children, openshift: OpenShiftInformers, backend: Backend | None, destination_ca: str = ""
    ) -> None:
        """Write the Routes; delete them if there is no ``backend``: the operator does not expose the cluster."""
        facts, names = children.facts, children.facts.names
        if backend is None:
            for name in (names.dashboard, names.client):
                await children.delete(ROUTE, openshift.routes.get(NamespacedName(names.namespace, name)))
            return
        for desired, consequence in (
            (desired_dashboard_route(facts, backend, destination_ca), "the dashboard has no Route"),
            (desired_client_route(facts), "the Ray client has no Route"),
        ):
            await children.claim_and_apply(desired, openshift.routes.get(key_of(desired)), consequence)

    async def _delete(self, children: Children, openshift: OpenShiftInformers | None, backend: Backend | None) -> None:
        """Delete the proxy's objects; on OpenShift, Routes remain if ``backend`` authenticates users itself."""
        names, namespace = children.facts.names, children.facts.names.namespace
        if openshift is not None and (backend is None or not children.facts.is_suspended):
            await self._write_routes(children, openshift, backend)
        for informers in (self._informers.proxy, openshift):
            if informers is not None:
                account = NamespacedName(namespace, names.proxy_service_account)
                await children.delete(SERVICE, informers.services.get(NamespacedName(namespace, names.proxy_service)))
                await children.delete(SERVICE_ACCOUNT, informers.accounts.get(account))
                break
        await self._cookie.delete(children)
        await self._auth_proxy.delete_certificate(children)
        await self._release(children)

    async def _release(self, children: Children) -> None:
        """Delete the cluster's ClusterRoleBindings, regardless of their names, then remove the finalizer."""
        cluster = children.cluster
        await self._bindings.delete(children)
        if not children.errors:
            await set_finalizer(self._finalizer_client, cluster, FINALIZER, present=False)


def setup(manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
    """Add the controller of OAuth proxies to ``manager``."""
    name = "raycluster-oauth"
    clusters = manager.cache.informer(RAY_CLUSTER)
    add_indexes(clusters)
    secrets = secret_informer(manager)
    bindings = manager.cache.informer(CLUSTER_ROLE_BINDING)
    add_binding_index(bindings)
    strictest = ProfileTable(config).strictest().kuberay
    required = strictest.ray_dashboard_oauth_enabled
    openshift = OptionalOpenShiftInformers(manager, environment.routes, with_pods=required)
    authentication = config.authentication if required else AuthenticationConfiguration()
    labeled: SelectionKeywords = {"label_selector": CLUSTER_LABEL, "max_bytes": MAX_CACHED_BYTES}
    proxy = None
    if authentication.enabled:
        services = manager.cache.informer(SERVICE, **labeled)
        accounts = manager.cache.informer(SERVICE_ACCOUNT, **labeled)
        proxy = ProxyInformers(services=services.reader, accounts=accounts.reader)
    oidc = authentication.oidc if authentication.enabled else None
    named: SelectionKeywords = {"metadata_only": True, "max_bytes": MAX_CACHED_BYTES}
    if oidc is not None:
        named["field_selector"] = f"metadata.name={oidc.secret_name}"
    reconciler = OAuthReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        config,
        environment,
        OAuthInformers(
            clusters=clusters.reader,
            secrets=secrets.reader,
            bindings=bindings.reader,
            openshift=openshift,
            proxy=proxy,
            oidc_secrets=manager.cache.informer(SECRET, **named) if oidc is not None else None,
        ),
    )
    builder = (
        Builder(manager, name)
        .for_(RAY_CLUSTER, or_(CLUSTER_CHANGED, HEAD_SERVICE_CHANGED, FINALIZERS_CHANGED))
        .owns(SECRET, **CLUSTER_SECRETS)
        .watches(
            CLUSTER_ROLE_BINDING,
            EnqueueRequestsFromMapFunc(lambda binding: clusters_of_binding(clusters.reader, binding)),
            CHILD_CHANGED,
        )
    )
    if proxy is not None:
        builder.owns(SERVICE, CHILD_CHANGED, **labeled).owns(SERVICE_ACCOUNT, **labeled)
    if oidc is not None:
        in_namespace = EnqueueRequestsFromMapFunc(
            lambda secret: [entry.key for entry in clusters.reader.entries(secret.key.namespace)]
        )
        builder.watches(SECRET, in_namespace, on_update(lambda _old, _new: False), **named)
    controller = builder.complete(reconciler)
    environment.access.subscribe(manager, controller, clusters.reader)
    openshift.start(controller, clusters.reader)
    environment.profiles.subscribe(controller, clusters.reader)
    environment.routes.enqueue_when_served(controller, lambda: all_clusters(clusters.reader))
