"""Decides who authenticates the users of a RayCluster's dashboard, and where the dashboard is reachable therefore.

Both functions are pure. Everything that exposes a dashboard (a Route, an Ingress or an HTTPRoute) asks them and decides
nothing of its own, so that no dashboard is reachable in two ways of which only one authenticates.
"""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from cfo.api.raycluster.facts import RayClusterFacts

PROXY_PORT_NAME = "oauth-proxy"
"""The name of the proxy's port, on the Service and on the container."""

COOKIE_KEY = "cookie_secret"
"""The key in the cookie Secret that the injected proxy reads."""
SETTINGS_KEY = "rbac-proxy.json"
"""The key of kube-rbac-proxy's settings in the same Secret."""

_DASHBOARD_PORT_NAME = "dashboard"
_PROXY_SERVICE_PORT = 443


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
    """Another actor (:mod:`.facts`), which exposes the dashboard as well."""
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
