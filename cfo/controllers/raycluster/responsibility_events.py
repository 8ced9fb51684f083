"""The Events on a RayCluster that say who provides what for it, and what is missing for its authentication."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from cfo.api.raycluster.authentication import Authentication
from cfo.api.raycluster.responsibility import Actor, Concern
from cfo.config import NamespaceSettings, OIDCConfiguration
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.dashboard_access import Exposure
from cfo.runtime import Informer, NamespacedName, namespace_of

__all__ = ["ACTOR_EVENTS", "record_authentication", "record_missing_client", "record_responsibility"]

_PROXIES = (Authentication.OAUTH_PROXY, Authentication.AUTH_PROXY)

ACTOR_EVENTS: Final[Mapping[tuple[Concern, Actor], tuple[str, str]]] = {
    (Concern.NETWORK_POLICY, Actor.KUBERAY): (
        "NetworkPolicyByKubeRay",
        "The RayCluster uses KubeRay's networkPolicy, so the operator creates no NetworkPolicies for it",
    ),
    (Concern.NETWORK_POLICY, Actor.OPEN_DATA_HUB): (
        "NetworkPolicyByOpenDataHub",
        "The RayCluster uses networkIsolation of Open Data Hub's KubeRay, so the operator creates no NetworkPolicies",
    ),
    (Concern.NETWORK_POLICY, Actor.MULTIKUEUE): (
        "ManagedByMultiKueue",
        "MultiKueue runs the RayCluster in another Kubernetes cluster, so the operator creates nothing for it here",
    ),
    (Concern.MTLS, Actor.KUBERAY): (
        "MTLSByKubeRay",
        "The RayCluster uses KubeRay's tlsOptions, so the operator maintains no CA for it",
    ),
    (Concern.MTLS, Actor.OPEN_DATA_HUB): (
        "MTLSByOpenDataHub",
        "Open Data Hub's KubeRay provides mutual TLS for the RayCluster, so the operator maintains no CA for it",
    ),
    (Concern.AUTHENTICATION, Actor.KUBERAY): (
        "OAuthByKubeRay",
        "The RayCluster uses KubeRay's authOptions, so the operator does not create OAuth objects for it",
    ),
    (Concern.AUTHENTICATION, Actor.OPEN_DATA_HUB): (
        "OAuthByOpenDataHub",
        "Open Data Hub's KubeRay authenticates the users of the RayCluster, so the operator creates no OAuth objects",
    ),
    (Concern.EXPOSURE, Actor.KUBERAY): (
        "ExposedByKubeRay",
        "The RayCluster sets enableIngress, so KubeRay exposes its dashboard and the operator does not",
    ),
    (Concern.EXPOSURE, Actor.OPEN_DATA_HUB): (
        "ExposedByOpenDataHub",
        "Open Data Hub's KubeRay exposes the RayCluster through its Gateway, so the operator does not",
    ),
}
"""The reason and message of the Event that says that another actor provides a concern.

MultiKueue provides all concerns, so only the first one has an Event.
"""


def record_responsibility(
    children: Children, concern: Concern, active_features: Collection[str], kept: str = ""
) -> Actor:
    """Return who provides ``concern`` of the cluster; record it if that is not the operator.

    If the cluster requests another actor whose feature is not known to be active, a Warning Event says that the
    operator's own ``kept`` stays; an empty ``kept`` records nothing.
    """
    actor = children.facts.actor(concern, active_features)
    event = ACTOR_EVENTS.get((concern, actor))
    if event is not None:
        children.record_normal(*event)
    request = children.facts.unconfirmed_request(concern, active_features) if kept else None
    if request is not None:
        children.record_warning(
            "KubeRayFeatureUnconfirmed",
            f"The RayCluster sets {request.setting}, but kuberay.kubeRayFeatures in the operator's configuration does "
            f"not contain {request.feature}: the operator's own {kept} stays active. If KubeRay's feature is active, "
            "ask the administrator to add it",
        )
    return actor


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
    actor = record_responsibility(children, Concern.AUTHENTICATION, features, "OAuth proxy" if is_proxied else "")
    if has_routes and exposure.authentication is not Authentication.OTHER:
        record_responsibility(children, Concern.EXPOSURE, features, "exposure")
    is_overridden = is_proxied and actor is Actor.OPERATOR and children.facts.uses_kuberay_auth
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
