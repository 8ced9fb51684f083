"""The conditions of a RayCluster: what they say about its dashboard, CA and NetworkPolicies."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cfo.api.gateway import HTTP_ROUTE, TLS_ROUTES
from cfo.api.raycluster.certificates import RENEWAL_ANNOTATION
from cfo.api.raycluster.cluster import TLS_VARIABLE
from cfo.api.raycluster.conditions import EXPOSED, MUTUAL_TLS, NETWORK_POLICIES
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import RAY_CLUSTER, ROUTE
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster.concern import Notice
from cfo.controllers.raycluster.conditions import (
    OWN_CONDITIONS_CHANGED,
    ClusterConditions,
    conditions_of,
    with_warnings,
)
from cfo.controllers.raycluster.dashboard_access import Authentication, Exposure
from cfo.controllers.raycluster.environment import ClusterEnvironment
from cfo.controllers.raycluster.watches import HEAD_SERVICE_CHANGED, STATUS_CHANGED
from cfo.runtime import GVK, INGRESS, NETWORK_POLICY, SECRET, Object, find_condition
from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from test.support.decisions import (
    list_objects,
    observed_cluster,
    offline_manager,
    owned,
    stored_cluster,
)
from test.support.ray_clusters import ray_cluster

CONFIG = KubeRayConfiguration(kuberay_features=["tlsOptions"])
WITH_TLS = {
    "initContainers": [{"name": "create-cert"}],
    "containers": [{"name": "ray-head", "image": "ray", "env": [TLS_VARIABLE]}],
}
ALLOWED = Exposure(Authentication.DISABLED, None)
UNAVAILABLE = Exposure(Authentication.UNAVAILABLE, None, "OAuthUnavailable", "no OAuth server")


def child(name: str, *, annotations: dict[str, str] | None = None, **fields: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "ns", "annotations": annotations or {}},
        **fields,
    }


def condition(
    kind: str,
    cluster: Object,
    children: dict[GVK, list[Object]] | None = None,
    exposure: Exposure = ALLOWED,
) -> tuple[str, str, str]:
    found = (
        find_condition(
            conditions_of(RayClusterFacts(cluster), children or {}, exposure, CONFIG), kind
        )
        or {}
    )
    return found["status"], found["reason"], found["message"]


def entry(status: Any) -> Entry:
    """Return a stored RayCluster with this status."""
    return EntryDecoder(RAY_CLUSTER).decode(orjson.dumps({**ray_cluster(), "status": status}))


WRITTEN = {"conditions": [{"type": EXPOSED, "status": "True", "reason": "Exposed", "message": "m"}]}


@pytest.mark.parametrize(
    "status",
    [
        *(None, "x", 3, [], {}, {"head": 3}, {"head": {"serviceName": [3]}}),
        *({"conditions": value} for value in (None, "x", {}, [3], [None], [{"type": 1}], [{}])),
    ],
)
def test_status_of_any_type_is_compared(status: Any) -> None:
    before, after = entry(status), entry({**WRITTEN, "head": {"serviceName": "rc-head-svc"}})
    key = before.key
    for changed in (STATUS_CHANGED, HEAD_SERVICE_CHANGED):
        assert not changed(Event(EventType.UPDATED, key, before, before))
        assert changed(Event(EventType.UPDATED, key, before, after))
    assert not OWN_CONDITIONS_CHANGED(Event(EventType.UPDATED, key, before, before))
    assert OWN_CONDITIONS_CHANGED(Event(EventType.UPDATED, key, before, after))
    assert OWN_CONDITIONS_CHANGED(Event(EventType.UPDATED, key, after, before))


def test_conditions_of_others_and_their_times_are_not_compared() -> None:
    foreign = {"type": "HeadPodReady", "status": "True"}
    timed = {**WRITTEN["conditions"][0], "lastTransitionTime": "2026-01-01T00:00:00Z"}
    before, after = entry(WRITTEN), entry({"conditions": [foreign, timed]})
    assert not OWN_CONDITIONS_CHANGED(Event(EventType.UPDATED, before.key, before, after))


def test_messages_of_problems_are_not_compared() -> None:
    refused = {**WRITTEN["conditions"][0], "reason": "FailedToReconcile", "message": "used: 1"}
    before = entry({"conditions": [refused]})
    after = entry({"conditions": [{**refused, "message": "used: 2"}]})
    ended = entry(WRITTEN)
    assert not OWN_CONDITIONS_CHANGED(Event(EventType.UPDATED, before.key, before, after))
    assert OWN_CONDITIONS_CHANGED(Event(EventType.UPDATED, before.key, before, ended))


@pytest.mark.parametrize(
    ("change", "has_changed"),
    [
        ({"lastUpdateTime": "2026-01-01T00:00:01Z"}, False),
        ({"head": {"serviceName": "rc-head-svc"}}, True),
        ({"conditions": []}, True),
        ({"conditions": None}, True),
    ],
)
def test_only_what_predicates_read_of_a_status_is_compared(
    change: dict[str, Any], *, has_changed: bool
) -> None:
    before, after = entry(WRITTEN), entry({**WRITTEN, **change})
    assert STATUS_CHANGED(Event(EventType.UPDATED, before.key, before, after)) is has_changed
    assert not STATUS_CHANGED(Event(EventType.UPDATED, before.key, after, after))


INGRESSES = [
    child(
        "ray-dashboard-rc",
        spec={"rules": [{"host": "d.example.com"}], "tls": [{"hosts": ["d.example.com"]}]},
    ),
    child("rayclient-rc", spec={"rules": [{"host": "c.example.com"}]}),
]


def http_route() -> Object:
    return child("ray-dashboard-rc", spec={"hostnames": ["d.example.com"]})


def tls_route(**parent: Any) -> Object:
    parents = [{"name": "shared", "sectionName": "ray-client", **parent}]
    return child("rayclient-rc", spec={"parentRefs": parents, "hostnames": ["c.example.com"]})


@pytest.mark.parametrize("gvk", TLS_ROUTES, ids=str)
@pytest.mark.parametrize(
    ("parent", "port"), [({}, 443), ({"port": 8443}, 8443), ({"port": "x"}, 443)]
)
def test_client_behind_a_gateway_is_exposed_with_the_port_of_its_listener(
    gvk: GVK, parent: dict[str, Any], port: int
) -> None:
    children = {HTTP_ROUTE: [http_route()], gvk: [tls_route(**parent)]}
    message = f"Dashboard: https://d.example.com; Ray client: ray://c.example.com:{port}"
    assert condition(EXPOSED, ray_cluster(), children) == ("True", "Exposed", message)


@pytest.mark.parametrize(
    ("children", "exposure", "spec", "expected"),
    [
        (
            {INGRESS: INGRESSES},
            ALLOWED,
            {},
            (
                "True",
                "Exposed",
                "Dashboard: https://d.example.com; Ray client: ray://c.example.com",
            ),
        ),
        (
            {INGRESS: INGRESSES[:1]},
            ALLOWED,
            {},
            ("True", "Exposed", "Dashboard: https://d.example.com"),
        ),
        (
            {
                ROUTE: [
                    child(
                        "ray-dashboard-rc",
                        spec={"host": "r.example.com", "tls": {"termination": "reencrypt"}},
                    )
                ]
            },
            ALLOWED,
            {},
            ("True", "Exposed", "Dashboard: https://r.example.com"),
        ),
        ({}, UNAVAILABLE, {}, ("False", "OAuthUnavailable", "no OAuth server")),
        ({}, ALLOWED, {"suspend": True}, ("False", "Suspended", "The RayCluster is suspended")),
        (
            {INGRESS: INGRESSES},
            ALLOWED,
            {"suspend": True},
            ("False", "Suspended", "The RayCluster is suspended"),
        ),
    ],
)
def test_exposed_has_urls_or_the_reason(
    children: dict[GVK, list[Object]],
    exposure: Exposure,
    spec: dict[str, Any],
    expected: tuple[str, str, str],
) -> None:
    assert condition(EXPOSED, ray_cluster(**spec), children, exposure) == expected


def test_dashboard_with_a_host_that_dns_cannot_resolve_is_not_exposed() -> None:
    host = f"{'k' * 64}.example.com"
    dashboard = child("ray-dashboard-rc", spec={"rules": [{"host": host}]})
    status, reason, message = condition(EXPOSED, ray_cluster(), {INGRESS: [dashboard]})
    assert (status, reason) == ("False", "HostTooLong")
    assert f"http://{host}" in message


SHARED = Notice("Warning", "HostShared", "host a is also used by b")
TAKEN = Notice("Warning", "NameTaken", "Ingress c exists")
MISSING = Notice("Warning", "MissingRole", "install the role d")


@pytest.mark.parametrize(
    ("state", "warnings", "expected"),
    [
        (("True", "Exposed", "Dashboard: a"), [], ("Exposed", "Dashboard: a")),
        (
            ("True", "Exposed", "Dashboard: a"),
            [SHARED, TAKEN, SHARED],
            ("HostShared", f"{SHARED.message}. NameTaken: {TAKEN.message}. Dashboard: a"),
        ),
        (("False", "NotExposed", "none"), [TAKEN], ("NameTaken", TAKEN.message)),
        (("False", "OAuthUnavailable", "none"), [TAKEN], ("OAuthUnavailable", "none")),
        (
            ("False", "OAuthUnavailable", "none"),
            [TAKEN, MISSING],
            ("MissingRole", f"{MISSING.message}. OAuthUnavailable: none"),
        ),
        (
            ("False", "NotExposed", "none"),
            [TAKEN, MISSING],
            ("MissingRole", f"{MISSING.message}. NameTaken: {TAKEN.message}"),
        ),
        (
            ("True", "Exposed", "Dashboard: a"),
            [Notice("Warning", "RouteNotAccepted", "recorded once for each change")],
            ("Exposed", "Dashboard: a"),
        ),
    ],
)
def test_condition_has_the_lasting_warnings(
    state: tuple[str, str, str], warnings: list[Notice], expected: tuple[str, str]
) -> None:
    status, reason, message = state
    known = {"type": EXPOSED, "status": status, "reason": reason, "message": message}
    found = with_warnings(known, warnings)
    assert (found["status"], found["reason"], found["message"]) == (status, *expected)


def test_condition_with_many_long_warnings_is_bounded() -> None:
    warnings = [Notice("Warning", "NameTaken", f"{at}" * 5000) for at in range(100)]
    known = {"type": EXPOSED, "status": "False", "reason": "NotExposed", "message": ""}
    assert len(with_warnings(known, warnings)["message"]) < 12_000


@pytest.mark.parametrize(
    ("cluster", "secrets", "expected"),
    [
        (ray_cluster(), [], ("False", "NotInjected", "The RayCluster was created without it")),
        (
            ray_cluster(head=WITH_TLS),
            [],
            ("False", "NoCertificateAuthority", "The Secret ca-secret-rc does not exist"),
        ),
        (
            ray_cluster(head=WITH_TLS),
            [child("ca-secret-rc", annotations={RENEWAL_ANNOTATION: "2030-01-01T00:00:00Z"})],
            (
                "True",
                "CertificateAuthority",
                "The CA in the Secret ca-secret-rc is valid until 2033-05-01 and is renewed on 2030-01-01",
            ),
        ),
        (
            ray_cluster(head=WITH_TLS),
            [child("ca-secret-rc", annotations={RENEWAL_ANNOTATION: "soon"})],
            ("True", "CertificateAuthority", "The CA in the Secret ca-secret-rc exists"),
        ),
        (
            ray_cluster(tlsOptions={"enabled": True}),
            [],
            ("False", "KubeRay", "KubeRay provides mutual TLS"),
        ),
    ],
)
def test_mutual_tls_has_the_end_of_validity_of_the_ca(
    cluster: Object, secrets: list[Object], expected: tuple[str, str, str]
) -> None:
    assert condition(MUTUAL_TLS, cluster, {SECRET: secrets}) == expected


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (
            [],
            (
                "False",
                "NoNetworkPolicy",
                "No NetworkPolicy of the operator or of KubeRay protects the pods",
            ),
        ),
        (["rc-workers", "rc-head"], ("True", "Operator", "By the operator: rc-head, rc-workers")),
    ],
)
def test_network_policies_are_named(policies: list[str], expected: tuple[str, str, str]) -> None:
    assert (
        condition(NETWORK_POLICIES, ray_cluster(), {NETWORK_POLICY: list(map(child, policies))})
        == expected
    )


def concern() -> tuple[ClusterConditions, ClusterEnvironment, KubeRayConfiguration]:
    manager = offline_manager()
    config = KubeRayConfiguration.from_document({"rayDashboardOAuthEnabled": False})
    environment = ClusterEnvironment.detect(manager, config)
    environment.platform._openshift = False
    return ClusterConditions(manager, config, environment), environment, config


async def test_conditions_are_decided_from_the_objects_of_the_cluster() -> None:
    conditions, environment, config = concern()
    cluster = stored_cluster()
    policies = [
        {"metadata": {"name": name, "namespace": "ns"}} for name in ("rc-head", "rc-workers")
    ]
    of_others = stored_cluster("other")
    list_objects(conditions._informers[INGRESS])
    list_objects(
        conditions._informers[NETWORK_POLICY],
        [owned(policies[0], cluster), owned(policies[1], of_others)],
    )
    list_objects(conditions._informers[SECRET])
    observed = observed_cluster(cluster, config, environment)
    decision = conditions.decide(observed, await conditions.observe(observed))
    found = find_condition(decision.conditions, NETWORK_POLICIES) or {}
    assert found["message"].endswith(": rc-head")
    assert conditions.decide(observed, None).conditions is None
    assert conditions.decide(observed, None).retry_after > 0


@pytest.mark.parametrize("is_incomplete", [False, True])
async def test_reason_of_a_problem_stays_until_its_concern_finds_it_no_more(
    *, is_incomplete: bool
) -> None:
    conditions, environment, config = concern()
    cluster = stored_cluster()
    refused = {"type": NETWORK_POLICIES, "status": "True", "reason": "PortRefused", "message": "m"}
    cluster["status"] = {"conditions": [refused]}
    for informer in conditions._informers.values():
        list_objects(informer)
    observed = observed_cluster(cluster, config, environment)
    if is_incomplete:
        observed.incomplete.add(NETWORK_POLICIES)
    decision = conditions.decide(observed, await conditions.observe(observed))
    written = [condition["type"] for condition in decision.conditions or ()]
    assert (NETWORK_POLICIES in written) is not is_incomplete
    assert EXPOSED in written


def test_cluster_that_multikueue_manages_gets_no_conditions() -> None:
    conditions, environment, config = concern()
    cluster = stored_cluster(managedBy="kueue.x-k8s.io/multikueue")
    decision = conditions.decide(observed_cluster(cluster, config, environment), None)
    assert (decision.conditions, decision.retry_after) == (None, 0)


async def test_routes_that_are_not_listed_are_awaited() -> None:
    conditions, environment, config = concern()
    kind = environment.gateway_kinds.http_routes
    kind._on_available(HTTP_ROUTE, offline_manager())
    assert await conditions.observe(observed_cluster(stored_cluster(), config, environment)) is None
