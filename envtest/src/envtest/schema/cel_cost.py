"""Estimates how much the evaluation of a CEL expression costs at most, in cel-go's units.

A unit is about the time to read a field. kube-apiserver rejects CRDs by this estimate. The costs follow cel-go's
``checker/cost.go`` and Kubernetes' ``cel/library/cost.go``: a loop costs its step times its range's largest size, and a
string function costs a part of its argument's largest size. The sizes of literals are known, and of values that the
schema limits; any other size is unknown, and its cost is about as large as numbers get.

A nested list of lists has no static type here, so all overloads count that accept a value of any type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from envtest.schema.cel import Program
from envtest.schema.cel_checked import checked_expression
from envtest.schema.cel_formats import FORMAT_NAMES, OPTIONAL_CALLS
from envtest.schema.cel_sizes import Sized
from envtest.schema.cel_workload import is_binding

__all__ = ["MAX_COST", "estimate_cost"]

MAX_COST: Final = 2**64 - 1
"""The cost, and the size, of what has no limit; sums and products do not exceed it."""

_TRAVERSAL: Final = 0.1
"""The cost of reading a character."""

_PATTERN: Final = 0.25
"""The cost of a regular expression's character, for each unit of the string that it is applied to."""

_NEW_LIST: Final = 10
_NEW_MAP: Final = 30
_NEW_MESSAGE: Final = 40
_NAME_FORMAT_PATTERN: Final = 128
"""The size of the regular expression of a named format."""

_MAX_NETWORK_BYTES: Final = 16
_AUTHORIZATION_CHECK: Final = 350_000
_SORT_FACTOR: Final = 2.0
_ACCUMULATORS: Final = frozenset({"@result", "__result__"})
_CONSTANT_RESULTS: Final = frozenset({"cidr", "ip", "masked", "quantity", "semver"})
"""The functions whose results are compared at a cost of 1."""

_FORMATS: Final = frozenset(f"format.{name}" for name in FORMAT_NAMES)
_FORMAT_COMPARISON: Final = 7
"""The cost of comparing the names of two formats, which have at most 64 characters."""

_ONE_UNIT: Final = frozenset(
    {
        "add",
        "allowed",
        "asApproximateFloat",
        "asInteger",
        "compareTo",
        "error",
        "errored",
        "family",
        "getEscapedPath",
        "getHost",
        "getHostname",
        "getPort",
        "getQuery",
        "getScheme",
        "group",
        "isGlobalUnicast",
        "isGreaterThan",
        "isInteger",
        "isLessThan",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isLoopback",
        "isUnspecified",
        "major",
        "masked",
        "minor",
        "name",
        "namespace",
        "patch",
        "path",
        "prefixLength",
        "reason",
        "resource",
        "serviceAccount",
        "sign",
        "sub",
        "subresource",
    }
)
_READ_ARGUMENT: Final = frozenset(
    {"cidr", "ip", "isCIDR", "isIP", "isQuantity", "isSemver", "quantity", "semver"}
)
_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_COMPARED_OVERLOADS: Final = frozenset({"equals", "not_equals"})
_OPTIONAL: Final = "optional.ofNonZeroValue"
"""The call into which ``cel_formats`` puts the calls that return optional values."""

_SORTED: Final = frozenset({"sort", "@sortByAssociatedKeys"})


@dataclass(frozen=True, slots=True)
class Size:
    """The fewest and the most elements of a value."""

    least: int
    most: int

    def plus(self, other: Size) -> Size:
        """Return the size of two values together."""
        return Size(_sum(self.least, other.least), _sum(self.most, other.most))

    def times(self, other: Size) -> Size:
        """Return the size of this many values, which all have another size."""
        return Size(_product(self.least, other.least), _product(self.most, other.most))

    def or_(self, other: Size) -> Size:
        """Return the size of either value."""
        return Size(min(self.least, other.least), max(self.most, other.most))

    def cost(self, factor: float) -> int:
        """Return the cost of all elements at ``factor`` each."""
        return _scaled(self.most, factor)


