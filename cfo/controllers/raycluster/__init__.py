"""Controllers that create and maintain the objects belonging to each RayCluster.

One controller (:mod:`.reconciler`) reconciles the concerns of a RayCluster one after the other: the proxies that
authenticate users of dashboards, and on OpenShift the Routes to them (:mod:`.oauth`), Ingresses or routes of a Gateway
on vanilla Kubernetes (:mod:`.ingress`), network policies (:mod:`.networkpolicy`, and :mod:`.default_deny` for whole
namespaces), mutual TLS (:mod:`.mtls`), the profiles of namespaces (:mod:`.enforcement`), and the conditions in the
status (:mod:`.conditions`). If pods request their certificates, :mod:`.node_signer` signs the requests, which
:mod:`.certificate_requesters` allows. No concern acts on what another actor provides
(:mod:`cfo.api.raycluster.facts`). Pure functions compute the desired objects (:mod:`.resources`,
:mod:`.ingress_resources`, :mod:`.policies` and :mod:`.ca`, with names from :mod:`cfo.api.raycluster`).
:mod:`.reconciler` writes what each concern (:mod:`.concern`) decides, and never takes over objects of other owners.

Each concern declares its own watches. All controllers share one informer per kind. Optional kinds (Routes, and the
settings of Open Data Hub and OpenShift) are watched once they are served. A status update enqueues nothing, unless it
changes our conditions or the name that the head's Service has.
"""

from __future__ import annotations

from typing import Any, Final

from cfo.api.raycluster.names import FIELD_MANAGER, FINALIZER, RAY_CLUSTER
from cfo.config.kuberay import KubeRayConfiguration, ProfileTable
from cfo.controllers import local_queues
from cfo.controllers.raycluster import certificate_requesters, default_deny, node_signer, watches
from cfo.controllers.raycluster.concern import ClusterConcern
from cfo.controllers.raycluster.conditions import OWN_CONDITIONS_CHANGED, ClusterConditions
from cfo.controllers.raycluster.dashboard_access import DashboardAccess
from cfo.controllers.raycluster.enforcement import ProfileEnforcement
from cfo.controllers.raycluster.environment import ClusterEnvironment, GatewayKinds, Profiles
from cfo.controllers.raycluster.ingress import Ingresses
from cfo.controllers.raycluster.metrics import RayClusterMetrics
from cfo.controllers.raycluster.mtls import MutualTLS
from cfo.controllers.raycluster.networkpolicy import NetworkPolicies
from cfo.controllers.raycluster.oauth import DashboardProxies
from cfo.controllers.raycluster.operator_namespaces import service_account_of
from cfo.controllers.raycluster.platform import Platform
from cfo.controllers.raycluster.reconciler import RayClusterReconciler
from cfo.controllers.raycluster.secrets import secret_informer
from cfo.runtime import (
    APIError,
    Builder,
    Manager,
    Object,
    Rule,
    TransportError,
    and_,
    has_finalizer,
    or_,
)
from cfo.runtime.controller import ControllerOptions

__all__ = [
    "AUTHENTICATION_RULES",
    "CERTIFICATE_REQUEST_RULES",
    "GATEWAY_RULES",
    "NAMESPACE_RULES",
    "OPENSHIFT_RULES",
    "RULES",
    "ClusterEnvironment",
    "setup",
]

_WORKERS = 32
"""How many RayClusters are reconciled at a time: each waits for one request after the other."""

_CONCERNS: Final = (Ingresses, NetworkPolicies, MutualTLS, ProfileEnforcement, ClusterConditions)

RULES: Final = (
    Rule("ray.io", "rayclusters", "patch"),
    *(rule for each in _CONCERNS for rule in each.rules),
    *local_queues.RULES,
)
"""The RBAC rules of the RayCluster controllers, on every platform; the first one is for finalizers."""

OPENSHIFT_RULES: Final = (*DashboardProxies.rules, *Platform.rules)
"""The additional rules on OpenShift, where OAuth proxies serve the dashboards."""

