"""The Events on a RayCluster that explain who authenticates the users of its dashboard, and what is missing for it."""

from __future__ import annotations

from cfo.api.raycluster.authentication import Authentication
from cfo.api.raycluster.cluster import uses_kuberay_auth
from cfo.api.raycluster.responsibility import Actor, Concern
from cfo.config import NamespaceSettings, OIDCConfiguration
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.dashboard_access import Exposure
from cfo.runtime import Informer, NamespacedName, namespace_of

__all__ = ["record_authentication", "record_missing_client"]

_PROXIES = (Authentication.OAUTH_PROXY, Authentication.AUTH_PROXY)


def record_authentication(
    children: Children, exposure: Exposure, settings: NamespaceSettings, *, has_routes: bool, is_new: bool
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
    actor = children.record_responsibility(Concern.AUTHENTICATION, features, "OAuth proxy" if is_proxied else "")
    if has_routes and exposure.authentication is not Authentication.OTHER:
        children.record_responsibility(Concern.EXPOSURE, features, "exposure")
    is_overridden = is_proxied and actor is Actor.OPERATOR and uses_kuberay_auth(children.cluster)
    if is_overridden and "authOptions" in features:
        children.record_warning("RayTokenDisabled", _RAY_AUTH_MODE_OVERRIDDEN)


def record_missing_client(
    children: Children, exposure: Exposure, oidc: OIDCConfiguration | None, secrets: Informer | None
) -> None:
    """Record that the Secret with the OIDC client does not exist; ``secrets``: those with its name."""
    if exposure.authentication is not Authentication.AUTH_PROXY or oidc is None or secrets is None:
        return
    key = NamespacedName(namespace_of(children.cluster), oidc.secret_name)
    if secrets.has_synced and not secrets.reader.contains(key):
        children.record_warning("OIDCSecretMissing", _OIDC_CLIENT_MISSING.format(name=oidc.secret_name))


_RAY_AUTH_MODE_OVERRIDDEN = (
    "The RayCluster sets spec.authOptions, but RAY_AUTH_MODE in the head's pod template disables Ray's tokens: the "
    "operator's own OAuth proxy stays active. Remove the variable"
)
_OIDC_CLIENT_MISSING = (
    "The Secret {name} with client-id and client-secret, which the login in the browser needs, does not exist in this "
    "namespace: the head pod cannot start. Ask the administrator to create it"
)
