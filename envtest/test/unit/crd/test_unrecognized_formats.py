"""Warnings about formats in schemas that kube-apiserver ignores."""

from __future__ import annotations

from typing import Any

from envtest.crd.unrecognized_formats import format_warnings


def spec(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}, {"name": "v2"}]}


def warnings(kind: str, *names: str) -> list[str]:
    nodes = {f"p{number}": {"type": kind, "format": name} for number, name in enumerate(names)}
    return list(format_warnings(spec(**nodes), None))


def test_each_unrecognized_format_gets_one_warning() -> None:
    assert warnings("string", "date-time", "k8s-short-name", "password", "uuid") == []
    assert warnings("string", "foo", 'a"b', "int32", "foo") == [
        'unrecognized format "foo"',
        'unrecognized format "a\\"b"',
        'unrecognized format "int32"',
    ]
    assert warnings("integer", "int32", "int64", "double") == ['unrecognized format "double"']
    assert warnings("number", "float", "double", "int64") == ['unrecognized format "int64"']
    assert warnings("boolean", "uuid") == ['unrecognized format "uuid"']


def test_formats_are_found_in_all_parts_of_a_schema() -> None:
    bad = {"format": "bad"}
    for part in (
        {"type": "array", "items": bad},
        {"type": "object", "additionalProperties": bad},
        {"anyOf": [{}, {"not": bad}]},
        {"type": "object", "properties": {"format": {"type": "string"}, "x": bad}},
    ):
        assert format_warnings(spec(a=part), None) == ['unrecognized format "bad"']
    assert format_warnings(spec(a={"type": "object", "additionalProperties": True}), None) == []


def test_formats_of_the_stored_crd_get_no_warning_again() -> None:
    old = spec(a={"format": "old"})
    new = spec(a={"format": "old"}, b={"format": "new"})
    assert format_warnings(new, old) == ['unrecognized format "new"']
