"""Warnings about names, and about worker groups with numbers or names that KubeRay does not accept."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.names import CLIENT_LIMIT, DASHBOARD_LIMIT, name_warnings
from cfo.api.raycluster.spec_warnings import spec_warnings


def cluster(*groups: Any) -> dict[str, Any]:
    return {"spec": {"workerGroupSpecs": list(groups)}}


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ({"replicas": 1}, ""),
        ({"replicas": 1, "minReplicas": 1, "maxReplicas": 1}, ""),
        ({"replicas": 0, "minReplicas": 0, "maxReplicas": 5}, ""),
        ({"replicas": "1", "minReplicas": True}, ""),
        ("no group", ""),
        ({"replicas": -1}, "replicas is -1, but KubeRay runs minReplicas: 0"),
        ({"replicas": 1, "minReplicas": 2}, "replicas is 1, but KubeRay runs minReplicas: 2"),
        ({"replicas": 7, "maxReplicas": 5}, "replicas is 7, but KubeRay runs maxReplicas: 5"),
        (
            {"replicas": 3, "minReplicas": 4, "maxReplicas": 2},
            "minReplicas (4) is greater than maxReplicas (2)",
        ),
        ({"minReplicas": -2}, "minReplicas is negative: -2"),
        ({"maxReplicas": -2}, "maxReplicas is negative: -2"),
    ],
)
def test_numbers_that_kuberay_replaces_cause_a_warning(group: Any, problem: str) -> None:
    expected = [f"spec.workerGroupSpecs[1]: {problem}"] if problem else []
    assert spec_warnings(cluster({"replicas": 1}, group)) == expected


def test_more_workers_than_kubernetes_supports_nodes_cause_a_warning() -> None:
    assert spec_warnings(cluster({"replicas": 5_000})) == []
    limit = (
        "Kubernetes supports clusters of at most 5000 nodes; correct the number if it is a mistake"
    )
    expected = f"spec.workerGroupSpecs[0].replicas: 20000: {limit}"
    assert spec_warnings(cluster({"replicas": 20_000})) == [expected]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("gpu-workers.a100", ""),
        ("GPU", ""),  # KubeRay writes names of pods in lower case
        ("", ""),
        ("g" * 63, ""),
        (f"{'g' * 60}_x", ""),  # beyond what KubeRay cuts
        ("g" * 64, f"'{'g' * 64}' (64 characters) becomes a label of the pods"),
        ("gpu workers", "'gpu workers' (11 characters) becomes a label of the pods"),
        ("gpu-", "'gpu-' (4 characters) becomes a label of the pods"),
        ("gpu_workers", "'gpu_workers' becomes a part of the names of pods"),
        ("a.-b", "'a.-b' becomes a part of the names of pods"),
        ("g" * 1_000_000, f"'{'g' * 79}…' (1000000 characters) becomes a label of the pods"),
    ],
)
def test_group_name_with_which_no_pod_can_exist_causes_a_warning(name: str, problem: str) -> None:
    named = {"metadata": {"name": "training"}, **cluster({"groupName": name})}
    found = spec_warnings(named)
    assert len(found) == bool(problem)
    assert all(each.startswith(f"spec.workerGroupSpecs[0].groupName: {problem}") for each in found)


def test_known_warnings_are_not_repeated_and_their_number_is_limited() -> None:
    bad = {"replicas": -1}
    assert spec_warnings(cluster(bad, bad), cluster(bad)) == [
        "spec.workerGroupSpecs[1]: replicas is -1, but KubeRay runs minReplicas: 0"
    ]
    assert len(spec_warnings(cluster(*[bad] * 500))) == 10
    assert spec_warnings({}) == []


def test_worker_groups_with_one_name_cause_a_warning() -> None:
    groups = [{"groupName": name} for name in ("a", "b", "a", "a")]
    assert spec_warnings(cluster(*groups, {"groupName": 1}, {"groupName": 1}, {})) == [
        f"spec.workerGroupSpecs[{index}].groupName: 'a' is also the name of workerGroupSpecs[0], and KubeRay takes the "
        "pods of both for one group"
        for index in (2, 3)
    ]


def head(parameters: dict[str, str], *containers: dict[str, Any]) -> dict[str, Any]:
    template = {"spec": {"containers": list(containers)}}
    return {"spec": {"headGroupSpec": {"rayStartParams": parameters, "template": template}}}


def ray(**ports: int) -> dict[str, Any]:
    named = [{"name": name, "containerPort": number} for name, number in ports.items()]
    return {"name": "ray-head", "ports": named}


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (head({"dashboard-port": "9000"}, ray(dashboard=9000)), ""),
        (head({"dashboard-port": "8265"}, ray()), ""),
        (head({}, ray(dashboard=9000)), ""),
        (
            head({"dashboard-port": "6379"}, ray()),
            "listens there (start parameter port). The operator's NetworkPolicies open no such port",
        ),
        (head({"dashboard-port": "9000"}, ray(), {"name": "oauth-proxy"}), ""),
        (head({"dashboard-port": "9000"}, ray()), "dashboard-port: Ray listens on 9000, but"),
        (head({"dashboard-port": "9000"}, ray(dashboard=8265)), "has no port dashboard with this"),
        (
            head({"ray-client-server-port": "20002"}, ray(client=10001)),
            "spec.headGroupSpec.rayStartParams.ray-client-server-port: Ray listens on 20002, but",
        ),
    ],
)
def test_port_that_service_or_policies_of_the_head_lack_causes_a_warning(
    cluster: dict[str, Any], expected: str
) -> None:
    found = spec_warnings(cluster)
    assert len(found) == bool(expected)
    assert expected in "".join(found)


def test_fraction_of_a_byte_causes_a_warning() -> None:
    (found,) = spec_warnings(head({}, {"resources": {"limits": {"memory": "8m"}}}))
    where = "spec.headGroupSpec.template.spec.containers[0].resources.limits[memory]"
    assert found == f'{where}: fractional byte value "8m" is invalid, must be an integer'


def test_requests_above_limits_cause_a_warning_for_each_container() -> None:
    above = {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
    refused = 'Invalid value: "2": must be less than or equal to cpu limit of 1'
    spec = {"initContainers": [above, {"resources": "none"}], "containers": [{}, above]}
    obj = head({}, above)
    obj["spec"]["workerGroupSpecs"] = [{}, {"template": {"spec": spec}}]
    worker = "spec.workerGroupSpecs[1].template.spec"
    assert spec_warnings(obj) == [
        f"{where}.resources.requests: {refused}; the API server will refuse the pods"
        for where in (
            "spec.headGroupSpec.template.spec.containers[0]",
            f"{worker}.initContainers[0]",
            f"{worker}.containers[1]",
        )
    ]


@pytest.mark.parametrize(
    ("length", "limit", "expected"),
    [
        (40, DASHBOARD_LIMIT, ""),
        (41, DASHBOARD_LIMIT, "have 49 characters together; with more than 48, DNS cannot"),
        (41, CLIENT_LIMIT, ""),
        (45, CLIENT_LIMIT, "have 53 characters together; with more than 52, DNS cannot"),
        (53, 0, ""),
        (54, 0, "longer than 53 characters; KubeRay 1.3 and later ignore RayClusters with such"),
        (54, DASHBOARD_LIMIT, "longer than 53 characters"),
    ],
)
def test_names_that_are_too_long_cause_one_warning(length: int, limit: int, expected: str) -> None:
    found = list(name_warnings("a" * length, "team-abc", limit))
    assert len(found) == bool(expected)
    assert expected in "".join(found)


def test_name_that_kuberay_ignores_causes_a_warning() -> None:
    (warning,) = name_warnings("1st", "team")
    assert warning.startswith("metadata.name: is not a DNS-1035 label")
