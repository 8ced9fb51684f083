"""Exposes the dashboard and client of a RayCluster through Ingresses on vanilla Kubernetes.

The Ingresses require no authentication, so they are created only if OAuth is disabled in the configuration, and only if
no other actor exposes the cluster (:mod:`cfo.api.raycluster.responsibility`). A host
belongs to the first Ingress that used it. When two clusters would have the same host (``a-b`` in ``c`` and ``a`` in
``b-c``), the host of the later one contains a hash, and an Event reports this. When any other Ingress has the host,
none is created, and an Event gives the reason. An existing Ingress is never deleted because of another client's
Ingress: if that Ingress gets the same host later, an Event reports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cfo.api.raycluster.cluster import is_suspended
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.api.raycluster.naming import CLUSTER_LABEL, FIELD_MANAGER, client_host, dashboard_host, digest, names_of
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import MAX_CACHED_BYTES, Children
from cfo.controllers.raycluster.clusters import all_clusters
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.host_collisions import (
    CandidateHosts,
    add_host_index,
    choose_host,
    clusters_at_address,
    hosts_of,
)
from cfo.controllers.raycluster.ingress_domain import IngressDomain
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS
from cfo.controllers.raycluster.predicates import CHILD_CHANGED, CLUSTER_CHANGED, HEAD_SERVICE_CHANGED
from cfo.controllers.raycluster.resources import desired_client_ingress, desired_dashboard_ingress
from cfo.runtime import (
    INGRESS,
    READ,
    Builder,
    Client,
    DiscoveryIncomplete,
    EnqueueRequestsFromMapFunc,
    Entry,
    EventRecorder,
    Manager,
    NamespacedName,
    Reader,
    Request,
    Result,
    Rule,
    is_deleting,
    key_of,
    namespace_of,
    or_,
)

__all__ = ["IngressInformers", "IngressReconciler", "setup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressInformers:
    """Informers that the reconciler reads: all RayClusters and all Ingresses (any of which may use a host).

    The Ingresses have the index of :mod:`~cfo.controllers.raycluster.host_collisions`.
    """

    clusters: Reader
    ingresses: Reader


class IngressReconciler:
    """Creates, updates and deletes the two Ingresses of a cluster."""

    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("networking.k8s.io", "ingresses", (*READ, "create", "patch", "delete")),
        *IngressDomain.rules,
    )

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        config: KubeRayConfiguration,
        environment: Environment,
        informers: IngressInformers,
    ) -> None:
        self._client = client
        self._events = events
        self._config = config
        self._environment = environment
        self._clusters = informers.clusters
        self._ingresses = informers.ingresses

    async def reconcile(self, request: Request) -> Result:
        """Bring the Ingresses of one cluster up to date."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            return Result()
        try:
            openshift = await self._environment.platform.is_openshift()
        except DiscoveryIncomplete:
            return Result(requeue_after=UNKNOWN_RETRY_SECONDS)
        children = Children(self._client, self._events, cluster)
        names = names_of(cluster)
        settings = await self._environment.profiles.settings(self._client, request.namespace)
        wanted = not openshift and not settings.kuberay.ray_dashboard_oauth_enabled and children.may_expose(settings)
        if not wanted:
            for name in (names.dashboard, names.client):
                await children.delete(INGRESS, self._ingresses.get(NamespacedName(namespace_of(cluster), name)))
            return children.result()
        if is_suspended(cluster):
            return Result()
        domain = await self._environment.domain.read(self._client)
        if not domain:
            children.record_warning("IngressDomainMissing", _DOMAIN_MISSING)
            return children.result()
        suffix = digest(str(key_of(cluster)))
        for name, host_of, desired in (
            (names.dashboard, dashboard_host, desired_dashboard_ingress),
            (names.client, client_host, desired_client_ingress),
        ):
            hosts = CandidateHosts(host_of(cluster, domain), host_of(cluster, domain, suffix), suffix)
            key = NamespacedName(namespace_of(cluster), name)
            choice = choose_host(self._ingresses, self._clusters, cluster, key, hosts)
            if choice.suffix is None:
                children.record_conflict(choice.reason, choice.message)
                continue
            if choice.message:
                children.record_warning(choice.reason, choice.message)
            await children.claim_and_apply(
                desired(cluster, domain, self._config.ingress, choice.suffix),
                self._ingresses.get(key),
                f"host {hosts.hashed if choice.suffix else hosts.plain} has no Ingress of this RayCluster",
            )
        return children.result()

    def clusters_of_hosts(self, ingress: Entry) -> Iterable[Request]:
        """Yield the clusters that use or request a host of ``ingress``."""
        domain = self._environment.domain.current()
        for host in hosts_of(ingress):
            label = host.removesuffix(f".{domain}")
            for prefix in ("ray-dashboard-", "rayclient-"):
                if label.startswith(prefix):
                    yield from clusters_at_address(self._clusters, label.removeprefix(prefix))


_DOMAIN_MISSING = (
    "No Ingress is created, because kuberay.ingressDomain is not set in the operator's configuration, "
    "and ingresses.config.openshift.io/cluster does not define a domain"
)


def setup(manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
    """Add the controller of Ingresses to ``manager``."""
    name = "raycluster-ingress"
    # Any Ingress can use a host. With OAuth, only Ingresses with the cluster label are needed: none is created, and
    # earlier ones are deleted.
    selector = CLUSTER_LABEL if config.ray_dashboard_oauth_enabled else ""
    clusters = manager.cache.informer(RAY_CLUSTER).reader
    ingresses = manager.cache.informer(INGRESS, label_selector=selector, max_bytes=MAX_CACHED_BYTES)
    add_host_index(ingresses)
    reconciler = IngressReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        config,
        environment,
        IngressInformers(clusters=clusters, ingresses=ingresses.reader),
    )
    controller = (
        Builder(manager, name)
        .for_(RAY_CLUSTER, or_(CLUSTER_CHANGED, HEAD_SERVICE_CHANGED))
        .owns(INGRESS, CHILD_CHANGED, label_selector=selector, max_bytes=MAX_CACHED_BYTES)
        .watches(
            INGRESS,
            EnqueueRequestsFromMapFunc(reconciler.clusters_of_hosts),
            CHILD_CHANGED,
            label_selector=selector,
            max_bytes=MAX_CACHED_BYTES,
        )
        .complete(reconciler)
    )
    environment.profiles.subscribe(controller, clusters)
    environment.domain.subscribe(controller, EnqueueRequestsFromMapFunc(lambda _: all_clusters(clusters)))
    environment.routes.enqueue_when_served(controller, lambda: all_clusters(clusters))
