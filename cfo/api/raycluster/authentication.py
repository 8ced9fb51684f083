"""Decides who authenticates the users of a RayCluster's dashboard, and where the dashboard is reachable therefore.

Both functions are pure. Everything that exposes a dashboard (a Route, an Ingress or an HTTPRoute) asks them and decides
nothing of its own, so that no dashboard is reachable in two ways of which only one authenticates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from cfo.api.raycluster.cluster import head_pod_spec, uses_kuberay_auth
from cfo.api.raycluster.naming import head_service_name, names_of
from cfo.api.raycluster.ports import service_port_of

__all__ = [
    "PROXY_PORT_NAME",
    "RBAC_PROXY_CONTAINER",
    "Authentication",
    "Authenticators",
    "Backend",
    "authentication_of",
    "dashboard_backend",
    "has_injected_auth_proxy",
    "requests_ray_token",
    "requires_ray_token",
]

PROXY_PORT_NAME = "oauth-proxy"
"""The name of the proxy's port, on the Service and on the container."""
RBAC_PROXY_CONTAINER = "rbac-proxy"
"""The injected container with kube-rbac-proxy, through which all requests to the dashboard pass."""

_DASHBOARD_PORT_NAME = "dashboard"
_PROXY_SERVICE_PORT = 443
_RAY_AUTH_MODE = "RAY_AUTH_MODE"


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
    """Another actor (:mod:`.responsibility`), which exposes the dashboard as well."""
    UNAVAILABLE = auto()
    """No one, although the configuration requires it: the dashboard must not be exposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticators:
    """What the configuration and the platform offer.

    ``required``: ``kuberay.rayDashboardOAuthEnabled``. ``openshift_oauth``: the cluster is OpenShift, and its own OAuth
    server logs users in. ``auth_proxy``: ``kuberay.authentication`` is configured. ``ray_token``: KubeRay is known to
    act on ``authOptions``.
    """

    required: bool
    openshift_oauth: bool
    auth_proxy: bool
    ray_token: bool


@dataclass(frozen=True, slots=True)
class Backend:
    """The Service and port that a Route, an Ingress or an HTTPRoute of the dashboard targets.

    ``port`` is the number and ``port_name`` the name of the same port of the Service. ``tls``: whether the port serves
    HTTPS, with a certificate for the Service's DNS name.
    """

    service: str
    port: int
    port_name: str
    tls: bool


def authentication_of(cluster: Mapping[str, Any], available: Authenticators) -> Authentication:
    """Return who authenticates the users of the dashboard of ``cluster``."""
    if not available.required:
        return Authentication.DISABLED
    if available.ray_token and requests_ray_token(cluster):
        return Authentication.RAY_TOKEN
    if available.auth_proxy:
        return Authentication.AUTH_PROXY
    return Authentication.OAUTH_PROXY if available.openshift_oauth else Authentication.UNAVAILABLE


def dashboard_backend(cluster: Mapping[str, Any], authentication: Authentication) -> Backend | None:
    """Return what exposes the dashboard of ``cluster``; ``None`` if it must not be exposed.

    A cluster that was created before ``kuberay.authentication`` was enabled has no proxy that could authenticate.
    """
    match authentication:
        case Authentication.AUTH_PROXY if not has_injected_auth_proxy(cluster):
            return None
        case Authentication.OAUTH_PROXY | Authentication.AUTH_PROXY:
            return Backend(names_of(cluster).proxy_service, _PROXY_SERVICE_PORT, PROXY_PORT_NAME, tls=True)
        case Authentication.RAY_TOKEN | Authentication.DISABLED:
            return Backend(
                head_service_name(cluster), service_port_of(cluster, "dashboard"), _DASHBOARD_PORT_NAME, tls=False
            )
        case Authentication.OTHER | Authentication.UNAVAILABLE:
            return None


def has_injected_auth_proxy(cluster: Mapping[str, Any]) -> bool:
    """Return whether the head's pod template has the proxy that checks all requests."""
    containers = head_pod_spec(cluster).get("containers") or ()
    return any(item.get("name") == RBAC_PROXY_CONTAINER for item in containers[1:])


def requests_ray_token(cluster: Mapping[str, Any]) -> bool:
    """Return whether new pods of ``cluster`` require Ray's token, if KubeRay acts on ``authOptions``.

    A template that sets ``RAY_AUTH_MODE`` to another value disables the token, whatever ``authOptions`` says.
    """
    return uses_kuberay_auth(cluster) and _ray_auth_modes(head_pod_spec(cluster)) <= {"token"}


def requires_ray_token(pod_spec: Mapping[str, Any]) -> bool:
    """Return whether Ray requires a token in a running pod with this spec.

    KubeRay sets ``RAY_AUTH_MODE`` in the first container when it creates the pod, unless the variable is already in the
    template, and does not change running pods when ``authOptions`` changes.
    """
    return _ray_auth_modes(pod_spec) == {"token"}


def _ray_auth_modes(pod_spec: Mapping[str, Any]) -> set[str | None]:
    ray: Mapping[str, Any] = next(iter(pod_spec.get("containers") or ()), {})
    return {item.get("value") for item in ray.get("env") or () if item.get("name") == _RAY_AUTH_MODE}
