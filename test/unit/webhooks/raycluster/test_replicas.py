"""Warnings about numbers of workers that KubeRay replaces."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.webhooks.raycluster.validation import replica_warnings


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
    assert replica_warnings(cluster({"replicas": 1}, group)) == expected


def test_known_warnings_are_not_repeated_and_their_number_is_limited() -> None:
    bad = {"replicas": -1}
    assert replica_warnings(cluster(bad, bad), cluster(bad)) == [
        "spec.workerGroupSpecs[1]: replicas is -1, but KubeRay runs minReplicas: 0"
    ]
    assert len(replica_warnings(cluster(*[bad] * 500))) == 10
    assert replica_warnings({}) == []