@dataclass(frozen=True, slots=True)
class Entries:
    """The sizes of a map's keys and values, or of a list's indices and items."""

    is_list: bool
    key: Size
    value: Size


@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable of a loop or binding: its path from a variable of the rule, and its size if known."""

    path: tuple[str, ...]
    size: Size | None
    entries: Entries | None = None


_UNKNOWN: Final = Size(0, MAX_COST)
_NO_SIZE: Final = Size(0, 0)
_SCALAR: Final = Size(1, 1)
_STEPS: Final[Mapping[tuple[bool, bool], str]] = {
    (True, True): "@indices",
    (True, False): "@items",
    (False, True): "@keys",
    (False, False): "@values",
}
"""The step of a path to the keys or values of a range, by whether it is a list, and whether the keys are meant."""

_SCALAR_KINDS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_PRIMITIVES: Final = ("", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN: Final = ("any", "any", "timestamp", "duration")

Estimate: TypeAlias = tuple[int, Size | None]
"""The cost of a call without its arguments, and the size of its result if it is known."""


def _sum(first: int, second: int) -> int:
    return min(first + second, MAX_COST)


def _product(first: int, second: int) -> int:
    return min(first * second, MAX_COST)


def _scaled(count: int, factor: float) -> int:
    return min(math.ceil(float(count) * factor), MAX_COST)


def estimate_cost(
    program: Program, sized: Sized, *, unsized: frozenset[str] = frozenset(), is_bound: bool = False
) -> int:
    """Return the largest cost of an expression whose variables have the type ``sized``.

    ``unsized`` are the fields whose sizes kube-apiserver does not find: reserved words that are not escaped.
    ``is_bound`` is whether the expression is the result of a binding that kube-apiserver does not have. An expression
    that is nested too deeply for the decoder costs 0.
    """
    checked = checked_expression(program.checked())
    if checked is None:
        return 0
    expression = checked.expr.loop.result if is_bound else checked.expr
    return _Estimator(checked, sized, unsized).cost(expression)


class _Estimator:
    def __init__(self, checked: Any, sized: Sized, unsized: frozenset[str]) -> None:
        self._types = {entry.key: entry.value for entry in checked.types}
        self._overloads = {entry.key: entry.value.overloads for entry in checked.references}
        self._root = sized
        self._unsized = unsized
        self._paths: dict[int, tuple[str, ...]] = {}
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, Entries] = {}
        self._scopes: dict[str, list[_Variable]] = {}

    def cost(self, expression: Any) -> int:
        """Return the cost of a part of the expression, and remember its path and size."""
        if expression.HasField("identifier"):
            variable = self._variable(expression)
            name = expression.identifier.name
            self._paths[expression.id] = (name,) if variable is None else variable.path
            return 1
        if expression.HasField("select"):
            return self._select_cost(expression)
        if expression.HasField("call"):
            return self._call_cost(expression)
        if expression.HasField("list"):
            return self._list_cost(expression)
        if expression.HasField("struct"):
            return self._struct_cost(expression)
        if expression.HasField("loop"):
            return self._loop_cost(expression)
        return 0

    def _select_cost(self, expression: Any) -> int:
        operand = expression.select.operand
        cost = self.cost(operand)
        if expression.select.is_test:
            return cost
        kind = self._kind(operand)
        self._paths[expression.id] = (*self._path(operand), expression.select.field)
        return _sum(cost, 1) if kind in ("map", "object") else cost

    def _list_cost(self, expression: Any) -> int:
        cost = _NEW_LIST
        items: list[Size] = []
        for element in expression.list.elements:
            cost = _sum(cost, self.cost(element))
            items.append(self._size_or_unknown(element))
        self._entries[expression.id] = Entries(True, _SCALAR, _any_of(items))
        return cost

    def _struct_cost(self, expression: Any) -> int:
        is_message = bool(expression.struct.message_name)
        cost = _NEW_MESSAGE if is_message else _NEW_MAP
        keys: list[Size] = []
        values: list[Size] = []
        for entry in expression.struct.entries:
            if not is_message:
                cost = _sum(cost, self.cost(entry.map_key))
                keys.append(self._size_or_unknown(entry.map_key))
            cost = _sum(cost, self.cost(entry.value))
            values.append(self._size_or_unknown(entry.value))
        if not is_message:
            self._entries[expression.id] = Entries(False, _any_of(keys), _any_of(values))
        return cost

    # Loops and bindings

    def _loop_cost(self, expression: Any) -> int:
        loop = expression.loop
        if is_binding(loop):
            return self._binding_cost(expression)
        cost = _sum(self.cost(loop.range), self.cost(loop.initial))
        self._push(loop.accumulator, self._bound(loop.initial))
        if loop.second_variable:
            self._push(loop.variable, self._iterated(loop.range, of_keys=True))
            self._push(loop.second_variable, self._iterated(loop.range, of_keys=False))
        else:
            self._push(loop.variable, self._iterated(loop.range, of_keys=None))
        step = _sum(self.cost(loop.condition), self.cost(loop.step))
        self._pop(loop.variable)
        if loop.second_variable:
            self._pop(loop.second_variable)
        cost = _sum(cost, self.cost(loop.result))
        self._pop(loop.accumulator)
        rounds = self._size_or_unknown(loop.range)
        if loop.initial.HasField("constant"):
            self._set_size(expression, self._size(loop.initial))
        elif loop.initial.HasField("list") or loop.initial.HasField("struct"):
            self._set_size(expression, rounds)
            self._set_entries(expression, self._entries_of(loop.step))
        return _sum(cost, _product(rounds.most, step))

    def _binding_cost(self, expression: Any) -> int:
        loop = expression.loop
        cost = _sum(self.cost(loop.range), self.cost(loop.initial))
        self._push(loop.accumulator, self._bound(loop.initial))
        cost = _sum(cost, self.cost(loop.result))
        self._pop(loop.accumulator)
        self._copy_sizes(expression, loop.result)
        return cost

    def _bound(self, expression: Any) -> _Variable:
        return _Variable(
            self._path(expression), self._size(expression), self._entries_of(expression)
        )

    def _iterated(self, range_: Any, *, of_keys: bool | None) -> _Variable:
        """Return the variable of the keys or values of a range; ``None`` is what a single variable iterates."""
        entries = self._entries_of(range_)
        is_list = self._kind(range_) == "list" if entries is None else entries.is_list
        if of_keys is None:
            of_keys = not is_list
        path = (*self._path(range_), _STEPS[is_list, of_keys])
        if entries is None:
            return _Variable(path, None)
        return _Variable(path, entries.key if of_keys else entries.value)

    def _push(self, name: str, variable: _Variable) -> None:
        self._scopes.setdefault(name, []).append(variable)

    def _pop(self, name: str) -> None:
        self._scopes[name].pop()

    def _variable(self, expression: Any) -> _Variable | None:
        """Return the variable of a loop or binding that an expression names."""
        if not expression.HasField("identifier"):
            return None
        scopes = self._scopes.get(expression.identifier.name)
        return scopes[-1] if scopes else None

    # Calls

    def _call_cost(self, expression: Any) -> int:
        call = expression.call
        if call.function == "dyn":
            cost = _sum(1, self.cost(call.args[0]))
            self._copy_sizes(expression, call.args[0])
            return cost
        costs = [self.cost(argument) for argument in call.args]
        target = call.target if call.HasField("target") else None
        target_cost = 0 if target is None else self.cost(target)
        overloads = self._overloads.get(expression.id) or ()
        if not overloads:
            return 0
        most = 0
        size: Size | None = None
        for overload in overloads:
            cost, result = self._overload_estimate(expression, target, overload)
            most = max(most, cost)
            if result is not None:
                size = result if size is None else size.or_(result)
            if overload in ("index_list", "index_map"):
                entries = self._entries_of(call.args[0])
                size = None if entries is None else entries.value
                step = "@items" if overload == "index_list" else "@values"
                self._paths[expression.id] = (*self._path(call.args[0]), step)
            if size is None:
                size = self._size(expression)
        self._set_size(expression, size)
        return _sum(target_cost, _sum(most, _arguments_cost(call.function, costs)))

    def _overload_estimate(self, expression: Any, target: Any, overload: str) -> Estimate:
        """Return the estimate of a call, without the costs of its arguments."""
        call = expression.call
        special = _FUNCTIONS.get(call.function)
        estimate = None if special is None else special(self, call, target, overload)
        if estimate is not None:
            return estimate
        if call.function in _ONE_UNIT:
            return 1, None
        if call.function in _COMPARISONS:
            return self._comparison(call, overload)
        args = call.args
        match overload:
            case "logical_and" | "logical_or":
                return 0, None
            case "conditional":
                return self._conditional(expression)
            case "add_string" | "add_bytes" | "add_list":
                return self._concatenation(expression, overload)
            case "string_to_bytes":
                size = self._size_or_unknown(args[0])
                return size.cost(_TRAVERSAL), Size(size.least, _wrapped(size.most * 4))
            case "bytes_to_string":
                size = self._size_or_unknown(args[0])
                return size.cost(_TRAVERSAL), Size(size.least // 4, size.most)
            case "starts_with_string" | "ends_with_string":
                return self._size_or_unknown(args[0]).cost(_TRAVERSAL), None
            case "in_list":
                return self._size_or_unknown(args[1]).cost(1), None
            case "matches_string":
                text = _sum(self._size_or_unknown(target).most, 1)
                pattern = self._size_or_unknown(args[0]).cost(_PATTERN)
                return _product(_scaled(text, _TRAVERSAL), pattern), None
            case "contains_string":
                text_cost = self._size_or_unknown(target).cost(_TRAVERSAL)
                part_cost = self._size_or_unknown(args[0]).cost(_TRAVERSAL)
                return _product(text_cost, part_cost), None
        return 1, None

    def _comparison(self, call: Any, overload: str) -> Estimate:
        first = call.args[0]
        second = call.args[1]
        if call.function == "_==_" and self._is_constant(first) and self._is_constant(second):
            return 1, None
        if call.function == "_==_" and _is_format(first) and _is_format(second):
            return _FORMAT_COMPARISON, None
        reads = overload in _COMPARED_OVERLOADS or overload.endswith(("_string", "_bytes"))
        if not reads:
            return 1, None
        most = min(self._size_or_unknown(first).most, self._size_or_unknown(second).most)
        return _scaled(most, _TRAVERSAL), None

    def _is_constant(self, expression: Any) -> bool:
        """Report whether an expression is the call of a function with a result of constant size."""
        return expression.call.function in _CONSTANT_RESULTS

    def _conditional(self, expression: Any) -> Estimate:
        _, first, second = expression.call.args
        size = self._size_or_unknown(first).or_(self._size_or_unknown(second))
        self._set_entries(expression, _either(self._entries_of(first), self._entries_of(second)))
        return 0, size

    def _concatenation(self, expression: Any, overload: str) -> Estimate:
        first, second = expression.call.args
        size = self._size_or_unknown(first).plus(self._size_or_unknown(second))
        self._set_entries(expression, _either(self._entries_of(first), self._entries_of(second)))
        cost = 1 if overload == "add_list" else size.cost(_TRAVERSAL)
        return cost, size

    def list_traversal(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate functions that compare each item of a list, or search in a string."""
        if target is None:
            return None
        size = self._size_or_unknown(target)
        element = self._element(target)
        if element is None:
            return size.cost(_TRAVERSAL), None
        kind, items = element
        each = 1
        if kind in ("string", "bytes"):
            each += items.cost(_TRAVERSAL)
        return _product(size.most, each), None

    def reading(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate functions that parse their argument."""
        if call.function == "ip" and target is not None:
            return 1, None
        if not call.args:
            return None
        return self._size_or_unknown(call.args[0]).cost(_TRAVERSAL), None

    def canonical(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``ip.isCanonical``, which parses an address and compares it with its canonical form."""
        return self._size_or_unknown(call.args[0]).cost(2 * _TRAVERSAL), None

    def url(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate functions with a result as large as their argument."""
        size = self._size_or_unknown(call.args[0])
        return size.cost(_TRAVERSAL), size

    def same_size(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate methods of strings with a result as large as the string."""
        size = self._size_or_unknown(target)
        return size.cost(_TRAVERSAL), size

    def replacement(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``replace``: the result is largest if the shortest part becomes the longest replacement."""
        size = self._size_or_unknown(target)
        part = self._size_or_unknown(call.args[0])
        replacement = self._size_or_unknown(call.args[1])
        most = _replaced_most(size, part, replacement)
        least = _replaced_least(size, part, replacement)
        return size.cost(2 * _TRAVERSAL), Size(least, most)

    def split(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``split``: at most one item for each character, or as many as a literal limit."""
        size = self._size_or_unknown(target)
        most = size.most
        if len(call.args) > 1 and call.args[1].constant.HasField("integer"):
            most = _wrapped(call.args[1].constant.integer)
        return size.cost(2 * _TRAVERSAL), Size(0, most)

    def join(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``join``: all items and the separators between them."""
        items = self._size_or_unknown(target)
        element = self._element(target)
        size = _NO_SIZE if element is None else items.times(element[1])
        if call.args:
            separators = Size(max(items.least - 1, 0), max(items.most - 1, 0))
            size = size.plus(self._size_or_unknown(call.args[0]).times(separators))
        return size.cost(_TRAVERSAL), size

    def find(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate searches with a regular expression."""
        size = self._size_or_unknown(target)
        text_cost = _scaled(_sum(size.most, 1), _TRAVERSAL)
        pattern_cost = self._size_or_unknown(call.args[0]).cost(_PATTERN)
        return _product(text_cost, pattern_cost), Size(0, size.most)

    def contains_network(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``containsIP`` and ``containsCIDR``."""
        cost = _scaled(2 * _MAX_NETWORK_BYTES, _TRAVERSAL)
        if call.function == "containsCIDR":
            cost += _scaled(_MAX_NETWORK_BYTES, _TRAVERSAL) + 1
        if self._kind(call.args[0]) == "string":
            cost = _sum(cost, self._size_or_unknown(call.args[0]).cost(_TRAVERSAL))
        return cost, None

    def named_format(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``validate`` of a named format."""
        text_cost = self._size_or_unknown(call.args[-1]).cost(_TRAVERSAL)
        return _scaled(text_cost, _NAME_FORMAT_PATTERN * _PATTERN), None

    def optional_value(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``optional.ofNonZeroValue``, which is free around the calls that ``cel_formats`` puts into it."""
        is_added = call.args[0].call.function in OPTIONAL_CALLS
        return (0, None) if is_added else None

    def authorization(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``check`` of an authorizer: an expression has room for two."""
        return _AUTHORIZATION_CHECK, None

    def formatted(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``format``, whose result has no limit."""
        return self._size_or_unknown(target).cost(_TRAVERSAL), None

    def quoted(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate ``strings.quote``: two quotes, and at most all characters are escaped."""
        size = self._size_or_unknown(call.args[0])
        result = Size(_sum(size.least, 2), _sum(_product(size.most, 2), 2))
        return size.cost(_TRAVERSAL), result

    def sets(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate functions of sets, which compare each pair of items."""
        first = self._size_or_unknown(call.args[0])
        second = self._size_or_unknown(call.args[1])
        factor = 2 if call.function == "sets.equivalent" else 1
        return _sum(first.times(second).cost(factor), 1), None

    def new_list(self, call: Any, target: Any, overload: str) -> Estimate | None:
        """Estimate the functions of the list library, which create a list."""
        factor = 1.0
        match call.function:
            case "lists.range":
                length = _literal(call.args[0], MAX_COST)
                size = Size(length, length)
            case "slice":
                most = self._size_or_unknown(target).most
                length = _wrapped(_literal(call.args[1], most) - _literal(call.args[0], 0))
                size = Size(length, length)
            case "distinct":
                factor = 2.0
                size = self._squared(target)
            case "sort" | "@sortByAssociatedKeys":
                keys = target if call.function == "sort" else call.args[0]
                factor = _SORT_FACTOR
                if "string" in overload or "bytes" in overload:
                    factor += _TRAVERSAL
                size = self._squared(keys)
            case _:
                size = self._size_or_unknown(target)
                if call.args:  # the depth of flatten
                    factor = float(_literal(call.args[0], MAX_COST))
        return _sum(size.cost(factor), 1 + _NEW_LIST), size

    def _squared(self, expression: Any) -> Size:
        size = self._size_or_unknown(expression)
        return size.times(size)

    # Types, paths and sizes

    def _kind(self, expression: Any) -> str:
        """Return the kind of an expression's value; of a nested list the schema has it, its static type does not."""
        kind = _static_kind(self._types.get(expression.id))
        if kind != "dyn":
            return kind
        sized = self._sized(self._path(expression))
        return kind if sized is None else sized.kind

    def _element(self, expression: Any) -> tuple[str, Size] | None:
        """Return the kind and size of a list's items (a map's keys); ``None`` for other values."""
        kind = self._kind(expression)
        if kind not in ("list", "map"):
            return None
        path = self._visible_path(expression)
        sized = self._sized((*path, "@items")) if path else None
        static = self._types.get(expression.id)
        if kind == "map":
            item = "string"
        elif sized is not None:
            item = sized.kind
        else:
            item = "dyn" if static is None else _static_kind(static.list.element)
        return item, _UNKNOWN if sized is None else Size(0, sized.max_elements)

    def _path(self, expression: Any) -> tuple[str, ...]:
        variable = self._variable(expression)
        return self._paths.get(expression.id, ()) if variable is None else variable.path

    def _visible_path(self, expression: Any) -> tuple[str, ...]:
        """Return the path of a value; the accumulators of loops have none."""
        path = self._path(expression)
        return () if path and path[0] in _ACCUMULATORS else path

    def _sized(self, path: tuple[str, ...]) -> Sized | None:
        """Return the type that the schema gives to a path."""
        if not path:
            return None
        sized: Sized | None = self._root
        for step in path[1:]:
            if sized is None or step in self._unsized:
                return None
            sized = sized.at(step)
        return sized

    def _size_or_unknown(self, expression: Any) -> Size:
        return self._size(expression) or _UNKNOWN

    def _size(self, expression: Any) -> Size | None:
        """Return the size of a value, if it is known."""
        known = self._sizes.get(expression.id)
        if known is not None:
            return known
        literal = _literal_size(expression)
        if literal is not None:
            return literal
        sized = self._sized(self._path(expression))
        if sized is not None:
            size = Size(0, sized.max_elements)
            self._sizes[expression.id] = size
            return size
        if _static_kind(self._types.get(expression.id), optional=True) in _SCALAR_KINDS:
            return _SCALAR
        variable = self._variable(expression)
        return None if variable is None else variable.size

    def _set_size(self, expression: Any, size: Size | None) -> None:
        if size is not None:
            self._sizes[expression.id] = size

    def _entries_of(self, expression: Any) -> Entries | None:
        known = self._entries.get(expression.id)
        if known is not None:
            return known
        variable = self._variable(expression)
        return None if variable is None else variable.entries

    def _set_entries(self, expression: Any, entries: Entries | None) -> None:
        if entries is not None:
            self._entries[expression.id] = entries

    def _copy_sizes(self, expression: Any, source: Any) -> None:
        self._set_size(expression, self._size(source))
        self._set_entries(expression, self._entries_of(source))


_Function: TypeAlias = Callable[[_Estimator, Any, Any, str], Estimate | None]

_FUNCTIONS: Final[Mapping[str, _Function]] = {
    **dict.fromkeys(
        ("indexOf", "isSorted", "lastIndexOf", "max", "min", "sum"), _Estimator.list_traversal
    ),
    **dict.fromkeys(_READ_ARGUMENT, _Estimator.reading),
    **dict.fromkeys(("lowerAscii", "substring", "trim", "upperAscii"), _Estimator.same_size),
    **dict.fromkeys(("find", "findAll"), _Estimator.find),
    **dict.fromkeys(("containsCIDR", "containsIP"), _Estimator.contains_network),
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), _Estimator.sets),
    **dict.fromkeys(
        ("distinct", "flatten", "lists.range", "reverse", "slice", *_SORTED), _Estimator.new_list
    ),
    "check": _Estimator.authorization,
    "format": _Estimator.formatted,
    "ip.isCanonical": _Estimator.canonical,
    "join": _Estimator.join,
    "jsonpatch.escapeKey": _Estimator.url,
    _OPTIONAL: _Estimator.optional_value,
    "replace": _Estimator.replacement,
    "split": _Estimator.split,
    "strings.quote": _Estimator.quoted,
    "url": _Estimator.url,
    "validate": _Estimator.named_format,
}
"""The functions whose cost depends on their name only."""


def _arguments_cost(function: str, costs: list[int]) -> int:
    """Return the cost of all arguments of a call; of the branches of a condition one is evaluated."""
    if function == "_?_:_":
        condition, first, second = costs
        return _sum(condition, max(first, second))
    total = 0
    for cost in costs:
        total = _sum(total, cost)
    return total


def _static_kind(kind: Any, *, optional: bool = False) -> str:
    """Return the kind of a static type; with ``optional`` that of the value in an optional type."""
    if kind is None:
        return "dyn"
    if kind.HasField("primitive"):
        return _PRIMITIVES[kind.primitive]
    if kind.HasField("well_known"):
        return _WELL_KNOWN[kind.well_known]
    if kind.HasField("list"):
        return "list"
    if kind.HasField("map"):
        return "map"
    if kind.HasField("message"):
        return "object"
    if optional and kind.HasField("abstract") and kind.abstract.parameters:
        return _static_kind(kind.abstract.parameters[0], optional=True)
    return "dyn"


def _literal_size(expression: Any) -> Size | None:
    if expression.HasField("list"):
        count = len(expression.list.elements)
    elif expression.HasField("struct") and not expression.struct.message_name:
        count = len(expression.struct.entries)
    elif not expression.HasField("constant"):
        return None
    elif expression.constant.HasField("text"):
        count = len(expression.constant.text)
    elif expression.constant.HasField("binary"):
        count = len(expression.constant.binary)
    else:
        count = 1
    return Size(count, count)


def _is_format(expression: Any) -> bool:
    """Report whether an expression is a format, or that of an optional value: the result of ``format.named``."""
    call = expression.call
    if call.function in ("value", "orValue"):
        wrapped = call.target.call
        is_added = wrapped.function == _OPTIONAL
        return is_added and bool(wrapped.args[0].call.function == "format.named")
    return call.function in _FORMATS


def _literal(expression: Any, default: int) -> int:
    """Return the value of an integer literal, at least zero; ``default`` for other expressions."""
    if not expression.constant.HasField("integer"):
        return default
    return max(int(expression.constant.integer), 0)


def _wrapped(number: int) -> int:
    """Return an integer as Go's unsigned arithmetic leaves it."""
    return number & MAX_COST


def _any_of(sizes: list[Size]) -> Size:
    """Return the size of any of the values."""
    if not sizes:
        return _NO_SIZE
    return Size(min(each.least for each in sizes), max(each.most for each in sizes))


def _either(first: Entries | None, second: Entries | None) -> Entries | None:
    if first is None or second is None:
        return None
    return Entries(first.is_list, first.key.or_(second.key), first.value.or_(second.value))


def _replaced_most(size: Size, part: Size, replacement: Size) -> int:
    if part.least == 0:  # an empty part is found around each character
        count = _sum(size.most, 1)
        return _sum(_product(count, replacement.most), size.most)
    if replacement.most <= part.least:
        return size.most
    return _product(math.ceil(size.most / part.least), replacement.most)


def _replaced_least(size: Size, part: Size, replacement: Size) -> int:
    if part.most == 0:
        count = _sum(size.least, 1)
        return _sum(_product(count, replacement.least), size.least)
    if part.most <= replacement.least:
        return size.least
    return _product(math.ceil(size.least / part.most), replacement.least)
