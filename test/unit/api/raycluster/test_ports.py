"""Tests of the ports that are read from a RayCluster's head."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.ports import MAX_SERVE_PORTS, ports_of
from cfo.runtime.objects.unstructured import Object

RAY_SERVICE = {
    "apiVersion": "ray.io/v1",
    "kind": "RayService",
    "name": "s",
    "uid": "1",
    "controller": True,
}


def cluster_with(params: Any = None, *ports: Any, **metadata: Any) -> Object:
    """Return a RayCluster whose head has these start parameters and container ports (``(name, number)`` or entries)."""
    entries = [
        {"name": item[0], "containerPort": item[1]} if isinstance(item, tuple) else item
        for item in ports
    ]
    containers = [
        {"name": "ray", "ports": entries},
        {"name": "side", "ports": [{"name": "client", "containerPort": 1}]},
    ]
    head = {"rayStartParams": params, "template": {"spec": {"containers": containers}}}
    return {
        "metadata": {"name": "rc", "namespace": "ns", **metadata},
        "spec": {"headGroupSpec": head},
    }


def test_defaults_are_those_of_kuberay() -> None:
    ports = ports_of({"metadata": {}})
    assert (ports.dashboard, ports.client, ports.metrics, ports.serve) == (8265, 10001, 8080, ())
    assert ports.proxy == 8443
    assert ports.client_is_started
    assert not ports.refused


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        pytest.param(
            cluster_with({}, ("dashboard", 8266), ("client", 20001)),
            (8266, 20001, 8080),
            id="names",
        ),
        pytest.param(
            cluster_with({"dashboard-port": "9000", "ray-client-server-port": "20002"}),
            (9000, 20002, 8080),
        ),
        pytest.param(
            cluster_with({"metrics-export-port": "9100"}, ("metrics", 9101)), (8265, 10001, 9100)
        ),
        pytest.param(
            cluster_with({}, ("client", 20001), ("client", 20002)),
            (8265, 20001, 8080),
            id="first-of-a-name",
        ),
        pytest.param(
            cluster_with({}, {"name": "client", "containerPort": 20001, "protocol": "UDP"}),
            (8265, 10001, 8080),
        ),
        pytest.param(
            cluster_with(
                {},
                ("client", 0),
                ("dashboard", 65536),
                ("metrics", True),
                {"containerPort": 5},
                "text",
            ),
            (8265, 10001, 8080),
            id="invalid-container-ports",
        ),
        pytest.param(
            cluster_with(
                {
                    "min-worker-port": "30000",
                    "max-worker-port": "30100",
                    "ray-client-server-port": "10050",
                }
            ),
            (8265, 10050, 8080),
            id="moved-worker-ports",
        ),
    ],
)
def test_start_parameters_and_names_set_ports(
    cluster: Object, expected: tuple[int, int, int]
) -> None:
    ports = ports_of(cluster)
    assert (ports.dashboard, ports.client, ports.metrics) == expected
    assert not ports.refused


@pytest.mark.parametrize(
    ("cluster", "role", "reason"),
    [
        (
            cluster_with({}, ("client", 6379)),
            "client",
            "client has port 6379, but Ray's GCS server listens there (start parameter port)",
        ),
        (cluster_with({"port": "7000"}, ("client", 7000)), "client", "Ray's GCS server"),
        (cluster_with({}, ("dashboard", 52365)), "dashboard", "dashboard-agent-listen-port"),
        (
            cluster_with({"node-manager-port": "9999", "dashboard-port": "9999"}),
            "dashboard",
            "node-manager-port",
        ),
        (
            cluster_with({}, ("client", 8265)),
            "client",
            "client has port 8265, but so has dashboard",
        ),
        (cluster_with({}, ("client", 8265)), "dashboard", "so has client"),
        (cluster_with({"dashboard-port": "10001"}), "client", "so has dashboard"),
        (cluster_with({}, ("serve", 10001)), "client", "so has serve"),
        (cluster_with({"dashboard-port": "8443"}, ("dashboard", 8265)), "proxy", "proxy"),
        (
            cluster_with({"ray-client-server-port": "15000"}),
            "client",
            "worker processes listen on 10002 to 19999",
        ),
        (cluster_with({"dashboard-port": "8443"}), "dashboard", "proxy"),
        (cluster_with({"dashboard-port": "8443"}), "proxy", "proxy"),
        (cluster_with({"port": "8443"}), "proxy", "port 8443, but Ray's GCS server"),
        (
            cluster_with({"min-worker-port": "8000", "max-worker-port": "9000"}),
            "proxy",
            "worker processes listen on 8000 to 9000",
        ),
        (
            cluster_with({"ray-client-server-port": "10001 --dashboard-port=10001"}),
            "client",
            "not a port number",
        ),
        (cluster_with({"dashboard-port": "0"}), "dashboard", "not a port number"),
        (cluster_with({"dashboard-port": 8265}), "dashboard", "not a port number"),
        (cluster_with({"metrics-export-port": "9" * 100_000}), "metrics", "not a port number"),
    ],
)
def test_numbers_of_other_components_are_refused_with_a_reason(
    cluster: Object, role: str, reason: str
) -> None:
    ports = ports_of(cluster)
    assert getattr(ports, role) is None
    assert any(reason in clause and len(clause) < 200 for clause in ports.refused), ports.refused


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (cluster_with({}, ("serve", 8001), ("serve-grpc", 9001), ("server", 9002)), (8001, 9001)),
        (cluster_with({}, ownerReferences=[RAY_SERVICE]), (8000,)),
        (cluster_with({}, ("serve", 8001), ownerReferences=[RAY_SERVICE]), (8001,)),
        (cluster_with({}, ownerReferences=[{**RAY_SERVICE, "apiVersion": "example.com/v1"}]), ()),
        (cluster_with({}, ownerReferences=[{**RAY_SERVICE, "controller": False}]), ()),
        (cluster_with({}, annotations={"ray.io/enable-serve-service": "true"}), (8000,)),
        (cluster_with({}, ("serve", 6379)), ()),
        (cluster_with({}), ()),
    ],
)
def test_serve_ports_are_those_of_clusters_that_serve(
    cluster: Object, expected: tuple[int, ...]
) -> None:
    assert ports_of(cluster).serve == expected


def test_name_does_not_hide_where_ray_listens() -> None:
    """Ray's dashboard listens on 8265 here, although a port of another number has its name."""
    ports = ports_of(cluster_with({}, ("dashboard", 9000), ("serve", 8265), ("serve-grpc", 8080)))
    assert ports.serve == ()
    assert ports.dashboard == 9000
    assert ports_of(cluster_with({}, ("client", 9000), ("dashboard", 10001))).dashboard is None


