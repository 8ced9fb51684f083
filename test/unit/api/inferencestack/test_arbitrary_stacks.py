"""Any JSON can reach validation: a control plane with the original CRD has no schema. Nothing of it raises."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from cfo.api.inferencestack.profiles import PROFILES
from cfo.api.inferencestack.validation.fields import stack_types
from cfo.api.inferencestack.validation.stack import validate, validate_update
from cfo.controllers.inferencestack.profile_choice import restarts_pods
from cfo.controllers.inferencestack.rendering.stack import render
from cfo.runtime.objects.unstructured import Object
from test.support.inference_stacks import stack

SCALARS: dict[str, list[Any]] = {
    "string": [
        "",
        "a",
        "Recreate",
        "KEDA",
        "HPA",
        "external",
        "ReadWriteOnce",
        "restricted",
        "a: b",
    ],
    "boolean": [True, False],
    "int32": [0, 1, 3, -1],
    "int64": [0, 30],
    "Quantity": ["1Gi", 2, "0.5", "1e3", "16Ei"],
    "IntOrString": [0, 1, "25%", "http"],
    "scalar": ["x", 1, True, 0.5, "", "cuda", "8"],
    "object": [
        {},
        {"minReplicaCount": 1, "maxReplicaCount": 3},
        {"minReplicaCount": 0},
        {"triggers": [{}]},
    ],
    "Time": ["2026-01-01T00:00:00Z"],
    "FieldsV1": [{}],
}
WRONG: list[Any] = [None, [], {}, "x", 1, True, [None], [[]], {"a": None}]
NAMES = ["a", "b", "chat", "gateway", "Bad_Name", "x-1"]


def value_of(shape: str, rng: random.Random, depth: int, error_rate: float) -> Any:
    """Return a random value of ``shape``, which has wrong parts at the given rate."""
    if rng.random() < error_rate:
        return rng.choice(WRONG)
    if shape[0] == "[":
        return (
            [value_of(shape[1:-1], rng, depth - 1, error_rate) for _ in range(rng.randrange(3))]
            if depth > 0
            else []
        )
    if shape[0] == "{":
        if depth <= 0:
            return {}
        return {
            rng.choice(NAMES): value_of(shape[1:-1], rng, depth - 1, error_rate)
            for _ in range(rng.randrange(3))
        }
    if shape in SCALARS:
        return rng.choice(SCALARS[shape])
    fields = stack_types()[shape]
    if depth <= 0:
        return {}
    chosen = rng.sample(sorted(fields), k=min(len(fields), rng.randrange(5)))
    return {name: value_of(fields[name], rng, depth - 1, error_rate) for name in chosen}


def random_stack(rng: random.Random, error_rate: float) -> Object:
    return {**stack(), "spec": value_of("InferenceStackSpec", rng, 6, error_rate)}


def with_vllm(obj: Object) -> Object:
    """Return ``obj`` with the engine vllm and a model."""
    spec = obj["spec"] if isinstance(obj["spec"], dict) else {}
    return {
        **obj,
        "spec": {
            **spec,
            "applicationTemplate": {"engine": "vllm", "readerConfig": {"modelName": "o/m"}},
        },
    }


@pytest.mark.parametrize("is_vllm", [False, True])
@pytest.mark.parametrize("error_rate", [0, 0.005, 0.1])
def test_arbitrary_stack_is_validated_and_rendered_if_valid(
    error_rate: float, is_vllm: bool
) -> None:
    rng = random.Random(11)
    valid = 0
    for _ in range(400):
        obj, other = random_stack(rng, error_rate), random_stack(rng, error_rate)
        obj = with_vllm(obj) if is_vllm else obj
        profile = rng.choice(list(PROFILES.values()))
        validate_update(other, obj, profile)
        if validate(obj, profile).errors:
            continue
        valid += 1
        objects = render(obj, profile)
        names = [(item["kind"], item["metadata"]["name"]) for item in objects]
        assert len(set(names)) == len(names)
        for item in objects:
            if item["kind"] == "Deployment":
                assert not restarts_pods(item, item)
                selector = item["spec"]["selector"]["matchLabels"]
                assert selector.items() <= item["spec"]["template"]["metadata"]["labels"].items()
            if item["kind"] == "ConfigMap":
                assert ("targets" if is_vllm else "takeoff") in yaml.safe_load(
                    item["data"]["config.yaml"]
                )
    assert valid > 5, valid
