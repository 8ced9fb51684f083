"""Creates the objects of the proxy that authenticates users of a RayCluster's dashboard, and on OpenShift its Routes.

The proxy itself is injected into the head pod at admission: OpenShift's OAuth proxy or, with
``kuberay.authentication``, oauth2-proxy and kube-rbac-proxy. This controller creates the objects that it needs: a
Service in front of it, the ServiceAccount of the head pod, a Secret for its cookies, and the permission to check
tokens. That permission is a ClusterRoleBinding, which no owner reference can tie to a namespaced cluster: a finalizer
delays the cluster's deletion until the binding is deleted. OpenShift accepts the ServiceAccount as an OAuth client and
issues the Service's certificate; for the operator's own proxies, :mod:`~cfo.controllers.raycluster.auth_proxy` does.

If OAuth is disabled, or another actor authenticates the users (:mod:`cfo.api.raycluster.facts`), all of these
objects are deleted, and the finalizer is removed; Routes of a cluster whose Ray requires tokens (``authOptions``)
target Ray itself. Without anything that authenticates users, nothing is created, and an Event reports this.
"""

from __future__ import annotations

from typing import NamedTuple

from cfo.api.raycluster.authentication import Authentication, Backend
from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.facts import Actor, Concern
from cfo.api.raycluster.names import FINALIZER, FINALIZER_MANAGER, RAY_CLUSTER, ROUTE
from cfo.config.authentication import OIDCConfiguration
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings, ProfileTable
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.raycluster.auth_proxy import ProxySecrets
from cfo.controllers.raycluster.children import SYNC_RETRY_SECONDS, Children
from cfo.controllers.raycluster.dashboard_access import Exposure
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.head_pods import HeadPodReplacer, HeadPods, clusters_of_pod
from cfo.controllers.raycluster.proxy_bindings import ProxyBindings
from cfo.controllers.raycluster.reconciler import (
    ClusterConcern,
    ObservedCluster,
    record_responsibility,
)
from cfo.controllers.raycluster.resources import (
    desired_client_route,
    desired_dashboard_route,
    desired_proxy_service,
    desired_proxy_service_account,
)
from cfo.controllers.raycluster.secrets import secret_informer
from cfo.controllers.raycluster.watches import (
    CHILD_CHANGED,
    CREATED_OR_DELETED,
    HEAD_PODS,
    LABELED,
)
from cfo.runtime import (
    CRUD,
    POD,
    READ,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Controller,
    EnqueueRequestForOwner,
    EnqueueRequestsFromMapFunc,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Reader,
    Request,
    Rule,
    is_deleting,
    key_of,
    namespace_of,
    on_update,
    set_finalizer,
    uid_of,
)
from cfo.runtime.controller import Kind
from cfo.runtime.objects import CLUSTER_ROLE_BINDING


class ProxyInformers(NamedTuple):
    """Informers of the Services and ServiceAccounts with a cluster label."""

    services: Informer
    accounts: Informer


class OpenShiftInformers(NamedTuple):
    """Informers of Routes with a cluster label and, if OAuth is enabled, of head pods."""

    routes: Informer
    pods: HeadPods | None


_FORBIDDEN_RETRY_SECONDS = 60.0
"""How long a reconcile waits for a role that is not installed."""

_PROXIES = (Authentication.OAUTH_PROXY, Authentication.AUTH_PROXY)


