"""The inputs of each property: few and always the same in ``make test``, many random ones in ``make fuzz``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

__all__ = ["fuzz"]

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
"""The number of random inputs of all properties together; 0 for those of ``make test``."""

_EXAMPLES_IN_TESTS = 400

_SUPPRESSED = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
    HealthCheck.filter_too_much,
)


def fuzz(
    share: float, *strategies: Any, **named: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that runs a test with this share of all inputs, drawn from the strategies."""
    count = max(1, round(share * (EXAMPLES or _EXAMPLES_IN_TESTS)))
    profile = settings(
        max_examples=count,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,  # each test measures the time of the tested function itself
        print_blob=True,
        suppress_health_check=_SUPPRESSED,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    return lambda test: profile(given(*strategies, **named)(test))
