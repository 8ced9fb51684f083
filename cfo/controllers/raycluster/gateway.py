"""Exposes the dashboard and client of a RayCluster through a Gateway: HTTPRoute and TLSRoute.

The Ingress controller (:mod:`.ingress`) decides whether routes or Ingresses are used, and in which order they change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cfo.api.gateway import RouteProblem, is_accepted, route_problems
from cfo.api.raycluster.authentication import Backend
from cfo.api.raycluster.cluster import is_owned_by
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import client_host, dashboard_host
from cfo.config.kuberay import KubeRayConfiguration
from cfo.config.network import GatewayConfiguration
from cfo.controllers.host_claims import HostClaims
from cfo.controllers.raycluster.auth_proxy import recorded_ca
from cfo.controllers.raycluster.children import SYNC_RETRY_SECONDS, Children
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
    UnknownKind,
    gvk_of,
    key_of,
    name_of,
    namespace_of,
)

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

    async def apply(
        self, children: Children, backend: Backend, domain: str, config: KubeRayConfiguration
    ) -> None:
        """Bring the routes of one cluster up to date; ``domain`` is that of the hosts, empty if it is unknown."""
        facts = children.facts
        await self._apply_dashboard(children, backend, domain)
        if not self.gateway.client_listener:
            await self._delete(children, self.kinds.tls_routes, facts.names.client)
        elif requires_certificates(facts, config):
            await self._apply_client(children, domain)
        else:
            await self._delete(children, self.kinds.tls_routes, facts.names.client)
            children.record_warning("RayClientNotExposed", CLIENT_NOT_EXPOSED)

    async def delete(self, children: Children) -> None:
        """Delete all routes of one cluster."""
        names = children.facts.names
        await self._delete(children, self.kinds.http_routes, names.dashboard)
        await self._delete(children, self.kinds.tls_routes, names.client)
        await self._delete(children, self.kinds.backend_tls_policies, names.dashboard)

    async def delete_outdated(self, children: Children, backend: Backend) -> None:
        """Delete the HTTPRoute if it could not be updated and targets another Service than that of ``backend``."""
        name = children.facts.names.dashboard
        route = _read(self.kinds.http_routes, NamespacedName(namespace_of(children.cluster), name))
        if route is not None and target_services(route) - {backend.service}:
            await self._delete(children, self.kinds.http_routes, name)

    def replaces(self, facts: RayClusterFacts, name: str, config: KubeRayConfiguration) -> bool:
        """Return whether the Gateway accepted the route that replaces the Ingress ``name`` of a cluster.

        A client Ingress that no route replaces is superseded together with that of the dashboard.
        """
        names = facts.names
        has_client_route = bool(self.gateway.client_listener) and requires_certificates(
            facts, config
        )
        kind = (
            self.kinds.tls_routes
            if name == names.client and has_client_route
            else self.kinds.http_routes
        )
        route_name = names.client if kind is self.kinds.tls_routes else names.dashboard
        route = _read(kind, NamespacedName(names.namespace, route_name))
        return route is not None and is_owned_by(route, facts.cluster) and is_accepted(route)

    async def _apply_dashboard(self, children: Children, backend: Backend, domain: str) -> None:
        facts, gateway = children.facts, self.gateway
        informer = self._served(
            children, self.kinds.http_routes, "HTTPRoute", "the dashboard has no route"
        )
        if informer is None:
            return
        if not await self._apply_backend_tls(children, backend):
            await self._delete(children, self.kinds.http_routes, facts.names.dashboard)
            return
        if gateway.dashboard_host:
            hosts = CandidateHosts(dashboard_path(facts))
            await self._apply(
                children,
                self.kinds.http_routes,
                hosts,
                lambda _: desired_path_http_route(facts, backend, gateway),
            )
        elif domain:
            await self._apply(
                children,
                self.kinds.http_routes,
                CandidateHosts.of(facts.cluster, domain, dashboard_host),
                lambda host: desired_dashboard_http_route(facts, backend, gateway, host),
            )
        else:
            children.record_warning("IngressDomainMissing", missing_domain_message("HTTPRoute"))
        await self.delete_outdated(children, backend)

    async def _apply_backend_tls(self, children: Children, backend: Backend) -> bool:
        """Let the Gateway connect to ``backend`` over TLS if it needs that; return whether a route can target it."""
        facts, names = children.facts, children.facts.names
        policies, config_maps = self.kinds.backend_tls_policies, self.kinds.config_maps
        if not backend.tls:
            await self._delete(children, policies, names.dashboard)
            return True
        informer = policies.served
        if informer is None or config_maps is None or config_maps.informer is None:
            children.record_warning("BackendTLSUnavailable", _BACKEND_TLS_UNAVAILABLE)
            return False
        secret = self.secrets.get(NamespacedName(names.namespace, names.proxy_tls_secret))
        ca = (
            recorded_ca(secret) if secret is not None and is_owned_by(secret, facts.cluster) else ""
        )
        if not ca:
            return False  # the Secret is being written, and its event follows
        consequence = "the Gateway cannot connect to the dashboard's proxy"
        try:
            for kind, desired in (
                (config_maps, desired_ca_config_map(facts, ca)),
                (policies, desired_backend_tls_policy(facts, informer.gvk, backend)),
            ):
                assert kind.informer is not None
                if (
                    await children.claim_and_apply(desired, kind.informer.reader, consequence)
                    is None
                ):
                    return False
        except UnknownKind:
            policies.mark_lost()
            children.record_warning("BackendTLSUnavailable", _BACKEND_TLS_UNAVAILABLE)
            return False
        return True

    async def _apply_client(self, children: Children, domain: str) -> None:
        facts = children.facts
        informer = self._served(
            children, self.kinds.tls_routes, "TLSRoute", "the Ray client has no route"
        )
        if informer is None:
            return
        if not domain:
            children.record_warning("IngressDomainMissing", missing_domain_message("TLSRoute"))
            return
        await self._apply(
            children,
            self.kinds.tls_routes,
            CandidateHosts.of(facts.cluster, domain, client_host),
            lambda host: desired_tls_route(facts, informer.gvk, self.gateway, host),
        )

    async def _apply(
        self,
        children: Children,
        kind: OptionalKind,
        hosts: CandidateHosts,
        desired: Callable[[str], Object],
    ) -> None:
        """Apply the route that ``desired`` returns for the chosen host, and report what the Gateway says about it."""
        informer = kind.served
        assert informer is not None
        route = desired(hosts.plain)
        key = key_of(route)
        choice = choose_host(
            self.claims, self.clusters, children.cluster, informer.gvk.kind, key, hosts
        )
        if choice.suffix is None:
            children.record_conflict(choice.reason, choice.message)
            return
        if choice.message:
            children.record_warning(choice.reason, choice.message)
        if choice.suffix:
            route = desired(hosts.hashed)
        try:
            stored = await children.claim_and_apply(
                route,
                informer.reader,
                f"{hosts.noun} {hosts.plain} has no route of this RayCluster",
            )
        except UnknownKind:
            kind.mark_lost()
            self._served(children, kind, route["kind"], "the route is deleted")
            return
        if stored is not None:
            self._report(children, stored)

    def _report(self, children: Children, route: Mapping[str, Any]) -> None:
        """Record what the Gateway says about ``route``: one Event for each change of its state.

        A route that is already accepted when the operator starts causes none. The state is kept in memory, because a
        route has no place for it; after a restart, a problem that persists is reported again.
        """
        gateway = f"Gateway {self.gateway.namespace}/{self.gateway.name}"
        states = self._reported.setdefault(key_of(children.cluster), {})
        gvk, state = gvk_of(route), _state_of(route)
        previous = states.get(gvk)
        if state == previous:
            return
        states[gvk] = state
        title = f"{gvk.kind} {name_of(route)}"
        if isinstance(state, tuple):
            for problem in state:
                children.record_warning(
                    "RouteNotAccepted",
                    f"{title}: {problem.parent} reports {problem.condition}: False ({problem.reason}): "
                    f"{problem.message}",
                )
        elif state == _PENDING and previous is None:
            children.record_normal(
                "RoutePending",
                f"{title} waits until {gateway} accepts it. If this takes long, ask the administrator whether the "
                "Gateway exists and its listeners admit routes of this namespace",
            )
        elif state == _ACCEPTED and previous is not None:
            children.record_normal("RouteAccepted", f"{title} is accepted by {gateway}")

    def _served(
        self, children: Children, kind: OptionalKind, title: str, consequence: str
    ) -> Informer | None:
        """Return the informer of ``kind`` if it can be read; otherwise report this or schedule a retry."""
        informer = kind.served
        if informer is None:
            children.record_warning(
                "GatewayAPIUnavailable",
                f"The API server does not serve {title} (Gateway API {_SINCE[title]}), so {consequence}. Ask the "
                "administrator to install its CRD, or to unset kuberay.gateway",
            )
        elif not informer.has_synced and not informer.is_forbidden:
            children.retry(SYNC_RETRY_SECONDS)
            return None
        return informer

    async def _delete(self, children: Children, kind: OptionalKind, name: str) -> None:
        key = NamespacedName(namespace_of(children.cluster), name)
        informer = kind.served
        if informer is None:
            return
        try:
            await children.delete(informer.gvk, informer.reader.get(key))
        except UnknownKind:
            kind.mark_lost()


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
