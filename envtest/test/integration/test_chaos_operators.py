"""Kopf operators with a fault at each of their writes. Each exploration takes minutes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from envtest.chaos import Report, Timing, explore

VOLUMES = Path(__file__).parents[1] / "operators" / "volumes"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(importlib.util.find_spec("kopf") is None, reason="kopf is not installed"),
]


async def explored(program: str, *kinds: str) -> Report:
    return await explore(
        [sys.executable, "-m", "kopf", "run", "-A", "--standalone", str(VOLUMES / program)],
        VOLUMES,
        crds=[VOLUMES / "crd.yaml"],
        apply=[VOLUMES / "class.yaml"],
        kinds=kinds,
        jobs=4,
        timing=Timing(quiet=1.5, timeout=20.0),
    )


async def test_operator_of_a_tutorial_does_not_survive_a_crash_after_it_created_the_claim() -> None:
    report = await explored("operator.py", "crash", "reset", "timeout")
    print(report.text())
    (finding,) = (
        each
        for each in report.findings
        if each.problem.subject == "volumes.example.com default/data"
    )
    assert finding.problem.kind == "different"
    create = "@1.1.create.persistentvolumeclaims:default/"
    assert {f"{kind}{create}" for kind in ("crash", "reset", "timeout")} <= {
        point.id for point in finding.points
    }


async def test_careful_operator_converges_after_each_crash() -> None:
    report = await explored(
        "careful.py", "crash", "reset", "timeout", "throttle", "error", "expired", "disconnect"
    )
    print(report.text())
    report.assert_passed()
