"""Tests of which objects belong to a RayCluster, and of what is reported about the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cfo.api.raycluster.facts import RayClusterFacts
from cfo.api.raycluster.names import CLUSTER_LABEL, NAMESPACE_LABEL
from cfo.controllers.raycluster.children import Children, RecentEvents, belongs_to
from cfo.runtime import Client, EventRecorder, owner_reference
from cfo.runtime.client import NameTaken
from test.support.clocks import FakeClock

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


def recording_children() -> tuple[Children, list[tuple[str, str]]]:
    """Return the writes of the cluster, and the reason and message of each Event that they record."""
    events: list[tuple[str, str]] = []
    recorder = SimpleNamespace(
        event=lambda _, __, reason, message: events.append((reason, message))
    )
    recent = RecentEvents(cast("EventRecorder", recorder), FakeClock())
    return Children(cast("Client", None), recent, CLUSTER, RayClusterFacts(CLUSTER)), events


def test_repeated_event_is_recorded_once_a_minute() -> None:
    recorded: list[tuple[str, str]] = []
    recorder = SimpleNamespace(
        event=lambda obj, _, reason, __: recorded.append((obj["metadata"]["uid"], reason))
    )
    clock = FakeClock()
    events = RecentEvents(cast("EventRecorder", recorder), clock)
    other = {"metadata": {"uid": "2"}}
    for seconds, obj, reason in (
        (0, CLUSTER, "A"),
        (1, CLUSTER, "A"),
        (1, CLUSTER, "A"),
        (1, other, "A"),
    ):
        clock.advance(seconds)
        events.event(obj, "Warning", reason, "message")
    assert recorded == [("1", "A"), ("2", "A")]
    clock.advance(57)
    events.event(CLUSTER, "Warning", "A", "message")
    events.event(other, "Warning", "A", "message")
    assert recorded == [("1", "A"), ("2", "A"), ("1", "A")]


def test_number_of_remembered_events_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecentEvents, "_LIMIT", 1)
    children, events = recording_children()
    for reason in "ABA":
        children.record_warning(reason, "message")
    assert [reason for reason, _ in events] == ["A", "B", "A"]


def taken_by(owner: dict[str, Any]) -> NameTaken:
    """Return the conflict with a Secret of this owner."""
    metadata = {"name": "ca", "namespace": "ns", "ownerReferences": [owner]}
    return NameTaken({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}, CLUSTER)


def test_taken_name_is_an_event_and_checked_again() -> None:
    children, events = recording_children()
    children.report_taken(taken_by(owner("2") | {"name": "other"}), "no CA")
    assert events == [
        ("NameTaken", "Secret ca already exists and does not belong to this RayCluster: no CA")
    ]
    assert children.retry_after == 300


def test_object_of_a_deleted_cluster_with_the_same_name_is_awaited_silently() -> None:
    children, events = recording_children()
    children.report_taken(taken_by(owner("2")), "no CA")
    assert not events
    children.retry(60)
    assert children.retry_after == 5


def test_taken_name_without_a_consequence_is_raised() -> None:
    with pytest.raises(NameTaken):
        recording_children()[0].report_taken(taken_by(owner("2")), "")


def test_only_lasting_failures_are_events() -> None:
    children, events = recording_children()
    children.report_failure("disturbed", is_lasting=False)
    children.report_failure("refused", is_lasting=True)
    assert events == [("FailedToReconcile", "refused")]


def test_only_namespaced_objects_have_an_owner_reference() -> None:
    children, _ = recording_children()
    assert children.owned(child())["metadata"]["ownerReferences"] == [owner_reference(CLUSTER)]
    assert children.owned(child(namespace=None))["metadata"]["ownerReferences"] == []
