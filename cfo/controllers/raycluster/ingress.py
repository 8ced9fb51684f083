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

from functools import partial
from typing import Final

import msgspec

from cfo.api.gateway import HTTP_ROUTE, TLS_ROUTES
from cfo.api.raycluster.conditions import EXPOSED, HEAD_SERVICE_NAME_INVALID
from cfo.api.raycluster.facts import Concern, RayClusterFacts
from cfo.api.raycluster.names import (
    HEAD_SERVICE_NAME,
    HEAD_SERVICE_NAME_RULE,
    INGRESS_CLASS,
    RAY_CLUSTER,
    client_host,
    dashboard_host,
    invalid_head_service_name,
)
from cfo.api.reading import text
from cfo.api.reserved_hosts import MAY_RESERVE
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.host_claims import (
    OTHER_NAMESPACES,
    HostClaims,
    add_host_index,
    enqueue_foreign,
)
from cfo.controllers.left_out import all_keys
from cfo.controllers.raycluster.concern import (
    ClusterConcern,
    Decision,
    ObservedCluster,
)
from cfo.controllers.raycluster.dashboard_access import (
    Authentication,
    Backend,
    Exposure,
    ingress_selection,
    may_expose,
)
from cfo.controllers.raycluster.environment import ClusterEnvironment, GatewayKinds
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
from cfo.controllers.raycluster.responsibility import find_actor
from cfo.controllers.raycluster.secrets import secret_informer
from cfo.controllers.raycluster.watches import (
    CHILD_CHANGED,
    ROUTE_CHANGED,
    in_first_list,
)
from cfo.runtime import (
    INGRESS,
    READ,
    Channel,
    Controller,
    EnqueueRequestForOwner,
    EnqueueRequestsFromMapFunc,
    Entry,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Request,
    Rule,
    key_of,
    namespace_of,
    not_,
)
from cfo.runtime.client import ChildResults
from cfo.runtime.controller import Kind

_MAX_SHOWN_NAME: Final = 80


class FoundExposure(msgspec.Struct, frozen=True, kw_only=True):
    """The platform, the decision about the dashboard, and the domain of its host; empty: it is unknown."""

    is_openshift: bool
    exposure: Exposure
    domain: str

    @property
    def backend(self) -> Backend | None:
        """What Ingresses or routes target; ``None``: the operator exposes nothing through them."""
        return None if self.is_openshift else self.exposure.route_backend

    @property
    def requires_login(self) -> bool:
        """Whether users have to authenticate."""
        return self.exposure.authentication is not Authentication.DISABLED

    def allows_client(self, facts: RayClusterFacts, config: KubeRayConfiguration) -> bool:
        """Return whether an Ingress may expose the client: it requires certificates, or no login is required."""
        return not self.requires_login or requires_certificates(facts, config)


