"""The sizes of ReplicaSets during rollouts, and the conditions of Deployments."""

from datetime import UTC, datetime
from typing import Any

import pytest

from envtest.apimachinery.objects import Object
from envtest.controllers.deployment_status import (
    counts,
    is_complete,
    rollout_conditions,
    seconds_to_deadline,
)
from envtest.controllers.replica_set_revisions import (
    next_revision,
    replica_set_for,
    updated_annotations,
)
from envtest.controllers.rollouts import (
    is_scaling_event,
    new_size,
    old_sizes,
    resolve_int_or_percent,
    scaled_sizes,
    surge_and_unavailable,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REVISION = "deployment.kubernetes.io/revision"


def rolling(surge: Any, unavailable: Any, replicas: int = 10) -> Object:
    update = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": update}}


def replica_set(
    name: str, size: int, available: int = 0, most: int | None = None, **status: Any
) -> Object:
    annotations = {} if most is None else {"deployment.kubernetes.io/max-replicas": str(most)}
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z",
            "annotations": annotations,
        },
        "spec": {"replicas": size},
        "status": {"availableReplicas": available, "terminatingReplicas": 0, **status},
    }


def deployment(conditions: Any = (), status: Any = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "d", "namespace": "ns", "generation": 2},
        "spec": {"progressDeadlineSeconds": 600, **rolling(1, 0, 2), **spec},
        "status": {**(status or {}), "conditions": list(conditions)},
    }


@pytest.mark.parametrize(("value", "up", "down"), [("25%", 2, 1), (3, 3, 3), ("0%", 0, 0)])
def test_percentages_are_rounded(value: Any, up: int, down: int) -> None:
    assert resolve_int_or_percent(value, 5, up=True) == up
    assert resolve_int_or_percent(value, 5, up=False) == down


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (rolling("25%", "25%"), (3, 2)),
        (rolling(0, "1%"), (0, 1)),
        (rolling(0, 20), (0, 10)),
        (rolling(1, 1, 0), (0, 0)),
        ({"replicas": 3, "strategy": {"type": "Recreate"}}, (0, 0)),
    ],
)
def test_surge_and_unavailable(spec: Object, expected: tuple[int, int]) -> None:
    assert surge_and_unavailable(spec) == expected


@pytest.mark.parametrize(
    ("current", "others", "expected"), [(0, 10, 3), (3, 10, 3), (5, 6, 7), (9, 0, 10), (12, 0, 10)]
)
def test_size_of_the_new_replica_set(current: int, others: int, expected: int) -> None:
    assert new_size(rolling(3, 2), current, others) == expected


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ((3, 0), [("o1", 10, 10)], {"o1": 8}),
        ((3, 0), [("o1", 8, 8)], {"o1": 8}),
        ((5, 3), [("o1", 8, 8)], {"o1": 5}),
        ((3, 0), [("o1", 4, 0), ("o2", 6, 6)], {"o1": 2, "o2": 6}),
        ((10, 10), [("o1", 0, 0), ("o2", 3, 1)], {"o2": 0}),
    ],
)
def test_sizes_of_old_replica_sets(
    new: tuple[int, int], old: Any, expected: dict[str, int]
) -> None:
    assert (
        old_sizes(rolling(3, 2), replica_set("n9", *new), [replica_set(*each) for each in old])
        == expected
    )


@pytest.mark.parametrize(
    ("replicas", "sizes", "expected"),
    [
        (15, {"a1": 8, "b2": 5}, {"a1": 11, "b2": 7}),
        (5, {"a1": 8, "b2": 5}, {"a1": 5, "b2": 3}),
        (0, {"a1": 8, "b2": 5}, {"a1": 0, "b2": 0}),
        (10, {"a1": 8, "b2": 5}, {"a1": 8, "b2": 5}),
    ],
)
def test_scaling_during_a_rollout_is_proportional(
    replicas: int, sizes: Any, expected: dict[str, int]
) -> None:
    sets = [replica_set(name, size, most=13) for name, size in sizes.items()]
    assert scaled_sizes(rolling(3, 2, replicas), {}, sets) == expected


def test_change_of_the_size_is_a_scaling_event() -> None:
    scaled = replica_set("a1", 2)
    scaled["metadata"]["annotations"] = {"deployment.kubernetes.io/desired-replicas": "2"}
    assert not is_scaling_event({"replicas": 2}, [scaled])
    assert is_scaling_event({"replicas": 3}, [scaled])
    assert not is_scaling_event({"replicas": 3}, [{**scaled, "spec": {"replicas": 0}}])


