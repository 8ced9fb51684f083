"""The quota of AppWrappers: no schedule of admissions, scaling, failures and ends exceeds it, or leaves one stuck."""

from __future__ import annotations

from test.fuzz.checks.appwrapper_quota import KINDS, SCHEDULES, check_schedule
from test.fuzz.profiles import fuzz


@fuzz(0.5, KINDS, SCHEDULES)
def test_no_schedule_exceeds_the_quota(kinds: list[int], schedule: list[tuple[int, int]]) -> None:
    check_schedule(kinds, schedule)
