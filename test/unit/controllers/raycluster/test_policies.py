"""Tests of the desired NetworkPolicies: which ports are open to whom, and the rules for egress."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.cluster import CERTIFICATE_CONTAINER, SECURE_TRUSTED_NETWORK, TLS_VARIABLE
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers.raycluster.policies import (
    DEFAULT_DENY_NAME,
    desired_default_deny,
    desired_head_policy,
    desired_workers_policy,
)
from cfo.runtime.objects.unstructured import Object

EVERYONE = "everyone"
OWN_CLUSTER, OWN_NAMESPACE = "own cluster", "own namespace"


def cluster_with(
    params: Any = None, *ports: tuple[str, int], tls: bool = True, **metadata: Any
) -> Object:
    """Return a RayCluster whose head has these start parameters and container ports."""
    container = {
        "name": "ray",
        "ports": [{"name": name, "containerPort": number} for name, number in ports],
        "env": [TLS_VARIABLE] if tls else [],
    }
    pod = {
        "containers": [container],
        "initContainers": [{"name": CERTIFICATE_CONTAINER}] if tls else [],
    }
    head = {"rayStartParams": params or {}, "template": {"spec": pod}}
    return {
        "metadata": {"name": "rc", "namespace": "ns", **metadata},
        "spec": {"headGroupSpec": head},
    }


def peer_name(peer: Object) -> str:
    """Return a name of a peer: the first of its namespaces, or the cluster, its namespace, or a CIDR."""
    if "ipBlock" in peer:
        return str(peer["ipBlock"]["cidr"])
    if "namespaceSelector" in peer:
        return str(peer["namespaceSelector"]["matchExpressions"][0]["values"][0])
    return OWN_CLUSTER if peer["podSelector"] else OWN_NAMESPACE


def opened(policy: Object, direction: str = "ingress") -> dict[str, set[Any]]:
    """Return the ports that a policy opens, by who may use them; ``all`` means all ports."""
    found: dict[str, set[Any]] = {}
    for rule in policy["spec"][direction]:
        peers = rule.get("from", rule.get("to"))
        assert peers != []
        assert rule.get("ports") != []
        for name in map(peer_name, peers) if peers else (EVERYONE,):
            found.setdefault(name, set()).update(
                port["port"] for port in rule.get("ports", [{"port": "all"}])
            )
    return found


def head(cluster: Object, **settings: Any) -> dict[str, set[Any]]:
    """Return the ports that the policy of the head opens, with ``settings`` in the configuration."""
    return opened(
        desired_head_policy(
            RayClusterFacts(cluster), KubeRayConfiguration.from_document(settings), ["ray-system"]
        )
    )


def test_ports_of_a_cluster_without_settings() -> None:
    assert head(cluster_with()) == {
        OWN_CLUSTER: {"all"},
        OWN_NAMESPACE: {8265, 10001},
        "ray-system": {8265, 10001},
        "openshift-monitoring": {8080},
        EVERYONE: {8443, 10001},
    }
    assert opened(
        desired_workers_policy(RayClusterFacts(cluster_with()), KubeRayConfiguration())
    ) == {OWN_CLUSTER: {"all"}}


def test_custom_ports_replace_the_defaults() -> None:
    params = {
        "dashboard-port": "9000",
        "ray-client-server-port": "9001",
        "metrics-export-port": "9002",
    }
    assert head(cluster_with(params), ingress={"namespaces": ["nginx"]}) == {
        OWN_CLUSTER: {"all"},
        OWN_NAMESPACE: {9000, 9001},
        "ray-system": {9000, 9001},
        "openshift-monitoring": {9002},
        "nginx": {9000, 9001},
        EVERYONE: {8443, 9001},
    }


def test_serve_is_open_to_its_namespace_kuberay_and_configured_namespaces() -> None:
    cluster = cluster_with({}, ("serve", 8000), ("serve-grpc", 9000))
    serve = {8000, 9000}
    settings = {"ingress": {"namespaces": ["nginx"]}, "networkPolicy": {"serveNamespaces": ["web"]}}
    found = head(cluster, **settings)
    assert found[OWN_NAMESPACE] == found["nginx"] == found["ray-system"] == {8265, 10001} | serve
    assert found["web"] == serve
    assert not found[EVERYONE] & serve
    workers = opened(
        desired_workers_policy(
            RayClusterFacts(cluster), KubeRayConfiguration.from_document(settings)
        )
    )
    assert workers == {OWN_CLUSTER: {"all"}, OWN_NAMESPACE: serve, "nginx": serve}
    (rule,) = [
        rule
        for rule in desired_workers_policy(
            RayClusterFacts(cluster), KubeRayConfiguration.from_document(settings)
        )["spec"]["ingress"]
        if "nginx" in str(rule)
    ]
    assert rule["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"] == ["nginx", "web"]


@pytest.mark.parametrize(
    ("cluster", "open_to_everyone"),
    [
        pytest.param(cluster_with({}, ("client", 6379)), {8443}, id="gcs-called-client"),
        pytest.param(cluster_with({}, ("client", 8265)), {8443}, id="dashboard-called-client"),
        pytest.param(cluster_with({}, ("client", 22)), {8443}, id="any-port-called-client"),
        pytest.param(
            cluster_with({"dashboard-port": "10001"}), {8443}, id="dashboard-on-client-port"
        ),
        pytest.param(cluster_with({}, ("serve", 10001)), {8443}, id="serve-on-client-port"),
        pytest.param(cluster_with({"port": "8443"}), {10001}, id="gcs-on-proxy-port"),
        pytest.param(
            cluster_with({"dashboard-port": "8443"}), {10001}, id="dashboard-on-proxy-port"
        ),
        pytest.param(
            cluster_with({"ray-client-server-port": "10001 --port=1"}),
            set(),
            id="smuggled-parameter",
        ),
        pytest.param(
            cluster_with({"dashboard-port": "10001 --x=y"}), set(), id="smuggled-dashboard-port"
        ),
        pytest.param(
            cluster_with({"ray-client-server-port": "20001"}, tls=False), {8443}, id="without-tls"
        ),
        pytest.param(
            cluster_with({"dashboard-port": "8443"}, tls=False), set(), id="nothing-authenticates"
        ),
    ],
)
def test_ports_of_users_open_nothing_that_does_not_authenticate(
    cluster: Object, open_to_everyone: set[int]
) -> None:
    """If nothing may be open to everyone, there is no such rule: a rule with an empty list would open all ports."""
    found = head(cluster)
    assert found.get(EVERYONE, set()) == open_to_everyone
    assert 6379 not in set().union(*(ports for who, ports in found.items() if who != OWN_CLUSTER))
    assert "all" not in set().union(*(ports for who, ports in found.items() if who != OWN_CLUSTER))


def test_head_with_only_refused_ports_is_open_only_to_its_cluster() -> None:
    params = {
        "dashboard-port": "x",
        "ray-client-server-port": "x",
        "metrics-export-port": "x",
        "port": "8443",
    }
    assert head(cluster_with(params), ingress={"namespaces": ["nginx"]}) == {OWN_CLUSTER: {"all"}}


@pytest.mark.parametrize(
    ("cluster", "behind_proxy", "requires_token", "expected"),
    [
        (
            cluster_with(),
            True,
            False,
            {OWN_NAMESPACE: {10001}, "nginx": {10001}, EVERYONE: {8443, 10001}},
        ),
        (cluster_with(), False, True, {EVERYONE: {8443, 10001, 8265}}),
        (cluster_with({"dashboard-port": "9000"}), False, True, {EVERYONE: {8443, 10001, 9000}}),
        (cluster_with({}, ("dashboard", 9000)), False, True, {EVERYONE: {8443, 10001}}),
        (cluster_with({"dashboard-port": "8443"}), False, True, {EVERYONE: {10001}}),
        (
            cluster_with({}, ("serve", 8265)),
            True,
            False,
            {OWN_NAMESPACE: {10001}, "nginx": {10001}},
        ),
    ],
)
def test_dashboard_is_open_as_far_as_it_authenticates(
    cluster: Object, behind_proxy: bool, requires_token: bool, expected: dict[str, set[Any]]
) -> None:
    config = KubeRayConfiguration.from_document({"ingress": {"namespaces": ["nginx"]}})
    policy = desired_head_policy(
        RayClusterFacts(cluster),
        config,
        ["ray-system"],
        behind_proxy=behind_proxy,
        requires_token=requires_token,
    )
    jobs = [rule for rule in policy["spec"]["ingress"] if "job-name" in str(rule)]
    assert bool(jobs) is (behind_proxy and "serve" not in str(cluster))
    policy["spec"]["ingress"] = [rule for rule in policy["spec"]["ingress"] if rule not in jobs]
    assert expected.items() <= opened(policy).items()


EGRESS = {
    "restrict": True,
    "ownNamespace": True,
    "dnsCIDRs": ["169.254.20.10/32"],
    "apiServerCIDRs": ["192.0.2.1/32"],
    "destinations": [
        {"cidrs": ["198.51.100.0/24"], "ports": [443]},
        {"namespaces": ["minio"], "cidrs": ["2001:db8::/64"], "ports": [9000, 9001]},
    ],
}


def test_egress_is_restricted_to_cluster_dns_api_servers_and_destinations() -> None:
    config = KubeRayConfiguration.from_document({"networkPolicy": {"egress": EGRESS}})
    policies = (
        desired_head_policy(RayClusterFacts(cluster_with()), config, ["ray-system"]),
        desired_workers_policy(RayClusterFacts(cluster_with()), config),
    )
    for policy in policies:
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert opened(policy, "egress") == {
            OWN_CLUSTER: {"all"},
            OWN_NAMESPACE: {"all"},
            "kube-system": {53, 5353},
            "169.254.20.10/32": {53, 5353},
            "192.0.2.1/32": {443, 6443},
            "198.51.100.0/24": {443},
            "minio": {9000, 9001},
            "2001:db8::/64": {9000, 9001},
        }
        (dns,) = [rule for rule in policy["spec"]["egress"] if "kube-system" in str(rule)]
        assert {port["protocol"] for port in dns["ports"]} == {"UDP", "TCP"}
        assert policy["spec"]["ingress"]


def test_egress_without_settings_is_not_restricted_and_without_destinations_is_closed() -> None:
    spec = desired_workers_policy(RayClusterFacts(cluster_with()), KubeRayConfiguration())["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "egress" not in spec
    closed = KubeRayConfiguration.from_document(
        {"networkPolicy": {"egress": {"restrict": True, "dnsNamespaces": []}}}
    )
    assert opened(desired_workers_policy(RayClusterFacts(cluster_with()), closed), "egress") == {
        OWN_CLUSTER: {"all"}
    }


def test_default_deny_selects_all_ray_pods_and_admits_nothing() -> None:
    policy = desired_default_deny("team")
    assert policy["metadata"]["name"] == DEFAULT_DENY_NAME
    assert policy["spec"] == {
        "podSelector": {"matchExpressions": [{"key": "ray.io/cluster", "operator": "Exists"}]},
        "policyTypes": ["Ingress"],
    }


def test_client_port_is_closed_if_another_actor_provides_mtls() -> None:
    cluster = cluster_with(annotations={SECURE_TRUSTED_NETWORK: "true"})
    assert head(cluster)[EVERYONE] == {8443, 10001}
    assert head(cluster, kubeRayFeatures=["secureTrustedNetwork"])[EVERYONE] == {8443}