def progressing(reason: str, status: str = "True", since: str = "2025-12-31T23:55:00Z") -> Object:
    return {
        "type": "Progressing",
        "status": status,
        "reason": reason,
        "message": "m",
        "lastUpdateTime": since,
        "lastTransitionTime": since,
    }


@pytest.mark.parametrize(
    ("condition", "before", "after", "reason"),
    [
        (None, {}, {"replicas": 1, "updated": 1}, "ReplicaSetUpdated"),
        (
            "NewReplicaSetCreated",
            {"replicas": 1, "updatedReplicas": 1},
            {"replicas": 1, "updated": 1},
            None,
        ),
        (
            "NewReplicaSetCreated",
            {"replicas": 2, "updatedReplicas": 2},
            {"replicas": 2, "ready": 2},
            "complete",
        ),
    ],
)
def test_progress(
    condition: str | None, before: Any, after: dict[str, int], reason: str | None
) -> None:
    current = deployment([progressing(condition)] if condition else (), before)
    count, ready = after["replicas"], after.get("ready", 0)
    new = replica_set("n1", 2, ready, replicas=count, readyReplicas=ready)
    status = counts(current, new, [new], NOW)
    found = {one["type"]: one for one in rollout_conditions(current, status, new, [new], NOW)}
    expected = {"complete": "NewReplicaSetAvailable", None: condition}.get(reason, reason)
    assert found["Progressing"]["reason"] == expected


@pytest.mark.parametrize(
    ("since", "expected"), [("2025-12-31T23:50:01Z", "True"), ("2025-12-31T23:49:59Z", "False")]
)
def test_rollout_exceeds_its_deadline(since: str, expected: str) -> None:
    current = deployment(
        [progressing("ReplicaSetUpdated", since=since)], {"replicas": 2, "updatedReplicas": 2}
    )
    new = replica_set("n1", 2, replicas=2)
    status = counts(current, new, [new], NOW)
    found = {one["type"]: one for one in rollout_conditions(current, status, new, [new], NOW)}
    assert found["Progressing"]["status"] == expected


def test_complete_rollout_has_no_deadline() -> None:
    assert seconds_to_deadline(deployment(), [progressing("NewReplicaSetAvailable")], NOW) is None
    assert seconds_to_deadline(deployment(), [progressing("ReplicaSetUpdated")], NOW) == 300
    unlimited = deployment(progressDeadlineSeconds=2**31 - 1)
    assert seconds_to_deadline(unlimited, [progressing("ReplicaSetUpdated")], NOW) is None


def test_failure_of_a_replica_set_is_reported_and_cleared() -> None:
    failure = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": "no",
        "lastTransitionTime": "2025-12-31T23:00:00Z",
    }
    refused = replica_set("n1", 2, conditions=[failure])
    status = counts(deployment(), refused, [refused], NOW)
    conditions = rollout_conditions(deployment(), status, refused, [refused], NOW)
    assert conditions[-1] == {**failure, "lastUpdateTime": failure["lastTransitionTime"]}
    created = replica_set("n1", 2)
    status = counts(deployment(conditions), created, [created], NOW)
    assert all(
        one["type"] != "ReplicaFailure"
        for one in rollout_conditions(deployment(), status, created, [], NOW)
    )


def test_deployment_is_complete_when_it_was_observed() -> None:
    status = {"updatedReplicas": 2, "replicas": 2, "availableReplicas": 2, "observedGeneration": 2}
    assert is_complete(deployment(), status)
    assert not is_complete(deployment(), {**status, "observedGeneration": 1})
    assert not is_complete(deployment(), {**status, "replicas": 3})


def test_replica_set_has_the_annotations_of_its_deployment() -> None:
    owner = deployment(
        template={"metadata": {"labels": {"a": "b"}}}, selector={"matchLabels": {"a": "b"}}
    )
    owner["metadata"]["annotations"] = {"team": "x", REVISION: "7"}
    created = replica_set_for(owner, {"uid": "u"}, 2, 3)
    annotations = created["metadata"]["annotations"]
    assert (annotations["team"], annotations[REVISION]) == ("x", "3")
    assert next_revision([created]) == 4
    again = updated_annotations(owner, created, 5)
    assert (again[REVISION], again["deployment.kubernetes.io/revision-history"]) == ("5", "3")
