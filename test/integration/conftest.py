"""What all integration tests share."""

from __future__ import annotations

import pytest

from cfo.controllers.raycluster import conditions


@pytest.fixture(autouse=True)
def _conditions_settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for the end of a burst of changes; tests that count writes set the real value."""
    monkeypatch.setattr(conditions, "QUIET_SECONDS", 0.01)
