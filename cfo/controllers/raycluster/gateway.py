"""Exposes the dashboard and client of a RayCluster through a Gateway: HTTPRoute and TLSRoute.

The Ingress controller (:mod:`.ingress`) decides whether routes or Ingresses are used, and in which order they change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from cfo.api.gateway import RouteProblem, is_accepted, route_problems
from cfo.api.raycluster.cluster import has_owner_reference
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import client_host, dashboard_host, names_of
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.network import GatewayConfiguration
from cfo.controllers.host_claims import HostClaims
from cfo.controllers.raycluster.auth_proxy import recorded_ca
from cfo.controllers.raycluster.concern import SYNC_RETRY_SECONDS, Decision, belongs_to
from cfo.controllers.raycluster.dashboard_access import Backend
from cfo.controllers.raycluster.environment import GatewayKinds
from cfo.controllers.raycluster.host_collisions import CandidateHosts, choose_host
from cfo.controllers.raycluster.platform import OptionalKind, missing_domain_message
from cfo.controllers.raycluster.policies import requires_certificates
from cfo.controllers.raycluster.resources import (
    dashboard_path,
    desired_backend_tls_policy,
    desired_ca_config_map,
    desired_dashboard_http_route,
    desired_path_http_route,
    desired_tls_route,
    target_services,
)
from cfo.runtime import (
    GVK,
    Informer,
    NamespacedName,
    Object,
    Reader,
    gvk_of,
    key_of,
    name_of,
    namespace_of,
)
from cfo.runtime.client import Child, ChildResults, ObjectID, Outcome

_ACCEPTED = "accepted"
_PENDING = "pending"

_State = str | tuple[RouteProblem, ...]


class GatewayRoutes(msgspec.Struct, frozen=True, eq=False):
    """Creates, updates and deletes the routes of a cluster.

    ``claims``: which objects have a host; ``clusters``: all RayClusters; ``secrets``: the metadata of the Secrets with
    a cluster label.
    """

    gateway: GatewayConfiguration
    kinds: GatewayKinds
    claims: HostClaims
    clusters: Reader
    secrets: Reader
    _reported: dict[NamespacedName, dict[GVK, _State]] = msgspec.field(default_factory=dict)
    """The last state of each route that was recorded, by RayCluster."""

    def forget(self, cluster: NamespacedName) -> None:
        """Forget a cluster that no longer exists."""
        self._reported.pop(cluster, None)

    def decide(
        self,
        decision: Decision,
        facts: RayClusterFacts,
        backend: Backend,
        domain: str,
        config: KubeRayConfiguration,
    ) -> None:
        """Add the routes of one cluster; ``domain`` is that of the hosts, empty if it is unknown."""
        self._decide_dashboard(decision, facts, backend, domain)
        has_listener = bool(self.gateway.client_listener)
        if has_listener and requires_certificates(facts, config):
            self._decide_client(decision, facts, domain)
            return
        _delete(decision, self.kinds.tls_routes, facts.names.client)
        if has_listener:
            decision.warn("RayClientNotExposed", CLIENT_NOT_EXPOSED)

    def conclude(self, facts: RayClusterFacts, backend: Backend, results: ChildResults) -> Decision:
        """Return what follows from the writes: reports about the routes, and deletions of outdated ones."""
        decision = Decision(cluster=facts.cluster)
        for result in results:
            if result.outcome is Outcome.UNSERVED:
                self._report_unserved(decision, result.child.gvk)
            elif result.obj is not None and result.is_done and result.child.gvk.kind in _SINCE:
                self._report(decision, result.obj)
        self.delete_outdated(decision, facts, backend)
        return decision

    def delete(self, decision: Decision) -> None:
        """Delete all routes of one cluster."""
        names = names_of(decision.cluster)
        _delete(decision, self.kinds.http_routes, names.dashboard)
        _delete(decision, self.kinds.tls_routes, names.client)
        _delete(decision, self.kinds.backend_tls_policies, names.dashboard)
        decision.decide_next = self._mark_unserved

    def _mark_unserved(self, results: ChildResults) -> None:
        """Await the return of kinds that are no longer served."""
        unserved = {result.child.gvk for result in results if result.outcome is Outcome.UNSERVED}
        kinds = self.kinds
        for kind in (kinds.http_routes, kinds.tls_routes, kinds.backend_tls_policies):
            if kind.served is not None and kind.served.gvk in unserved:
                kind.mark_lost()

    def delete_outdated(self, decision: Decision, facts: RayClusterFacts, backend: Backend) -> None:
        """Delete the HTTPRoute if it could not be updated and targets another Service than that of ``backend``."""
        name = facts.names.dashboard
        route = _read(self.kinds.http_routes, NamespacedName(facts.names.namespace, name))
        if route is not None and target_services(route) - {backend.service}:
            _delete(decision, self.kinds.http_routes, name)

    def replaces(self, facts: RayClusterFacts, name: str, config: KubeRayConfiguration) -> bool:
        """Return whether the Gateway accepted the route that replaces the Ingress ``name`` of a cluster.

        A client Ingress that no route replaces is superseded together with that of the dashboard.
        """
        names = facts.names
        has_listener = bool(self.gateway.client_listener)
        has_client_route = has_listener and requires_certificates(facts, config)
        kind = self.kinds.http_routes
        route_name = names.dashboard
        if name == names.client and has_client_route:
            kind = self.kinds.tls_routes
            route_name = names.client
        route = _read(kind, NamespacedName(names.namespace, route_name))
        return (
            route is not None and has_owner_reference(route, facts.cluster) and is_accepted(route)
        )

    def _decide_dashboard(
        self, decision: Decision, facts: RayClusterFacts, backend: Backend, domain: str
    ) -> None:
        gateway = self.gateway
        kind = self.kinds.http_routes
        informer = self._served(decision, kind, "HTTPRoute", "the dashboard has no route")
        if informer is None:
            return
        requirements = self._decide_backend_tls(decision, facts, backend)
        if requirements is None:
            _delete(decision, kind, facts.names.dashboard)
            return
        if gateway.dashboard_host:
            self._decide_route(
                decision,
                informer,
                CandidateHosts(dashboard_path(facts)),
                lambda _: desired_path_http_route(facts, backend, gateway),
                requirements,
            )
        elif domain:
            self._decide_route(
                decision,
                informer,
                CandidateHosts.of(facts.cluster, domain, dashboard_host),
                lambda host: desired_dashboard_http_route(facts, backend, gateway, host),
                requirements,
            )
        else:
            decision.warn("IngressDomainMissing", missing_domain_message("HTTPRoute"))

    def _decide_backend_tls(
        self, decision: Decision, facts: RayClusterFacts, backend: Backend
    ) -> tuple[ObjectID, ...] | None:
        """Let the Gateway connect to ``backend`` over TLS if it needs that.

        Returns the children without which no route can target it; ``None``: none can at all.
        """
        names = facts.names
        policies = self.kinds.backend_tls_policies
        config_maps = self.kinds.config_maps
        if not backend.tls:
            _delete(decision, policies, names.dashboard)
            return ()
        informer = policies.served
        if informer is None or config_maps is None or config_maps.informer is None:
            decision.warn("BackendTLSUnavailable", _BACKEND_TLS_UNAVAILABLE)
            return None
        secret = self.secrets.get(NamespacedName(names.namespace, names.proxy_tls_secret))
        if (
            secret is None
            or not has_owner_reference(secret, facts.cluster)
            or not recorded_ca(secret)
        ):
            return None  # the Secret is being written, and its event follows
        consequence = "the Gateway cannot connect to the dashboard's proxy"
        config_map = decision.add_present(
            desired_ca_config_map(facts, recorded_ca(secret)), consequence=consequence
        )
        policy = decision.add_present(
            desired_backend_tls_policy(facts, informer.gvk, backend),
            consequence=consequence,
            requires=(config_map.id,),
            is_optional=True,
        )
        return config_map.id, policy.id

    def _decide_client(self, decision: Decision, facts: RayClusterFacts, domain: str) -> None:
        kind = self.kinds.tls_routes
        informer = self._served(decision, kind, "TLSRoute", "the Ray client has no route")
        if informer is None:
            return
        if not domain:
            decision.warn("IngressDomainMissing", missing_domain_message("TLSRoute"))
            return
        self._decide_route(
            decision,
            informer,
            CandidateHosts.of(facts.cluster, domain, client_host),
            lambda host: desired_tls_route(facts, informer.gvk, self.gateway, host),
        )

    def _decide_route(
        self,
        decision: Decision,
        informer: Informer,
        hosts: CandidateHosts,
        desired: Callable[[str], Object],
        requirements: tuple[ObjectID, ...] = (),
    ) -> None:
        """Add the route that ``desired`` returns for the chosen host; without the ``requirements``, delete it."""
        route = desired(hosts.plain)
        key = key_of(route)
        gvk = informer.gvk
        choice = choose_host(self.claims, self.clusters, decision.cluster, gvk.kind, key, hosts)
        if choice.suffix is None:
            decision.report_conflict(
                choice.reason, choice.message, choice.host, is_watched=choice.is_watched
            )
            return
        if choice.message:
            decision.warn(choice.reason, choice.message, choice.host)
        if choice.suffix:
            route = desired(hosts.with_suffix(choice.suffix))
        belongs = partial(belongs_to, cluster=decision.cluster)
        decision.add_present(
            route,
            consequence=f"{hosts.noun} {hosts.plain} has no route of this RayCluster",
            requires=requirements,
            fallback=Child.absent(gvk, key, belongs=belongs) if requirements else None,
            is_optional=True,
            can_wait=True,
        )

    def _report(self, decision: Decision, route: Mapping[str, Any]) -> None:
        """Record what the Gateway says about ``route``: one Event for each change of its state.

        A route that is already accepted when the operator starts causes none. The state is kept in memory, because a
        route has no place for it; after a restart, a problem that persists is reported again.
        """
        gateway = f"Gateway {self.gateway.namespace}/{self.gateway.name}"
        states = self._reported.setdefault(key_of(decision.cluster), {})
        gvk = gvk_of(route)
        state = _state_of(route)
        previous = states.get(gvk)
        if state == previous:
            return
        states[gvk] = state
        title = f"{gvk.kind} {name_of(route)}"
        if isinstance(state, tuple):
            for problem in state:
                decision.warn(
                    "RouteNotAccepted",
                    f"{title}: {problem.parent} reports {problem.condition}: False ({problem.reason}): "
                    f"{problem.message}",
                )
        elif state == _PENDING and previous is None:
            decision.inform(
                "RoutePending",
                f"{title} waits until {gateway} accepts it. If this takes long, ask the administrator whether the "
                "Gateway exists and its listeners admit routes of this namespace",
            )
        elif state == _ACCEPTED and previous is not None:
            decision.inform("RouteAccepted", f"{title} is accepted by {gateway}")

    def _report_unserved(self, decision: Decision, gvk: GVK) -> None:
        """Record that a kind is no longer served, so that its return is awaited."""
        for kind in (self.kinds.http_routes, self.kinds.tls_routes):
            if kind.served is not None and kind.served.gvk == gvk:
                kind.mark_lost()
                self._served(decision, kind, gvk.kind, "the route is deleted")
        policies = self.kinds.backend_tls_policies
        if policies.served is not None and policies.served.gvk == gvk:
            policies.mark_lost()
            decision.warn("BackendTLSUnavailable", _BACKEND_TLS_UNAVAILABLE)

    def _served(
        self, decision: Decision, kind: OptionalKind, title: str, consequence: str
    ) -> Informer | None:
        """Return the informer of ``kind`` if it can be read; otherwise report this or schedule a retry."""
        informer = kind.served
        if informer is None:
            decision.warn(
                "GatewayAPIUnavailable",
                f"The API server does not serve {title} (Gateway API {_SINCE[title]}), so {consequence}. Ask the "
                "administrator to install its CRD, or to unset kuberay.gateway",
            )
        elif not informer.has_synced and not informer.is_forbidden:
            decision.retry(SYNC_RETRY_SECONDS)
            return None
        return informer


def _delete(decision: Decision, kind: OptionalKind, name: str) -> None:
    if kind.served is not None:
        decision.add_absent(kind.served.gvk, NamespacedName(namespace_of(decision.cluster), name))


def _state_of(route: Mapping[str, Any]) -> _State:
    if is_accepted(route):
        return _ACCEPTED
    return tuple(route_problems(route)) or _PENDING


def _read(kind: OptionalKind, key: NamespacedName) -> Object | None:
    return kind.served.reader.get(key) if kind.served is not None else None


_SINCE = {"HTTPRoute": "1.0", "TLSRoute": "1.5, or the experimental channel before"}
"""By kind: the first release of the Gateway API that serves it."""

CLIENT_NOT_EXPOSED = (
    "The Ray client (port 10001) is not exposed, because it is not certain that it requires certificates: mTLS is "
    "disabled or is not injected into this RayCluster, or the RayCluster sets spec.tlsOptions. Recreate the RayCluster "
    "with mTLS and without tlsOptions"
)
"""The message of the Event ``RayClientNotExposed``."""

_BACKEND_TLS_UNAVAILABLE = (
    "The dashboard has no route through the Gateway, because its proxy serves HTTPS and the API server does not serve "
    "BackendTLSPolicy (Gateway API 1.4, or the experimental channel before). Ask the administrator to install its CRD"
)
