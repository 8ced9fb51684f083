"""The recorded admissions of RayClusters, replayed with the defaulting and validation functions.

For every recorded create and patch of a RayCluster, in all configurations, the result must equal the persisted object,
except for the differences that docs/differences.md lists under "Admission".
"""

from __future__ import annotations

from pathlib import Path

import pytest

from test.support.raycluster_admission import OTHER_HEAD_SERVICE, REFUSED_HERE, UNTOUCHED_HERE, Play
from test.support.recordings import load, raycluster_cases


@pytest.mark.parametrize("case", raycluster_cases())
def test_recorded_admissions(case: str) -> None:
    replay = Play(load(case))
    replay.run()
    assert replay.compared or case.endswith("old-names-annotated-by-hand")


def test_each_difference_is_documented() -> None:
    text = (Path(__file__).parents[4] / "docs" / "differences.md").read_text()
    _, _, section_and_rest = text.partition("### Admission")
    section, _, _ = section_and_rest.partition("###")
    for scenario in (*OTHER_HEAD_SERVICE, *REFUSED_HERE, *UNTOUCHED_HERE, "kuberay-sample"):
        assert f"/{scenario}`" in section, scenario
    for field in ("resources", "metadata", "scaleStrategy"):
        assert f"`{field}: {{}}`" in section
