"""Adds the RayCluster controllers to a manager.

Each controller module declares its own watches in its ``setup`` function. All controllers share one informer per kind.
Optional kinds (Routes, and the settings of Open Data Hub and OpenShift) are watched once they are served. A status
update of a RayCluster enqueues nothing, unless it changes the name of the head's Service.
"""

from __future__ import annotations

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster import ingress, mtls, networkpolicy, oauth
from cfo.controllers.raycluster.dashboard_access import DashboardAccess
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.gateway_kinds import GatewayKinds
from cfo.controllers.raycluster.platform import Platform
from cfo.runtime import Manager, Rule

__all__ = ["authentication_rules", "gateway_rules", "openshift_rules", "rules", "setup"]


def rules() -> list[Rule]:
    """Return the RBAC rules of the RayCluster controllers, on every platform."""
    reconcilers = (
        ingress.IngressReconciler,
        networkpolicy.NetworkPolicyReconciler,
        mtls.MTLSReconciler,
    )
    finalizers = Rule("ray.io", "rayclusters", "patch")
    return [finalizers, *(rule for reconciler in reconcilers for rule in reconciler.rules)]


def openshift_rules() -> list[Rule]:
    """Return the additional RBAC rules on OpenShift, where OAuth proxies serve the dashboards."""
    return [*oauth.OAuthReconciler.rules, *Platform.rules]


def gateway_rules() -> list[Rule]:
    """Return the additional RBAC rules with which dashboards and clients are exposed through a Gateway."""
    return [*GatewayKinds.write_rules]


def authentication_rules() -> list[Rule]:
    """Return the additional RBAC rules for the operator's own authentication of dashboards, on every platform."""
    return [*DashboardAccess.rules, *oauth.OAuthReconciler.proxy_rules]


def setup(manager: Manager, config: KubeRayConfiguration) -> Environment:
    """Add the four controllers to ``manager``; they start once the API server serves RayClusters.

    Returns the environment, which the webhooks also use.
    """
    environment = Environment.detect(manager, config)

    async def start(manager: Manager) -> None:
        mtls.setup(manager, config)
        await networkpolicy.setup(manager, config, environment)
        ingress.setup(manager, config, environment)
        # without permission for ClusterRoleBindings, which are cluster-scoped, the OAuth controller cannot work
        if config.ray_dashboard_oauth_enabled or manager.options.namespaces is None:
            oauth.setup(manager, config, environment)

    manager.when_available(RAY_CLUSTER, start)
    return environment