class Ingresses(ClusterConcern[FoundExposure]):
    """Creates, updates and deletes the two Ingresses of a cluster, or its routes."""

    name = "raycluster-ingress"
    condition = EXPOSED
    rules = (
        Rule("ray.io", "rayclusters", READ),
        Rule("networking.k8s.io", "ingresses", (*READ, "create", "patch", "delete")),
        Rule("networking.k8s.io", "ingressclasses", READ),
        MAY_RESERVE,
        *GatewayKinds.rules,
        *IngressDomain.rules,
    )

    def __init__(
        self, manager: Manager, config: KubeRayConfiguration, environment: ClusterEnvironment
    ) -> None:
        super().__init__(manager, config, environment)
        kinds = environment.gateway_kinds
        ingresses = self.own(
            manager.cache.informer(INGRESS, **ingress_selection(config)), CHILD_CHANGED
        )
        add_host_index(ingresses)
        self._informer = ingresses
        self._ingresses = ingresses.reader
        # An operator limited to some namespaces is not allowed to read cluster-scoped objects.
        self._classes = (
            manager.cache.informer(INGRESS_CLASS) if manager.options.namespaces is None else None
        )
        self._other_ingresses: list[Informer] = []
        """The informer of Ingresses outside the namespaces of the operator, if it has some."""
        if manager.cache.is_restricted and may_expose(config):
            elsewhere = manager.cache.informer(INGRESS, **OTHER_NAMESPACES)
            add_host_index(elsewhere)
            self._other_ingresses.append(elsewhere)
        self._claims = HostClaims(
            lambda: (ingresses, *kinds.routes()),
            lambda: (*self._other_ingresses, *kinds.routes_elsewhere()),
        )
        self._foreign_claims = Channel()
        """Enqueues RayClusters after changes of objects in other namespaces."""
        secrets = secret_informer(manager)
        if kinds.config_maps is not None:
            self.own(secrets)
        self._routes = GatewayRoutes(
            config.gateway, kinds, self._claims, self.clusters, secrets.reader
        )

    def watch(self, controller: Controller) -> None:
        """Feed ``controller`` with the kinds of routes, and all RayClusters when what all hosts depend on changes."""
        mapper = self._manager.mapper
        environment = self._environment
        changed = (CHILD_CHANGED, CLAIMS_CHANGED)  # the first reads only metadata
        controller.watch(self._foreign_claims)
        enqueue_all = EnqueueRequestsFromMapFunc(lambda _: all_keys(self.cluster_informer))
        for informer in (self._informer, *self._other_ingresses):
            controller.watch(
                Kind(
                    informer,
                    self._claimants(INGRESS.kind),
                    not_(in_first_list),
                    *changed,
                    mapper=mapper,
                    optional=True,
                )
            )
        if self._classes is not None:
            controller.watch(Kind(self._classes, enqueue_all, mapper=mapper, optional=True))
        environment.domain.settings.subscribe(controller, enqueue_all)
        kinds = environment.gateway_kinds
        owner = EnqueueRequestForOwner(RAY_CLUSTER)
        of_http_routes = self._claimants(HTTP_ROUTE.kind)
        of_tls_routes = self._claimants(TLS_ROUTES[0].kind)
        for kind, claimants in (
            (kinds.http_routes, of_http_routes),
            (kinds.tls_routes, of_tls_routes),
        ):
            kind.when_served(add_host_index)
            kind.subscribe(controller, owner, ROUTE_CHANGED)
            kind.subscribe(controller, claimants, *changed)
        for kind, claimants in zip(
            kinds.other_routes, (of_http_routes, of_tls_routes), strict=False
        ):
            kind.when_served(add_host_index)
            kind.subscribe(controller, claimants, not_(in_first_list), *changed)
        kinds.backend_tls_policies.subscribe(controller, owner, CHILD_CHANGED)
        for kind in (kinds.http_routes, kinds.tls_routes, kinds.backend_tls_policies):
            kind.enqueue_when_served(controller, lambda: all_keys(self.cluster_informer))
        if kinds.config_maps is not None:
            kinds.config_maps.subscribe(controller, owner, CHILD_CHANGED)

    def _claimants(self, kind: str) -> EnqueueRequestsFromMapFunc:
        """Return the handler of objects of this kind, which have hosts: RayClusters that use them or wait for them.

        Those in other namespaces are enqueued later.
        """

        def clusters_of(claimant: Entry) -> list[Request]:
            waiting = self._claims.waiting.take(kind, claimant.key)
            domain = self._environment.domain.current()
            found = [each.key for each in waiting]
            found += clusters_of_claims(self.clusters, claimant, domain)
            enqueue_foreign(
                self._foreign_claims, [key for key in found if key.namespace != claimant.namespace]
            )
            return [key for key in found if key.namespace == claimant.namespace]

        return EnqueueRequestsFromMapFunc(clusters_of)

    def forget(self, request: Request) -> None:
        """Forget what was reported about the routes, which the garbage collector deletes, and that they wait."""
        self._claims.waiting.forget(RAY_CLUSTER, request)
        self._routes.forget(request)

    async def observe(self, cluster: ObservedCluster) -> FoundExposure:
        """Return the platform, the decision about the dashboard and, if it is exposed, the domain of its host."""
        is_openshift = await self._environment.platform.is_openshift()
        exposure = await cluster.exposure()
        domain = ""
        needs_domain = not is_openshift and exposure.route_backend is not None
        if needs_domain and not cluster.facts.is_suspended:
            domain = await self._environment.domain.read(self._client)
        return FoundExposure(is_openshift=is_openshift, exposure=exposure, domain=domain)

    def decide(self, cluster: ObservedCluster, found: FoundExposure) -> Decision:
        """Return the Ingresses and routes of one cluster."""
        facts = cluster.facts
        config = cluster.settings.kuberay
        names = facts.names
        decision = Decision(cluster=facts.cluster)
        self._claims.waiting.forget(RAY_CLUSTER, key_of(facts.cluster))  # recorded again below
        _warn_of_head_service(decision, facts)
        backend = found.backend
        if not found.is_openshift:
            features = config.kuberay_features
            find_actor(decision, facts, Concern.EXPOSURE, features, "exposure")
        with_client = backend is not None and found.allows_client(facts, config)
        if backend is None:
            self._delete_ingress(decision, names.dashboard)
        if not with_client:
            self._delete_ingress(decision, names.client)
        if backend is None:
            self._routes.delete(decision)
            return decision
        if facts.is_suspended:
            return decision
        if self._config.gateway.enabled:
            self._routes.decide(decision, facts, backend, found.domain, config)
            decision.decide_next = partial(self._after_routes, facts, backend, config)
            return decision
        if not with_client:
            decision.warn("RayClientNotExposed", CLIENT_NOT_EXPOSED)
        if not found.domain:
            decision.warn("IngressDomainMissing", missing_domain_message("Ingress"))
            self._delete_outdated(decision, names.dashboard, backend.service)
            self._routes.delete_outdated(decision, facts, backend)
            return decision
        self._decide_dashboard(decision, facts, found.domain, backend, found.requires_login)
        if with_client:
            self._decide_client(decision, facts, found.domain)
        decision.decide_next = self._after_ingresses
        return decision

    def _after_routes(
        self,
        facts: RayClusterFacts,
        backend: Backend,
        config: KubeRayConfiguration,
        results: ChildResults,
    ) -> Decision:
        """Delete each Ingress that a route replaces, once the Gateway accepted it."""
        decision = self._routes.conclude(facts, backend, results)
        services = {facts.names.dashboard: backend.service, facts.names.client: facts.head_service}
        for name, service in services.items():
            if self._routes.replaces(facts, name, config):
                self._delete_ingress(decision, name)
            else:
                self._delete_outdated(decision, name, service)
        return decision

    def _after_ingresses(self, results: ChildResults) -> Decision | None:
        """Delete the routes, now that the Ingresses exist."""
        if results.errors:
            return None
        decision = Decision(cluster=results.owner)
        self._routes.delete(decision)
        return decision

    def _decide_dashboard(
        self,
        decision: Decision,
        facts: RayClusterFacts,
        domain: str,
        backend: Backend,
        requires_tls: bool,
    ) -> None:
        config = self._config.ingress
        name = facts.names.dashboard
        chosen = choose_ingress_class(config.class_name, "", self._ingress_classes())
        lacks_https = config.annotations is None and chosen.https_backend(backend.service) is None
        if backend.tls and lacks_https:
            message = _unavailable("dashboard", "HTTPS backends", chosen)
            decision.warn("IngressTLSUnavailable", message)
            self._delete_outdated(decision, name, backend.service, chosen.name)
            return
        hosts = CandidateHosts.of(facts.cluster, domain, dashboard_host)
        suffix = self._choose_host(decision, name, hosts)
        if suffix is None:
            self._delete_outdated(decision, name, backend.service, chosen.name)
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
        _apply(decision, ingress)

    def _decide_client(self, decision: Decision, facts: RayClusterFacts, domain: str) -> None:
        config = self._config.ingress
        name = facts.names.client
        chosen = choose_ingress_class(config.class_name, NGINX_CLASS, self._ingress_classes())
        if config.annotations is None and chosen.passthrough is None:
            message = _unavailable("Ray client", "TLS passthrough", chosen)
            decision.warn("IngressTLSUnavailable", message)
            self._delete_outdated(decision, name, facts.head_service, chosen.name)
            return
        hosts = CandidateHosts.of(facts.cluster, domain, client_host)
        suffix = self._choose_host(decision, name, hosts)
        if suffix is not None:
            ingress = desired_client_ingress(facts, domain, config, suffix, ingress_class=chosen)
            _apply(decision, ingress)

    def _ingress_classes(self) -> list[Object] | None:
        """Return all IngressClasses; ``None`` if the operator cannot read them."""
        if self._classes is None or not self._classes.has_synced:
            return None
        return self._classes.reader.list()

    def _choose_host(self, decision: Decision, name: str, hosts: CandidateHosts) -> str | None:
        """Return the suffix of the host of the Ingress ``name``; ``None`` if another object has each of ``hosts``."""
        cluster = decision.cluster
        key = NamespacedName(namespace_of(cluster), name)
        choice = choose_host(self._claims, self.clusters, cluster, INGRESS.kind, key, hosts)
        if choice.suffix is None:
            decision.report_conflict(
                choice.reason, choice.message, choice.host, is_watched=choice.is_watched
            )
        elif choice.message:
            decision.warn(choice.reason, choice.message, choice.host)
        return choice.suffix

    def _delete_ingress(self, decision: Decision, name: str) -> None:
        decision.add_absent(INGRESS, NamespacedName(namespace_of(decision.cluster), name))

    def _delete_outdated(
        self, decision: Decision, name: str, service: str, class_name: str = ""
    ) -> None:
        """Delete the Ingress ``name``, which cannot be updated, if it has another class or targets another Service.

        An Ingress that targeted the dashboard itself must not remain when users have to authenticate. Without
        ``class_name``, the class is not compared.
        """
        current = self._ingresses.get(NamespacedName(namespace_of(decision.cluster), name))
        if current is None:
            return
        current_class = (current.get("spec") or {}).get("ingressClassName")
        has_class = not class_name or current_class == class_name
        if not has_class or target_services(current) - {service}:
            self._delete_ingress(decision, name)


def _warn_of_head_service(decision: Decision, facts: RayClusterFacts) -> None:
    """Warn of a name that no Service can have. Webhooks refuse it, but may not have seen the RayCluster."""
    name = invalid_head_service_name(facts.cluster)
    if name is not None:
        where = ".".join(HEAD_SERVICE_NAME)
        shown = text(name, _MAX_SHOWN_NAME)
        message = f"{where}: {shown!r}: {HEAD_SERVICE_NAME_RULE}; KubeRay cannot create it"
        decision.warn(HEAD_SERVICE_NAME_INVALID, message)


def _apply(decision: Decision, ingress: Object) -> None:
    (rule,) = ingress["spec"]["rules"]
    decision.add_present(
        ingress,
        consequence=f"host {rule['host']} has no Ingress of this RayCluster",
        can_wait=True,
    )


def _unavailable(what: str, ability: str, chosen: IngressClass) -> str:
    cause = f"its controller {chosen.controller} has no known annotations for {ability}"
    return (
        f"The Ingress of the {what} is not created with {chosen}: "
        f"{cause if chosen.controller else 'the class does not exist'}. Set kuberay.ingress.className, "
        "kuberay.ingress.annotations or kuberay.gateway in the operator's configuration"
    )
