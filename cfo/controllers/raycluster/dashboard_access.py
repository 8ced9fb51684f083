"""Decides, for all controllers, who authenticates the users of a dashboard and what exposes it: its exposure.

Everything that exposes a dashboard (a Route, an Ingress or an HTTPRoute) asks :class:`DashboardAccess` and decides
nothing of its own, so that no dashboard is reachable in two ways of which only one authenticates. Two pure functions,
:func:`authentication_of` and :func:`dashboard_backend`, decide from the RayCluster and the configuration. The class
adds what can only be observed: the platform, and whether the running head pods require Ray's token. KubeRay does not
change running pods when ``authOptions`` changes, so a RayCluster that requests tokens is not exposed while one of its
head pods has none.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from cfo.api.raycluster.cluster import requires_ray_token
from cfo.api.raycluster.facts import Actor, Concern, RayClusterFacts
from cfo.api.raycluster.names import CLUSTER_LABEL
from cfo.api.raycluster.ports import PROXY_PORT_NAME
from cfo.config.kuberay import KubeRayConfiguration, NamespaceSettings, ProfileTable
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.controllers.left_out import all_keys
from cfo.controllers.raycluster.head_pods import HeadPods, clusters_of_pod
from cfo.controllers.raycluster.platform import Platform
from cfo.controllers.raycluster.watches import CREATED_OR_DELETED, HEAD_PODS
from cfo.runtime import (
    POD,
    Controller,
    DiscoveryIncomplete,
    EnqueueRequestsFromMapFunc,
    Informer,
    Manager,
    Rule,
)
from cfo.runtime.controller import Kind
from cfo.runtime.manager import SelectionKeywords

_DASHBOARD_PORT_NAME: Final = "dashboard"
_PROXY_SERVICE_PORT: Final = 443


class Authentication(Enum):
    """Who authenticates the users of one RayCluster's dashboard and job API."""

    OAUTH_PROXY = auto()
    """OpenShift's oauth-proxy in the head pod."""
    AUTH_PROXY = auto()
    """oauth2-proxy and kube-rbac-proxy in the head pod, which ``kuberay.authentication`` configures."""
    RAY_TOKEN = auto()
    """Ray itself: KubeRay's ``authOptions.mode: token``."""
    DISABLED = auto()
    """No one: the configuration disables OAuth."""
    OTHER = auto()
    """Another actor (:mod:`cfo.api.raycluster.facts`), which exposes the dashboard as well."""
    UNAVAILABLE = auto()
    """No one, although the configuration requires it: the dashboard must not be exposed."""


class Backend(msgspec.Struct, frozen=True):
    """The Service and port that a Route, an Ingress or an HTTPRoute of the dashboard targets.

    ``port`` is the number and ``port_name`` the name of the same port of the Service. ``tls``: whether the port serves
    HTTPS, with a certificate for the Service's DNS name.
    """

    service: str
    port: int
    port_name: str
    tls: bool


class Exposure(msgspec.Struct, frozen=True):
    """Who authenticates the users of one RayCluster's dashboard, and what exposes it.

    ``backend`` is where the dashboard is reachable; ``None`` if it must not be exposed at all. ``is_by_operator`` is
    whether the operator is responsible: no other actor is, and the cluster has what the profile of its namespace
    enforces.
    ``reason`` and ``message`` are those of the Warning Event that explains this; empty if it needs no explanation.
    ``head_requires_token`` is whether a head pod runs, and requires Ray's token.
    """

    authentication: Authentication
    backend: Backend | None
    reason: str = ""
    message: str = ""
    head_requires_token: bool = False
    is_by_operator: bool = True

    @property
    def route_backend(self) -> Backend | None:
        """What the operator's own Route, Ingress or HTTPRoute targets; ``None`` if there must be none."""
        return self.backend if self.is_by_operator else None


_AUTH_OPTIONS: Final = "authOptions"
"""The feature of KubeRay with which Ray requires a token."""


def _trusts_ray_tokens(config: KubeRayConfiguration) -> bool:
    return _AUTH_OPTIONS in config.kuberay_features


def ingress_selection(config: KubeRayConfiguration) -> SelectionKeywords:
    """Return which Ingresses are watched.

    If the operator may create some, all of them, because any of them may use the host. Otherwise only those with the
    cluster label, which are deleted.
    """
    label_selector = "" if may_expose(config) else CLUSTER_LABEL
    return {"label_selector": label_selector, "max_bytes": MAX_CACHED_BYTES}


