"""Exposes the dashboard and client of a RayCluster on vanilla Kubernetes, through Ingresses or through a Gateway.

They are created only if no other actor exposes the cluster (:mod:`cfo.api.raycluster.responsibility`), and only if
someone authenticates users, or OAuth is disabled in the configuration; then they require no authentication. If OAuth is
required, the client is exposed only if it requires certificates; through a Gateway, always. If a Gateway is configured,
routes are created (:mod:`.gateway`), and an Ingress is deleted once the Gateway accepted the route that replaces it;
otherwise routes are deleted after the Ingresses have been created.

A host belongs to the first Ingress or route that used it. When two clusters would have the same host (``a-b`` in ``c``
and ``a`` in ``b-c``), the host of the later one contains a hash, and an Event reports this. When any other Ingress or
route has the host, none is created, and an Event gives the reason. An existing Ingress is never deleted because of
another client's Ingress: if that Ingress gets the same host later, an Event reports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cfo.api.raycluster.authentication import Authentication, Backend
from cfo.api.raycluster.kinds import INGRESS_CLASS, RAY_CLUSTER
from cfo.api.raycluster.naming import CLUSTER_LABEL, FIELD_MANAGER, client_host, dashboard_host
from cfo.api.raycluster.responsibility import Concern
from cfo.config import KubeRayConfiguration
from cfo.controllers.raycluster.children import MAX_CACHED_BYTES, Children
from cfo.controllers.raycluster.clusters import add_indexes, all_clusters
from cfo.controllers.raycluster.dashboard_access import may_expose
from cfo.controllers.raycluster.environment import Environment
from cfo.controllers.raycluster.gateway import CLIENT_NOT_EXPOSED, GatewayRoutes
from cfo.controllers.raycluster.gateway_kinds import GatewayKinds
from cfo.controllers.raycluster.host_collisions import (
    DASHBOARD_PATHS,
    CandidateHosts,
    HostClaims,
    add_host_index,
    choose_host,
    claims_of,
    clusters_at_address,
)
from cfo.controllers.raycluster.ingress_classes import NGINX_CLASS, IngressClass, choose_ingress_class
from cfo.controllers.raycluster.ingress_resources import (
    desired_client_ingress,
    desired_dashboard_ingress,
    target_services,
)
from cfo.controllers.raycluster.platform import UNKNOWN_RETRY_SECONDS, IngressDomain, missing_domain_message
from cfo.controllers.raycluster.policies import requires_certificates
from cfo.controllers.raycluster.predicates import CHILD_CHANGED, CLUSTER_CHANGED, HEAD_SERVICE_CHANGED, ROUTE_CHANGED
from cfo.controllers.raycluster.responsibility_events import record_responsibility
from cfo.controllers.raycluster.secrets import secret_informer
from cfo.runtime import (
    INGRESS,
    READ,
    Builder,
    Client,
    DiscoveryIncomplete,
    EnqueueRequestForOwner,
    EnqueueRequestsFromMapFunc,
    Entry,
    EventRecorder,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Reader,
    Request,
    Result,
    Rule,
    is_deleting,
    key_of,
    namespace_of,
    or_,
)
from cfo.runtime.controller import Kind

__all__ = ["IngressInformers", "IngressReconciler", "setup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressInformers:
    """Informers that the reconciler reads: all RayClusters, Ingresses (any may use a host) and IngressClasses.

    The Ingresses have the index of :mod:`~cfo.controllers.raycluster.host_collisions`. ``classes`` is ``None`` if the
    operator is limited to some namespaces, so that it cannot read cluster-scoped objects. ``secrets`` reads the
    metadata of the Secrets with a cluster label.
    """

    clusters: Informer
    ingresses: Informer
    classes: Informer | None
    secrets: Reader

    def ingress_classes(self) -> list[Object] | None:
        """Return all IngressClasses; ``None`` if the operator cannot read them."""
        return self.classes.reader.list() if self.classes is not None and self.classes.has_synced else None


class IngressReconciler:
    """Creates, updates and deletes the two Ingresses of a cluster, or its routes."""

    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("networking.k8s.io", "ingresses", (*READ, "create", "patch", "delete")),
        Rule("networking.k8s.io", "ingressclasses", READ),
        *GatewayKinds.rules,
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
        self._informers = informers
        self._clusters = informers.clusters.reader
        self._ingresses = informers.ingresses.reader
        self._claims = HostClaims(lambda: (informers.ingresses, *environment.gateway_kinds.routes()))
        self._routes = GatewayRoutes(
            config,
            environment.gateway_kinds,
            self._claims,
            clusters=self._clusters,
            secrets=informers.secrets,
        )

    async def reconcile(self, request: Request) -> Result:
        """Bring the Ingresses and routes of one cluster up to date."""
        cluster = await self._client.get(RAY_CLUSTER, request)
        if cluster is None or is_deleting(cluster):
            self._routes.forget(request)
            return Result()
        settings = await self._environment.profiles.settings(self._client, request.namespace)
        children = Children(self._client, self._events, cluster)
        facts, names = children.facts, children.facts.names
        try:
            openshift = await self._environment.platform.is_openshift()
            exposure = await self._environment.access.exposure_of(facts, settings)
        except DiscoveryIncomplete:
            return Result(requeue_after=UNKNOWN_RETRY_SECONDS)
        backend = None
        if not openshift:
            record_responsibility(children, Concern.EXPOSURE, settings.kuberay.kuberay_features, "exposure")
            backend = exposure.route_backend
        required = exposure.authentication is not Authentication.DISABLED
        with_client = backend is not None and (not required or requires_certificates(facts, settings.kuberay))
        for name, is_exposed in ((names.dashboard, backend is not None), (names.client, with_client)):
            if not is_exposed:
                await self._delete_ingress(children, name)
        if backend is None:
            await self._routes.delete(children)
        if backend is None or facts.is_suspended:
            return children.result()
        domain = await self._environment.domain.read(self._client)
        if self._config.gateway.enabled:
            await self._routes.apply(children, backend, domain, settings.kuberay)
            for name, service in ((names.dashboard, backend.service), (names.client, facts.head_service)):
                if self._routes.replaces(facts, name, settings.kuberay):
                    await self._delete_ingress(children, name)
                else:
                    await self._delete_outdated(children, name, service)
            return children.result()
        if not with_client:
            children.record_warning("RayClientNotExposed", CLIENT_NOT_EXPOSED)
        if not domain:
            children.record_warning("IngressDomainMissing", missing_domain_message("Ingress"))
            await self._delete_outdated(children, names.dashboard, backend.service)
            await self._routes.delete_outdated(children, backend)
            return children.result()
        await self._apply_dashboard(children, domain, backend, requires_tls=required)
        if with_client:
            await self._apply_client(children, domain)
        if not children.errors:
            await self._routes.delete(children)
        return children.result()

    async def _apply_dashboard(self, children: Children, domain: str, backend: Backend, *, requires_tls: bool) -> None:
        facts, config = children.facts, self._config.ingress
        chosen = choose_ingress_class(config.class_name, "", self._informers.ingress_classes())
        if backend.tls and config.annotations is None and chosen.https_backend(backend.service) is None:
            children.record_warning("IngressTLSUnavailable", _unavailable("dashboard", "HTTPS backends", chosen))
            await self._delete_outdated(children, facts.names.dashboard, backend.service, chosen.name)
            return
        hosts = CandidateHosts.of(facts.cluster, domain, dashboard_host)
        suffix = self._choose_host(children, facts.names.dashboard, hosts)
        if suffix is None:
            await self._delete_outdated(children, facts.names.dashboard, backend.service, chosen.name)
            return
        ingress = desired_dashboard_ingress(
            facts, domain, config, suffix, backend=backend, requires_tls=requires_tls, ingress_class=chosen
        )
        await self._apply(children, ingress)

    async def _apply_client(self, children: Children, domain: str) -> None:
        facts, config = children.facts, self._config.ingress
        chosen = choose_ingress_class(config.class_name, NGINX_CLASS, self._informers.ingress_classes())
        if config.annotations is None and chosen.passthrough is None:
            children.record_warning("IngressTLSUnavailable", _unavailable("Ray client", "TLS passthrough", chosen))
            await self._delete_outdated(children, facts.names.client, facts.head_service, chosen.name)
            return
        hosts = CandidateHosts.of(facts.cluster, domain, client_host)
        suffix = self._choose_host(children, facts.names.client, hosts)
        if suffix is not None:
            await self._apply(children, desired_client_ingress(facts, domain, config, suffix, ingress_class=chosen))

    def _choose_host(self, children: Children, name: str, hosts: CandidateHosts) -> str | None:
        """Return the suffix of the host of the Ingress ``name``; ``None`` if another object has each of ``hosts``."""
        key = NamespacedName(namespace_of(children.cluster), name)
        choice = choose_host(self._claims, self._clusters, children.cluster, INGRESS.kind, key, hosts)
        if choice.suffix is None:
            children.record_conflict(choice.reason, choice.message)
        elif choice.message:
            children.record_warning(choice.reason, choice.message)
        return choice.suffix

    async def _apply(self, children: Children, ingress: Object) -> None:
        (rule,) = ingress["spec"]["rules"]
        consequence = f"host {rule['host']} has no Ingress of this RayCluster"
        await children.claim_and_apply(ingress, self._ingresses.get(key_of(ingress)), consequence)

    async def _delete_ingress(self, children: Children, name: str) -> None:
        await children.delete(INGRESS, self._ingresses.get(NamespacedName(namespace_of(children.cluster), name)))

    async def _delete_outdated(self, children: Children, name: str, service: str, class_name: str = "") -> None:
        """Delete the Ingress ``name``, which cannot be updated, if it has another class or targets another Service.

        An Ingress that targeted the dashboard itself must not remain when users have to authenticate. Without
        ``class_name``, the class is not compared.
        """
        current = self._ingresses.get(NamespacedName(namespace_of(children.cluster), name))
        if current is None:
            return
        has_class = not class_name or (current.get("spec") or {}).get("ingressClassName") == class_name
        if not has_class or target_services(current) - {service}:
            await children.delete(INGRESS, current)

    def clusters_of_claims(self, claimant: Entry) -> Iterable[Request]:
        """Yield the clusters that use or request a host, or a path, of ``claimant``."""
        domain = self._environment.domain.current()
        for claim in claims_of(claimant):
            if claim.startswith(DASHBOARD_PATHS):
                namespace, _, name = claim.removeprefix(DASHBOARD_PATHS).partition("/")
                key = NamespacedName(namespace, name)
                yield from (key,) if self._clusters.contains(key) else ()
                continue
            label = claim.removesuffix(f".{domain}")
            for prefix in ("ray-dashboard-", "rayclient-"):
                if label.startswith(prefix):
                    yield from clusters_at_address(self._clusters, label.removeprefix(prefix))


def _unavailable(what: str, ability: str, chosen: IngressClass) -> str:
    cause = f"its controller {chosen.controller} has no known annotations for {ability}"
    return (
        f"The Ingress of the {what} is not created with {chosen}: "
        f"{cause if chosen.controller else 'the class does not exist'}. Set kuberay.ingress.className, "
        "kuberay.ingress.annotations or kuberay.gateway in the operator's configuration"
    )


def setup(manager: Manager, config: KubeRayConfiguration, environment: Environment) -> None:
    """Add the controller of Ingresses and routes to ``manager``."""
    name = "raycluster-ingress"
    # Any Ingress can use a host. If none is created, only those with the cluster label are needed: they are deleted.
    selector = "" if may_expose(config) else CLUSTER_LABEL
    clusters = manager.cache.informer(RAY_CLUSTER)
    add_indexes(clusters)
    secrets = secret_informer(manager)
    ingresses = manager.cache.informer(INGRESS, label_selector=selector, max_bytes=MAX_CACHED_BYTES)
    classes = manager.cache.informer(INGRESS_CLASS) if manager.options.namespaces is None else None
    add_host_index(ingresses)
    reconciler = IngressReconciler(
        manager.client.with_field_manager(FIELD_MANAGER),
        manager.events(name),
        config,
        environment,
        IngressInformers(clusters=clusters, ingresses=ingresses, classes=classes, secrets=secrets.reader),
    )
    controller = (
        Builder(manager, name)
        .for_(RAY_CLUSTER, or_(CLUSTER_CHANGED, HEAD_SERVICE_CHANGED))
        .owns(INGRESS, CHILD_CHANGED, label_selector=selector, max_bytes=MAX_CACHED_BYTES)
        .watches(
            INGRESS,
            EnqueueRequestsFromMapFunc(reconciler.clusters_of_claims),
            CHILD_CHANGED,
            label_selector=selector,
            max_bytes=MAX_CACHED_BYTES,
        )
        .complete(reconciler)
    )
    enqueue_all = EnqueueRequestsFromMapFunc(lambda _: all_clusters(clusters.reader))
    if classes is not None:
        controller.watch(Kind(classes, enqueue_all, mapper=manager.mapper, optional=True))
    environment.profiles.subscribe(controller, clusters.reader)
    environment.access.subscribe(manager, controller, clusters.reader)
    environment.domain.subscribe(controller, enqueue_all)
    environment.routes.enqueue_when_served(controller, lambda: all_clusters(clusters.reader))
    kinds, owner = environment.gateway_kinds, EnqueueRequestForOwner(RAY_CLUSTER)
    for kind in (kinds.http_routes, kinds.tls_routes):
        kind.when_served(add_host_index)
        kind.subscribe(controller, owner, ROUTE_CHANGED)
        kind.subscribe(controller, EnqueueRequestsFromMapFunc(reconciler.clusters_of_claims), CHILD_CHANGED)
    kinds.backend_tls_policies.subscribe(controller, owner, CHILD_CHANGED)
    for kind in (kinds.http_routes, kinds.tls_routes, kinds.backend_tls_policies):
        kind.enqueue_when_served(controller, lambda: all_clusters(clusters.reader))
    if kinds.config_maps is not None:
        kinds.config_maps.subscribe(controller, owner, CHILD_CHANGED)
        controller.watch(Kind(secrets, owner, mapper=manager.mapper))
