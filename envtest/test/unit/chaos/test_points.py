"""The plan of fault points: which faults follow from a run, in which order, and their names."""

from __future__ import annotations

import pytest

from envtest.chaos.points import KINDS, FaultPoint, StepRecord, Target, Write, parse_point, plan

CREATE = Target("create", "configmaps", "default")
UPDATE = Target("update", "widgets.example.com/status", "default", "a")


def ids(points: list[FaultPoint]) -> list[str]:
    return [point.id for point in points]


def test_each_successful_write_has_the_faults_of_writes() -> None:
    steps = [
        StepRecord(),
        StepRecord([Write(CREATE), Write(UPDATE), Write(UPDATE, succeeded=False), Write(UPDATE)]),
    ]
    assert ids(plan(steps, ["crash"])) == [
        "crash@1.1.create.configmaps:default/",
        "crash@1.1.update.widgets.example.com/status:default/a",
        "crash@1.3.update.widgets.example.com/status:default/a",
    ]


def test_creates_do_not_conflict() -> None:
    points = plan([StepRecord([Write(CREATE), Write(UPDATE)])], ["conflict"])
    assert [point.target for point in points] == [UPDATE]


def test_start_has_faults_of_writes_only() -> None:
    points = plan([StepRecord([Write(CREATE)], ["configmaps"])])
    assert {point.kind for point in points} == {"crash", "throttle", "error", "timeout", "reset"}


def test_last_step_cannot_be_unobserved() -> None:
    steps = [StepRecord(), StepRecord(), StepRecord()]
    assert ids(plan(steps, ["unobserved", "expired"])) == ["unobserved@1", "expired@1", "expired@2"]


def test_each_watched_resource_can_be_stale() -> None:
    steps = [StepRecord(), StepRecord(watched=("secrets", "pods"))]
    assert ids(plan(steps, ["stale"])) == ["stale@1.pods", "stale@1.secrets"]


def test_kinds_alternate_so_that_a_short_budget_tries_all_of_them() -> None:
    steps = [StepRecord(), StepRecord([Write(UPDATE)] * 3, ["pods"])]
    assert [point.kind for point in plan(steps)[: len(KINDS) - 1]] == [
        kind for kind in KINDS if kind != "unobserved"
    ]


def test_seed_changes_only_the_order() -> None:
    steps = [StepRecord([Write(Target("create", f"r{number}", "")) for number in range(30)])]
    plain, shuffled = plan(steps, ["crash"]), plan(steps, ["crash"], seed=7)
    assert plain != shuffled
    assert sorted(ids(plain)) == sorted(ids(shuffled))
    assert shuffled == plan(steps, ["crash"], seed=7)


@pytest.mark.parametrize(
    "point",
    [
        FaultPoint("crash", 2, UPDATE, 3),
        FaultPoint(
            "timeout",
            0,
            Target("patch", "clusterroles.rbac.authorization.k8s.io", "", "system:a.b/*"),
            1,
        ),
        FaultPoint("reset", 1, CREATE),
        FaultPoint("stale", 4, resource="pods"),
        FaultPoint("unobserved", 1),
    ],
    ids=lambda point: point.id,
)
def test_ids_are_parsed(point: FaultPoint) -> None:
    assert parse_point(point.id) == point


@pytest.mark.parametrize(
    "text",
    [
        "",
        "crash",
        "crash@",
        "crash@x",
        "crash@1",
        "crash@1.1.create",
        "boom@1",
        "stale@1",
        "expired@1.pods",
    ],
)
def test_other_ids_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="fault"):
        parse_point(text)
