"""Field errors: paths, messages and causes match apimachinery."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest

from cfo.runtime.objects.field import (
    FieldError,
    FieldErrors,
    Path,
    aggregate,
    duplicate,
    forbidden,
    internal,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)


def test_path_is_formatted_as_in_the_api_server() -> None:
    root = Path("spec", "workerGroupSpecs")
    worker = root.index(1)
    assert str(worker.child("template", "spec").child("containers").index(0)) == (
        "spec.workerGroupSpecs[1].template.spec.containers[0]"
    )
    assert (
        str(Path("metadata", "annotations").key("example.com/a"))
        == "metadata.annotations[example.com/a]"
    )
    assert str(root) == "spec.workerGroupSpecs"
    assert str(Path().child("spec")) == "spec"


def test_paths_are_compared_by_value() -> None:
    assert Path("spec", "a") == Path("spec").child("a")
    assert len({Path("a"), Path("a"), Path("b")}) == 2
    assert Path("a") != "a"


@pytest.mark.parametrize(
    ("error", "message", "reason"),
    [
        (required(Path("a"), "is needed"), "a: Required value: is needed", "FieldValueRequired"),
        (required("a"), "a: Required value", "FieldValueRequired"),
        (invalid(Path("a"), True, "not so"), "a: Invalid value: true: not so", "FieldValueInvalid"),
        (invalid("a", "x<y", "no"), 'a: Invalid value: "x<y": no', "FieldValueInvalid"),
        (invalid("a", {"b": [1]}, "no"), 'a: Invalid value: {"b":[1]}: no', "FieldValueInvalid"),
        (type_invalid("a", 1.5, "no"), "a: Invalid value: 1.5: no", "FieldValueTypeInvalid"),
        (forbidden("a", "never"), "a: Forbidden: never", "FieldValueForbidden"),
        (duplicate("a", "b"), 'a: Duplicate value: "b"', "FieldValueDuplicate"),
        (
            not_supported("a", "z", ["x", "y"]),
            'a: Unsupported value: "z": supported values: "x", "y"',
            "FieldValueNotSupported",
        ),
        (
            too_long("a", "long", 3),
            "a: Too long: may not be more than 3 bytes",
            "FieldValueTooLong",
        ),
        (too_many("a", 5, 3), "a: Too many: 5: must have at most 3 items", "FieldValueTooMany"),
        (internal("a", "oh"), "a: Internal error: oh", "InternalError"),
    ],
)
def test_error_message_and_cause_match_apimachinery(
    error: FieldError, message: str, reason: str
) -> None:
    assert str(error) == message
    assert error.cause() == {"reason": reason, "message": message.removeprefix("a: "), "field": "a"}


def test_several_errors_become_one_message_without_duplicates() -> None:
    one, other = required("a"), forbidden("b", "no")
    assert aggregate([one]) == "a: Required value"
    assert aggregate([one, other, one]) == "[a: Required value, b: Forbidden: no]"


def test_field_errors_have_a_message_and_causes() -> None:
    with pytest.raises(FieldErrors, match=r"^\[a: Required value, b: Forbidden: no\]$") as raised:
        FieldErrors.check([required("a"), forbidden("b", "no")])
    assert [cause["field"] for cause in raised.value.causes] == ["a", "b"]
    FieldErrors.check([])
    with pytest.raises(ValueError, match="at least one error"):
        FieldErrors([])


def test_number_of_errors_is_limited_and_the_rest_is_not_computed() -> None:
    computed = []

    def errors() -> Iterator[FieldError]:
        for at in range(1000):
            computed.append(at)
            yield required(Path("spec").index(at))

    with pytest.raises(FieldErrors) as raised:
        FieldErrors.check(errors())
    assert len(computed) == 101
    assert len(raised.value.causes) == 100
    assert str(raised.value).endswith(
        "spec[99]: Required value]; only the first 100 errors are shown"
    )


@pytest.mark.parametrize("value", ["x" * 20_000, "\n" * 20_000, ["x"] * 20_000])
def test_long_values_are_shortened(value: Any) -> None:
    error = invalid("spec", value, "y" * 20_000)
    assert len(error.body) < 31_000
    assert error.body.endswith("y…")


class Recorded(list[str]):
    """A list that counts how many of its items are read."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        for item in super().__iter__():
            self.read += 1
            yield item


def test_only_the_shown_start_of_a_value_is_encoded_and_only_once() -> None:
    value = Recorded(["x"] * 20_000)
    error = type_invalid("spec", {"a": value}, "must be a string")
    shown = '{"a":[' + '"x",' * 249
    assert error.body == f"Invalid value: {shown[:999]}…: must be a string"
    assert str(error) == f"spec: {error.cause()['message']}"
    assert value.read < 300


def test_value_with_very_many_levels_is_shown() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert str(invalid("spec", value, "no")).startswith("spec: Invalid value: [[[[")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (
            {"b": [1.0, 2.5, True, None], "a": {}, "c": "<&>"},
            r'{"a":{},"b":[1,2.5,true,null],"c":"\u003c\u0026\u003e"}',
        ),
        ([1e21, 1e20, "\u2028"], r'[1e+21,100000000000000000000,"\u2028"]'),
        ([], "[]"),
    ],
)
def test_value_is_encoded_as_in_go(value: Any, shown: str) -> None:
    assert invalid("spec", value, "no").body == f"Invalid value: {shown}: no"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (timedelta(seconds=90), '"1m30s"'),
        ({"interval": timedelta(hours=1)}, '{"interval":"1h"}'),
        ([date(2026, 1, 31)], '["2026-01-31"]'),
    ],
)
def test_value_of_a_typed_object_is_shown(value: Any, shown: str) -> None:
    assert str(invalid("spec.x", value, "is wrong")) == f"spec.x: Invalid value: {shown}: is wrong"
