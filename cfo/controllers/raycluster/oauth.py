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

from functools import partial

import msgspec

from cfo.api.raycluster.addresses import route_refusal
from cfo.api.raycluster.conditions import EXPOSED, MISSING_ROLE
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import FINALIZER, RAY_CLUSTER, ROUTE
from cfo.api.reading import path, text
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings, ProfileTable
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.left_out import known_keys
from cfo.controllers.raycluster.auth_proxy import ProxySecrets
from cfo.controllers.raycluster.concern import (
    SYNC_RETRY_SECONDS,
    ClusterConcern,
    Decision,
    ObservedCluster,
    belongs_to,
)
from cfo.controllers.raycluster.dashboard_access import Authentication, Backend, Exposure
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.head_pods import HeadPods, clusters_of_pod
from cfo.controllers.raycluster.proxy_bindings import ProxyBindings
from cfo.controllers.raycluster.pull_secrets import HeadPodReplacer
from cfo.controllers.raycluster.resources import (
    desired_client_route,
    desired_dashboard_route,
    desired_proxy_service,
    desired_proxy_service_account,
)
from cfo.controllers.raycluster.responsibility import find_actor
from cfo.controllers.raycluster.secrets import secret_informer
from cfo.controllers.raycluster.watches import (
    CHILD_CHANGED,
    CREATED_OR_DELETED,
    HEAD_PODS,
    LABELED,
    OPENSHIFT_ROUTE_CHANGED,
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
    Forbidden,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Request,
    Rule,
    has_finalizer,
    key_of,
    namespace_of,
    on_update,
    uid_of,
)
from cfo.runtime.client import ChildResults
from cfo.runtime.controller import Kind
from cfo.runtime.objects import CLUSTER_ROLE_BINDING


class ProxyInformers(msgspec.Struct, frozen=True):
    """Informers of the Services and ServiceAccounts with a cluster label."""

    services: Informer
    accounts: Informer


class OpenShiftInformers(msgspec.Struct, frozen=True):
    """Informers of Routes with a cluster label and, if OAuth is enabled, of head pods."""

    routes: Informer
    pods: HeadPods | None


_MAX_HOST = 253
_FORBIDDEN_RETRY_SECONDS = 60.0
"""How long a reconcile waits for a role that is not installed."""

_PROXIES = (Authentication.OAUTH_PROXY, Authentication.AUTH_PROXY)


class FoundProxy(msgspec.Struct, frozen=True):
    """The platform, and the decision about the dashboard of a RayCluster."""

    is_openshift: bool
    exposure: Exposure