def test_number_of_serve_ports_and_reasons_is_limited() -> None:
    ports = ports_of(cluster_with({}, *((f"serve-{at}", 20000 + at) for at in range(500))))
    assert len(ports.serve) == MAX_SERVE_PORTS
    assert "500 ports" in ports.refused[0]
    refused = ports_of(cluster_with({}, *((f"serve-{at}", 6379) for at in range(500)))).refused
    assert len(refused) <= 10


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (cluster_with({}), True),
        (cluster_with({}, ("client", 10001)), True),
        (cluster_with({"ray-client-server-port": "20001"}, ("client", 20001)), True),
        (cluster_with({}, ("client", 20001)), False),
        (cluster_with({}, ("client", 6379)), False),
    ],
)
def test_name_of_a_port_does_not_show_that_ray_listens(cluster: Object, expected: bool) -> None:
    assert ports_of(cluster).client_is_started is expected


def test_port_of_service_is_that_of_the_container() -> None:
    assert (
        RayClusterFacts(cluster_with({}, ("client", 20001))).ports.service_port("client") == 20001
    )
    assert (
        RayClusterFacts(cluster_with({"ray-client-server-port": "20001"})).ports.service_port(
            "client"
        )
        == 10001
    )
    assert RayClusterFacts(cluster_with({}, ("client", 6379))).ports.service_port("client") == 10001
    assert (
        RayClusterFacts(cluster_with({}, ("dashboard", 80))).ports.service_port("dashboard") == 80
    )


@pytest.mark.parametrize(
    "value", [None, [], "text", 5, {"headGroupSpec": {"template": {"spec": {"containers": [7]}}}}]
)
def test_values_of_wrong_types_are_ignored(value: Any) -> None:
    assert ports_of({"spec": value}) == ports_of({"spec": {}})
