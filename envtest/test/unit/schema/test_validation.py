"""Validation by schema: kube-apiserver's messages, ratcheting, formats and quantities."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from envtest.schema.quantity import QuantityError, canonical, is_integer, parse_quantity
from envtest.schema.schema_node import Schema
from envtest.schema.validation import compile_validator, validate


def errors(schema: dict[str, Any], value: Any, old: Any = None) -> list[str]:
    node = Schema(schema)
    check = compile_validator(node)
    if old is None:
        return [str(error) for error in validate(check, value)]
    return [str(error) for error in validate(check, value, schema=node, old=old)]


def field_errors(schema: dict[str, Any], value: Any) -> list[str]:
    return errors({"type": "object", "properties": {"f": schema}}, {"f": value})


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (
            {"type": "string"},
            1,
            'f: Invalid value: "integer": f in body must be of type string: "integer"',
        ),
        (
            {"type": "integer"},
            "x",
            'f: Invalid value: "string": f in body must be of type integer: "string"',
        ),
        (
            {"type": "boolean"},
            "x",
            'f: Invalid value: "string": f in body must be of type boolean: "string"',
        ),
        (
            {"type": "array", "items": {}},
            {},
            'f: Invalid value: "object": f in body must be of type array: "object"',
        ),
        (
            {"type": "string", "minLength": 2},
            "x",
            'f: Invalid value: "x": f in body should be at least 2 chars long',
        ),
        ({"type": "string", "maxLength": 1}, "xy", "f: Too long: may not be more than 1 byte"),
        (
            {"type": "string", "enum": ["b", "a"]},
            "c",
            'f: Unsupported value: "c": supported values: "b", "a"',
        ),
        (
            {"type": "integer", "minimum": 1},
            0,
            "f: Invalid value: 0: f in body should be greater than or equal to 1",
        ),
        (
            {"type": "integer", "maximum": 1},
            2,
            "f: Invalid value: 2: f in body should be less than or equal to 1",
        ),
        (
            {"type": "integer", "maximum": 2**53 + 1},
            2**53 + 1,
            f"f: Invalid value: {2**53 + 1}: f in body should be less than or equal to {2**53}",
        ),
        (
            {"type": "integer", "maximum": 2**63 - 1},
            1,
            '<nil>: Invalid value: "": Maximum boundary value must be of type integer (default format) in f',
        ),
        (
            {"type": "integer", "enum": [1]},
            2,
            'f: Unsupported value: 2: supported values: "1"',
        ),
        (
            {"type": "number", "multipleOf": 2**53},
            1.5,
            "f: Invalid value: 1.5: f in body should be a multiple of 9.007199254740992e+15",
        ),
        (
            {"type": "number", "multipleOf": 0.5},
            0.7,
            "f: Invalid value: 0.7: f in body should be a multiple of 0.5",
        ),
        (
            {"type": "array", "minItems": 1, "items": {}},
            [],
            "f: Invalid value: 0: f in body should have at least 1 items",
        ),
        (
            {"type": "number", "format": "float"},
            -3.5e38,
            '<nil>: Invalid value: "": Checked value must be of type number with format float in f',
        ),
        (
            {"type": "array", "maxItems": 1, "items": {}},
            [1, 2],
            "f: Too many: 2: must have at most 1 item",
        ),
    ],
)
def test_violation_is_reported(schema: dict[str, Any], value: Any, message: str) -> None:
    assert field_errors(schema, value) == [message]


def test_float_that_go_writes_with_more_than_64_bits_is_not_an_integer() -> None:
    wrong_type, no_integer = field_errors({"type": "integer"}, -(2.0**63))
    assert wrong_type.endswith('f in body must be of type integer: "number"')
    assert no_integer.endswith("Checked value must be of type integer (default format) in f")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number", "enum": [1]}, 1.9),
        ({"type": "integer", "enum": [2.0]}, 2),
        ({"x-kubernetes-int-or-string": True, "enum": ["A"]}, 65),
        ({"type": "number", "multipleOf": 0.01}, 0.29),
    ],
)
def test_value_is_converted_to_the_type_of_the_schema_as_in_go(
    schema: dict[str, Any], value: Any
) -> None:
    assert field_errors(schema, value) == []


def test_missing_required_field_is_reported_with_its_path() -> None:
    schema = {
        "type": "object",
        "properties": {
            "list": {
                "type": "array",
                "items": {"type": "object", "required": ["a"], "properties": {"a": {}}},
            },
        },
    }
    assert errors(schema, {"list": [{"a": 1}, {}]}) == ["list[1].a: Required value"]


def test_one_of_and_not_are_validated() -> None:
    either = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}
    assert errors(either, {"a": 1}) == []
    assert errors(either, {"a": 1, "b": 1})
    assert errors(either, {})
    negated = {"type": "object", "not": {"required": ["a"]}}
    assert errors(negated, {"b": 1}) == []
    assert errors(negated, {"a": 1})


@pytest.mark.parametrize("value", [1, "1", "25%"])
def test_int_or_string_accepts_integers_and_strings(value: Any) -> None:
    assert field_errors({"x-kubernetes-int-or-string": True}, value) == []


def test_int_or_string_rejects_other_types() -> None:
    assert field_errors({"x-kubernetes-int-or-string": True}, 1.5)
    assert field_errors({"x-kubernetes-int-or-string": True}, True)


@pytest.mark.parametrize("value", [1.5, True, {}])
def test_int_or_string_with_alternatives_reports_them(value: Any) -> None:
    schema = {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
    }
    assert field_errors(schema, 1) == field_errors(schema, "a") == []
    first, second, *_ = field_errors(schema, value)
    assert "f in body must be of type integer,string" in first
    assert second.endswith('"f" must validate at least one schema (anyOf)')


def test_errors_of_unchanged_values_are_ignored_on_update() -> None:
    """Ratcheting (KEP-4008): an update may keep a value that was already invalid."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "maxLength": 1},
            "b": {"type": "string", "maxLength": 1},
        },
    }
    old = {"a": "long", "b": "x"}
    assert errors(schema, {"a": "long", "b": "y"}, old) == []
    assert errors(schema, {"a": "longer", "b": "y"}, old) == [
        "a: Too long: may not be more than 1 byte"
    ]
    assert errors(schema, {"a": "long", "b": "long"}, old) == [
        "b: Too long: may not be more than 1 byte"
    ]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2024-01-02T03:04:05Z", "yesterday"),
        ("date", "2024-02-29", "2023-02-29"),
        ("duration", "1h30m", "1 fortnight"),
        ("duration", f"{'9' * 400}.5h", f"{'9' * 400}h"),
        ("email", "a@example.com", "a at example"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("uuid", "a3bb189e-8bf9-3888-9912-ace4e6543002", "a3bb"),
        ("byte", "YWJj", "no base64!"),
        ("hostname", "a.example.com", "-a"),
        ("uri", "https://example.com/x", "no uri"),
        ("mac", "00:00:5e:00:53:01", "00:00"),
    ],
)
def test_format_is_checked(name: str, good: str, bad: str) -> None:
    schema = {"type": "string", "format": name}
    assert field_errors(schema, good) == []
    assert field_errors(schema, bad), name


