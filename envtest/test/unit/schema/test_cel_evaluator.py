"""The evaluation of CEL expressions with cel-go's costs, compared with the library and with kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.schema import cel
from envtest.schema.cel import Budget, BudgetError, CELError, compile_expression

SELF = {
    "i": 3,
    "b": True,
    "f": 1.5,
    "l": ["a", "b"],
    "m": {"k": "v"},
    "o": {"p": "xy"},
    "t": "hello world and so",
}
PLENTY = 10**9


def cost_of(expression: str, **variables: Any) -> int:
    scope = {"self": SELF, **variables}
    budget = Budget(PLENTY)
    program = compile_expression(expression, dict.fromkeys(scope, "dyn"))
    program.evaluate(scope, budget)
    return PLENTY - budget.remaining


def cost_of_an_item(expression: str) -> float:
    """Return what each item of a loop costs whose body is ``expression`` over the item ``x``."""
    loop = f"items.all(x, {expression})"
    return (cost_of(loop, items=[1] * 101) - cost_of(loop, items=[1])) / 100


# Recorded from kube-apiserver: the number of items at which a rule reaches the limit of 1,000,000.
@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("true", 3),
        ("x > -1", 5),
        ("x > -1 && x < 5", 7),
        ("has(self.i)", 4),
        ("has(self.o.p)", 5),
        ("self.i == 3", 6),
        ("self.o.p == 'xy'", 7),
        ("self.l[0] == 'a'", 7),
        ("self.l[self.l.size() - 1] == 'b'", 11),
        ("'a' in self.l", 7),
        ("'k' in self.m", 6),
        ("self.m['k'] == 'v'", 7),
        ("self.l.all(y, y != 'q')", 16),
        ("self.l.exists(y, y == 'b')", 18),
        ("self.l.map(y, y + 'c').size() == 2", 36),
        ("self.l.filter(y, y == 'a').size() == 1", 25),
        ("self.l.exists_one(y, y == 'a')", 13),
        ("self.m.exists(k, self.m[k] == 'v')", 14),
        ("self.t.startsWith('hel')", 7),
        ("self.t.contains('world')", 7),
        ("self.t.matches('wor.d')", 9),
        ("self.t.size() > 3", 7),
        ("(x > 0 ? self.i : x) == 3", 7),
        ("(self.b ? 1 : 2) == 1", 6),
        ("[1, 2, 3].size() == 3", 5),
        ("{'a': 1}.size() == 1", 5),
        ("-x < 5", 6),
        ("!(x > 5)", 6),
        ("self.t.lowerAscii() != ''", 7),
        ("self.l.indexOf('a') == 0", 6),
        ("sets.contains(self.l, ['a'])", 8),
        ("self.l.join(',') == 'a,b'", 7),
        ("self.t.replace('h','j') != ''", 9),
        ("self.t.split(' ').size() > 1", 11),
        ("quantity('1').compareTo(quantity('2')) < 0", 7),
        ("self.t.find('wor') == 'wor'", 8),
        ("string(x) == '1'", 6),
        ("dyn(x) == 1", 6),
        ("x + 1 > 0", 6),
        ("self.t + 'a' != ''", 7),
        ("self.t < 'z'", 6),
        ("self.l.isSorted()", 5),
        ("self.l == ['a','b']", 6),
        ("self.m == {'k':'v'}", 6),
        ("self.t.substring(1) != ''", 7),
        ("isURL(self.t) || true", 6),
        ("self.m.all(k, k == 'k')", 11),
        ("lists.range(3).size() == 3", 19),
        ("self.l.transformList(i, v, v).size() == 2", 34),
        ("self.l.all(i, v, i >= 0)", 16),
        ("self.m.transformMap(k, v, v).size() == 1", 12),
        ("[1,2].sum() == 3", 6),
    ],
)
def test_costs_are_those_of_kube_apiserver(expression: str, cost: int) -> None:
    assert cost_of_an_item(expression) == cost


@pytest.mark.parametrize(
    "expression",
    [
        "1 + 2 * 3 - 4 == 3 && 7 / 2 == 3 && -7 / 2 == -3 && -7 % 3 == -1",
        "1.5 + 1.5 == 3.0 && dyn(1) == 1.0 && 1 < 1.5 && -self.f == -1.5",
        "true != dyn(1) && dyn(true) != dyn(1) && [dyn(true)] != [dyn(1)]",
        "!(dyn(1) in [dyn(true)]) && 1 in [1, 2] && 'a' in self.l && !('z' in self.m)",
        "'a' < 'b' && false < true && 'abc' >= 'ab'",
        "[1, 2] + [3] == [1, 2, 3] && dyn({'a': [1]}) == {'a': [1.0]} && null == null",
        "self.l.map(y, y + 'c') == ['ac', 'bc'] && self.l.filter(y, y > 'a') == ['b']",
        "self.l.map(y, y > 'a', y + 'c') == ['bc'] && self.m.map(k, k) == ['k']",
        "[1, 0].exists(y, 1 / y == 1) && ![0, 1].all(y, 1 / y == 0)",
        "(1 / 0 == 1 || true) && !(1 / 0 == 1 && false) && (self.no == 1 || self.i == 3)",
        "self.l.all(y, self.l.exists(z, y == z)) && [1, 2, 2].exists_one(y, y == 1)",
        "self.l.all(i, y, i < 2 && y < 'c') && self.m.exists(k, v, k == 'k' && v == 'v')",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2} && self.l.transformList(i, v, i) == [0, 1]",
        "string(3) == '3' && string(true) == 'true' && int('12') == 12 && int(3) == 3 && double(2) == 2.0",
        "self.t.size() == 18 && size(self.l) == 2 && 'é'.size() == 1",
        "self.t.matches('^hel+o') && !self.t.matches('x') && self.t.endsWith('so')",
        "lists.range(3) == [0, 1, 2] && lists.range(-1) == []",
        "(self.b ? self.i : 0) == 3 && !(self.i > 5) && has(self.o.p) && !has(self.o.q)",
        "self.l.map(x, x).map(x, x + x) == ['aa', 'bb'] && self.l.all(x, [1].all(x, x == 1) && x != '')",
        "quantity('1Gi') == quantity('1024Mi') && isIP('1.2.3.4') && 'a,b'.split(',') == self.l",
    ],
)
def test_values_are_those_of_the_library(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = {"self": SELF}
    program = compile_expression(expression, {"self": "dyn"})
    with monkeypatch.context() as patch:
        # Without the library, the evaluation cannot use its answer.
        patch.setattr(cel.Program, "_library_value", None)
        assert program.evaluate(scope) is True
    assert program._library_value(scope) is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("self.i + 9223372036854775807 > 0", "overflow"),
        ("self.i / 0 == 1", "division by zero"),
        ("self.no == 1", "^no such key: no$"),
        ("self.l[2] == ''", "^index out of bounds: 2$"),
        ("self.t < self.i", "^no such overload$"),
        ("dyn(self.i) && true", "^no such overload$"),
        ("self.l.all(y, y)", "no such overload|No matching overloads"),
        ("self.l.map(y, y.z) == []", "SELECT"),
    ],
)
def test_failed_evaluation_has_the_message_of_the_library(expression: str, message: str) -> None:
    with pytest.raises(CELError, match=message):
        compile_expression(expression, {"self": "dyn"}).evaluate({"self": SELF})


def test_a_loop_ends_at_the_cost_limit_of_kube_apiserver() -> None:
    program = compile_expression("self.a.all(x, self.a.all(y, y == 1))", {"self": "dyn"})
    # Recorded: 446 items pass, and 447 do not.
    assert program.evaluate({"self": {"a": [1] * 446}}) is True
    with pytest.raises(CELError, match="operation cancelled: actual cost limit exceeded"):
        program.evaluate({"self": {"a": [1] * 447}})


def test_long_lists_of_a_linear_rule_are_evaluated() -> None:
    program = compile_expression(
        "a.all(x, x > -1) && a.map(x, x + 1).size() == 20000", {"a": "dyn"}
    )
    assert program.evaluate({"a": [1] * 20_000}) is True


def test_evaluations_take_their_costs_from_a_budget() -> None:
    program = compile_expression("a.all(x, x > 0)", {"a": "dyn"})
    budget = Budget(120)
    program.evaluate({"a": [1] * 20}, budget)
    assert budget.remaining == 18
    with pytest.raises(BudgetError):
        program.evaluate({"a": [1] * 20}, budget)
    assert budget.remaining == 0


def test_the_cost_of_an_expression_that_the_library_evaluates_is_estimated_by_sizes() -> None:
    loop = "a.all(x, type(x) == map)"
    few = cost_of(loop, a=[{}] * 10)
    many = cost_of(loop, a=[{}] * 1000)
    assert 10 * 16 <= few < many <= 16 * 2000
    nested = "a.all(x, a.all(y, type(x) == int))"
    with pytest.raises(CELError, match="cost limit exceeded"):
        cost_of(nested, a=[1] * 101)


@pytest.mark.parametrize("value", [None, "s", 1, 1.5, True])
def test_null_and_scalars_have_no_fields(value: object) -> None:
    """As in kube-apiserver 1.36, unlike in the library: ``oldObject`` is null on a create."""
    program = compile_expression("has(self.x) || !has(self.y.z)", {"self": "dyn"})
    assert program.evaluate({"self": {"y": value}}) is True
    assert compile_expression("has(self.x)", {"self": "dyn"}).evaluate({"self": value}) is False


def test_fields_of_lists_are_an_error() -> None:
    with pytest.raises(CELError):
        compile_expression("has(self.x)", {"self": "dyn"}).evaluate({"self": []})


@pytest.mark.parametrize("value", [None, "s", 1, 1.5, True])
def test_an_optional_field_of_null_or_a_scalar_is_none(value: object) -> None:
    """As in kube-apiserver 1.36: ``!oldObject.?data.hasValue()`` is true on a create."""
    for expression in (
        "!self.?x.hasValue()",
        "self.?x.y[0].?z.orValue('') == ''",
        "!has(self.?x.y) && !self[?'x'].hasValue()",
        "self.?x.optMap(x, x + 1).or(optional.of(2)).value() == 2",
        "[?self.?x, 1] == [1] && {?'a': self.?x} == {} && optional.unwrap([self.?x]) == []",
        "optional.ofNonZeroValue(0) == self.?x && optional.of(1) != self.?x",
    ):
        program = compile_expression(expression, {"self": "dyn"})
        assert program.evaluate({"self": value}) is True, expression
    assert compile_expression("self.?x.y[0].value() == 1", {"self": "dyn"}).evaluate(
        {"self": {"x": {"y": [1]}}}
    )


def test_the_alternative_of_an_optional_value_is_evaluated_without_one() -> None:
    program = compile_expression("optional.of(1).orValue(1 / 0) == 1", {})
    assert program.evaluate({}) is True
    with pytest.raises(CELError):
        compile_expression("optional.none().value() == 1", {}).evaluate({})
    with pytest.raises(CELError):
        compile_expression("self.?x.hasValue()", {"self": "dyn"}).evaluate({"self": []})
