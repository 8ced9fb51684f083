"""Tests of the accessors for RayClusters."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.cluster import (
    has_cluster_labels,
    is_suspended,
    uses_kuberay_auth,
    uses_kuberay_tls,
)
from cfo.api.raycluster.names import CLUSTER_LABEL


def test_label_of_long_name_is_not_its_prefix() -> None:
    cluster = {"metadata": {"name": "n" * 100, "namespace": "ns"}}
    child = {
        "metadata": {"namespace": "ns", "labels": {CLUSTER_LABEL: "n" * 63}, "ownerReferences": []}
    }
    assert not has_cluster_labels(child, cluster)


@pytest.mark.parametrize("spec", [None, {}, {"suspend": False}, {"suspend": None}])
def test_cluster_is_suspended_only_if_spec_suspend_is_true(spec: Any) -> None:
    assert not is_suspended({"spec": spec})
    assert is_suspended({"spec": {"suspend": True}})


@pytest.mark.parametrize(
    ("spec", "used"),
    [
        ({}, set()),
        (None, set()),
        ({"tlsOptions": {"enabled": True}}, {"tls"}),
        ({"tlsOptions": {"enabled": False}}, set()),
        ({"tlsOptions": {}}, set()),
        ({"authOptions": {"mode": "token"}}, {"auth"}),
        ({"authOptions": {"mode": "disabled"}}, set()),
        ({"authOptions": {}}, set()),
    ],
)
def test_use_of_kuberay_features_is_detected(spec: Any, used: set[str]) -> None:
    cluster = {"spec": spec}
    found = {
        "tls": uses_kuberay_tls(cluster),
        "auth": uses_kuberay_auth(cluster),
    }
    assert {feature for feature, is_used in found.items() if is_used} == used
