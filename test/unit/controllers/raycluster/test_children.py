"""Tests of which objects belong to a RayCluster."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.naming import CLUSTER_LABEL, NAMESPACE_LABEL
from cfo.controllers.raycluster.children import belongs_to

CLUSTER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "rc", "namespace": "ns", "uid": "1"},
}


def owner(uid: str, *, controller: bool = True) -> dict[str, Any]:
    """Return an owner reference to a RayCluster."""
    return {"kind": "RayCluster", "name": "rc", "uid": uid, "controller": controller}


def child(
    *, namespace: str | None = "ns", labels: dict[str, str] | None = None, owner: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return an object with these labels and this owner; ``namespace`` is None for cluster-scoped ones."""
    metadata: dict[str, Any] = {"labels": labels or {}, "ownerReferences": [owner] if owner else []}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (child(owner=owner("1")), True),
        (child(owner=owner("1", controller=False)), True),
        (child(labels={CLUSTER_LABEL: "rc"}), True),
        (child(labels={CLUSTER_LABEL: "rc"}, owner=owner("2")), False),
        (child(labels={CLUSTER_LABEL: "rc"}, owner=owner("2", controller=False)), True),
        (child(labels={CLUSTER_LABEL: "other"}), False),
        (child(namespace="elsewhere", labels={CLUSTER_LABEL: "rc"}), False),
        (child(), False),
        (child(namespace=None, labels={CLUSTER_LABEL: "rc"}), False),
        (child(namespace=None, labels={CLUSTER_LABEL: "rc", NAMESPACE_LABEL: "ns"}), True),
        (child(namespace=None, labels={CLUSTER_LABEL: "rc", NAMESPACE_LABEL: "elsewhere"}), False),
    ],
)
def test_child_belongs_to_cluster_by_owner_reference_or_label(obj: dict[str, Any], expected: bool) -> None:
    assert belongs_to(obj, CLUSTER) is expected
