"""Quantities of pods as text."""

from __future__ import annotations

import copy

from cfo.api.quantities import with_text_quantities


def test_numbers_with_a_fraction_become_text() -> None:
    resources = {"requests": {"cpu": 0.5, "memory": 1024}, "limits": {"cpu": "1", "memory": None}}
    claim = {"metadata": {}, "spec": {"resources": {"requests": {"storage": 1.5}}}}
    spec = {
        "containers": [{"name": "a", "resources": resources}, {"name": "b"}],
        "initContainers": [{"name": "c", "resources": resources}],
        "overhead": {"cpu": 0.25},
        "resources": {"limits": {"cpu": 2.5}},
        "volumes": [
            {"name": "v", "emptyDir": {"sizeLimit": 1e9}},
            {"name": "w", "ephemeral": {"volumeClaimTemplate": claim}},
            {"name": "x", "emptyDir": {}},
        ],
        "restartPolicy": "Never",
    }
    before = copy.deepcopy(spec)
    found = with_text_quantities(spec)
    assert spec == before
    text = {"requests": {"cpu": "0.5", "memory": 1024}, "limits": {"cpu": "1", "memory": None}}
    assert found["containers"] == [{"name": "a", "resources": text}, {"name": "b"}]
    assert found["initContainers"] == [{"name": "c", "resources": text}]
    assert found["overhead"] == {"cpu": "0.25"}
    assert found["resources"] == {"limits": {"cpu": "2.5"}}
    sized, claimed, plain = found["volumes"]
    assert sized["emptyDir"] == {"sizeLimit": "1000000000.0"}
    stored = claimed["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"]
    assert stored == {"requests": {"storage": "1.5"}}
    assert plain == {"name": "x", "emptyDir": {}}
    assert found["restartPolicy"] == "Never"
