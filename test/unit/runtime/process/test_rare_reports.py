"""Reports that clients can cause."""

from __future__ import annotations

from cfo.runtime.process.rare_reports import RareReports


def test_reports_at_once_and_then_once_per_interval() -> None:
    reports = RareReports(60.0)
    times = (100.0, 100.0, 130.0, 160.0, 170.0, 300.0)
    assert [reports.count(now) for now in times] == [1, 0, 0, 3, 0, 2]
