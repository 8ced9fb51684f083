"""Label and field selectors: parsing, matching, canonical form and errors."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.runtime.cache.selectors import FieldSelector, LabelSelector, SelectorError
from cfo.runtime.objects.unstructured import NamespacedName


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a!=b", {"a": "c"}, True),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b,c)", {"a": "d"}, False),
        ("a in (,c)", {"a": ""}, True),
        ("a notin (b,c)", {"a": "d"}, True),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("! a", {"a": "x"}, False),
        ("a>5", {"a": "6"}, True),
        ("a>5", {"a": "5"}, False),
        ("a>5", {"a": "many"}, False),
        ("a<5", {"a": "-1"}, True),
        ("a<5", {}, False),
        ("ray.io/cluster=x,a in (b),!c", {"ray.io/cluster": "x", "a": "b"}, True),
        ("ray.io/cluster=x,a in (b),!c", {"ray.io/cluster": "x", "a": "b", "c": ""}, False),
    ],
)
def test_label_selector_string_matches_as_in_the_api_server(
    selector: str, labels: dict[str, str], expected: bool
) -> None:
    assert LabelSelector.of(selector).matches(labels) is expected


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "b"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "c"}, False),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]},
            {"a": "c"},
            True,
        ),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
        (
            {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}], "matchLabels": None},
            {},
            True,
        ),
    ],
)
def test_label_selector_object_matches_labels(
    selector: dict[str, Any], labels: dict[str, str], expected: bool
) -> None:
    assert LabelSelector.of(selector).matches(labels) is expected


def test_equivalent_label_selectors_are_equal() -> None:
    parsed = LabelSelector.of("b in (y,x), a == 1,!c, d!=e,f notin (h,g),i,j>3")
    assert str(parsed) == "a=1,b in (x,y),!c,d!=e,f notin (g,h),i,j>3"
    assert LabelSelector.of(str(parsed)) == parsed
    assert LabelSelector.of("a=1") == LabelSelector.of({"matchLabels": {"a": "1"}})
    assert LabelSelector.of(parsed) is parsed
    assert not LabelSelector.of(None)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a=b,", "found the end where a label key was expected"),
        ("=b", "'=' where a label key was expected"),
        ("a=b c=d", "found 'c' where ','"),
        ("a in b", "found 'b' where '('"),
        ("a in (b", "found the end where ',' or ')' was"),
        ("a in (b c)", "found 'c' where ','"),
        ("a like b", "operator 'like': must be one of"),
        ("a>x", "Gt needs one integer"),
        ("-a=b", "'-a' is not a label key"),
        ("A.B/c/d=b", "is not a label key"),
        (f"a={'x' * 64}", "is not a label value"),
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            "operator 'Gt': must be one of In",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]},
            "a: In needs at least one value",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "a: Exists takes no values",
        ),
        ({"labels": {}}, "not labels"),
    ],
)
def test_invalid_label_selector_is_rejected_with_the_reason(selector: Any, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        LabelSelector.of(selector)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("selector", "key", "expected"),
    [
        ("", ("ns", "a"), True),
        ("metadata.name=a", ("ns", "a"), True),
        ("metadata.name==a", ("ns", "b"), False),
        ("metadata.name!=a", ("ns", "b"), True),
        ("metadata.namespace=ns,metadata.name=a", ("ns", "a"), True),
        ("metadata.namespace!=ns", ("ns", "a"), False),
    ],
)
def test_field_selector_matches_name_and_namespace(
    selector: str, key: tuple[str, str], expected: bool
) -> None:
    field_selector = FieldSelector.of(selector)
    assert field_selector.matches(NamespacedName(*key)) is expected
    assert field_selector.decidable


def test_field_selector_on_other_fields_is_not_decidable() -> None:
    field_selector = FieldSelector.of(r"status.phase!=Running,metadata.name=a,spec.x=a\,b\=c")
    assert not field_selector.decidable
    assert str(field_selector) == r"metadata.name=a,spec.x=a\,b\=c,status.phase!=Running"
    assert FieldSelector.of(str(field_selector)) == field_selector
    with pytest.raises(SelectorError, match="is not a field selector"):
        FieldSelector.of("metadata.name")
