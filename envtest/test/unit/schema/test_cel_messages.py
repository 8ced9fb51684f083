"""Message literals of mutating policies: rewriting, types of values, conversion to JSON."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.schema.cel import compile_expression
from envtest.schema.cel_messages import parse, plain, type_errors

VARIABLES = {"object": "dyn"}


def value(expression: str, **obj: Any) -> Any:
    """Return the value of an expression, with the types of its literals."""
    return compile_expression(parse(expression).evaluated, VARIABLES, patches=True).evaluate(
        {"object": obj}
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("Object{}", {}),
        ("Object{spec: Object.spec{replicas: object.n + 1}}", {"spec": {"replicas": 3}}),
        ("Object { spec : Object . spec { a: 1, } }", {"spec": {"a": 1}}),
        ("Object{a: object.n > 1 ? object.n : 0, b: {'x': 1}['x']}", {"a": 2, "b": 1}),
        ("object.n > 1 ? Object{a: 1} : null", {"a": 1}),
        (
            "Object{a: 'Object{b: 1}', b: r'\\{', c: '''}\n'''}",
            {"a": "Object{b: 1}", "b": "\\{", "c": "}\n"},
        ),
        ("Object{ // } comment: 1,\n a: 1}", {"a": 1}),
        ("Object{?a: optional.none(), ?b: optional.of(1)}", {"b": 1}),
        (
            "Object{a: [1].map(i, Object.a{b: i, c: i == 1 ? 'x' : 'y'})}",
            {"a": [{"b": 1, "c": "x"}]},
        ),
        ("Object{d: 2.0, e: 0.5, f: null, t: timestamp('2026-01-01T00:00:00Z')}", None),
        ("Object{namespace: 'a', package: 'b'}", {"namespace": "a", "package": "b"}),
    ],
)
def test_object_is_a_map(expression: str, expected: Any) -> None:
    result = value(expression, n=2)
    expected = expected or (
        {}
        if expression == "Object{}"
        else {"d": 2, "e": 0.5, "f": None, "t": "2026-01-01T00:00:00Z"}
    )
    assert (plain(result), type_errors(result)) == (expected, [])


def test_json_patch_has_its_operations() -> None:
    expression = "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c~'), value: Object.spec{n: object.n}}]"
    (operation,) = value(expression, n=1)
    assert plain(operation) == {"op": "add", "path": "/a/b~1c~0", "value": {"n": 1}}
    assert type_errors(operation["value"]) == []


def test_positions_stay_the_same_for_the_type_checker() -> None:
    literals = parse("Object{metadata: Object.metadata{labels: {}}, spec: Object . spec{}}")
    assert (
        literals.checked == "Object{metadata: Object_metadata{labels: {}}, spec: Object_spec  {}}"
    )
    assert literals.types == {
        "Object": {"metadata": "dyn", "spec": "dyn"},
        "Object_metadata": {"labels": "dyn"},
        "Object_spec": {},
    }
    assert literals.names == {
        "Object": "Object",
        "Object_metadata": "Object.metadata",
        "Object_spec": "Object.spec",
    }


def test_names_that_collide_are_different_types() -> None:
    literals = parse("Object{a_b: Object.a_b{x: 1}, a: Object.a.b{y: 2}}")
    assert literals.types["Object_a_b"] == {"x": "dyn"}
    assert literals.types["Object_a_b_"] == {"y": "dyn"}


@pytest.mark.parametrize(
    "expression",
    ["Object{", "Object{a:", "}", "Object{a: 'x}", "x.Object{a: 1}", "Objects{a: 1}", ""],
)
def test_other_text_is_left_to_the_compiler(expression: str) -> None:
    assert parse(expression).checked == expression


@pytest.mark.parametrize(
    "part",
    [
        "Object.a{b: ",
        "Object.a",
        ".a",
        "{",
        "'",
        '"""',
        "r'''x",
        "a:",
        ",",
        "//\n",
        "Object{a: 1}, ",
        "[(",
        "?",
    ],
)
def test_long_input_is_parsed_in_linear_time(part: str) -> None:
    parse(part * 20_000)


@pytest.mark.parametrize(
    ("expression", "wrong", "expected"),
    [
        ("Object{spec: Object.status{}}", "Object.status", "Object.spec"),
        ("Object{spec: Object.spec{a: [Object.spec.b{}]}}", "Object.spec.b", "Object.spec.a"),
        ("Object{spec: {'k': Object.a{}}}", "Object.a", "Object.spec"),
    ],
)
def test_type_must_be_the_path_of_the_field(expression: str, wrong: str, expected: str) -> None:
    (error,) = type_errors(value(expression))
    assert error.startswith(f'unexpected type name "{wrong}", expected "{expected}"')


def test_map_keys_must_be_strings() -> None:
    with pytest.raises(TypeError, match="not string"):
        plain(value("Object{a: {1: 'x'}}"))
