"""What the Go operator's webhooks made of RayClusters, and what these make of them.

Every recorded create and patch of a RayCluster, in all configurations, is put to the pure functions: what comes out is
what was persisted, but for the differences that docs/differences.md lists under "Admission".
"""

from __future__ import annotations

from pathlib import Path

import pytest

from test.support.raycluster_admission import DENIED_BY_CFO, DIFFERENT_HEAD_SERVICE, UNCHANGED_BY_CFO, AdmissionReplay
from test.support.recordings import load_raycluster, raycluster_cases


@pytest.mark.parametrize("case", raycluster_cases())
def test_recorded_admission(case: str) -> None:
    play = AdmissionReplay(load_raycluster(case))
    play.run()
    assert play.compared or case.endswith("old-names-annotated-by-hand")


def test_each_difference_is_written_down() -> None:
    text = (Path(__file__).parents[4] / "docs" / "differences.md").read_text()
    _, _, after = text.partition("### Admission")
    section, _, _ = after.partition("###")
    for scenario in (*DIFFERENT_HEAD_SERVICE, *DENIED_BY_CFO, *UNCHANGED_BY_CFO, "kuberay-sample"):
        assert f"/{scenario}`" in section, scenario
    for field in ("resources", "metadata", "scaleStrategy"):
        assert f"`{field}: {{}}`" in section
