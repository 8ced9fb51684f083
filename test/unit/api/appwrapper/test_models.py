"""The AppWrapper definition that comes from the models is the one that clients know."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.appwrapper.models import AppWrapper, appwrapper_crd

RECORDED = Path(__file__).parents[5] / "shared/crds/workload.codeflare.dev_appwrappers.yaml"


def facts(node: Any, *, names: bool = False) -> Any:
    """Without prose, and with ``required`` in order."""
    if isinstance(node, list):
        return [facts(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: sorted(value) if key == "required" and not names else facts(value, names=key == "properties")
        for key, value in node.items()
        if names or key != "description"
    }


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded definitions are not there")
def test_the_definition_is_equivalent_to_the_recorded_one() -> None:
    recorded = yaml.load(RECORDED.read_text(), Loader=yaml.CSafeLoader)
    assert facts(appwrapper_crd()["spec"]) == facts(recorded["spec"])
    assert appwrapper_crd()["metadata"]["name"] == recorded["metadata"]["name"]


def test_the_template_is_an_embedded_resource_with_any_fields() -> None:
    schema = appwrapper_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    template = schema["properties"]["spec"]["properties"]["components"]["items"]["properties"]["template"]
    assert facts(template) == {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_unknown_fields_survive_the_models() -> None:
    wire = {
        "spec": {
            "components": [{"template": {"kind": "Pod", "x": 1}, "later": True}],
            "suspend": True,
            "new": {"a": 1},
        }
    }
    assert AppWrapper.model_validate(wire).model_dump(by_alias=True, exclude_none=True) == wire
