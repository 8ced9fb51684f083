"""Limits of InferenceStacks: larger ones are rejected before anything else reads them."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.inferencestack.profiles import newest_profile
from cfo.api.inferencestack.validation import fields
from cfo.api.inferencestack.validation import stack as stack_validation
from cfo.api.inferencestack.validation.stack import validate
from cfo.runtime.objects.unstructured import Object
from test.support.inference_stacks import stack

V2 = newest_profile("v2")


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({**stack(), "spec": []}, "spec: Invalid value: must be an object"),
        (stack(applications=[1]), "spec.applications: Invalid value: must be an object"),  # type: ignore[arg-type]
        (
            stack({f"a{number}": {} for number in range(101)}),
            "spec.applications: Too many: 101: must have at most 100",
        ),
        (stack(a=nested(1000)), "spec: Invalid value: must have at most 32 levels"),
        (stack(a=[0] * 60_000), "spec: Invalid value: must have at most 50000 values"),
        (
            stack(a={str(number): 0 for number in range(60_000)}),
            "spec: Invalid value: must have at most 50000 values",
        ),
        (stack(a="x" * 6_000_000), "spec: Invalid value: must have at most 50000 values"),
        (
            stack({"a" * 400: {}}),
            "spec: Invalid value: must not have keys of more than 317 characters",
        ),
        (
            stack(
                {f"a{number}": {} for number in range(100)},
                applicationTemplate={"volumes": [{}] * 1000},
            ),
            "spec: Invalid value: must have at most 50000 values, with the template in each of the 100 applications",
        ),
    ],
)
def test_stack_above_a_limit_is_not_read_further(
    obj: Object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(stack_validation, "check_fields")
    (error,) = validate(obj, V2).errors
    assert str(error).startswith(message)


def test_number_of_unknown_fields_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def counted(name: str, type_name: str) -> str:
        searched.append(name)
        return ""

    monkeypatch.setattr(fields, "_nearest", counted)
    found = validate(stack(**{f"unknown{number}": 0 for number in range(1000)}), V2)
    assert len(searched) == 50
    assert [str(error) for error in found.errors] == [
        "spec: Too many: must have at most 50 different unknown fields"
    ]


def test_repeated_unknown_fields_and_parameters_are_not_limited() -> None:
    parameters = {f"parameter{number}": 1 for number in range(100)}
    own = {"service": {}, "readerConfig": parameters}
    assert validate(stack({f"a{number}": own for number in range(100)}), V2).errors == ()


def test_number_of_errors_is_limited() -> None:
    found = validate(stack({f"a{number}": {"image": 1, "env": 1} for number in range(100)}), V2)
    assert len(found.errors) == 101
