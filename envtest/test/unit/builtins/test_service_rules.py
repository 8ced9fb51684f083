"""Validation of Services, and the allocation of their ports."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.builtins.service_allocation import ServiceAllocator
from envtest.builtins.service_rules import (
    address_errors,
    family_errors,
    service_errors,
    status_errors,
)
from envtest.configuration.service_network import DEFAULT_SERVICE_NETWORK

BASE = {
    "type": "ClusterIP",
    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    "sessionAffinity": "None",
    "internalTrafficPolicy": "Cluster",
}


def service(name: str, *node_ports: int, **spec: Any) -> dict[str, Any]:
    ports = [
        {
            "port": 80 + index,
            "protocol": "TCP",
            "targetPort": 80,
            "nodePort": port,
            "name": f"p{index}",
        }
        for index, port in enumerate(node_ports)
    ]
    metadata = {"name": name, "uid": name}
    return {"metadata": metadata, "spec": {**BASE, "type": "NodePort", "ports": ports, **spec}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"]}, []),
        (
            {"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.6"]},
            ['spec.clusterIPs: Invalid value: ["10.0.0.6"]: first value must match `clusterIP`'],
        ),
        ({"ipFamilies": ["IPv4", "IPv4"]}, ['spec.ipFamilies[1]: Duplicate value: "IPv4"']),
        (
            {"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"], "ipFamilies": ["IPv6"]},
            [
                'spec.clusterIPs[0]: Invalid value: "10.0.0.5": expected an IPv6 value as indicated by `ipFamilies[0]`',
            ],
        ),
        (
            {"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "10.0.0.6"]},
            [
                (
                    'spec.clusterIPs: Invalid value: ["10.0.0.5","10.0.0.6"]: '
                    "may specify no more than one IP for each IP family"
                )
            ],
        ),
    ],
)
def test_addresses_are_validated(spec: dict[str, Any], expected: list[str]) -> None:
    assert [str(each) for each in address_errors({**BASE, **spec})] == expected


def test_families_of_a_cluster_with_ipv4() -> None:
    spec: dict[str, Any] = {**BASE, "clusterIP": "None", "clusterIPs": ["None"]}
    assert not list(family_errors(spec))
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4", "IPv6"], "RequireDualStack")
    spec = {**BASE, "ipFamilyPolicy": "PreferDualStack"}
    assert not list(family_errors(spec))
    assert spec["ipFamilies"] == ["IPv4"]
    (error,) = family_errors({**BASE, "ipFamilies": ["IPv6"]})
    assert str(error) == 'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"externalIPs": ["127.0.0.1"], "externalTrafficPolicy": "Cluster"}, "spec.externalIPs[0]"),
        ({"loadBalancerClass": "x.io/y"}, "spec.loadBalancerClass"),
        ({"loadBalancerSourceRanges": ["1.2.3.0/24"]}, "spec.LoadBalancerSourceRanges"),
        ({"allocateLoadBalancerNodePorts": True}, "spec.allocateLoadBalancerNodePorts"),
        ({"trafficDistribution": "Odd"}, "spec.trafficDistribution"),
        ({"healthCheckNodePort": 30000}, "spec.healthCheckNodePort"),
        (
            {
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}},
            },
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        ),
        (
            {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30000}]},
            "spec.ports[0].nodePort",
        ),
    ],
)
def test_fields_are_validated(spec: dict[str, Any], field: str) -> None:
    assert not list(service_errors({"metadata": {}, "spec": BASE}))
    assert [each.field for each in service_errors({"metadata": {}, "spec": {**BASE, **spec}})] == [
        field
    ]


def test_load_balancer_can_have_the_port_of_the_kubelet() -> None:
    ports = [{"port": 10250, "protocol": "TCP", "targetPort": 80}]
    spec = {**BASE, "type": "LoadBalancer", "ports": ports, "externalTrafficPolicy": "Cluster"}
    assert not list(service_errors({"metadata": {}, "spec": spec}))


def test_ports_of_a_headless_service_are_different() -> None:
    ports = [{"name": name, "port": 80, "protocol": "TCP", "targetPort": 80} for name in "ab"]
    spec = {**BASE, "clusterIP": "None", "clusterIPs": ["None"], "ports": ports}
    (error,) = service_errors({"metadata": {}, "spec": spec})
    shown = '{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}'
    assert str(error) == f"spec.ports[1]: Duplicate value: {shown}"


def test_annotations_of_a_service_are_validated() -> None:
    annotations = {
        "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8, 1.2.3.4",
        "service.kubernetes.io/topology-aware-hints": "Auto",
        "service.kubernetes.io/topology-mode": "Disabled",
    }
    spec = {**BASE, "type": "LoadBalancer", "externalTrafficPolicy": "Cluster"}
    topology, ranges = service_errors({"metadata": {"annotations": annotations}, "spec": spec})
    assert str(topology) == (
        'metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: "Disabled": must match '
        "annotations[service.kubernetes.io/topology-aware-hints] when both are specified"
    )
    path = "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]"
    assert str(ranges).startswith(f'{path}: Invalid value: "1.2.3.4": must be a valid CIDR value')


def test_only_load_balancers_have_a_status_with_addresses() -> None:
    status = {"loadBalancer": {"ingress": [{"hostname": "a.b", "ipMode": "VIP"}]}}
    (error,) = status_errors({"spec": BASE, "status": status})
    assert error.field == "status.loadBalancer.ingress"
    (error,) = status_errors({"spec": {**BASE, "type": "LoadBalancer"}, "status": status})
    assert (
        str(error)
        == "status.loadBalancer.ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set"
    )


def test_port_removed_by_an_update_is_released() -> None:
    allocator = ServiceAllocator(DEFAULT_SERVICE_NETWORK)
    first = service("1", 30100)
    assert not list(allocator.allocate(first, None, dry_run=False))
    (error,) = allocator.allocate(service("2", 30100), None, dry_run=False)
    assert (
        str(error)
        == "spec.ports[0].nodePort: Invalid value: 30100: provided port is already allocated"
    )
    changed = service("1", 30101, clusterIP=first["spec"]["clusterIP"])
    assert not list(allocator.allocate(changed, first["spec"], dry_run=False))
    allocator.settle(changed)
    assert not list(allocator.allocate(service("2", 30100), None, dry_run=False))


def test_dry_run_allocates_nothing() -> None:
    allocator = ServiceAllocator(DEFAULT_SERVICE_NETWORK)
    assert not list(allocator.allocate(service("1", 80, clusterIP="10.0.0.1"), None, dry_run=True))
    (error,) = allocator.allocate(service("1", 30100, 30100), None, dry_run=True)
    assert error.field == "spec.ports[1].nodePort"
    assert not list(allocator.allocate(service("2", 30100), None, dry_run=False))


def test_load_balancer_with_local_traffic_has_a_health_check_port() -> None:
    allocator = ServiceAllocator(DEFAULT_SERVICE_NETWORK)
    obj = service("1", 0, type="LoadBalancer", externalTrafficPolicy="Local")
    assert not list(allocator.allocate(obj, None, dry_run=False))
    assert obj["spec"]["healthCheckNodePort"] != obj["spec"]["ports"][0]["nodePort"]
