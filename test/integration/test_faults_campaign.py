"""The faults of the campaign that need no programs, on the embedded control plane, with less work and shorter faults.

``make faults`` runs all of them on the real etcd and kube-apiserver; only there, etcd is restored. These tests compare
counts and conditions; their times are those of the campaign, which are far longer than what the tests take.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from test.faults.campaign import Scale, embedded_plane, run_faults
from test.faults.scenarios import FAULTS
from test.support.sweeps import sampled

SCALE: Final = Scale(tenants=1, storm_seconds=1.0, down_seconds=0.0, quiet_seconds=0.5)
SHORT_LEASES: Final = replace(
    SCALE, election={"leaseDuration": "3s", "renewDeadline": "2.5s", "retryPeriod": "0.4s"}
)
"""For operators that are killed: the next one waits until the lease has expired."""

CONNECTIONS: Final = (
    "clock stepped",
    "watches cut",
    "storm of 429",
    "storm of 503",
)
PROCESSES: Final = ("operator killed", "webhooks down", "disk full for logs")


@pytest.mark.sweep
@pytest.mark.embedded(reason="make faults does the same on the real one")
@pytest.mark.parametrize(
    ("names", "scale"),
    [(CONNECTIONS, SCALE), (PROCESSES, SHORT_LEASES)],
    ids=["connections", "processes"],
)
async def test_promises_are_kept(names: tuple[str, ...], scale: Scale, tmp_path: Path) -> None:
    """One installation suffers all of them in turn; test_faults_leader has the faults of leaders."""
    tried = sampled(names)
    faults = [fault for fault in FAULTS if fault.name in tried]
    outcomes = await run_faults(faults, embedded_plane, tmp_path, scale)
    assert [(outcome.fault.name, outcome.problems) for outcome in outcomes] == [
        (fault.name, []) for fault in faults
    ]
