"""Controllers that create and maintain the objects belonging to each RayCluster.

Each controller has one responsibility: the proxies that authenticate users of dashboards, and on OpenShift the Routes
to them (:mod:`.oauth`), Ingresses or routes of a Gateway on vanilla Kubernetes (:mod:`.ingress`), network policies
(:mod:`.networkpolicy`, and :mod:`.default_deny` for whole namespaces), mutual TLS (:mod:`.mtls`) and the profiles of
namespaces (:mod:`.enforcement`). If pods request their certificates, :mod:`.node_signer` signs the requests, which
:mod:`.certificate_requesters` allows. No controller acts on what another actor provides
(:mod:`cfo.api.raycluster.facts`). Pure functions compute the desired objects (:mod:`.resources`,
:mod:`.ingress_resources`, :mod:`.policies` and :mod:`.ca`, with names from
:mod:`cfo.api.raycluster`). :mod:`.children` writes them and never takes over objects of other owners.

Each controller module declares its own watches in its ``setup`` function. All controllers share one informer per kind.
Optional kinds (Routes, and the settings of Open Data Hub and OpenShift) are watched once they are served. A status
update of a RayCluster enqueues nothing, unless it changes the name of the head's Service.
"""

from __future__ import annotations

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.config import KubeRayConfiguration, ProfileTable
from cfo.controllers.raycluster import (
    certificate_requesters,
    conditions,
    default_deny,
    enforcement,
    ingress,
    mtls,
    networkpolicy,
    node_signer,
    oauth,
)
from cfo.controllers.raycluster.dashboard_access import DashboardAccess
from cfo.controllers.raycluster.environment import Environment, GatewayKinds, Profiles
from cfo.controllers.raycluster.metrics import RayClusterMetrics
from cfo.controllers.raycluster.platform import Platform
from cfo.controllers.raycluster.secrets import secret_informer
from cfo.runtime import Manager, Rule

__all__ = [
    "Environment",
    "authentication_rules",
    "certificate_request_rules",
    "gateway_rules",
    "namespace_rules",
    "openshift_rules",
    "rules",
    "setup",
]


def rules() -> list[Rule]:
    """Return the RBAC rules of the RayCluster controllers, on every platform."""
    reconcilers = (
        ingress.IngressReconciler,
        networkpolicy.NetworkPolicyReconciler,
        mtls.MTLSReconciler,
        enforcement.EnforcementReconciler,
        conditions.ConditionReconciler,
    )
    finalizers = Rule("ray.io", "rayclusters", "patch")
    return [finalizers, *(rule for reconciler in reconcilers for rule in reconciler.rules)]


def openshift_rules() -> list[Rule]:
    """Return the additional RBAC rules on OpenShift, where OAuth proxies serve the dashboards."""
    return [*oauth.OAuthReconciler.rules, *Platform.rules]


def gateway_rules() -> list[Rule]:
    """Return the additional RBAC rules with which dashboards and clients are exposed through a Gateway."""
    return [*GatewayKinds.write_rules]


def certificate_request_rules() -> list[Rule]:
    """Return the additional RBAC rules of the controllers that serve the certificate requests of pods."""
    return [*node_signer.NodeSigner.rules, *certificate_requesters.CertificateRequesters.rules]


def authentication_rules() -> list[Rule]:
    """Return the additional RBAC rules for the operator's own authentication of dashboards, on every platform."""
    return [*DashboardAccess.rules, *oauth.OAuthReconciler.proxy_rules]


def namespace_rules() -> list[Rule]:
    """Return the additional RBAC rules with which labels of Namespaces select what applies in them."""
    return [*Profiles.rules]


def setup(manager: Manager, config: KubeRayConfiguration) -> Environment:
    """Add the controllers to ``manager``.

    They start once the API server serves RayClusters, except for the one of selected namespaces, which starts with the
    manager. Returns the environment, which the webhooks also use.
    """
    environment = Environment.detect(manager, config)
    strictest = ProfileTable(config).strictest().kuberay
    deny = config.network_policy.default_deny
    if deny.namespace_selector is not None:  # its policies must be older than the first RayCluster
        default_deny.setup(manager, deny)

    async def start(manager: Manager) -> None:
        enforcement.setup(manager, config, environment)
        mtls.setup(manager, config, environment)
        if strictest.mtls_enabled and config.ca.issuer == "certificateSigningRequest":
            certificate_requesters.setup(manager)
            node_signer.setup(manager, config, environment)
        await networkpolicy.setup(manager, config, environment)
        if deny.namespace_selector is None:
            default_deny.setup(manager, deny)
        ingress.setup(manager, config, environment)
        # without permission for ClusterRoleBindings, which are cluster-scoped, the OAuth controller cannot work
        if strictest.ray_dashboard_oauth_enabled or manager.options.namespaces is None:
            oauth.setup(manager, config, environment)
        conditions.setup(manager, config, environment)
        clusters = manager.cache.informer(RAY_CLUSTER)
        RayClusterMetrics(manager.metrics.registry, config, clusters.reader, secret_informer(manager).reader)

    manager.when_available(RAY_CLUSTER, start, hint="install KubeRay")
    return environment
