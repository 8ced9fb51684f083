"""Settings of property tests: the same inputs in each run, and no limits of time, which a busy machine exceeds."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

__all__ = ["CHARACTERS", "PROPERTY"]

CHARACTERS = st.characters(exclude_categories=["Cs"])
"""All characters that UTF-8 encodes, as by default; ``st.text`` takes seconds to find those."""

PROPERTY = settings(
    deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
