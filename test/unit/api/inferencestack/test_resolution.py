"""The merge rules: properties that hold for any values, and examples."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from cfo.api.inferencestack.profiles import newest_profile
from cfo.api.inferencestack.resolution import merge_env, resolve
from cfo.runtime.objects import merged
from test.support.inference_stacks import stack

SCALARS: list[Any] = [None, False, True, 0, 1, "", "x", 0.5]


def random_value(rng: random.Random, depth: int = 3) -> Any:
    kind = rng.random()
    if depth and kind < 0.5:
        return random_map(rng, depth - 1)
    if depth and kind < 0.65:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return rng.choice(SCALARS)


def random_map(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    return {rng.choice("abcd"): random_value(rng, depth) for _ in range(rng.randrange(5))}


def scalars(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if not isinstance(item, dict | list)}


def has_null(value: Any) -> bool:
    return any(
        item is None or (isinstance(item, dict) and has_null(item)) for item in value.values()
    )


@pytest.mark.parametrize("seed", range(20))
def test_merge_has_the_properties_of_helm_values(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        base, override, last = (merged({}, random_map(rng)), random_map(rng), random_map(rng))
        before = copy.deepcopy((base, override))
        result = merged(base, override)
        assert (base, override) == before, "the arguments are not changed"
        assert merged(base, {}) == base, "an empty map changes nothing"
        assert not has_null(result), "null removes a value"
        assert merged(result, override) == result, "merging again changes nothing"
        assert (
            merged(result, last).items()
            >= {k: v for k, v in scalars(last).items() if v is not None}.items()
        )
        for key, value in override.items():
            if value is None:
                assert key not in result
            elif not isinstance(value, dict):
                assert result[key] is value, (
                    "an explicit value wins, also false, 0 and the empty string"
                )
        for key in base.keys() - override.keys():
            assert result[key] == base[key]


def test_environment_variables_of_the_application_have_precedence() -> None:
    application = [{"name": "A", "value": "app"}]
    template = [{"name": "B", "value": "template"}, {"name": "A", "value": "template"}]
    required = [{"name": "B", "value": "required"}, {"name": "C", "value": "required"}]
    assert merge_env(application, template, required) == [
        {"name": "A", "value": "app"},
        {"name": "B", "value": "template"},
        {"name": "C", "value": "required"},
    ]


def resolved(application: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    return resolve(
        stack({"a": application}, applicationTemplate=template), newest_profile("v2")
    ).applications["a"]


@pytest.mark.parametrize(
    ("application", "template", "volume"),
    [
        ({}, {}, {"name": "models", "emptyDir": {"medium": "Memory"}}),
        (
            {},
            {"modelsVolume": {"name": "t", "hostPath": {"path": "/t"}}},
            {"name": "t", "hostPath": {"path": "/t"}},
        ),
        (
            {"modelsVolume": {"name": "a", "emptyDir": {}}},
            {"modelsVolume": {"name": "t", "hostPath": {"path": "/t"}}},
            {"name": "a", "emptyDir": {}},
        ),
        (
            {"modelsVolume": None},
            {"modelsVolume": {"name": "t", "hostPath": {"path": "/t"}}},
            {"name": "models", "emptyDir": {"medium": "Memory"}},
        ),
        ({"cache": {"size": "1Gi"}}, {"modelsVolume": {"name": "t", "emptyDir": {}}}, None),
        (
            {"modelsVolume": {"name": "a", "emptyDir": {}}},
            {"cache": {"size": "1Gi"}},
            {"name": "a", "emptyDir": {}},
        ),
    ],
)
def test_models_volume_is_replaced_as_a_whole(
    application: dict[str, Any], template: dict[str, Any], volume: dict[str, Any] | None
) -> None:
    result = resolved(application, template)
    assert result.get("modelsVolume") == volume
    assert ("cache" in result) == (volume is None)


def test_lists_of_the_application_replace_those_of_the_template() -> None:
    result = resolved(
        {"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "t"}], "volumes": [{"name": "v"}]}
    )
    assert (result["tolerations"], result["volumes"]) == ([{"key": "a"}], [{"name": "v"}])


def test_explicit_false_and_zero_override_the_template() -> None:
    template = {"readerConfig": {"bufferRequests": True, "tensorParallel": 2}, "replicaCount": 3}
    result = resolved({"readerConfig": {"bufferRequests": False}, "replicaCount": 0}, template)
    assert (result["readerConfig"]["bufferRequests"], result["replicaCount"]) == (False, 0)
    assert result["readerConfig"]["tensorParallel"] == 2


def test_null_removes_a_default() -> None:
    assert (
        "consumerGroup"
        not in resolved({}, {"readerConfig": {"consumerGroup": None}})["readerConfig"]
    )
