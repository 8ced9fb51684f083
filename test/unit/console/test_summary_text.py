"""Summaries as plain text: tables, details, and lines about changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.summary_text import (
    age,
    change_text,
    counts,
    detail,
    listing,
    problem_lines,
    table,
)
from cfo.runtime import GVK, NamespacedName
from cfo.summaries.changes import ChangeType, SummaryChange
from cfo.summaries.repetitions import without_repetitions
from cfo.summaries.summary import Level, SummaryCondition, WarningEvent, kind_names
from test.support.summaries import summary

NOW = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
KINDS = kind_names([RAY_CLUSTER])


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        ("2026-01-01T00:04:59Z", "1s"),
        ("2026-01-01T00:03:01Z", "119s"),
        ("2026-01-01T00:03:00Z", "2m"),
        ("2025-12-31T00:05:00Z", "24h"),
        ("2025-12-29T00:05:00Z", "3d"),
        ("2027-01-01T00:00:00Z", "0s"),
        ("no time", ""),
        ("2026-01-01T00:00:00", "5m"),
    ],
)
def test_age_has_one_unit(created: str, expected: str) -> None:
    assert age(created, NOW) == expected


def test_table_has_one_line_for_each_object() -> None:
    objects = [
        summary("a", problem="it is broken", level=Level.WARNING),
        summary("b", facts=(("dashboard", "http://b"), ("mTLS", "no"))),
        summary("j", gvk=FLUX_JOB, state="JobRunning", ready=""),
    ]
    assert list(table(objects, NOW)) == [
        "RayCluster",
        "   NAMESPACE  NAME  STATUS      READY  AGE  INFORMATION",
        "!  ns         a     ready       1/2    5m   it is broken",
        "✓  ns         b     ready       1/2    5m   http://b",
        "",
        "FluxJob",
        "   NAMESPACE  NAME  STATUS      READY  AGE  INFORMATION",
        "✓  ns         j     JobRunning  -      5m",
    ]
    assert list(table(objects[1:2], NOW, wide=True, namespaces=False))[2].endswith(
        "dashboard: http://b; mTLS: no"
    )
    assert list(table([], NOW)) == []
    assert list(problem_lines(objects)) == [
        "! RayCluster ns/a",
        "    it is broken",
        "      -> do something about it",
    ]
    assert counts(objects) == "3 objects: 1 warning, 2 ok"


def test_detail_has_everything_that_is_known() -> None:
    full = summary(
        "a",
        problem="it is broken",
        facts=(("mTLS", "no"),),
        conditions=(SummaryCondition("HeadPodReady", "False", "NotReady", "it waits", ""),),
        warnings=(WarningEvent("Failed", "why", "2026-01-01T00:04:00Z", 3),),
    )
    lines = list(detail(full, NOW, KINDS))
    assert lines[0] == "✓ RayCluster ns/a: ready, 1/2 ready, ok"
    assert lines[2:] == [
        "",
        "Problems",
        "  it is broken",
        "    -> do something about it",
        "",
        "Facts",
        "  mTLS  no",
        "",
        "Conditions",
        "  HeadPodReady: False  NotReady: it waits",
        "",
        "Warning Events",
        "  60s ago  Failed (x3)  why",
    ]


def test_listing_has_table_problems_and_numbers() -> None:
    broken = summary("a", problem="it is broken", level=Level.WARNING)
    assert list(listing([broken], NOW, "ns")) == [
        "RayCluster",
        "   NAME  STATUS  READY  AGE  INFORMATION",
        "!  a     ready   1/2    5m   it is broken",
        "",
        "! RayCluster ns/a",
        "    it is broken",
        "      -> do something about it",
        "",
        "1 object: 1 warning in namespace ns",
    ]
    assert list(listing([], NOW, None)) == ["no objects in all namespaces"]


def test_kinds_with_the_same_name_are_shown_with_their_groups() -> None:
    broken = summary("a", problem="it is broken", level=Level.WARNING)
    stacks = [replace(broken, gvk=GVK(group, "v1", "Stack")) for group in ("a.io", "b.io")]
    both = list(listing(stacks, NOW, "ns"))
    assert [line for line in both if line.startswith("Stack")] == ["Stack.a.io", "Stack.b.io"]
    assert "! Stack.a.io ns/a" in both
    assert "! Stack.b.io ns/a" in both
    assert "! Stack ns/a" in list(listing(stacks[:1], NOW, "ns"))
    kinds = kind_names(each.gvk for each in stacks)
    assert next(detail(stacks[0], NOW, kinds)) == "! Stack.a.io ns/a: ready, 1/2 ready, warning"
    deleted = SummaryChange(ChangeType.REMOVED, stacks[1])
    assert change_text(deleted, kinds) == "– Stack.b.io ns/a was deleted"


def test_each_change_is_one_sentence() -> None:
    changed = SummaryChange(
        ChangeType.CHANGED, summary("a", problem="it is broken", level=Level.WARNING)
    )
    assert change_text(changed, KINDS) == "! RayCluster ns/a is ready (1/2): it is broken"
    assert (
        change_text(SummaryChange(ChangeType.REMOVED, summary("a")), KINDS)
        == "– RayCluster ns/a was deleted"
    )
    assert (
        change_text(SummaryChange(ChangeType.ADDED, summary("a", state="", ready="")), KINDS)
        == "✓ RayCluster ns/a is ok"
    )


def test_address_is_not_cropped() -> None:
    address = f"https://ray-dashboard.apps.example.test/{'x' * 100}"
    (_, _, line) = table([summary("a", facts=(("dashboard", address),))], NOW)
    assert line.endswith(address)
    (_, _, line) = table([summary("a", problem="p" * 101)], NOW)
    assert line.endswith(f"  {'p' * 99}…")


def test_number_and_noun_agree() -> None:
    assert counts([summary("a")]) == "1 object: 1 ok"


def test_problem_of_an_object_and_what_it_owns_is_shown_once() -> None:
    job = replace(
        summary("j", gvk=FLUX_JOB, problem="no quota", level=Level.WARNING), uid="1", owner=""
    )
    cluster = replace(summary("c", problem="no quota", level=Level.WARNING), uid="2", owner="1")
    other = replace(summary("o", problem="no quota", level=Level.WARNING), uid="3", owner="9")
    lines = list(listing([job, cluster, other], NOW, "ns"))
    assert [line for line in lines if "no quota" in line and line.startswith("    ")] == [
        "    no quota",
        "    no quota",
    ], "for the FluxJob, and for the object with another owner"
    (row,) = [line for line in lines if line.startswith("!  c ")]
    assert row.endswith("see FluxJob ns/j")
    assert counts([job, cluster, other]) == "3 objects: 3 warning"


def test_refusal_that_an_owner_reports_in_other_words_is_shown_for_the_owner() -> None:
    refusal = "is forbidden: exceeded quota: none"
    wrapper = summary(
        "w", gvk=APPWRAPPER, problem=f'FailedCreate: pods "h" {refusal}', level=Level.WARNING
    )
    cluster = summary(
        "c", problem=f'KubeRay cannot create pods: pods "h" {refusal}', level=Level.WARNING
    )
    shown = [replace(wrapper, uid="1", owner=""), replace(cluster, uid="2", owner="1")]
    lines = list(problem_lines(without_repetitions(shown)))
    assert [line for line in lines if "quota" in line] == [f'    FailedCreate: pods "h" {refusal}']


def test_owner_in_another_namespace_or_in_a_circle_hides_no_problem() -> None:
    problem = summary("a", problem="no quota", level=Level.WARNING)
    owner = replace(problem, uid="1", owner="2")
    circle = [owner, replace(problem, uid="2", owner="3"), replace(problem, uid="3", owner="1")]
    itself = replace(problem, uid="4", owner="4")
    other = replace(problem, uid="5", owner="1", key=NamespacedName("other", "b"))
    shown = [*circle, itself, other]
    assert without_repetitions(shown) == shown
