"""The AppWrapper CRD that is generated from the models, compared with the Go operator's."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.appwrapper.models import AppWrapper, appwrapper_crd
from cfo.api.appwrapper.names import APPWRAPPER

RECORDED = Path(__file__).parents[5] / "shared/crds/workload.codeflare.dev_appwrappers.yaml"


def without_descriptions(node: Any, *, names: bool = False) -> Any:
    """Return a schema without descriptions and with ``required`` sorted."""
    if isinstance(node, list):
        return [without_descriptions(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: sorted(value)
        if key == "required" and not names
        else without_descriptions(value, names=key == "properties")
        for key, value in node.items()
        if names or key != "description"
    }


@pytest.mark.skipif(not RECORDED.exists(), reason="no recorded CRDs")
def test_crd_is_equivalent_to_recorded_crd() -> None:
    recorded = yaml.load(RECORDED.read_text(), Loader=yaml.CSafeLoader)
    assert without_descriptions(appwrapper_crd()["spec"]) == without_descriptions(recorded["spec"])
    assert appwrapper_crd()["metadata"]["name"] == recorded["metadata"]["name"]


def test_template_is_an_embedded_resource_with_any_fields() -> None:
    schema = appwrapper_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    template = schema["properties"]["spec"]["properties"]["components"]["items"]["properties"][
        "template"
    ]
    assert without_descriptions(template) == {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_unknown_fields_are_preserved_by_models() -> None:
    wire = {
        "apiVersion": APPWRAPPER.api_version,
        "kind": APPWRAPPER.kind,
        "metadata": {"name": "a", "unknown": [None]},
        "spec": {
            "components": [{"template": {"kind": "Pod", "x": 1}, "unknown": True}],
            "suspend": True,
            "new": {"a": 1},
        },
    }
    assert AppWrapper.decode(wire).to_object() == wire
