"""Estimated costs of CEL expressions, as kube-apiserver 1.36 reports them.

It reports a cost as a factor of a limit in the error of a CRD: the costs were recorded with as many items as make the
factor small, so that it has seven digits. Costs above the limit are those of the same formula; their factors are equal.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from envtest.schema.cel_cost import MAX_COST, estimate_cost
from envtest.schema.cel_rules import prepare_rule
from envtest.schema.cel_sizes import Sized, SizedSchemas
from envtest.schema.cel_types import check_types
from envtest.schema.schema_node import Schema

STRING: Final = {"type": "string"}
INTEGER: Final = {"type": "integer"}
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "s": STRING,
        "t": STRING,
        "m10": {"type": "string", "maxLength": 10},
        "short": {"type": "string", "maxLength": 100},
        "e": {"type": "string", "enum": ["aaa", "bb"]},
        "b": {"type": "string", "format": "byte"},
        "dt": {"type": "string", "format": "date-time"},
        "du": {"type": "string", "format": "duration"},
        "n": INTEGER,
        "d": {"type": "number"},
        "f": {"type": "boolean"},
        "ios": {"x-kubernetes-int-or-string": True},
        "l": {"type": "array", "items": STRING},
        "l10": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 20}},
        "li": {"type": "array", "items": INTEGER},
        "li100": {"type": "array", "maxItems": 100, "items": INTEGER},
        "ll": {
            "type": "array",
            "maxItems": 20,
            "items": {"type": "array", "maxItems": 30, "items": {"type": "string", "maxLength": 5}},
        },
        "lo": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": STRING, "v": {"type": "array", "items": INTEGER}},
            },
        },
        "lo50": {
            "type": "array",
            "maxItems": 50,
            "items": {
                "type": "object",
                "required": ["name", "k"],
                "properties": {
                    "name": {"type": "string", "maxLength": 63},
                    "k": {"type": "string", "enum": ["A", "BCDE"]},
                    "inner": {"type": "object", "properties": {"x": INTEGER}},
                },
            },
        },
        "ml": {"type": "object", "additionalProperties": STRING},
        "m5": {
            "type": "object",
            "maxProperties": 5,
            "additionalProperties": {
                "type": "array",
                "maxItems": 7,
                "items": {"type": "string", "maxLength": 9},
            },
        },
        "o": {
            "type": "object",
            "properties": {"a-b": {"type": "string", "maxLength": 50}, "namespace": INTEGER},
        },
    },
}


SIZED: Final = SizedSchemas().of(SCHEMA)


def cost(rule: str, **options: Any) -> int:
    prepared = prepare_rule(
        {"rule": rule, **options}, Schema(SCHEMA), resource_root=False, sized=SIZED
    )
    assert not prepared.error
    return prepared.cost


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("self.s == self.t", 314_577),
        ("self.m10 == self.short", 8),
        ("self.m10 != 'abc'", 3),
        ("self.e == 'aaa'", 3),
        ("self.e in ['aaa', 'bb']", 14),
        ("self.m10 in self.l10", 14),
        ("self.m10 in self.l", 1_048_579),
        ("self.n > 3 && self.n < 5 || self.f", 8),
        ("self.n == 5", 2),
        ("self.d > 1.0", 3),
        ("has(self.s) ? self.s.size() > 3 : self.n == 3", 5),
        ("self.o.namespace == 3", 4),
        ("self.s.startsWith('abc')", 3),
        ("self.s.startsWith(self.m10)", 8),
        ("self.m10.endsWith(self.short)", 44),
        ("self.s.contains('abc')", 314_575),
        ("self.m10.contains(self.short)", 164),
        ("self.s.contains(self.t)", 98_956_172_333),
        ("self.short.matches('^[a-z]+$')", 84),
        ("self.s.matches('^[a-z]+$')", 629_148),
        ("self.short.matches(self.m10)", 414),
        ("self.l10.all(x, x.startsWith('a'))", 53),
        ("self.l.all(x, x == 'a')", 5_242_878),
        ("self.li.all(x, x > 3)", 7_864_318),
        ("self.li100.exists(x, x > 3)", 603),
        ("self.li100.exists_one(x, x > 3)", 404),
        ("self.li100.map(x, x + 1).size() == 3", 1_415),
        ("self.li100.filter(x, x > 2).all(y, y > 3)", 2_014),
        ("self.li100.map(x, x > 2, x * 2).exists(y, y > 3)", 2_214),
        ("self.l10.all(x, self.l10.exists(y, x == y))", 1_463),
        ("self.li100.all(x, self.li100.exists_one(y, x == y))", 40_703),
        ("self.ll.all(x, x.all(y, y == 'a'))", 3_103),
        ("self.ll[0][0] == 'a'", 5),
        ("self.ll.map(x, x.size()).sum() == 3", 314),
        ("self.lo.all(x, x.name == 'a')", 1_451_871),
        ("self.lo50.all(x, x.name == 'a' && x.k == 'A')", 453),
        ("self.lo50.map(x, x.name).exists(y, y == 'a')", 964),
        ("self.lo50.filter(x, x.k == 'A').size() <= 1", 815),
        ("self.lo.all(x, x.v.all(y, y > 3))", 1_902_992_666_941),
        ("self.ml.all(k, self.ml[k] == 'a')", 3_145_723),
        ("self.m5.all(k, self.m5[k].all(y, y == k))", 218),
        ("self.m5['a'][0] == 'x'", 5),
        ("self.l10[0] == 'a'", 4),
        ("self.l10[0] + self.l10[1] == 'ab'", 23),
        ("self.m10 + self.short == 'ab'", 49),
        ("self.l10 + self.l10 == self.l10", 8),
        ("(self.l10 + self.l10).all(x, x == 'a')", 86),
        ("self.l == self.l", 104_862),
        ("self.b == b'abc'", 3),
        ("self.b == bytes('abc')", 5),
        ("string(self.b) == 'abc'", 314_576),
        ("bytes(self.short) == b'abc'", 43),
        ("self.dt > timestamp('2020-01-01T00:00:00Z')", 4),
        ("self.du < duration('1h')", 4),
        ("self.du == duration('1h')", 4),
        ("self.dt == timestamp('2020-01-01T00:00:00Z')", 4),
        ("type(self.ios) == int ? self.ios > 3 : self.ios == '3'", 7),
        ("type(self.ios) == string && self.ios.matches('^a+$')", 314_579),
        ("string(self.ios) == '3'", 314_576),
        ("self.short.lowerAscii() == 'abc'", 43),
        ("self.short.replace('a', 'bb') == 'x'", 83),
        ("self.short.replace('aa', 'b').size() == 3", 84),
        ("self.short.replace('a', 'bbbbb').contains('abcdefghijkl')", 482),
        ("self.short.replace('', 'b').matches('abcdefghijklm')", 406),
        ("self.short.replace(self.m10, 'b').matches('abcdefghijklm')", 408),
        ("self.short.split(',').all(x, x == 'a')", 1_683),
        ("self.short.split(',', 3).all(x, x == 'abc')", 95),
        ("self.short.split(',').size() < 3", 84),
        ("self.l10.join(',') == 'a'", 84),
        ("self.l10.join().matches('abc')", 163),
        ("self.l10.join(self.m10).contains(self.m10)", 586),
        ("self.short.find('[a-z]+') == 'a'", 85),
        ("self.short.findAll('[a-z]+').all(x, x == 'a')", 1_685),
        ("self.short.findAll('[a-z]+', 3).size() == 2", 86),
        ("self.short.indexOf('a') == 3", 43),
        ("self.short.lastIndexOf('abc') == 3", 43),
        ("self.l10.indexOf('a') == 3", 93),
        ("self.li100.indexOf(3) == 3", 103),
        ("self.l10.isSorted()", 92),
        ("self.li100.isSorted()", 102),
        ("self.li100.sum() == 3", 103),
        ("self.li100.max() == 3", 103),
        ("self.l10.max() == 'a'", 93),
        ("self.l10.min() == 'a'", 93),
        ("self.short.charAt(3) == 'a'", 4),
        ("'%s %d'.format([self.s, self.n]) == 'a'", 16),
        ("self.short.format([1]) == 'a'", 53),
        ("isURL(self.short)", 3),
        ("url(self.short).getHost() == 'a'", 44),
        ("url(self.short).getQuery()['a'].exists(x, x == 'a')", 45),
        ("isIP(self.short)", 42),
        ("ip(self.short).family() == 4", 44),
        ("ip(self.short) == ip(self.m10)", 49),
        ("ip(self.short).isLoopback() && !ip(self.short).isGlobalUnicast()", 87),
        ("ip.isCanonical(self.short)", 82),
        ("isCIDR(self.short)", 42),
        ("cidr(self.short).containsIP(self.m10)", 52),
        ("cidr(self.short).containsIP(ip(self.m10))", 52),
        ("cidr(self.short).containsCIDR(self.m10)", 55),
        ("cidr(self.short).containsCIDR(cidr(self.m10))", 55),
        ("cidr(self.short).ip().family() == 4", 45),
        ("cidr(self.short).masked() == cidr(self.m10)", 50),
        ("cidr(self.short).prefixLength() == 8", 44),
        ("quantity(self.short).isLessThan(quantity(self.m10))", 49),
        ("isQuantity(self.short) && quantity(self.short) == quantity('1')", 86),
        ("quantity(self.short).add(quantity('1')).compareTo(quantity('3')) == 1", 47),
        ("semver(self.short).major() == 1 && isSemver(self.short)", 86),
        ("string(ip(self.short)) == strings.quote(self.m10)", 58),
        ("!format.dns1123Label().validate(self.short).hasValue()", 1_285),
        ("format.uuid() == format.named('uuid').value()", 10),
        ("sets.contains(self.l10, ['a', 'b'])", 33),
        ("sets.intersects(self.li100, self.li100)", 10_005),
        ("sets.equivalent(self.li100, [1, 2])", 413),
        ("lists.range(10).all(x, x < 5)", 72),
        ("lists.range(self.n).all(x, x < 5)", 18_446_744_073_709_551_615),
        ("self.l10.slice(1, 3).all(x, x == 'a')", 24),
        ("self.l10.slice(1, self.n).all(x, x == 'a')", 61),
        ("self.l10.distinct().size() == 3", 215),
        ("self.li100.distinct().all(x, x > 3)", 70_014),
        ("self.l10.reverse().all(x, x == 'a')", 64),
        ("self.ll.flatten().all(x, x == 'a')", 114),
        ("[[1]].flatten(2).size() == 2", 35),
        ("self.l10.sort() == self.l10", 226),
        ("self.li100.sort().all(x, x == 2)", 60_014),
        ("self.lo50.sortBy(x, x.name).all(x, x.name == 'a')", 20_987),
        ("self.?s.orValue('a') == 'a'", 4),
        ("self.?o.?namespace.orValue(3) == 3", 5),
        ("self.?short.hasValue() && self.?short.value() == 'a'", 7),
        ("self.?short.optMap(x, x.matches('a')).orValue(true)", 1_844_674_407_370_955_283),
        ("self.?l10[?0].orValue('a') == 'a'", 5),
        ("optional.of(self.short).or(optional.of(self.m10)).value() == 'a'", 9),
        ("optional.none().hasValue()", 2),
        ("self.l10.transformList(i, v, v + 'a').all(x, x == 'abc')", 274),
        ("self.l10.all(i, v, i > 3 && v == 'a')", 73),
        ("self.m5.exists(k, v, k == 'a' && v.exists(y, y == 'a'))", 248),
        ("self.m5.transformMap(k, v, v.size()).all(k, k == 'a')", 79),
        ("self.li100.transformMapEntry(i, v, {string(v): i}).size() == 2", 3_535),
        ("[1, 2, 3].all(x, x in self.li100)", 329),
        ("['a', 'bc'].all(x, x == self.short)", 23),
        ("{'a': 'b'}.all(k, k == self.short)", 37),
        ("{'a': self.short}['a'] == 'x'", 34),
        ("[self.short, 'a'][0] == 'b'", 14),
        ("[self.short, self.s].all(x, x == self.t)", 27),
        ("(self.f ? self.short : self.m10) == self.s", 46),
        ("(self.f ? self.l10 : ['a']).all(x, x == 'abcdef')", 53),
        ("(self.f ? ['ab'] : ['abc']).all(x, x == self.s)", 19),
        ("!(self.f && self.n > 3)", 6),
        ("-self.n < 3 && self.n + 3 * self.n / 2 % 5 == 1", 13),
        ("int(self.short) == 3 && double(self.m10) == 1.0", 8),
        ("string(self.n) == '3'", 4),
        ("size(self.short) > 3 && size(self.l10) > 3", 8),
        ("dyn(self.short) == 'abc'", 4),
        ("dyn(self.l10).all(x, x == 'a')", 44),
        ("self == oldSelf", 2),
        ("self.short == oldSelf.short", 44),
        ("self.l10.all(x, x in oldSelf.l10)", 163),
        ("self.m5 == oldSelf.m5", 5),
        ("self.lo50.all(x, oldSelf.lo50.exists(y, y.name == x.name))", 85_303),
        ("self.lo50 == oldSelf.lo50", 9),
        ("'a' in self.m5", 3),
        ("'a' in {'a': 1}", 31),
        ("self.n in [1, 2, 3]", 15),
        ("self.n in self.li", 1_572_867),
        ("[1, 2] == self.li100", 13),
        ("self.short < 'abc' || self.short >= self.m10", 11),
        ("self.b < b'abc'", 3),
        ("self.dt.getFullYear() == 2020 && self.du.getHours() == 3", 8),
        ("self.lo50.map(x, {'n': x.name}).all(y, y.n == 'a')", 2_464),
        ("self.lo50.map(x, [x.name, x.k]).all(y, y[0] == 'a')", 1_614),
        ("self.ll.map(x, x.map(y, y + 'a')).all(z, z.all(y, y == 'abc'))", 10_194),
        ("self.l10.map(x, x.split(',')).all(y, y.size() == 3)", 364),
        ("self.m5.map(k, k + 'a').all(x, x == 'abc')", 104),
        ("self.m5.map(k, self.m5[k]).all(l, l.all(x, x == 'a'))", 119),
    ],
)
def test_cost_of_a_rule(rule: str, expected: int) -> None:
    assert cost(rule) == expected


def test_cost_of_an_optional_old_value() -> None:
    rule = "oldSelf.hasValue() && self.short == 'abc'"
    assert cost(rule, optionalOldSelf=True) == 5


def test_cost_of_a_message_expression() -> None:
    rule = {"rule": "self.n == 3", "messageExpression": "'message ' + self.short"}
    prepared = prepare_rule(rule, Schema(SCHEMA), resource_root=False, sized=SIZED)
    assert (prepared.cost, prepared.message_cost) == (2, 43)


def test_escaped_reserved_words_have_the_size_of_their_schema() -> None:
    assert cost("self.o.__namespace__ == 3") == 3
    assert cost("self.o.namespace == 3") == 4


def test_expressions_that_are_nested_too_deeply_cost_nothing() -> None:
    nested = "1"
    for _ in range(25):
        nested = f"[1].map(x, {nested})"
    assert cost(f"{nested}.size() > 0") == 0


def test_costs_do_not_exceed_the_largest_number() -> None:
    program = check_types("v.all(x, v.all(y, v.all(z, true)))", {}, {"v": "list(int)"})
    assert estimate_cost(program, Sized("object")) < MAX_COST
    program = check_types("v.w.all(x, v.w.all(y, x == y))", {"v": Schema(WIDE)}, {})
    assert estimate_cost(program, Sized("object")) == MAX_COST


WIDE: Final = {"type": "object", "properties": {"w": {"type": "array", "items": STRING}}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (STRING, 1_048_576),
        (INTEGER, 1_572_864),
        ({"type": "boolean"}, 629_145),
        ({"type": "string", "format": "date"}, 241_979),
        ({"type": "string", "format": "date-time"}, 142_987),
        ({"x-kubernetes-int-or-string": True}, 1_572_864),
        ({"type": "object", "properties": {"ab": STRING}, "required": ["ab"]}, 285_975),
        (
            {
                "type": "object",
                "properties": {"ab": {**STRING, "default": "x"}},
                "required": ["ab"],
            },
            1_048_576,
        ),
    ],
)
def test_values_that_fit_into_a_request(schema: dict[str, Any], expected: int) -> None:
    sized = SizedSchemas().of(schema)
    assert sized is not None
    assert sized.max_occurrences == expected


def test_expressions_do_not_see_values_without_a_type() -> None:
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    assert SizedSchemas().of(anything) is None
    assert SizedSchemas().of({"type": "array", "items": anything}) is None
    assert SizedSchemas().of({"type": "object", "additionalProperties": anything}) is None


def test_metadata_of_resources_is_seen_without_a_schema() -> None:
    sized = SizedSchemas().of({"type": "object"}, is_resource=True)
    assert sized is not None
    assert sorted(sized.fields) == ["apiVersion", "kind", "metadata"]
