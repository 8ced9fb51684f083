"""What a report says of faults that were not run."""

from __future__ import annotations

import pytest

from envtest.chaos.points import FaultPoint
from envtest.chaos.report import Report

STALE = FaultPoint("stale", 1, resource="pods")
RESTART = FaultPoint("restart", 2)


@pytest.mark.parametrize(
    ("interrupted", "gap"),
    [
        ([STALE], "Budget used up during stale@1.pods, 2 faults not run"),
        ([STALE, RESTART], "Budget used up during stale@1.pods, restart@2, 2 faults not run"),
        ([], "Budget used up, 2 faults not run"),
    ],
)
def test_faults_that_the_budget_ended_are_named(interrupted: list[FaultPoint], gap: str) -> None:
    report = Report(not_run=[STALE, RESTART], interrupted=interrupted)
    assert report.gaps == [gap]
    assert report.json()["faults"]["interrupted"] == [point.id for point in interrupted]