def may_expose(config: KubeRayConfiguration) -> bool:
    """Return whether the configuration can expose a dashboard on vanilla Kubernetes."""
    return (
        not config.ray_dashboard_oauth_enabled
        or config.authentication.enabled
        or _trusts_ray_tokens(config)
    )


def authentication_of(
    facts: RayClusterFacts,
    *,
    required: bool,
    openshift_oauth: bool,
    auth_proxy: bool,
    ray_token: bool,
) -> Authentication:
    """Return who authenticates the users of the dashboard of a RayCluster.

    ``required``: ``kuberay.rayDashboardOAuthEnabled``. ``openshift_oauth``: the cluster is OpenShift, and its own OAuth
    server logs users in. ``auth_proxy``: ``kuberay.authentication`` is configured. ``ray_token``: KubeRay is known to
    act on ``authOptions``.
    """
    if not required:
        return Authentication.DISABLED
    if ray_token and facts.requests_ray_token:
        return Authentication.RAY_TOKEN
    if auth_proxy:
        return Authentication.AUTH_PROXY
    return Authentication.OAUTH_PROXY if openshift_oauth else Authentication.UNAVAILABLE


def dashboard_backend(facts: RayClusterFacts, authentication: Authentication) -> Backend | None:
    """Return what exposes the dashboard of a RayCluster; ``None`` if it must not be exposed.

    A cluster that was created before ``kuberay.authentication`` was enabled has no proxy that could authenticate.
    """
    match authentication:
        case Authentication.AUTH_PROXY if not facts.has_injected_auth_proxy:
            return None
        case Authentication.OAUTH_PROXY | Authentication.AUTH_PROXY:
            return Backend(
                facts.names.proxy_service, _PROXY_SERVICE_PORT, PROXY_PORT_NAME, tls=True
            )
        case Authentication.RAY_TOKEN | Authentication.DISABLED:
            return Backend(
                facts.head_service,
                facts.ports.service_port("dashboard"),
                _DASHBOARD_PORT_NAME,
                tls=False,
            )
        case Authentication.OTHER | Authentication.UNAVAILABLE:
            return None


