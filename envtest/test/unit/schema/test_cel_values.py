"""The values of custom resources in CEL rules have the types of their schemas; results are those of kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.schema.cel_rules import compile_rules
from envtest.schema.schema_node import Schema

TIME = {"type": "string", "format": "date-time"}
DATE = {"type": "string", "format": "date"}
DURATION = {"type": "string", "format": "duration"}
BYTES = {"type": "string", "format": "byte"}
MIDNIGHT = "2020-01-01T00:00:00Z"
MIDNIGHT_IN_BERLIN = "2020-01-01T01:00:00+01:00"


def list_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def errors(rule: dict[str, Any], properties: dict[str, Any], value: Any, old: Any = None) -> str:
    schema = {"type": "object", "properties": properties, "x-kubernetes-validations": [rule]}
    check = compile_rules(Schema(schema), resource_root=False)
    assert check is not None
    return "; ".join(str(error) for error in check(value, old, old is not None))


@pytest.mark.parametrize(
    ("properties", "rule", "good", "bad"),
    [
        (
            {"a": DURATION, "b": DURATION},
            "self.a < self.b",
            {"a": "9m", "b": "1h"},
            {"a": "60m", "b": "1h"},
        ),
        (
            {"a": TIME, "b": TIME},
            "self.a < self.b",
            {"a": MIDNIGHT, "b": "2020-01-01T00:00:00.000000001Z"},
            {"a": MIDNIGHT, "b": "2020-01-01T00:30:00+01:00"},
        ),
        (
            {"a": TIME, "b": DURATION},
            "self.a + self.b - timestamp('2020-01-01T00:00:00Z') > duration('1h')",
            {"a": MIDNIGHT, "b": "61m"},
            {"a": MIDNIGHT, "b": "1h"},
        ),
        (
            {"a": TIME},
            "self.a.getFullYear() == 2020 && self.a.getMonth() == 0 && self.a.getDayOfWeek() == 3",
            {"a": MIDNIGHT},
            {"a": "2020-02-01T00:00:00Z"},
        ),
        (
            {"a": TIME},
            "self.a.getHours('Europe/Berlin') == 1 && self.a.getHours('-02:30') == 21",
            {"a": MIDNIGHT},
            {"a": "2020-07-01T00:00:00Z"},
        ),
        (
            {"a": DURATION},
            "self.a.getMilliseconds() < 500 && self.a < duration('1h')",
            {"a": "499ms"},
            {"a": "1s"},
        ),
        ({"a": DURATION}, "int(self.a) == 5 && self.a.getHours() == 0", {"a": "5ns"}, {"a": "-1h"}),
        (
            {"a": DATE},
            "self.a > timestamp('2020-01-01T00:00:00Z')",
            {"a": "2020-01-02"},
            {"a": "2020-01-01"},
        ),
        (
            {"a": BYTES},
            "size(self.a) == 1 && self.a == b'a' && string(self.a) == 'a'",
            {"a": "YQ=="},
            {"a": "YWI="},
        ),
        (
            {"a": list_of(TIME)},
            "self.a.all(t, t < timestamp('2030-01-01T00:00:00Z')) && self.a.isSorted()",
            {"a": [MIDNIGHT, "2021-01-01T00:00:00Z"]},
            {"a": [MIDNIGHT, "2031-01-01T00:00:00Z"]},
        ),
        (
            {"a": list_of(DURATION)},
            "self.a.max() < duration('3h') && self.a.sum() < duration('4h') && duration('1h') in self.a",
            {"a": ["60m", "2h"]},
            {"a": ["60m", "90m", "2h"]},
        ),
        (
            {"a": list_of(TIME), "b": list_of(TIME)},
            "self.a == self.b",
            {"a": [MIDNIGHT], "b": [MIDNIGHT_IN_BERLIN]},
            {"a": [MIDNIGHT], "b": ["2020-01-01T01:00:00+02:00"]},
        ),
        (
            {"a": map_of(map_of(DURATION))},
            "self.a.all(k, self.a[k].all(j, self.a[k][j] < duration('1h')))",
            {"a": {"x": {"y": "9m"}}},
            {"a": {"x": {"y": "2h"}}},
        ),
        (
            {"a": {"type": "object", "properties": {"b": DURATION}}, "d": DURATION},
            "self.a.b < self.d",
            {"a": {"b": "9m"}, "d": "1h"},
            {"a": {"b": "1h"}, "d": "9m"},
        ),
        (
            {"a": {"x-kubernetes-int-or-string": True, "format": "duration"}},
            "self.a == '1h'",
            {"a": "1h"},
            {"a": "60m"},
        ),
        (
            {"a": TIME, "b": DURATION},
            "self.?a.orValue(timestamp(0)) > timestamp(0) && self.?b.hasValue()",
            {"a": MIDNIGHT, "b": "1h"},
            {"b": "1h"},
        ),
        (
            {"a": {**TIME, "nullable": True}},
            "!has(self.a) || self.a > timestamp('2020-01-01T00:00:00Z')",
            {"a": None},
            {"a": MIDNIGHT},
        ),
        (
            {"a": list_of({**DURATION, "nullable": True})},
            "self.a.all(d, d == null || d > duration('1m'))",
            {"a": [None, "1h"]},
            {"a": [None, "1s"]},
        ),
        (
            {"a": TIME},
            "type(self.a) == google.protobuf.Timestamp && self.a == timestamp('2020-01-01T00:00:00Z')",
            {"a": MIDNIGHT_IN_BERLIN},
            {"a": "2020-01-01T00:00:00+01:00"},
        ),
    ],
)
def test_values_have_the_types_of_their_formats(
    properties: dict[str, Any], rule: str, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    assert errors({"rule": rule}, properties, good) == ""
    assert "failed rule" in errors({"rule": rule}, properties, bad)


def test_old_values_and_messages_have_the_types_of_their_formats() -> None:
    rule = {
        "rule": "self.a >= oldSelf.a",
        "messageExpression": "'was ' + string(oldSelf.a) + ', is ' + string(self.a)",
    }
    assert errors(rule, {"a": DURATION}, {"a": "1h"}, {"a": "9m"}) == ""
    assert "was 3600s, is 0.5s" in errors(rule, {"a": DURATION}, {"a": "500ms"}, {"a": "1h"})
    times = errors(rule, {"a": TIME}, {"a": MIDNIGHT_IN_BERLIN}, {"a": "2021-01-01T00:00:00.5Z"})
    assert "was 2021-01-01T00:00:00.5Z, is 2020-01-01T00:00:00Z" in times


def test_values_are_formatted_as_strings() -> None:
    properties = {"a": list_of(TIME), "b": map_of(DURATION), "c": BYTES, "d": DURATION}
    rule = {
        "rule": "'%s %s %s %s %s'.format([self.a, self.b, self.c, self.d, ['x', 1.5]]) == ''",
        "messageExpression": "'%s %s %s %s %s'.format([self.a, self.b, self.c, self.d, ['x', 1.5]])",
    }
    value = {"a": [MIDNIGHT], "b": {"k": "90s"}, "c": "YQ==", "d": "1m"}
    text = '[timestamp("2020-01-01T00:00:00Z")] {"k":duration("90s")} a 60s ["x", 1.500000]'
    assert text in errors(rule, properties, value)


@pytest.mark.parametrize(
    ("field", "rule", "value", "message"),
    [
        (
            BYTES,
            "self.a == b'a'",
            "ab+/",
            "Invalid byte formatted string ab+/: illegal base64 data at input byte 2",
        ),
        (
            TIME,
            "self.a > timestamp(0)",
            "2020-01-01T00:00:00z",
            'Invalid date-time formatted string 2020-01-01T00:00:00z: parsing time "2020-01-01T00:00:00z": extra text',
        ),
        (
            TIME,
            "self.a > timestamp(0)",
            "2020-01-01t00:00:00Z",
            'parsing time "2020-01-01t00:00:00Z" as "2006-01-02T15:04:05": cannot parse "t00:00:00Z" as "T"',
        ),
        (TIME, "self.a > timestamp(0)", "2020-01-01T00:00:00+99:00", 'extra text: "+99:00"'),
        (DATE, "self.a > timestamp(0)", "soon", "Invalid date formatted string soon: parsing time"),
        (DURATION, "self.a > duration('1s')", "long", "unable to parse long as duration"),
    ],
)
def test_string_that_cannot_be_converted_is_an_error_of_the_rules_that_read_it(
    field: dict[str, Any], rule: str, value: str, message: str
) -> None:
    assert message in errors({"rule": rule}, {"a": field}, {"a": value})
    assert errors({"rule": "has(self.a)"}, {"a": field}, {"a": value}) == ""


@pytest.mark.parametrize(
    ("field", "rule", "value", "message"),
    [
        (TIME, "self.getFullYear() > 2000", "yesterday", "Invalid date-time formatted string"),
        (DURATION, "self > duration('1m')", "1s", "failed rule"),
        (BYTES, "self.size() > 2", "!", "illegal base64 data at input byte 0"),
        (DATE, "self.getFullYear() > 2000", 1, "Unexpected value type"),
    ],
)
def test_rule_of_the_field_itself(
    field: dict[str, Any], rule: str, value: Any, message: str
) -> None:
    properties = {"a": {**field, "x-kubernetes-validations": [{"rule": rule}]}}
    assert message in errors({"rule": "true"}, properties, {"a": value})


@pytest.mark.parametrize("value", ["0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:00"])
def test_time_before_the_first_year_can_be_compared(value: str) -> None:
    properties = {"a": TIME}
    assert errors({"rule": "self.a < timestamp(0)"}, properties, {"a": value}) == ""
    assert errors({"rule": "self.a.getFullYear() > 1"}, properties, {"a": value})


SET = {**list_of({"type": "string"}), "x-kubernetes-list-type": "set"}
PAIR = {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}
MAP = {
    **list_of(PAIR),
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
}
PAIRS = [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
TYPED_LISTS = {
    "set": SET,
    "other": SET,
    "plain": list_of({"type": "string"}),
    "times": {**list_of(TIME), "x-kubernetes-list-type": "set"},
    "map": MAP,
    "changed": MAP,
    "inner": {"type": "object", "properties": {"set": SET}},
}


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("self.set == self.other", True),
        ("self.set != self.other", False),
        ("self.set == ['b', 'a']", True),
        ("['b', 'a'] == self.set", False),
        ("self.plain == self.set", False),
        ("self.set == ['a', 'a']", True),
        ("self.set == ['a']", False),
        ("[self.set] == [self.other]", True),
        ("{'x': self.set} == {'x': self.other}", True),
        ("self.other in [self.set]", True),
        ("dyn(self.inner) == {'set': self.other}", True),
        ("self.set.map(x, x) == self.other", False),
        ("self.set + ['c', 'a'] == ['c', 'b', 'a']", True),
        ("size(self.set + ['c', 'a']) == 3", True),
        ("size(self.plain + self.set) == 4", True),
        ("self.times == self.times", False),
        ("self.map.map(x, x.k) == ['a', 'b'] && self.map[0].v == 1", True),
        ("(self.map + dyn(self.changed)).map(x, x.v) == [1, 5, 6]", True),
        ("self.map + self.map == self.map", True),
        ("self.map == self.changed", False),
        ("type(self.inner.set) == list && self.set.sort()[1] == 'b'", True),  # of the library
    ],
)
def test_order_of_lists_with_a_type_does_not_matter(expression: str, holds: bool) -> None:
    value = {
        "set": ["a", "b"],
        "other": ["b", "a"],
        "plain": ["b", "a"],
        "times": [MIDNIGHT],
        "map": PAIRS,
        "changed": [{"k": "c", "v": 6}, {"k": "b", "v": 5}],
        "inner": {"set": ["a", "b"]},
    }
    assert (errors({"rule": expression}, TYPED_LISTS, value) == "") is holds


def test_items_of_a_map_list_are_compared_by_their_keys() -> None:
    rule = {"rule": "self.map == oldSelf.map"}
    assert errors(rule, TYPED_LISTS, {"map": PAIRS[::-1]}, {"map": PAIRS}) == ""
    changed = [PAIRS[0], {"k": "b", "v": 3}]
    assert "failed rule" in errors(rule, TYPED_LISTS, {"map": changed}, {"map": PAIRS})
