"""Which objects belong to a RayCluster, and what a decision contains."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.raycluster.names import CLUSTER_LABEL, NAMESPACE_LABEL
from cfo.controllers.raycluster.concern import Decision, Notice, belongs_to
from cfo.runtime import CONFIG_MAP, NamespacedName

CLUSTER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "rc", "namespace": "ns", "uid": "1"},
}


def owner(uid: str, *, controller: bool = True) -> dict[str, Any]:
    """Return an owner reference to a RayCluster."""
    return {"kind": "RayCluster", "name": "rc", "uid": uid, "controller": controller}


def child(
    *,
    namespace: str | None = "ns",
    labels: dict[str, str] | None = None,
    owner: dict[str, Any] | None = None,
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
def test_child_belongs_to_cluster_by_owner_reference_or_label(
    obj: dict[str, Any], expected: bool
) -> None:
    assert belongs_to(obj, CLUSTER) is expected


def test_children_of_a_decision_belong_by_owner_reference_or_label() -> None:
    decision = Decision(cluster=CLUSTER)
    key = NamespacedName("ns", "a")
    desired = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "ns", "name": "a"},
    }
    children = [
        decision.add_present(desired),
        decision.add_computed(CONFIG_MAP, key, lambda _: desired),
        decision.add_absent(CONFIG_MAP, key),
    ]
    assert decision.children == children
    for each in children:
        assert each.belongs is not None
        assert each.belongs(child(labels={CLUSTER_LABEL: "rc"}))
        assert not each.belongs(child(owner=owner("2")))


def test_content_of_an_object_that_has_only_the_label_is_not_trusted() -> None:
    computed = Decision(cluster=CLUSTER).add_computed(CONFIG_MAP, NamespacedName("ns", "a"), dict)
    assert computed.is_trusted is not None
    assert computed.is_trusted(child(owner=owner("1")))
    assert not computed.is_trusted(child(labels={CLUSTER_LABEL: "rc"}))


def test_conflict_is_reported_and_checked_again() -> None:
    decision = Decision(cluster=CLUSTER)
    decision.inform("A", "a")
    decision.report_conflict("B", "b")
    assert decision.notices == [Notice("Normal", "A", "a"), Notice("Warning", "B", "b")]
    assert decision.retry_after == 300
    decision.retry(5)
    decision.retry(60)
    assert decision.retry_after == 5
