"""The recorded admissions of RayClusters, replayed with the defaulting and validation functions.

For every recorded create and patch of a RayCluster, in all configurations, the result must equal the persisted object,
except for the differences that docs/differences.md lists under "Admission".
"""

from __future__ import annotations

from pathlib import Path

import pytest

from test.support.raycluster_admission import (
    DENIED_BY_CFO,
    DIFFERENT_HEAD_SERVICE,
    UNCHANGED_BY_CFO,
    AdmissionReplay,
)
from test.support.recordings import load_raycluster, raycluster_cases


@pytest.mark.parametrize("case", raycluster_cases())
def test_recorded_admissions(case: str) -> None:
    replay = AdmissionReplay(load_raycluster(case))
    replay.run()
    assert replay.compared or case.endswith("old-names-annotated-by-hand")


def test_each_difference_is_documented() -> None:
    text = (Path(__file__).parents[4] / "docs" / "differences.md").read_text()
    _, _, section_and_rest = text.partition("### Admission")
    section, _, _ = section_and_rest.partition("###")
    for scenario in (*DIFFERENT_HEAD_SERVICE, *DENIED_BY_CFO, *UNCHANGED_BY_CFO, "kuberay-sample"):
        assert f"/{scenario}`" in section, scenario
    for field in ("resources", "metadata", "scaleStrategy"):
        assert f"`{field}: {{}}`" in section