class DashboardProxies(ClusterConcern):
    """Creates, updates and deletes the objects that the OAuth proxy of one cluster needs."""

    name = "raycluster-oauth"
    proxy_rules = (
        Rule("ray.io", "rayclusters", (*READ, "patch")),
        Rule("", ("secrets", "services", "serviceaccounts"), (*READ, "create", "patch", "delete")),
        Rule(
            "rbac.authorization.k8s.io", "clusterrolebindings", (*READ, "create", "patch", "delete")
        ),
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
        self, manager: Manager, config: KubeRayConfiguration, environment: Environment
    ) -> None:
        super().__init__(manager, config, environment)
        self._finalizer_client = self._client.with_field_manager(FINALIZER_MANAGER)
        secrets, cache = self.own(secret_informer(manager)).reader, manager.cache
        self._secrets = ProxySecrets(self._client, config.authentication, secrets, self._clock)
        self._bound = cache.informer(CLUSTER_ROLE_BINDING)
        self.required.append(self._bound)
        self._bindings = ProxyBindings(self._client, self._bound, self.clusters)
        self._head_pods = HeadPodReplacer(self._clock)
        self._recorded: dict[Request, tuple[str, str]] = {}
        self._is_required = ProfileTable(config).strictest().kuberay.ray_dashboard_oauth_enabled
        self._openshift: OpenShiftInformers | None = None
        """``None`` until Routes are served."""
        self._proxy: ProxyInformers | None = None
        """``None`` while no RayCluster can have a proxy: Routes are not served, and the operator has no own proxies."""
        self._oidc_secrets: Informer | None = None
        """The metadata of the Secrets with the OIDC client."""
        authentication = config.authentication
        if self._is_required and authentication.enabled:
            services = self.own(cache.informer(SERVICE, **LABELED), CHILD_CHANGED)
            self._proxy = ProxyInformers(
                services, self.own(cache.informer(SERVICE_ACCOUNT, **LABELED))
            )
            if authentication.oidc is not None:
                named = f"metadata.name={authentication.oidc.secret_name}"
                self._oidc_secrets = cache.informer(
                    SECRET, field_selector=named, metadata_only=True, max_bytes=MAX_CACHED_BYTES
                )
                self.required.append(self._oidc_secrets)

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with ClusterRoleBindings, Secrets of OIDC clients and, once served, Routes."""
        mapper, clusters_of = (
            self._manager.mapper,
            EnqueueRequestsFromMapFunc(self._bindings.clusters_of),
        )
        controller.watch(
            Kind(self._bound, clusters_of, CHILD_CHANGED, mapper=mapper, optional=True)
        )
        if self._oidc_secrets is not None:
            in_namespace = EnqueueRequestsFromMapFunc(
                lambda secret: [entry.key for entry in self.clusters.entries(secret.key.namespace)]
            )
            source = Kind(
                self._oidc_secrets, in_namespace, CREATED_OR_DELETED, mapper=mapper, optional=True
            )
            controller.watch(source)
        self._environment.routes.when_served(
            lambda routes: self._watch_openshift(controller, routes)
        )

    def _watch_openshift(self, controller: Controller, routes: Informer) -> None:
        """Create the informers of OpenShift's objects, and feed ``controller`` with their events."""
        cache, mapper = self._manager.cache, self._manager.mapper
        owner = EnqueueRequestForOwner(RAY_CLUSTER)
        self._proxy = ProxyInformers(
            cache.informer(SERVICE, **LABELED), cache.informer(SERVICE_ACCOUNT, **LABELED)
        )
        pods = None
        if self._is_required:
            pods = HeadPods(cache.informer(POD, **HEAD_PODS))
            clusters_of = EnqueueRequestsFromMapFunc(
                lambda pod: clusters_of_pod(self.clusters, pod)
            )
            deletion_began = on_update(
                lambda old, new: old.meta.is_deleting != new.meta.is_deleting
            )
            controller.watch(
                Kind(pods.informer, clusters_of, deletion_began, mapper=mapper, optional=True)
            )
        controller.watch(Kind(routes, owner, CHILD_CHANGED, mapper=mapper, optional=True))
        controller.watch(
            Kind(self._proxy.services, owner, CHILD_CHANGED, mapper=mapper, optional=True)
        )
        controller.watch(Kind(self._proxy.accounts, owner, mapper=mapper, optional=True))
        self._openshift = OpenShiftInformers(routes, pods)

    def _await_openshift(self, children: Children, *, is_required: bool) -> bool:
        """Return whether what OpenShift's proxy needs is not listed yet, and retry then; ``is_required``: it exists."""
        if self._openshift is None:
            children.retry(SYNC_RETRY_SECONDS)
            return True
        pods = self._openshift.pods
        informers = [
            self._openshift.routes,
            *(self._proxy or ()),
            *([pods.informer] if pods is not None else []),
        ]
        unlisted = [informer for informer in informers if not informer.has_synced]
        forbidden = sorted({informer.gvk.kind for informer in unlisted if informer.is_forbidden})
        if forbidden and is_required:
            children.record_warning("MissingRole", _MISSING_ROLE.format(kinds=", ".join(forbidden)))
        if unlisted:
            children.retry(_FORBIDDEN_RETRY_SECONDS if forbidden else SYNC_RETRY_SECONDS)
        return bool(unlisted)

    async def release(self, request: Request, children: Children | None) -> None:
        """Delete the ClusterRoleBindings of a cluster, then its finalizer; the rest is garbage-collected."""
        self._secrets.forget(request)
        self._recorded.pop(request, None)
        if children is None:
            await self._bindings.collect(request)
            return
        self._head_pods.forget(children.cluster)
        await self._release(children)

    async def reconcile(self, children: Children, cluster: ObservedCluster) -> None:
        """Bring the objects of one cluster's proxy up to date."""
        is_openshift = await self._environment.platform.is_openshift()
        exposure, settings = await cluster.exposure(), cluster.settings
        is_required = settings.kuberay.ray_dashboard_oauth_enabled
        if is_openshift and self._await_openshift(children, is_required=is_required):
            return
        openshift = self._openshift
        required = settings.kuberay.ray_dashboard_oauth_enabled
        key, recorded = key_of(children.cluster), (uid_of(children.cluster), exposure.message)
        is_new = self._recorded.get(key) != recorded
        if exposure.message:
            self._recorded[key] = recorded
        else:
            self._recorded.pop(key, None)
        _record_authentication(
            children, exposure, settings, has_routes=openshift is not None, is_new=is_new
        )
        _record_missing_client(
            children, exposure, self._config.authentication.oidc, self._oidc_secrets
        )
        by_openshift = (
            exposure.authentication is Authentication.OAUTH_PROXY and openshift is not None
        )
        is_proxied = by_openshift or exposure.authentication is Authentication.AUTH_PROXY
        if is_proxied and exposure.backend is not None and self._proxy is not None:
            await self._create_or_update(
                children, self._proxy, exposure.route_backend, by_openshift=by_openshift
            )
        else:
            await self._delete(children, exposure.route_backend if required else None)

    async def _create_or_update(
        self,
        children: Children,
        proxy: ProxyInformers,
        backend: Backend | None,
        *,
        by_openshift: bool,
    ) -> None:
        """Write the objects of the proxies; retry when the certificate of the operator's own is due for renewal.

        Head pods that started before the objects of OpenShift's proxy existed are replaced.
        """
        facts, openshift = children.facts, self._openshift
        if not await self._may_write(facts.cluster):
            return
        account = desired_proxy_service_account(facts, openshift_client=by_openshift)
        service = desired_proxy_service(facts, openshift_certificate=by_openshift)
        name, ability = (
            ("the OAuth proxy", "log users in") if by_openshift else ("the proxies", "check tokens")
        )
        await children.claim_and_apply(account, proxy.accounts.reader, f"{name} cannot {ability}")
        consequence = f"the dashboard is not reachable through {name}"
        await children.claim_and_apply(service, proxy.services.reader, consequence)
        if by_openshift:
            await self._secrets.delete_certificate(
                children
            )  # OpenShift issues one of the same name
            await self._secrets.write_cookie(children)
        else:
            await self._secrets.write_config(children)
            await self._secrets.write_certificate(children)
        await self._bindings.create_or_update(children)
        destination_ca = "" if by_openshift else self._secrets.certificate_ca(facts)
        if openshift is not None and (by_openshift or destination_ca):
            await self._write_routes(children, openshift.routes.reader, backend, destination_ca)
        if openshift is not None and by_openshift:
            await self._head_pods.replace(children, proxy.accounts.reader, openshift.pods)

    async def _may_write(self, cluster: Object) -> bool:
        """Set the finalizer; return whether the proxy's objects may be written: the cluster exists and may run."""
        stored = await set_finalizer(self._finalizer_client, cluster, FINALIZER, present=True)
        return stored is not None and not is_deleting(stored) and not is_suspended(stored)

    async def _write_routes(
        self, children: Children, routes: Reader, backend: Backend | None, destination_ca: str = ""
    ) -> None:
        """Write the Routes; delete them if there is no ``backend``: the operator does not expose the cluster."""
        facts, names = children.facts, children.facts.names
        if backend is None:
            for name in (names.dashboard, names.client):
                await children.delete(ROUTE, routes.get(NamespacedName(names.namespace, name)))
            return
        route = desired_dashboard_route(facts, backend, destination_ca)
        await children.claim_and_apply(route, routes, "the dashboard has no Route")
        await children.claim_and_apply(
            desired_client_route(facts), routes, "the Ray client has no Route"
        )

    async def _delete(self, children: Children, backend: Backend | None) -> None:
        """Delete the proxy's objects; on OpenShift, Routes remain if ``backend`` authenticates users itself."""
        names, namespace = children.facts.names, children.facts.names.namespace
        if self._openshift is not None and (backend is None or not children.facts.is_suspended):
            await self._write_routes(children, self._openshift.routes.reader, backend)
        if self._proxy is not None:
            services, accounts = (informer.reader for informer in self._proxy)
            await children.delete(
                SERVICE, services.get(NamespacedName(namespace, names.proxy_service))
            )
            account = NamespacedName(namespace, names.proxy_service_account)
            await children.delete(SERVICE_ACCOUNT, accounts.get(account))
        await self._secrets.delete_cookie(children)
        await self._secrets.delete_certificate(children)
        await self._release(children)

    async def _release(self, children: Children) -> None:
        """Delete the cluster's ClusterRoleBindings, regardless of their names, then remove the finalizer."""
        cluster = children.cluster
        await self._bindings.delete(children)
        if not children.errors:
            await set_finalizer(self._finalizer_client, cluster, FINALIZER, present=False)