GATEWAY_RULES: Final = GatewayKinds.write_rules
"""The additional rules with which dashboards and clients are exposed through a Gateway."""

CERTIFICATE_REQUEST_RULES: Final = (
    *node_signer.NodeSigner.rules,
    *certificate_requesters.CertificateRequesters.rules,
)
"""The additional rules of the controllers that serve the certificate requests of pods."""

AUTHENTICATION_RULES: Final = (*DashboardAccess.rules, *DashboardProxies.proxy_rules)
"""The additional rules for the operator's own authentication of dashboards, on every platform."""

NAMESPACE_RULES: Final = Profiles.rules
"""The additional rules with which labels of Namespaces select what applies in them."""


def setup(manager: Manager, config: KubeRayConfiguration) -> ClusterEnvironment:
    """Add the controllers to ``manager``.

    They start once the API server serves RayClusters, except for the one of selected namespaces, which starts with the
    manager. Returns the environment, which the webhooks also use.
    """
    environment = ClusterEnvironment.detect(manager, config)
    strictest = ProfileTable(config).strictest().kuberay
    deny = config.network_policy.default_deny
    if deny.namespace_selector is not None:  # its policies must be older than the first RayCluster
        default_deny.setup(manager, deny)

    async def start(manager: Manager) -> None:
        if strictest.mtls_enabled and config.ca.issuer == "certificateSigningRequest":
            certificate_requesters.setup(manager)
            node_signer.setup(manager, config, environment)
        # Namespaces have no part of their own if operators divide RayClusters by labels: another one may have selected
        # them, so nothing is deleted.
        if deny.namespace_selector is None and not manager.options.selectors.get(RAY_CLUSTER):
            default_deny.setup(manager, deny)
        credentials = await manager.transport.config.authenticate()
        own_account = service_account_of(credentials.authorization)
        concerns: list[ClusterConcern[Any]] = []
        if config.profiles:
            concerns.append(ProfileEnforcement(manager, config, environment))
        concerns.append(NetworkPolicies(manager, config, environment, own_account=own_account))
        concerns.append(MutualTLS(manager, config, environment))
        if strictest.ray_dashboard_oauth_enabled or await _can_have_proxies(manager):
            concerns.append(DashboardProxies(manager, config, environment))
        concerns.append(Ingresses(manager, config, environment))
        concerns.append(ClusterConditions(manager, config, environment))
        reconciler = RayClusterReconciler(manager, environment, concerns)
        status_changed = and_(
            watches.STATUS_CHANGED, or_(watches.HEAD_SERVICE_CHANGED, OWN_CONDITIONS_CHANGED)
        )
        changed = or_(watches.CLUSTER_CHANGED, watches.FINALIZERS_CHANGED, status_changed)
        options = ControllerOptions(max_concurrent_reconciles=_WORKERS)
        builder = Builder(manager, FIELD_MANAGER).for_(RAY_CLUSTER, changed).with_options(options)
        reconciler.watch(builder.complete(reconciler))
        clusters = reconciler.clusters.reader
        RayClusterMetrics(
            manager.metrics.registry, config, clusters, secret_informer(manager).reader
        )

    manager.when_available(RAY_CLUSTER, start, hint="install KubeRay")
    local_queues.setup(manager, "raycluster-queue", RAY_CLUSTER, local_queues.queue_of_suspended)
    return environment


async def _can_have_proxies(manager: Manager) -> bool:
    """Return whether RayClusters can have the proxies of an operator with OAuth, whose objects have to be deleted.

    An operator that is limited to namespaces asks for the finalizer there, because it may lack permissions for
    ClusterRoleBindings, which are cluster-scoped.
    """
    if manager.options.namespaces is None:
        return True

    def finalized(cluster: Object) -> bool | None:
        return has_finalizer(cluster, FINALIZER) or None

    try:
        for namespace in manager.options.namespaces:
            if await manager.client.select(
                RAY_CLUSTER, finalized, namespace=namespace, metadata_only=True
            ):
                return True
    except (APIError, TransportError, LookupError):
        return True  # then the proxies wait for what they must list
    return False
