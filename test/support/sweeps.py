"""Sweeps: tests that repeat a scenario for each write, field, setting, fault or recorded RayCluster.

A run of the tests tries every third case; the version of Python decides with which one it begins. CI runs the tests on
three versions, and so tries all cases for each change. ``make sweeps``, every night, tries all in one run. These tests
have the marker ``sweep``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final, TypeVar

T = TypeVar("T")

ALL: Final = os.environ.get("CFO_SWEEPS") == "all"
"""Whether this run tries all cases."""
RUNS: Final = 1 if ALL else 3
"""The number of runs that together try all cases."""
FIRST: Final = sys.version_info.minor % RUNS


def sampled_numbers() -> Iterator[int]:
    """Yield the numbers from 1 on that this run tries, without an end."""
    return count(FIRST + 1, RUNS)


def sampled(cases: Sequence[T], sweep: int = 0) -> Sequence[T]:
    """Return the cases that this run tries.

    Sweeps over the same cases, such as one for each configuration, pass their number: three of them try all cases.
    """
    return cases[(FIRST + sweep) % RUNS :: RUNS]