def _record_authentication(
    children: Children,
    exposure: Exposure,
    settings: NamespaceSettings,
    *,
    has_routes: bool,
    is_new: bool,
) -> None:
    """Record who authenticates users and, where ``has_routes`` are served, who exposes the cluster.

    Why a dashboard is not exposed is recorded only if the reason ``is_new``, not in every reconcile.
    """
    features = settings.kuberay.kuberay_features
    if exposure.reason and is_new:
        children.record_warning(exposure.reason, exposure.message)
    if not settings.kuberay.ray_dashboard_oauth_enabled:
        return
    is_proxied = exposure.authentication in _PROXIES
    actor = record_responsibility(
        children, Concern.AUTHENTICATION, features, "OAuth proxy" if is_proxied else ""
    )
    if has_routes and exposure.authentication is not Authentication.OTHER:
        record_responsibility(children, Concern.EXPOSURE, features, "exposure")
    is_overridden = is_proxied and actor is Actor.OPERATOR and children.facts.uses_kuberay_auth
    if is_overridden and "authOptions" in features:
        children.record_warning("RayTokenDisabled", _RAY_AUTH_MODE_OVERRIDDEN)


def _record_missing_client(
    children: Children, exposure: Exposure, oidc: OIDCConfiguration | None, secrets: Informer | None
) -> None:
    """Record that the Secret with the OIDC client does not exist; ``secrets``: those with its name."""
    if exposure.authentication is not Authentication.AUTH_PROXY or oidc is None or secrets is None:
        return
    key = NamespacedName(namespace_of(children.cluster), oidc.secret_name)
    if secrets.has_synced and not secrets.reader.contains(key):
        children.record_warning(
            "OIDCSecretMissing", _OIDC_CLIENT_MISSING.format(name=oidc.secret_name)
        )


_MISSING_ROLE = (
    "The operator is not allowed to list {kinds}, so it does not create what the OAuth proxy needs, and the head pod "
    "cannot start. Ask the administrator to install the role openshift (cfo manifests --with openshift)"
)
_RAY_AUTH_MODE_OVERRIDDEN = (
    "The RayCluster sets spec.authOptions, but RAY_AUTH_MODE in the head's pod template disables Ray's tokens: the "
    "operator's own OAuth proxy stays active. Remove the variable"
)
_OIDC_CLIENT_MISSING = (
    "The Secret {name} with client-id and client-secret, which the login in the browser needs, does not exist in this "
    "namespace: the head pod cannot start. Ask the administrator to create it"
)
