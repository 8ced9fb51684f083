"""Merging of apply configurations without field ownership."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.apply.overlay import InvalidConfiguration, overlay
from envtest.apply.schema_types import ObjectType

ATOMIC = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs"
POD = ObjectType.builtin("io.k8s.api.core.v1.Pod")


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": spec,
    }


def test_maps_and_lists_with_keys_are_merged() -> None:
    live = pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "2"}], nodeName="n")
    sidecar = {"name": "c", "image": "3"}
    configuration = {
        "metadata": {"labels": {"c": "d"}},
        "spec": {"containers": [{"name": "b", "image": "9"}, sidecar]},
    }
    merged = overlay(POD, live, configuration)
    assert merged["metadata"] == {"name": "p", "labels": {"a": "b", "c": "d"}}
    assert merged["spec"]["containers"] == [
        {"name": "a", "image": "1"},
        {"name": "b", "image": "9"},
        sidecar,
    ]
    assert merged["spec"]["nodeName"] == "n"
    assert live["metadata"]["labels"] == {"a": "b"}, "the live object is not modified"


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        (
            {"spec": {"tolerations": [{"key": "k"}]}},
            f"{ATOMIC}: .spec.tolerations",
        ),
        (
            {"spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "c", "command": ["x"]}]}},
            f"{ATOMIC}: .spec.nodeSelector, .spec.containers[0].command",
        ),
        (
            {"spec": {"nope": 1}},
            "failed to convert patch object to typed object: .spec.nope: field not declared in schema",
        ),
        (
            {"spec": {"hostNetwork": "yes"}},
            "failed to convert patch object to typed object: .spec.hostNetwork: expected boolean, got &{yes}",
        ),
        (
            {"spec": {"containers": [{"name": "c"}, {"name": "c"}]}},
            'failed to convert patch object to typed object: .spec.containers: duplicate entries for key [name="c"]',
        ),
    ],
)
def test_invalid_configuration(configuration: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration) as error:
        overlay(POD, pod(containers=[]), configuration)
    assert str(error.value).startswith(message)
