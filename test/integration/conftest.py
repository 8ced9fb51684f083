"""Integration tests log messages of level ``info`` and above; with ``--log-level debug``, all of them."""

from __future__ import annotations

import pytest
import structlog


@pytest.fixture(autouse=True)
def _log_level(request: pytest.FixtureRequest) -> None:
    """Log no message for each request and reconcile, which took 4 % of the time; the hook of all tests undoes it."""
    level = request.config.getoption("log_level") or "info"
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))


@pytest.fixture
def debug_messages() -> None:
    """Log all messages in this test."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("debug"))
