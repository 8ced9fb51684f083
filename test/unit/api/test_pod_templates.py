"""Pod templates as CRDs accept them."""

from __future__ import annotations

import copy

from cfo.api.pod_templates import for_custom_resource


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
    found = for_custom_resource(spec)
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


def test_the_last_of_several_items_with_the_same_key_is_kept() -> None:
    container = {
        "name": "a",
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "2"},
            {"name": "A", "value": "3"},
        ],
        "ports": [
            {"containerPort": 80},
            {"containerPort": 80, "protocol": None},
            {"containerPort": 80, "protocol": "TCP", "name": "http"},
            {"containerPort": 80, "protocol": "UDP"},
        ],
        "resources": {"claims": [{"name": "x", "request": "a"}, {"name": "x", "request": "b"}]},
    }
    spec = {
        "containers": [container],
        "initContainers": [container],
        "hostAliases": [
            {"ip": "10.0.0.1", "hostnames": ["a"]},
            {"ip": "10.0.0.1", "hostnames": ["b"]},
        ],
        "imagePullSecrets": [{}, {"name": ""}, {"name": "pull"}, {"name": "pull"}],
    }
    before = copy.deepcopy(spec)
    found = for_custom_resource(spec)
    assert spec == before
    for field in ("containers", "initContainers"):
        (unique,) = found[field]
        assert sorted(item["value"] for item in unique["env"]) == ["2", "3"]
        assert unique["ports"] == container["ports"][2:]
        assert unique["resources"] == {"claims": [{"name": "x", "request": "b"}]}
    assert found["hostAliases"] == [{"ip": "10.0.0.1", "hostnames": ["b"]}]
    assert found["imagePullSecrets"] == [{"name": ""}, {"name": "pull"}]
