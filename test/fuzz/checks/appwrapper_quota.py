"""The quota of AppWrappers: no schedule of admissions, scaling, failures and ends exceeds it, or leaves one stuck."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from test.support.quota_world import TEMPLATES, QuotaWorld

KINDS = st.lists(st.integers(0, len(TEMPLATES) - 1), min_size=1, max_size=3)
SCHEDULES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 59)), max_size=60)

FIRST = ((0, 0), (2, 0), (3, 0))
"""Admission, then the pods are created and start, because most schedules would not get so far."""


def check_schedule(kinds: Sequence[int], schedule: Sequence[tuple[int, int]]) -> None:
    world = QuotaWorld(kinds)
    for action, parameter in (*FIRST, *schedule):
        world.act(action, parameter)
    world.finish()