class DashboardProxies(ClusterConcern[FoundProxy]):
    """Creates, updates and deletes the objects that the OAuth proxy of one cluster needs."""

    name = "raycluster-oauth"
    condition = EXPOSED
    component = "authentication"
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
        self, manager: Manager, config: KubeRayConfiguration, environment: ClusterEnvironment
    ) -> None:
        super().__init__(manager, config, environment)
        cache = manager.cache
        secrets = self.own(secret_informer(manager)).reader
        self._secrets = ProxySecrets(config.authentication, secrets, self._clock)
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

    def applies_to(self, cluster: ObservedCluster) -> bool:
        """Return whether the RayCluster has, or should have, proxies."""
        is_required = cluster.settings.kuberay.ray_dashboard_oauth_enabled
        return is_required or has_finalizer(cluster.object, FINALIZER)

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with ClusterRoleBindings, Secrets of OIDC clients and, once served, Routes."""
        mapper = self._manager.mapper
        clusters_of = EnqueueRequestsFromMapFunc(self._bindings.clusters_of)
        controller.watch(
            Kind(self._bound, clusters_of, CHILD_CHANGED, mapper=mapper, optional=True)
        )
        if self._oidc_secrets is not None:
            in_namespace = EnqueueRequestsFromMapFunc(
                lambda secret: known_keys(self.clusters, secret.key.namespace)
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
        cache = self._manager.cache
        mapper = self._manager.mapper
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
        controller.watch(Kind(routes, owner, OPENSHIFT_ROUTE_CHANGED, mapper=mapper, optional=True))
        controller.watch(
            Kind(self._proxy.services, owner, CHILD_CHANGED, mapper=mapper, optional=True)
        )
        controller.watch(Kind(self._proxy.accounts, owner, mapper=mapper, optional=True))
        self._openshift = OpenShiftInformers(routes, pods)

    def _awaits_openshift(self, decision: Decision, *, is_required: bool) -> bool:
        """Return whether what OpenShift's proxy needs is not listed yet, and retry then; ``is_required``: it exists."""
        if self._openshift is None:
            decision.retry(SYNC_RETRY_SECONDS)
            return True
        informers = [self._openshift.routes]
        if self._proxy is not None:
            informers += [self._proxy.services, self._proxy.accounts]
        if self._openshift.pods is not None:
            informers.append(self._openshift.pods.informer)
        unlisted = [informer for informer in informers if not informer.has_synced]
        forbidden = sorted({informer.gvk.kind for informer in unlisted if informer.is_forbidden})
        if forbidden and is_required:
            decision.warn(MISSING_ROLE, _MISSING_ROLE.format(kinds=", ".join(forbidden)))
        if unlisted:
            decision.retry(_FORBIDDEN_RETRY_SECONDS if forbidden else SYNC_RETRY_SECONDS)
        return bool(unlisted)

    def forget(self, request: Request) -> None:
        """Forget the Secrets and the Events of a cluster."""
        self._secrets.forget(request)
        self._head_pods.forget(request)
        self._recorded.pop(request, None)

    async def collect(self, request: Request) -> None:
        """Delete the ClusterRoleBindings of a cluster that no longer exists."""
        await self._bindings.collect(request)

    def decide_release(self, cluster: Object) -> Decision:
        """Delete the ClusterRoleBindings of a cluster, then its finalizer; the rest is garbage-collected."""
        self._head_pods.forget(key_of(cluster))
        decision = Decision(cluster=cluster)
        self._release(decision)
        return decision

    async def observe(self, cluster: ObservedCluster) -> FoundProxy:
        """Return the platform and the decision about the dashboard."""
        is_openshift = await self._environment.platform.is_openshift()
        return FoundProxy(is_openshift, await cluster.exposure())

    def decide(self, cluster: ObservedCluster, found: FoundProxy) -> Decision:
        """Return the objects of one cluster's proxy."""
        facts = cluster.facts
        exposure = found.exposure
        decision = Decision(cluster=facts.cluster)
        is_required = cluster.settings.kuberay.ray_dashboard_oauth_enabled
        if found.is_openshift and self._awaits_openshift(decision, is_required=is_required):
            return decision
        has_routes = self._openshift is not None
        _record_authentication(
            decision,
            facts,
            exposure,
            cluster.settings,
            has_routes=has_routes,
            is_new=self._is_new(facts.cluster, exposure),
        )
        self._record_missing_client(decision, exposure)
        by_openshift = exposure.authentication is Authentication.OAUTH_PROXY and has_routes
        is_proxied = by_openshift or exposure.authentication is Authentication.AUTH_PROXY
        if is_proxied and exposure.backend is not None and self._proxy is not None:
            self._create_or_update(
                decision, facts, exposure.route_backend, by_openshift=by_openshift
            )
        else:
            self._delete(decision, facts, exposure.route_backend if is_required else None)
        return decision

    def _is_new(self, cluster: Object, exposure: Exposure) -> bool:
        """Return whether the reason why a dashboard is not exposed was not reported yet."""
        key = key_of(cluster)
        recorded = (uid_of(cluster), exposure.message)
        is_new = self._recorded.get(key) != recorded
        if exposure.message:
            self._recorded[key] = recorded
        else:
            self._recorded.pop(key, None)
        return is_new

    def _create_or_update(
        self,
        decision: Decision,
        facts: RayClusterFacts,
        backend: Backend | None,
        *,
        by_openshift: bool,
    ) -> None:
        """Add the objects of the proxies; retry when the certificate of the operator's own is due for renewal."""
        decision.needs_finalizer = True
        on_openshift = self._openshift is not None
        name = "the OAuth proxy" if by_openshift else "the proxies"
        ability = "log users in" if by_openshift else "check tokens"
        decision.add_present(
            desired_proxy_service_account(facts, openshift_client=by_openshift),
            consequence=f"{name} cannot {ability}",
        )
        decision.add_present(
            desired_proxy_service(
                facts, is_oauth_proxy=by_openshift, openshift_certificate=on_openshift
            ),
            consequence=f"the dashboard is not reachable through {name}",
        )
        if on_openshift:
            self._secrets.delete_certificate(decision, facts)  # OpenShift issues one of this name
        else:
            self._secrets.decide_certificate(decision, facts)
        if by_openshift:
            self._secrets.decide_cookie(decision, facts)
        else:
            self._secrets.decide_config(decision, facts)
        self._bindings.decide(decision, facts)
        decision.decide_next = partial(self._conclude, facts, backend, by_openshift)

    def _conclude(
        self,
        facts: RayClusterFacts,
        backend: Backend | None,
        by_openshift: bool,
        results: ChildResults,
    ) -> Decision:
        """Return the Routes, and the head pods that have to be replaced.

        Head pods that started before the objects of OpenShift's proxy existed are replaced.
        """
        decision = Decision(cluster=facts.cluster)
        self._secrets.remember(facts, results, decision)
        if self._openshift is None:
            return decision
        self._write_routes(decision, facts, backend)
        if by_openshift and self._openshift.pods is not None and self._proxy is not None:
            self._head_pods.decide(
                decision, facts, self._proxy.accounts.reader, self._openshift.pods
            )
        return decision

    def _write_routes(
        self, decision: Decision, facts: RayClusterFacts, backend: Backend | None
    ) -> None:
        """Add the Routes; delete them if there is no ``backend``: the operator does not expose the cluster."""
        names = facts.names
        if backend is None:
            for name in (names.dashboard, names.client):
                decision.add_absent(ROUTE, NamespacedName(names.namespace, name))
            return
        decision.add_present(
            desired_dashboard_route(facts, backend),
            consequence="the dashboard has no Route",
            can_wait=True,
        )
        decision.add_present(
            desired_client_route(facts), consequence="the Ray client has no Route", can_wait=True
        )
        for name in (names.dashboard, names.client):
            self._record_refusal(decision, NamespacedName(names.namespace, name))

    def _record_refusal(self, decision: Decision, key: NamespacedName) -> None:
        """Record that no router serves a Route of the RayCluster, usually because another Route has its host."""
        assert self._openshift is not None
        route = self._openshift.routes.reader.get(key)
        if route is None or not belongs_to(route, decision.cluster):
            return
        refusal = route_refusal(path(route, "status", "ingress"))
        if refusal:
            message = f"No router serves Route {key.name}: {refusal}"
            decision.warn("HostTaken", message, text(path(route, "spec", "host"), _MAX_HOST))

    def _delete(self, decision: Decision, facts: RayClusterFacts, backend: Backend | None) -> None:
        """Delete the proxy's objects; on OpenShift, Routes remain if ``backend`` authenticates users itself."""
        names = facts.names
        if self._openshift is not None and (backend is None or not facts.is_suspended):
            self._write_routes(decision, facts, backend)
        if self._proxy is not None:
            service = NamespacedName(names.namespace, names.proxy_service)
            account = NamespacedName(names.namespace, names.proxy_service_account)
            decision.add_absent(SERVICE, service)
            decision.add_absent(SERVICE_ACCOUNT, account)
        self._secrets.delete_cookie(decision, facts)
        self._secrets.delete_certificate(decision, facts)
        self._release(decision)

    def _release(self, decision: Decision) -> None:
        """Delete the cluster's ClusterRoleBindings, regardless of their names, then remove the finalizer."""
        self._bindings.delete(decision)
        decision.removes_finalizer = True
        decision.decide_next = partial(_report_forbidden_release, decision.cluster)

    def _record_missing_client(self, decision: Decision, exposure: Exposure) -> None:
        """Record that the Secret with the OIDC client does not exist."""
        oidc = self._config.authentication.oidc
        secrets = self._oidc_secrets
        if exposure.authentication is not Authentication.AUTH_PROXY:
            return
        if oidc is None or secrets is None or not secrets.has_synced:
            return
        key = NamespacedName(namespace_of(decision.cluster), oidc.secret_name)
        if not secrets.reader.contains(key):
            message = _OIDC_CLIENT_MISSING.format(name=oidc.secret_name)
            decision.warn("OIDCSecretMissing", message)


