"""Sets of field paths: ``fieldsV1`` encoding, set operations, order of iteration."""

import pytest

from envtest.apply.fieldset import (
    FieldSet,
    InvalidFields,
    field_element,
    format_path,
    key_element,
    value_element,
)


def fields(*paths: str) -> FieldSet:
    return FieldSet.of(*(tuple(f"f:{name}" for name in path.split(".")) for path in paths))


def test_decode_and_encode_are_inverse() -> None:
    encoded = {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {'v:"x.io/y"': {}}},
        "f:spec": {
            "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}}},
            "f:replicas": {},
        },
    }
    assert FieldSet.decode(encoded).encode() == encoded


def test_keys_are_decoded_to_canonical_form() -> None:
    decoded = FieldSet.decode({"f:ports": {'k:{ "protocol": "TCP", "port": 80.0 }': {}}})
    assert decoded.encode() == {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {}}}


def test_unknown_kinds_of_elements_are_dropped() -> None:
    assert FieldSet.decode({"x:future": {}, "f:a": {}}).encode() == {"f:a": {}}


@pytest.mark.parametrize(
    "broken", [{"fa": {}}, {"k:[1]": {}}, {"v:{": {}}, {"f:a": 1}, [], {"i:x": {}}]
)
def test_invalid_fields_v1_is_rejected(broken: object) -> None:
    with pytest.raises(InvalidFields):
        FieldSet.decode(broken)


def test_html_characters_are_escaped_as_in_go() -> None:
    assert value_element("<a&b>") == 'v:"\\u003ca\\u0026b\\u003e"'
    assert key_element({"name": "a>b"}) == 'k:{"name":"a\\u003eb"}'
    assert field_element("a<b") == "f:a<b"


def test_parent_and_children_are_separate_members() -> None:
    both = fields("a", "a.b")
    assert both.encode() == {"f:a": {".": {}, "f:b": {}}}
    assert (both - fields("a")).encode() == {"f:a": {"f:b": {}}}
    assert (both - fields("a.b")).encode() == {"f:a": {}}
    assert not both.without(fields("a"))


def test_union_intersection_and_difference() -> None:
    one, two = fields("a.b", "a.c", "d"), fields("a.b", "d.e", "f")
    assert set(one | two) == {("f:a", "f:b"), ("f:a", "f:c"), ("f:d",), ("f:d", "f:e"), ("f:f",)}
    assert set(one & two) == {("f:a", "f:b")}
    assert set(one - two) == {("f:a", "f:c"), ("f:d",)}
    assert not one - one
    assert one | FieldSet() == one
    assert fields("a.b") != fields("a.c")


def test_operations_do_not_modify_operands() -> None:
    one, two = fields("a.b"), fields("a.c")
    before = one.encode(), two.encode()
    for result in (one | two, one & two, one - two, one.without(two)):
        result.encode()
    assert (one.encode(), two.encode()) == before


def test_iteration_yields_members_before_children() -> None:
    decoded = FieldSet.decode(
        {
            "f:z": {},
            "f:a": {"f:y": {}},
            "f:l": {'v:"b"': {}, "v:3": {}, 'k:{"n":2}': {}, 'k:{"n":10}': {}, "i:1": {}},
        }
    )
    assert [format_path(path) for path in decoded] == [
        ".z",
        ".a.y",
        ".l[n=2]",
        ".l[n=10]",
        ".l[=3]",
        '.l[="b"]',
        ".l[1]",
    ]


def test_has_reports_membership() -> None:
    one = fields("a.b")
    assert one.has(("f:a", "f:b"))
    assert not one.has(("f:a",))
    assert not one.has(())
    assert not one.has(("f:x", "f:b"))