class DashboardAccess:
    """Decides about dashboards. ``head_pods`` is ``None`` if the configuration does not trust Ray's tokens."""

    rules = (Rule("", "pods", ("list", "watch")),)
    """The permissions to watch head pods, which only Ray's tokens need."""

    def __init__(self, platform: Platform, head_pods: HeadPods | None) -> None:
        self._platform = platform
        self._head_pods = head_pods

    @classmethod
    def create(cls, manager: Manager, config: KubeRayConfiguration, platform: Platform) -> Self:
        """Create the informer of head pods with ``manager``, if the configuration trusts Ray's tokens."""
        strictest = ProfileTable(config).strictest().kuberay
        needs_pods = strictest.ray_dashboard_oauth_enabled and _trusts_ray_tokens(strictest)
        head_pods = HeadPods(manager.cache.informer(POD, **HEAD_PODS)) if needs_pods else None
        return cls(platform, head_pods)

    def subscribe(self, manager: Manager, controller: Controller, clusters: Informer) -> None:
        """Feed ``controller`` with the RayClusters whose exposure may have changed.

        ``clusters`` has the index of :mod:`~cfo.controllers.raycluster.watches`.
        """
        enqueue_all = EnqueueRequestsFromMapFunc(lambda _: all_keys(clusters))
        self._platform.authentication.subscribe(controller, enqueue_all)
        if self._head_pods is not None:
            clusters_of = EnqueueRequestsFromMapFunc(
                lambda pod: clusters_of_pod(clusters.reader, pod)
            )
            source = Kind(
                self._head_pods.informer,
                clusters_of,
                CREATED_OR_DELETED,
                mapper=manager.mapper,
                optional=True,
            )
            controller.watch(source)

    async def exposure_of(self, facts: RayClusterFacts, settings: NamespaceSettings) -> Exposure:
        """Return the exposure of a cluster, whose namespace has ``settings``.

        Raises :class:`~cfo.runtime.DiscoveryIncomplete` while the platform, or the head pods that have to be
        checked, are unknown.
        """
        features = settings.kuberay.kuberay_features
        if facts.actor(Concern.AUTHENTICATION, features) in (Actor.OPEN_DATA_HUB, Actor.MULTIKUEUE):
            # They authenticate by means of their own, which the RayCluster does not show.
            return Exposure(Authentication.OTHER, None, is_by_operator=False)
        exposure = await self._exposure_by(facts, settings.kuberay)
        enforced = frozenset(map(Concern, settings.enforced))
        is_ours = facts.actor(Concern.EXPOSURE, features) is Actor.OPERATOR
        is_by_operator = is_ours and not facts.lacks_tls(enforced, features)
        return replace(exposure, is_by_operator=is_by_operator)

    async def _exposure_by(self, facts: RayClusterFacts, config: KubeRayConfiguration) -> Exposure:
        """Return the exposure of a cluster whose users are authenticated by Ray, by a proxy or not at all."""
        authentication = authentication_of(
            facts,
            required=config.ray_dashboard_oauth_enabled,
            openshift_oauth=await self._platform.has_oauth_server(),
            auth_proxy=config.authentication.enabled,
            ray_token=_trusts_ray_tokens(config),
        )
        backend = dashboard_backend(facts, authentication)
        match authentication:
            case Authentication.UNAVAILABLE:
                openshift = await self._platform.is_openshift()
                message = _UNAVAILABLE.format(cause=_EXTERNAL_LOGIN if openshift else _NO_OPENSHIFT)
                if not openshift and not config.ingress_domain:
                    message += _DOMAIN_MISSING
                return Exposure(authentication, None, "OAuthUnavailable", message)
            case Authentication.AUTH_PROXY if backend is None:
                return Exposure(authentication, None, "AuthenticationProxyMissing", _PROXY_MISSING)
            case Authentication.RAY_TOKEN:
                return self._exposure_by_ray(facts, backend)
        return Exposure(authentication, backend)

    def _exposure_by_ray(self, facts: RayClusterFacts, backend: Backend | None) -> Exposure:
        """Return the exposure of a cluster that requests tokens: none while a head pod does not require them."""
        authentication = Authentication.RAY_TOKEN
        # Without head pods the configuration trusts no tokens, so the first condition only guards against a mistake.
        if self._head_pods is None or self._head_pods.informer.is_forbidden:
            return Exposure(authentication, None, "RayTokenUnverified", _HEADS_UNKNOWN)
        if not self._head_pods.informer.has_synced:
            raise DiscoveryIncomplete("head pods are not listed yet")
        if not self._head_pods.are_known(facts.cluster):
            return Exposure(authentication, None, "RayTokenUnverified", _HEADS_TOO_LARGE)
        pods = self._head_pods.of(facts.cluster)
        for entry in pods:
            pod = entry.object()
            if not requires_ray_token(pod.get("spec") or {}):
                message = _RUNNING_WITHOUT.format(pod=entry.name)
                return Exposure(authentication, None, "RayTokenNotRequired", message)
        return Exposure(authentication, backend, head_requires_token=bool(pods))


_NO_OPENSHIFT = "this cluster is not OpenShift"
_EXTERNAL_LOGIN = (
    "OpenShift's own OAuth server does not log users in (authentications.config.openshift.io/cluster has the type OIDC "
    "or None)"
)
_UNAVAILABLE = (
    "kuberay.rayDashboardOAuthEnabled is set, but {cause}: the OAuth proxy cannot work here, so "
    "the dashboard is not exposed. Configure kuberay.authentication, or set kuberay.rayDashboardOAuthEnabled to false "
    "to get Ingresses without authentication"
)
_DOMAIN_MISSING = ". Either way, also set kuberay.ingressDomain, which is empty"
_PROXY_MISSING = (
    "The RayCluster was created before kuberay.authentication was enabled, so its head has no proxy that "
    "authenticates users, and the dashboard is not exposed. Recreate the RayCluster"
)
_HEADS_UNKNOWN = (
    "The operator is not allowed to list pods, so it cannot check whether the head requires Ray's token, and the "
    "dashboard is not exposed. Ask the administrator to install the role of the component authentication"
)
_HEADS_TOO_LARGE = (
    "Pods in this namespace have the labels of head pods and are too large, or too many, to be checked for Ray's "
    "token, so the dashboard is not exposed. Delete them, or recreate the RayCluster with a smaller pod template"
)
_RUNNING_WITHOUT = (
    "The head pod {pod} runs without RAY_AUTH_MODE=token, so it does not require Ray's token, and the dashboard is not "
    "exposed. If the pod was created before the RayCluster set spec.authOptions, delete it or recreate the RayCluster; "
    "otherwise KubeRay does not support authOptions (it needs version 1.5.1 or newer)"
)