def _report_forbidden_release(cluster: Object, results: ChildResults) -> Decision | None:
    """Record that a ClusterRoleBinding cannot be deleted, for which the finalizer waits, without the optional role."""
    for result in results:
        if result.child.gvk == CLUSTER_ROLE_BINDING and isinstance(result.error, Forbidden):
            decision = Decision(cluster=cluster)
            decision.warn(MISSING_ROLE, _RELEASE_FORBIDDEN.format(name=result.child.key.name))
            return decision
    return None


def _record_authentication(
    decision: Decision,
    facts: RayClusterFacts,
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
        decision.warn(exposure.reason, exposure.message)
    if not settings.kuberay.ray_dashboard_oauth_enabled:
        return
    is_proxied = exposure.authentication in _PROXIES
    kept = "OAuth proxy" if is_proxied else ""
    actor = find_actor(decision, facts, Concern.AUTHENTICATION, features, kept)
    if has_routes and exposure.authentication is not Authentication.OTHER:
        find_actor(decision, facts, Concern.EXPOSURE, features, "exposure")
    is_overridden = is_proxied and actor is Actor.OPERATOR and facts.uses_kuberay_auth
    if is_overridden and "authOptions" in features:
        decision.warn("RayTokenDisabled", _RAY_AUTH_MODE_OVERRIDDEN)


_MISSING_ROLE = (
    "The operator is not allowed to list {kinds}, so it does not create what the OAuth proxy needs, and the head pod "
    "cannot start. Ask the administrator to install the role openshift (cfo doctor prints the command)"
)
_RELEASE_FORBIDDEN = (
    "The operator is not allowed to delete the ClusterRoleBinding {name}, so the finalizer of the RayCluster stays. "
    "Ask the administrator to install the role authentication (cfo doctor prints the command)"
)
_RAY_AUTH_MODE_OVERRIDDEN = (
    "The RayCluster sets spec.authOptions, but RAY_AUTH_MODE in the head's pod template disables Ray's tokens: the "
    "operator's own OAuth proxy stays active. Remove the variable"
)
_OIDC_CLIENT_MISSING = (
    "The Secret {name} with client-id and client-secret, which the login in the browser needs, does not exist in this "
    "namespace: the head pod cannot start. Ask the administrator to create it"
)
