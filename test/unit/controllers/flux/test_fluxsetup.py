"""The FluxSetup that the operator creates if there is none."""

import pytest

from cfo.config.model import DefaultSetupConfiguration
from cfo.controllers.flux.fluxsetup import default_setup
from cfo.runtime import LabelSelector


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ("", {}),
        ("operatorVersion=v1", {"operatorVersion": "v1"}),
        ("stage in (b,a),managed,!legacy,zone!=x", {"stage": "a", "managed": ""}),
    ],
)
def test_operator_selects_its_default_setup(selector: str, labels: dict[str, str]) -> None:
    parsed = LabelSelector.of(selector)
    metadata = default_setup(DefaultSetupConfiguration(), "operator", parsed)["metadata"]
    assert metadata == {
        "name": "default",
        "namespace": "operator",
        **({"labels": labels} if labels else {}),
    }
    assert parsed.matches(labels)
