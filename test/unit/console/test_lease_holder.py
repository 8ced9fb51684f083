"""Which Lease proves that an operator is alive; any user who can create a Lease chooses its times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cfo.console.doctor.other_operators import _STALE
from cfo.console.lease_holder import is_renewed, living_holder

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("spec", "is_alive", "is_proof"),
    [
        ({"renewTime": "2026-01-01T11:59:50.000000Z"}, True, True),
        ({"renewTime": "2026-01-01T12:10:00.000000Z"}, True, True),  # of a clock that is ahead
        ({"renewTime": "2026-01-01T13:00:01.000000Z"}, False, False),
        ({"renewTime": "2999-12-31T23:59:59.000000Z"}, False, False),
        ({"renewTime": "2026-01-01T11:58:00.000000Z"}, False, False),
        ({"renewTime": "2026-01-01T11:58:00Z", "leaseDurationSeconds": 300}, True, False),
        ({"renewTime": "2026-01-01T10:59:59Z", "leaseDurationSeconds": 2**31 - 1}, False, False),
        ({"renewTime": "2026-01-01T11:59:50Z", "leaseDurationSeconds": "x"}, True, True),
        ({"renewTime": "yesterday"}, True, False),
        ({}, True, False),
    ],
)
def test_lease_proves_life_only_with_a_time_near_now(
    spec: dict[str, Any], *, is_alive: bool, is_proof: bool
) -> None:
    lease = {"spec": {"holderIdentity": "a", **spec}}
    assert bool(living_holder(lease, NOW)) is is_alive
    assert is_renewed(lease, _STALE, NOW) is is_proof


@pytest.mark.parametrize("lease", [{}, {"spec": []}, {"spec": {"holderIdentity": ""}}])
def test_lease_without_a_holder_is_not_alive(lease: Any) -> None:
    assert living_holder(lease, NOW) == ""
