"""When an operator is ready."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from envtest.chaos import readiness
from envtest.chaos.readiness import Readiness
from envtest.chaos.run_clock import RunClock


@pytest.fixture
def clock() -> Iterator[RunClock]:
    clock = RunClock()
    yield clock
    clock.close()


async def test_operator_without_requests_is_not_ready(clock: RunClock) -> None:
    now = clock.now()
    assert not await Readiness().wait(lambda: 0, lambda: 0, lambda: now - 60, clock, now + 0.1)


async def test_pause_before_the_first_watch_is_not_the_end_of_the_start(
    monkeypatch: pytest.MonkeyPatch, clock: RunClock
) -> None:
    """Operators discover resources before they watch, slowly on a busy machine."""
    monkeypatch.setattr(readiness, "_SETTLED", 0.01)
    monkeypatch.setattr(readiness, "_SETTLED_WITHOUT_WATCH", 3600)
    now = clock.now()
    checks = count()

    def watches() -> int:
        return 1 if next(checks) >= 3 else 0

    assert await Readiness().wait(lambda: 5, watches, lambda: now - 60, clock, now + 60)
    assert next(checks) == 4


async def test_operator_without_a_watch_is_ready_after_a_longer_pause(clock: RunClock) -> None:
    now = clock.now()
    assert await Readiness().wait(lambda: 1, lambda: 0, lambda: now - 2, clock, now + 60)
