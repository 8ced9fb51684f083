"""Fixtures for all tests; ``envtest`` and ``cfo.runtime`` provide the control plane and the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _log_configuration() -> Iterator[None]:
    """Undo what a test, or a program that it runs, configures."""
    before = structlog.get_config()
    yield
    if structlog.get_config() != before:
        structlog.configure(**before)