def test_unknown_formats_are_ignored() -> None:
    assert field_errors({"type": "string", "format": "zebra"}, "x") == []


@pytest.mark.parametrize(
    ("text", "value", "canonical"),
    [
        ("1", "1", "1"),
        ("1000m", "1", "1"),
        ("0.5", "0.5", "500m"),
        ("1Gi", "1073741824", "1Gi"),
        ("1024Mi", "1073741824", "1Gi"),
        ("1e3", "1000", "1e3"),
        ("1500M", "1500000000", "1500M"),
        ("100k", "100000", "100k"),
        ("-1", "-1", "-1"),
        ("1n", "0.000000001", "1n"),
    ],
)
def test_quantity_is_parsed_and_formatted(text: str, value: str, canonical: str) -> None:
    quantity = parse_quantity(text)
    assert quantity.value == Decimal(value)
    assert str(quantity) == canonical


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("+1", "+1"),
        ("010Gi", "010Gi"),
        ("1.500", "1.500"),
        ("1.", "1."),
        ("+0", "0"),
        ("+1000", "1k"),
        ("1.5", "1500m"),
        ("08Gi", "8Gi"),
        ("1e2", "100"),
        ("12345678901234567890", "12345678901234567890"),
        ("-843.929352792e3", "-843.929352792e3"),
        ("1000E", "1"),
        ("-12000E", "-12"),
        ("1000e18", "1e21"),
    ],
)
def test_quantity_without_a_shorter_form_is_written_as_it_is(text: str, written: str) -> None:
    assert canonical(text) == written


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1Kb", "--1", "1.2.3"])
def test_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1Ki", True),
        ("1.5", False),
        ("999.9999m", True),
        ("9E", True),
        ("7Ei", False),
        ("1023Pi", False),
        ("8Ei", True),
        ("12345678901234567890", False),
    ],
)
def test_thousandths_of_a_quantity_overflow_as_in_kube_apiserver(text: str, expected: bool) -> None:
    assert is_integer(text) is expected


@pytest.mark.parametrize("text", ["-", ".", "k", "-.Ki", "e3"])
def test_quantity_without_digits_is_zero(text: str) -> None:
    assert canonical(text) == "0"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1kk", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
        ("--1", "unable to parse quantity's suffix"),
        ("", "quantities must match"),
        ("1_0", "quantities must match"),
        ("\uff11", "quantities must match"),
    ],
)
def test_wrong_quantity_is_reported_as_in_go(text: str, problem: str) -> None:
    with pytest.raises(QuantityError, match=problem):
        parse_quantity(text)
