"""What the concern of Ingresses decides, without a server: Ingresses, and the routes that replace them."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.gateway import BACKEND_TLS_POLICIES, HTTP_ROUTE, TLS_ROUTES
from cfo.api.raycluster.cluster import TLS_VARIABLE
from cfo.api.raycluster.names import INGRESS_CLASS, RAY_CLUSTER
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.host_claims import add_host_index
from cfo.controllers.raycluster.concern import Decision
from cfo.controllers.raycluster.dashboard_access import Authentication, Backend, Exposure
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.ingress import FoundExposure, Ingresses
from cfo.runtime import CONFIG_MAP, NamespacedName, Object, key_of
from cfo.runtime.client import ChildResult, Outcome
from test.support.decisions import (
    children,
    list_objects,
    observed_cluster,
    offline_manager,
    owned,
    reasons,
    serve,
    stored_cluster,
    written,
)

PLAIN = Backend("rc-head-svc", 8265, "dashboard", tls=False)
SECURE = Backend("rc-proxy", 443, "https", tls=True)
DASHBOARD = "+Ingress ray-dashboard-rc"
CLIENT = "+Ingress rayclient-rc"
NO_INGRESSES = ["-Ingress ray-dashboard-rc", "-Ingress rayclient-rc"]
NO_ROUTES = [
    "-HTTPRoute ray-dashboard-rc",
    "-TLSRoute rayclient-rc",
    "-BackendTLSPolicy ray-dashboard-rc",
]
GATEWAY = {
    "name": "shared",
    "namespace": "gateways",
    "dashboardListener": "https",
    "clientListener": "ray-client",
}


class World:
    """The concern with a configuration, the stored RayClusters and what else is in its informers."""

    def __init__(self, *clusters: Object, gateway: Any = None, **settings: Any) -> None:
        self.manager = offline_manager()
        extra = {"gateway": gateway} if gateway else {}
        fields = {"rayDashboardOAuthEnabled": False, "ingressDomain": "apps.test"}
        self.config = KubeRayConfiguration.from_document({**fields, **extra, **settings})
        self.environment = ClusterEnvironment.detect(self.manager, self.config)
        self.concern = Ingresses(self.manager, self.config, self.environment)
        kinds = self.environment.gateway_kinds
        for kind in (kinds.http_routes, kinds.tls_routes):
            kind.when_served(add_host_index)
        self.clusters = clusters or (stored_cluster(),)
        list_objects(self.manager.cache.informer(RAY_CLUSTER), self.clusters)

    def list_ingresses(self, *ingresses: Object) -> None:
        list_objects(self.concern._informer, ingresses)

    def serve_routes(self, *http_routes: Object, tls_routes: Any = ()) -> None:
        kinds = self.environment.gateway_kinds
        serve(kinds.http_routes, HTTP_ROUTE, self.manager, http_routes)
        serve(kinds.tls_routes, TLS_ROUTES[0], self.manager, tls_routes)
        serve(kinds.backend_tls_policies, BACKEND_TLS_POLICIES[0], self.manager)
        if kinds.config_maps is not None:
            serve(kinds.config_maps, CONFIG_MAP, self.manager)

    def decide(
        self,
        backend: Backend | None = PLAIN,
        *,
        is_openshift: bool = False,
        domain: str = "apps.test",
        authentication: Authentication = Authentication.DISABLED,
    ) -> Decision:
        cluster = observed_cluster(self.clusters[0], self.config, self.environment)
        exposure = Exposure(authentication, backend)
        found = FoundExposure(is_openshift=is_openshift, exposure=exposure, domain=domain)
        return self.concern.decide(cluster, found)


def ingress(
    name: str = "ray-dashboard-rc", *, service: str = "rc-head-svc", host: str = ""
) -> Object:
    path = {"backend": {"service": {"name": service}}}
    rule = {"host": host, "http": {"paths": [path]}}
    metadata = {"name": name, "namespace": "ns"}
    spec = {"ingressClassName": "nginx", "rules": [rule]}
    return {"metadata": metadata, "spec": spec}


def with_tls(cluster: Object) -> Object:
    pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    pod["initContainers"] = [{"name": "create-cert"}]
    pod["containers"][0]["env"] = [TLS_VARIABLE]
    return cluster


def test_both_ingresses_are_present_and_then_the_routes_absent() -> None:
    world = World()
    world.list_ingresses()
    world.serve_routes()
    decision = world.decide()
    assert children(decision) == [DASHBOARD, CLIENT]
    assert all(child.can_wait for child in decision.children)
    assert decision.decide_next is not None
    following = decision.decide_next(written(decision))
    assert following is not None
    assert children(following) == NO_ROUTES


def test_name_that_the_head_service_cannot_have_is_reported_and_not_sent() -> None:
    cluster = stored_cluster()
    name = "x" * 250_000
    cluster["spec"]["headGroupSpec"]["headService"] = {"metadata": {"name": name}}
    decision = World(cluster).decide()
    assert children(decision)[:2] == [DASHBOARD, CLIENT]
    (notice,) = decision.notices
    assert notice.reason == "HeadServiceNameInvalid"
    assert notice.message.startswith("spec.headGroupSpec.headService.metadata.name: 'xxx")
    assert len(notice.message) < 400
    assert name not in str(decision.children)


def test_routes_stay_while_an_ingress_cannot_be_written() -> None:
    world = World()
    world.list_ingresses()
    decision = world.decide()
    results = written(decision)
    refused = ValueError("refused")
    child = decision.children[0]
    results.add(ChildResult(child=child, outcome=Outcome.FAILED, error=refused))
    assert decision.decide_next is not None
    assert decision.decide_next(results) is None


@pytest.mark.parametrize(("backend", "is_openshift"), [(None, False), (PLAIN, True)])
def test_nothing_is_exposed_without_a_backend_or_on_openshift(
    backend: Backend | None, is_openshift: bool
) -> None:
    world = World()
    world.list_ingresses()
    world.serve_routes()
    decision = world.decide(backend, is_openshift=is_openshift)
    assert children(decision) == NO_INGRESSES + NO_ROUTES


def test_suspended_cluster_keeps_its_ingresses() -> None:
    world = World(stored_cluster(suspend=True))
    world.list_ingresses(owned(ingress(), stored_cluster()))
    assert children(world.decide()) == []


def test_client_without_certificates_is_not_exposed_behind_a_login() -> None:
    world = World()
    world.list_ingresses()
    decision = world.decide(authentication=Authentication.RAY_TOKEN)
    assert children(decision) == ["-Ingress rayclient-rc", DASHBOARD]
    assert reasons(decision) == ["RayClientNotExposed"]


@pytest.mark.parametrize(("service", "is_deleted"), [("rc-head-svc", False), ("other", True)])
def test_without_a_domain_only_an_ingress_of_another_service_is_deleted(
    service: str, is_deleted: bool
) -> None:
    world = World()
    world.list_ingresses(owned(ingress(service=service), stored_cluster()))
    decision = world.decide(domain="")
    assert reasons(decision) == ["IngressDomainMissing"]
    assert bool(decision.children) is is_deleted


def ingress_class(name: str, controller: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"controller": controller}}


def test_class_without_https_backends_exposes_no_secure_dashboard() -> None:
    world = World(ingress={"className": "other"})
    informer = world.manager.cache.informer(INGRESS_CLASS)
    list_objects(informer, [ingress_class("other", "example.com/unknown")])
    world.list_ingresses(owned(ingress(), stored_cluster()))
    decision = world.decide(SECURE)
    assert reasons(decision) == ["IngressTLSUnavailable", "IngressTLSUnavailable"]
    assert children(decision) == ["-Ingress ray-dashboard-rc"]
    assert "has no known annotations for HTTPS backends" in decision.notices[0].message


def test_class_that_does_not_exist_is_named() -> None:
    world = World(ingress={"className": "other"})
    list_objects(world.manager.cache.informer(INGRESS_CLASS))
    world.list_ingresses()
    decision = world.decide()
    assert "the class does not exist" in decision.notices[0].message
    assert children(decision) == [DASHBOARD]


def test_host_of_another_owner_is_not_taken() -> None:
    world = World()
    hosts = ["ray-dashboard-rc-ns.apps.test", "rayclient-rc-ns.apps.test"]
    taken = [ingress(f"other-{number}", host=host) for number, host in enumerate(hosts)]
    outdated = owned(ingress(service="other"), stored_cluster())
    world.list_ingresses(*taken, outdated)
    decision = world.decide()
    assert reasons(decision) == ["HostTaken", "HostTaken"]
    assert children(decision) == ["-Ingress ray-dashboard-rc"]
    assert decision.retry_after == 0, "a change of the other objects enqueues the cluster"


def test_newer_cluster_with_the_same_host_gets_one_with_a_hash() -> None:
    older = stored_cluster("rc-x", "ns")
    newer = stored_cluster("rc", "x-ns")
    newer["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    world = World(newer, older)
    world.list_ingresses()
    decision = world.decide()
    assert reasons(decision) == ["HostTaken", "HostTaken"]
    assert children(decision) == [DASHBOARD, CLIENT]
    desired = decision.children[0].desired
    assert desired is not None
    (rule,) = desired["spec"]["rules"]
    assert rule["host"] != "ray-dashboard-rc-x-ns.apps.test"


# Routes


def accepted(name: str, kind: str, service: str = "rc-head-svc", *, status: str = "True") -> Object:
    """Return a stored route of the cluster about which its Gateway reports ``status``."""
    common = {"reason": "Reason", "message": "a cause", "observedGeneration": 1}
    conditions = [
        {"type": "Accepted", "status": status, **common},
        {"type": "ResolvedRefs", "status": "True", **common},
    ]
    parent = {"parentRef": {"name": "shared"}, "conditions": conditions}
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "generation": 1},
        "spec": {
            "parentRefs": [{"name": "shared"}],
            "rules": [{"backendRefs": [{"name": service}]}],
        },
        "status": {"parents": [parent]},
    }
    return owned(route, stored_cluster())


def gateway_world(cluster: Object | None = None, **settings: Any) -> World:
    return World(cluster or stored_cluster(), gateway=GATEWAY, **settings)


def test_gateway_api_that_is_not_served_is_reported() -> None:
    world = gateway_world(with_tls(stored_cluster()))
    world.list_ingresses()
    decision = world.decide()
    assert reasons(decision) == ["GatewayAPIUnavailable", "GatewayAPIUnavailable"]
    assert children(decision) == []


def test_routes_replace_the_ingresses_once_they_are_accepted() -> None:
    world = gateway_world(with_tls(stored_cluster()))
    cluster = stored_cluster()
    world.list_ingresses(owned(ingress(), cluster), owned(ingress("rayclient-rc"), cluster))
    world.serve_routes()
    decision = world.decide()
    assert children(decision) == [
        "-BackendTLSPolicy ray-dashboard-rc",
        "+HTTPRoute ray-dashboard-rc",
        "+TLSRoute rayclient-rc",
    ]
    assert decision.decide_next is not None
    pending = decision.decide_next(written(decision))
    assert pending is not None
    assert reasons(pending) == ["RoutePending", "RoutePending"]
    assert children(pending) == []

    http = accepted("ray-dashboard-rc", "HTTPRoute")
    tls = accepted("rayclient-rc", "TLSRoute")
    world.serve_routes(http, tls_routes=[tls])
    accepting = decision.decide_next(written(decision))
    assert accepting is not None
    assert children(accepting) == NO_INGRESSES


def test_client_route_needs_certificates() -> None:
    world = gateway_world()
    world.list_ingresses()
    world.serve_routes()
    decision = world.decide()
    assert "-TLSRoute rayclient-rc" in children(decision)
    assert reasons(decision) == ["RayClientNotExposed"]


def test_route_without_a_domain_is_not_present() -> None:
    world = gateway_world(with_tls(stored_cluster()))
    world.list_ingresses()
    world.serve_routes()
    decision = world.decide(domain="")
    assert reasons(decision) == ["IngressDomainMissing", "IngressDomainMissing"]


def test_dashboards_can_share_a_host() -> None:
    world = World(gateway={**GATEWAY, "dashboardHost": "ray.test"})
    world.list_ingresses()
    world.serve_routes()
    decision = world.decide(domain="")
    (route,) = [child for child in decision.children if child.gvk == HTTP_ROUTE]
    assert route.desired is not None
    assert route.desired["spec"]["hostnames"] == ["ray.test"]
    assert route.can_wait


def test_route_that_is_not_listed_yet_is_awaited() -> None:
    world = gateway_world()
    world.list_ingresses()
    kinds = world.environment.gateway_kinds
    kinds.http_routes._on_available(HTTP_ROUTE, world.manager)
    decision = world.decide()
    assert children(decision) == []
    assert decision.retry_after > 0


def test_route_with_the_host_of_another_owner_is_not_present() -> None:
    world = gateway_world()
    taken = {"metadata": {"name": "other", "namespace": "a"}}
    taken["spec"] = {"hostnames": ["ray-dashboard-rc-ns.apps.test"]}
    world.list_ingresses()
    world.serve_routes(taken)
    decision = world.decide()
    assert "HostTaken" in reasons(decision)
    assert "+HTTPRoute ray-dashboard-rc" not in children(decision)


def test_rejected_route_is_reported_once_and_its_acceptance() -> None:
    world = gateway_world()
    world.list_ingresses()
    world.serve_routes()
    routes = world.concern._routes
    decision = world.decide()
    stored = {"False": "RouteNotAccepted", "True": "RouteAccepted"}
    facts = observed_cluster(world.clusters[0], world.config, world.environment).facts
    for status, reason in stored.items():
        results = written(decision)
        (child,) = [child for child in decision.children if child.gvk == HTTP_ROUTE]
        route = accepted("ray-dashboard-rc", "HTTPRoute", status=status)
        results.add(ChildResult(child=child, outcome=Outcome.DONE, obj=route))
        assert reasons(routes.conclude(facts, PLAIN, results)) == [reason]
        assert reasons(routes.conclude(facts, PLAIN, results)) == []
    routes.forget(NamespacedName("ns", "rc"))


@pytest.mark.parametrize("kind", ["HTTPRoute", "BackendTLSPolicy"])
def test_kind_that_is_no_longer_served_is_reported_and_awaited(kind: str) -> None:
    world = gateway_world()
    world.list_ingresses()
    world.serve_routes()
    decision = world.decide()
    assert decision.decide_next is not None
    results = written(decision, unserved=kind)
    assert results.errors == [], "the return of the kind is awaited, so a retry would be too early"
    following = decision.decide_next(results)
    assert following is not None
    expected = {"HTTPRoute": "GatewayAPIUnavailable", "BackendTLSPolicy": "BackendTLSUnavailable"}
    assert expected[kind] in reasons(following)
    again = world.decide()
    assert f"+{kind} ray-dashboard-rc" not in children(again)


def test_unserved_kind_of_a_deleted_route_is_awaited() -> None:
    world = World()
    world.list_ingresses()
    world.serve_routes()
    decision = world.decide(None)
    assert decision.decide_next is not None
    assert decision.decide_next(written(decision, unserved="TLSRoute")) is None
    assert world.environment.gateway_kinds.tls_routes.served is None


def test_outdated_route_is_deleted() -> None:
    world = gateway_world()
    world.list_ingresses()
    world.serve_routes(accepted("ray-dashboard-rc", "HTTPRoute", "former-service"))
    decision = world.decide()
    assert decision.decide_next is not None
    following = decision.decide_next(written(decision))
    assert following is not None
    assert "-HTTPRoute ray-dashboard-rc" in children(following)


def test_secure_backend_needs_a_policy() -> None:
    world = gateway_world()
    world.list_ingresses()
    world.serve_routes()
    decision = world.decide(SECURE)
    assert "BackendTLSUnavailable" in reasons(decision)
    assert "-HTTPRoute ray-dashboard-rc" in children(decision)


def test_cluster_that_needs_no_host_any_more_does_not_wait_for_one() -> None:
    world = World()
    taken = ingress("other", host="ray-dashboard-rc-ns.apps.test")
    world.list_ingresses(taken)
    waiting = world.concern._claims.waiting
    world.decide()
    world.decide(backend=None)
    assert waiting.take("Ingress", key_of(taken)) == []
    world.decide()
    assert [each.key.name for each in waiting.take("Ingress", key_of(taken))] == ["rc"]
