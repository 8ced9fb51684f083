"""Settings of property tests: the same inputs in each run, and no limits of time, which a busy machine exceeds."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

__all__ = ["PROPERTY"]

PROPERTY = settings(
    deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
