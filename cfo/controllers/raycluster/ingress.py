"""Exposes the dashboard and client of a RayCluster on vanilla Kubernetes, through Ingresses or through a Gateway.

They are created only if no other actor exposes the cluster (:mod:`cfo.api.raycluster.facts`), and only if
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

from cfo.api.raycluster.authentication import Authentication, Backend
from cfo.api.raycluster.facts import Concern
from cfo.api.raycluster.names import INGRESS_CLASS, RAY_CLUSTER, client_host, dashboard_host
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.host_claims import HostClaims, add_host_index
from cfo.controllers.raycluster.children import Children
from cfo.controllers.raycluster.dashboard_access import ingress_selection
from cfo.controllers.raycluster.environment import Environment, GatewayKinds
from cfo.controllers.raycluster.gateway import CLIENT_NOT_EXPOSED, GatewayRoutes
from cfo.controllers.raycluster.host_collisions import (
    CLAIMS_CHANGED,
    CandidateHosts,
    choose_host,
    clusters_of_claims,
)
from cfo.controllers.raycluster.ingress_resources import (
    NGINX_CLASS,
    IngressClass,
    choose_ingress_class,
    desired_client_ingress,
    desired_dashboard_ingress,
    target_services,
)
from cfo.controllers.raycluster.platform import IngressDomain, missing_domain_message
from cfo.controllers.raycluster.policies import requires_certificates
from cfo.controllers.raycluster.reconciler import (
    ClusterConcern,
    ObservedCluster,
    record_responsibility,
)
from cfo.controllers.raycluster.secrets import secret_informer
from cfo.controllers.raycluster.watches import (
    CHILD_CHANGED,
    ROUTE_CHANGED,
    all_clusters,
    in_first_list,
)
from cfo.runtime import (
    INGRESS,
    READ,
    Controller,
    EnqueueRequestForOwner,
    EnqueueRequestsFromMapFunc,
    Manager,
    NamespacedName,
    Object,
    Request,
    Rule,
    namespace_of,
    not_,
)
from cfo.runtime.controller import Kind


class Ingresses(ClusterConcern):
    """Creates, updates and deletes the two Ingresses of a cluster, or its routes."""

    name = "raycluster-ingress"
    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("networking.k8s.io", "ingresses", (*READ, "create", "patch", "delete")),
        Rule("networking.k8s.io", "ingressclasses", READ),
        *GatewayKinds.rules,
        *IngressDomain.rules,
    )

    def __init__(
        self, manager: Manager, config: KubeRayConfiguration, environment: Environment
    ) -> None:
        super().__init__(manager, config, environment)
        kinds = environment.gateway_kinds
        ingresses = self.own(
            manager.cache.informer(INGRESS, **ingress_selection(config)), CHILD_CHANGED
        )
        add_host_index(ingresses)
        self._informer, self._ingresses = ingresses, ingresses.reader
        # An operator limited to some namespaces is not allowed to read cluster-scoped objects.
        self._classes = (
            manager.cache.informer(INGRESS_CLASS) if manager.options.namespaces is None else None
        )
        self._claims = HostClaims(lambda: (ingresses, *kinds.routes()))
        secrets = secret_informer(manager)
        if kinds.config_maps is not None:
            self.own(secrets)
        self._routes = GatewayRoutes(
            config.gateway, kinds, self._claims, self.clusters, secrets.reader
        )

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with the kinds of routes, and all RayClusters when what all hosts depend on changes."""
        mapper, environment = self._manager.mapper, self._environment
        claimants = EnqueueRequestsFromMapFunc(
            lambda claimant: clusters_of_claims(
                self.clusters, claimant, environment.domain.current()
            )
        )
        changed = (CHILD_CHANGED, CLAIMS_CHANGED)  # the first reads only metadata
        enqueue_all = EnqueueRequestsFromMapFunc(lambda _: all_clusters(self.clusters))
        controller.watch(
            Kind(
                self._informer,
                claimants,
                not_(in_first_list),
                *changed,
                mapper=mapper,
                optional=True,
            )
        )
        if self._classes is not None:
            controller.watch(Kind(self._classes, enqueue_all, mapper=mapper, optional=True))
        environment.domain.settings.subscribe(controller, enqueue_all)
        kinds, owner = environment.gateway_kinds, EnqueueRequestForOwner(RAY_CLUSTER)
        for kind in (kinds.http_routes, kinds.tls_routes):
            kind.when_served(add_host_index)
            kind.subscribe(controller, owner, ROUTE_CHANGED)
            kind.subscribe(controller, claimants, *changed)
        kinds.backend_tls_policies.subscribe(controller, owner, CHILD_CHANGED)
        for kind in (kinds.http_routes, kinds.tls_routes, kinds.backend_tls_policies):
            kind.enqueue_when_served(controller, lambda: all_clusters(self.clusters))
        if kinds.config_maps is not None:
            kinds.config_maps.subscribe(controller, owner, CHILD_CHANGED)

    async def release(self, request: Request, children: Children | None) -> None:
        """Forget what was reported about the routes, which the garbage collector deletes."""
        self._routes.forget(request)

    async def reconcile(self, children: Children, cluster: ObservedCluster) -> None:
        """Bring the Ingresses and routes of one cluster up to date."""
        facts, settings, names = cluster.facts, cluster.settings, cluster.facts.names
        openshift = await self._environment.platform.is_openshift()
        exposure = await cluster.exposure()
        backend = None
        if not openshift:
            record_responsibility(
                children, Concern.EXPOSURE, settings.kuberay.kuberay_features, "exposure"
            )
            backend = exposure.route_backend
        required = exposure.authentication is not Authentication.DISABLED
        with_client = backend is not None and (
            not required or requires_certificates(facts, settings.kuberay)
        )
        for name, is_exposed in (
            (names.dashboard, backend is not None),
            (names.client, with_client),
        ):
            if not is_exposed:
                await self._delete_ingress(children, name)
        if backend is None:
            await self._routes.delete(children)
        if backend is None or facts.is_suspended:
            return
        domain = await self._environment.domain.read(self._client)
        if self._config.gateway.enabled:
            await self._routes.apply(children, backend, domain, settings.kuberay)
            for name, service in (
                (names.dashboard, backend.service),
                (names.client, facts.head_service),
            ):
                if self._routes.replaces(facts, name, settings.kuberay):
                    await self._delete_ingress(children, name)
                else:
                    await self._delete_outdated(children, name, service)
            return
        if not with_client:
            children.record_warning("RayClientNotExposed", CLIENT_NOT_EXPOSED)
        if not domain:
            children.record_warning("IngressDomainMissing", missing_domain_message("Ingress"))
            await self._delete_outdated(children, names.dashboard, backend.service)
            await self._routes.delete_outdated(children, backend)
            return
        await self._apply_dashboard(children, domain, backend, requires_tls=required)
        if with_client:
            await self._apply_client(children, domain)
        if not children.errors:
            await self._routes.delete(children)

    async def _apply_dashboard(
        self, children: Children, domain: str, backend: Backend, *, requires_tls: bool
    ) -> None:
        facts, config = children.facts, self._config.ingress
        chosen = choose_ingress_class(config.class_name, "", self._ingress_classes())
        if (
            backend.tls
            and config.annotations is None
            and chosen.https_backend(backend.service) is None
        ):
            children.record_warning(
                "IngressTLSUnavailable", _unavailable("dashboard", "HTTPS backends", chosen)
            )
            await self._delete_outdated(
                children, facts.names.dashboard, backend.service, chosen.name
            )
            return
        hosts = CandidateHosts.of(facts.cluster, domain, dashboard_host)
        suffix = self._choose_host(children, facts.names.dashboard, hosts)
        if suffix is None:
            await self._delete_outdated(
                children, facts.names.dashboard, backend.service, chosen.name
            )
            return
        ingress = desired_dashboard_ingress(
            facts,
            domain,
            config,
            suffix,
            backend=backend,
            requires_tls=requires_tls,
            ingress_class=chosen,
        )
        await self._apply(children, ingress)

    async def _apply_client(self, children: Children, domain: str) -> None:
        facts, config = children.facts, self._config.ingress
        chosen = choose_ingress_class(config.class_name, NGINX_CLASS, self._ingress_classes())
        if config.annotations is None and chosen.passthrough is None:
            children.record_warning(
                "IngressTLSUnavailable", _unavailable("Ray client", "TLS passthrough", chosen)
            )
            await self._delete_outdated(
                children, facts.names.client, facts.head_service, chosen.name
            )
            return
        hosts = CandidateHosts.of(facts.cluster, domain, client_host)
        suffix = self._choose_host(children, facts.names.client, hosts)
        if suffix is not None:
            await self._apply(
                children,
                desired_client_ingress(facts, domain, config, suffix, ingress_class=chosen),
            )

    def _ingress_classes(self) -> list[Object] | None:
        """Return all IngressClasses; ``None`` if the operator cannot read them."""
        return (
            self._classes.reader.list()
            if self._classes is not None and self._classes.has_synced
            else None
        )

    def _choose_host(self, children: Children, name: str, hosts: CandidateHosts) -> str | None:
        """Return the suffix of the host of the Ingress ``name``; ``None`` if another object has each of ``hosts``."""
        key = NamespacedName(namespace_of(children.cluster), name)
        choice = choose_host(
            self._claims, self.clusters, children.cluster, INGRESS.kind, key, hosts
        )
        if choice.suffix is None:
            children.record_conflict(choice.reason, choice.message)
        elif choice.message:
            children.record_warning(choice.reason, choice.message)
        return choice.suffix

    async def _apply(self, children: Children, ingress: Object) -> None:
        (rule,) = ingress["spec"]["rules"]
        consequence = f"host {rule['host']} has no Ingress of this RayCluster"
        await children.claim_and_apply(ingress, self._ingresses, consequence)

    async def _delete_ingress(self, children: Children, name: str) -> None:
        await children.delete(
            INGRESS, self._ingresses.get(NamespacedName(namespace_of(children.cluster), name))
        )

    async def _delete_outdated(
        self, children: Children, name: str, service: str, class_name: str = ""
    ) -> None:
        """Delete the Ingress ``name``, which cannot be updated, if it has another class or targets another Service.

        An Ingress that targeted the dashboard itself must not remain when users have to authenticate. Without
        ``class_name``, the class is not compared.
        """
        current = self._ingresses.get(NamespacedName(namespace_of(children.cluster), name))
        if current is None:
            return
        has_class = (
            not class_name or (current.get("spec") or {}).get("ingressClassName") == class_name
        )
        if not has_class or target_services(current) - {service}:
            await children.delete(INGRESS, current)


def _unavailable(what: str, ability: str, chosen: IngressClass) -> str:
    cause = f"its controller {chosen.controller} has no known annotations for {ability}"
    return (
        f"The Ingress of the {what} is not created with {chosen}: "
        f"{cause if chosen.controller else 'the class does not exist'}. Set kuberay.ingress.className, "
        "kuberay.ingress.annotations or kuberay.gateway in the operator's configuration"
    )
