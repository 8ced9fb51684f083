"""Evaluates checked CEL expressions, and counts the cost of what it evaluates in cel-go's units.

The CEL library stops after 10,000 iterations of loops and does not count costs. :func:`prepare_evaluator` turns the
checked expression into closures. It returns ``None`` if the expression has a part that is not implemented here (uint,
optional values, some functions of the list library); the library evaluates such an expression.

The message of an evaluation that fails is rough: the library evaluates the expression again to find the exact one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from envtest.schema.cel_costs import call_cost
from envtest.schema.cel_macros import COST_LIMIT

__all__ = [
    "ConversionError",
    "CostLimitError",
    "Evaluator",
    "Implementation",
    "Implementations",
    "Outcome",
    "Workload",
    "is_binding",
    "prepare_evaluator",
    "workload",
]


class CostLimitError(Exception):
    """Raised if an evaluation costs more than its limit."""


class EvaluationError(ValueError):
    """Raised if the evaluation of a part of an expression fails for the given values."""


class ConversionError(EvaluationError):
    """Raised if an expression reads a value that does not have the type that its schema declares."""


class Implementation(NamedTuple):
    """A function in Python, and the types of its arguments; ``None`` accepts any value."""

    function: Callable[..., Any]
    types: tuple[type | None, ...]


Implementations: TypeAlias = Mapping[str, Implementation]
"""Functions by the names of their overloads."""


@dataclass(slots=True)
class _Frame:
    """The state of an evaluation."""

    variables: dict[str, Any]
    limit: int
    cost: int = 0

    def charge(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitError


_Node: TypeAlias = Callable[[_Frame], Any]


class _UnsupportedError(Exception):
    """Raised if a part of an expression is not implemented here."""


class Outcome(NamedTuple):
    """The value of an expression and its cost. A non-empty ``error`` means that there is no value.

    ``is_exact`` is whether the error has the words of kube-apiserver, which no other evaluation can give.
    """

    value: Any
    cost: int
    error: str = ""
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class Evaluator:
    """An expression that can be evaluated."""

    root: _Node

    def evaluate(self, variables: Mapping[str, Any], limit: int) -> Outcome:
        """Return the outcome of the expression. Raises :class:`CostLimitError` if it costs more than ``limit``."""
        frame = _Frame(dict(variables), limit)
        try:
            value = self.root(frame)
        except EvaluationError as failure:
            frame.charge(0)
            is_exact = isinstance(failure, ConversionError)
            return Outcome(None, frame.cost, str(failure) or "evaluation failed", is_exact)
        frame.charge(0)
        return Outcome(value, frame.cost)


def prepare_evaluator(
    checked: Any,
    variables: Sequence[str],
    implementations: Implementations,
    matches: Callable[[str, str], bool],
) -> Evaluator | None:
    """Return the evaluator of a checked expression (``cel_checked``); ``None`` if it is not supported.

    ``matches`` decides whether a string contains a regular expression (RE2).
    """
    overloads = {entry.key: tuple(entry.value.overloads) for entry in checked.references}
    try:
        compiler = _Compiler(overloads, frozenset(variables), implementations, matches)
        return Evaluator(compiler.compile(checked.expr))
    except _UnsupportedError:
        return None


def is_binding(loop: Any) -> bool:
    """Report whether a loop is the form of ``cel.bind``: it never runs, and its result uses its accumulator."""
    return (
        loop.range.HasField("list")
        and not loop.range.list.elements
        and loop.condition.constant.HasField("boolean")
        and not loop.condition.constant.boolean
    )


class Workload(NamedTuple):
    """How much an expression evaluates: its parts, and how deeply its loops are nested."""

    parts: int
    depth: int


def workload(checked: Any) -> Workload:
    """Return the workload of a checked expression."""
    parts = 0
    deepest = 0
    todo = [(checked.expr, 0)]
    while todo:
        expression, depth = todo.pop()
        parts += 1
        deepest = max(deepest, depth)
        if expression.HasField("loop"):
            loop = expression.loop
            inner = depth if is_binding(loop) else depth + 1
            todo += [(loop.range, depth), (loop.initial, depth), (loop.result, depth)]
            todo += [(loop.condition, inner), (loop.step, inner)]
        else:
            todo += [(part, depth) for part in _parts(expression)]
    return Workload(parts, deepest)


def _parts(expression: Any) -> Iterator[Any]:
    """Yield the direct parts of an expression that is not a loop."""
    if expression.HasField("select"):
        yield expression.select.operand
    elif expression.HasField("call"):
        if expression.call.HasField("target"):
            yield expression.call.target
        yield from expression.call.args
    elif expression.HasField("list"):
        yield from expression.list.elements
    elif expression.HasField("struct"):
        for entry in expression.struct.entries:
            if entry.HasField("map_key"):
                yield entry.map_key
            yield entry.value


class _Compiler:
    def __init__(
        self,
        overloads: Mapping[int, tuple[str, ...]],
        names: frozenset[str],
        implementations: Implementations,
        matches: Callable[[str, str], bool],
    ) -> None:
        self._overloads = overloads
        self._names = names
        self._implementations = implementations
        self._functions = {**_FUNCTIONS, **_times().FUNCTIONS, "matches": _text_test(matches)}

    def compile(self, expression: Any) -> _Node:
        """Return the closure of a part of the expression. Raises _UnsupportedError."""
        if expression.HasField("call"):
            return self._call(expression)
        if expression.HasField("identifier"):
            return self._identifier(expression.identifier.name)
        if expression.HasField("select"):
            return self._select(expression.select)
        if expression.HasField("constant"):
            return _constant(_constant_value(expression.constant))
        if expression.HasField("loop"):
            return self._loop(expression.loop)
        if expression.HasField("list"):
            return self._list(expression.list)
        if expression.HasField("struct"):
            return self._map(expression.struct)
        raise _UnsupportedError

    def _identifier(self, name: str) -> _Node:
        if name not in self._names:
            raise _UnsupportedError

        def node(frame: _Frame) -> Any:
            frame.cost += 1
            return frame.variables[name]

        return node

    def _select(self, select: Any) -> _Node:
        operand = self.compile(select.operand)
        name = select.field
        if select.is_test:
            return _presence(operand, name)

        def node(frame: _Frame) -> Any:
            value = operand(frame)
            frame.cost += 1
            try:
                return value[name]
            except KeyError:
                raise EvaluationError(f"no such key: {name}") from None
            except TypeError:
                raise EvaluationError("no such overload") from None

        return node

    def _list(self, content: Any) -> _Node:
        if content.optional:
            raise _UnsupportedError
        elements = [self.compile(element) for element in content.elements]
        is_constant = all(_is_constant(element) for element in content.elements)
        cost = 0 if is_constant else _NEW_LIST

        def node(frame: _Frame) -> Any:
            frame.cost += cost
            return [element(frame) for element in elements]

        return node

    def _map(self, content: Any) -> _Node:
        if content.message_name or any(entry.optional for entry in content.entries):
            raise _UnsupportedError
        entries = [
            (self.compile(entry.map_key), self.compile(entry.value)) for entry in content.entries
        ]
        is_constant = all(
            _is_constant(entry.map_key) and _is_constant(entry.value) for entry in content.entries
        )
        cost = 0 if is_constant else _NEW_MAP

        def node(frame: _Frame) -> Any:
            frame.cost += cost
            created: dict[Any, Any] = {}
            for key, value in entries:
                name = _key(key(frame))
                if name in created:
                    raise EvaluationError("duplicate key in map")
                created[name] = value(frame)
            return created

        return node

    # Calls

    def _call(self, expression: Any) -> _Node:
        call = expression.call
        parts = list(call.args)
        if call.HasField("target"):
            parts.insert(0, call.target)
        args = [self.compile(part) for part in parts]
        match call.function:
            case "_&&_":
                return _junction(args, decisive=False)
            case "_||_":
                return _junction(args, decisive=True)
            case "_[_]" if _is_attribute(parts[1]):
                # cel-go does not count the variable of an index that is an attribute.
                args[1] = _discounted(args[1])
            case "_?_:_":
                # cel-go does not count the variable of a result that is an attribute.
                results = [
                    _discounted(arg) if _is_attribute(part) else arg
                    for part, arg in zip(parts[1:], args[1:], strict=True)
                ]
                return _conditional(args[0], *results)
        function = self._functions.get(call.function)
        overloads = self._overloads.get(expression.id, ())
        known = [self._implementations.get(name) for name in overloads]
        found = [implementation for implementation in known if implementation is not None]
        if found and function is not None:
            standard = function
            function = _either(found, standard if len(found) < len(known) else None)
        elif found and len(found) == len(known):
            function = _either(found, None)
        if function is None:
            raise _UnsupportedError
        compare = _COMPARISONS.get(call.function)
        if compare is not None:
            first, second = args
            return _comparison(compare, first, second, function, call_cost(call.function))
        return _invocation(function, args, call_cost(call.function))

    # Loops

    def _loop(self, loop: Any) -> _Node:
        if is_binding(loop):
            return self._binding(loop)
        items = self.compile(loop.range)
        names = [loop.variable]
        if loop.second_variable:
            names.append(loop.second_variable)
        outer = self._names
        self._names = outer | set(names) | {loop.accumulator}
        try:
            body = self._body(loop)
        finally:
            self._names = outer
        return _iteration(items, names, loop.accumulator, body)

    def _binding(self, loop: Any) -> _Node:
        initial = self.compile(loop.initial)
        outer = self._names
        name = loop.accumulator
        self._names = outer | {name}
        try:
            result = self.compile(loop.result)
        finally:
            self._names = outer

        def node(frame: _Frame) -> Any:
            value = initial(frame)
            before = frame.variables.get(name)
            frame.variables[name] = value
            try:
                return result(frame)
            finally:
                frame.variables[name] = before

        return node

    def _body(self, loop: Any) -> _Body:
        """Return what runs for the items of a range; the macros have forms of their own."""
        junction = _junction_operand(loop)
        if junction is not None:
            decisive, operand = junction
            return _quantified(self.compile(operand), decisive=decisive)
        appended = _appended_list(loop)
        if appended is not None:
            condition, element = appended
            return _collected(
                None if condition is None else self.compile(condition), self.compile(element)
            )
        return _folded(
            loop.accumulator,
            self.compile(loop.initial),
            self.compile(loop.condition),
            self.compile(loop.step),
            self.compile(loop.result),
        )


_NEW_LIST: Final = 10
_NEW_MAP: Final = 30
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


def _constant_value(constant: Any) -> Any:
    for field in ("boolean", "integer", "text", "double", "binary"):
        if constant.HasField(field):
            return getattr(constant, field)
    if constant.HasField("null"):
        return None
    raise _UnsupportedError


def _constant(value: Any) -> _Node:
    return lambda frame: value


def _is_constant(expression: Any) -> bool:
    return bool(expression.HasField("constant"))


def _presence(operand: _Node, name: str) -> _Node:
    def node(frame: _Frame) -> Any:
        value = operand(frame)
        if not isinstance(value, dict):
            raise EvaluationError("no such overload")
        return name in value

    return node


def _junction(operands: Sequence[_Node], *, decisive: bool) -> _Node:
    """Return ``||`` or ``&&``: an operand with the value ``decisive`` decides, regardless of errors in the others."""

    def node(frame: _Frame) -> Any:
        error: EvaluationError | None = None
        for operand in operands:
            try:
                value = operand(frame)
            except EvaluationError as failure:
                error = error or failure
                continue
            if value is decisive:
                return decisive
            if not isinstance(value, bool):
                error = error or EvaluationError("no such overload")
        if error is not None:
            raise error
        return not decisive

    return node


def _is_attribute(expression: Any) -> bool:
    """Report whether an expression is a variable, or a field or item of one."""
    while True:
        if expression.HasField("select") and not expression.select.is_test:
            expression = expression.select.operand
        elif expression.call.function == "_[_]":
            expression = expression.call.args[0]
        else:
            return bool(expression.HasField("identifier"))


def _conditional(condition: _Node, first: _Node, second: _Node) -> _Node:
    def node(frame: _Frame) -> Any:
        value = condition(frame)
        if value is True:
            return first(frame)
        if value is False:
            return second(frame)
        raise EvaluationError("no such overload")

    return node


def _discounted(node: _Node) -> _Node:
    def discounted(frame: _Frame) -> Any:
        frame.cost -= 1
        return node(frame)

    return discounted


def _invocation(
    function: Callable[..., Any],
    args: Sequence[_Node],
    cost: Callable[[Sequence[Any], Any], int],
) -> _Node:
    def node(frame: _Frame) -> Any:
        values = [arg(frame) for arg in args]
        try:
            result = function(*values)
        except (CostLimitError, EvaluationError):
            frame.charge(1)
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # what the Python implementations raise for values of wrong types
            frame.charge(1)
            raise EvaluationError(str(error)) from None
        frame.charge(cost(values, result))
        return result

    return node


def _comparison(
    compare: Callable[[Any, Any], bool],
    first: _Node,
    second: _Node,
    function: Callable[..., Any],
    cost: Callable[[Sequence[Any], Any], int],
) -> _Node:
    """Return a comparison: of integers, which loops often compare, without further calls."""

    def node(frame: _Frame) -> Any:
        left = first(frame)
        right = second(frame)
        if type(left) is int and type(right) is int:
            frame.cost += 1
            return compare(left, right)
        return other(frame, left, right)

    def other(frame: _Frame, left: Any, right: Any) -> Any:
        result = function(left, right)
        frame.charge(cost((left, right), result))
        return result

    return node


def _either(
    implementations: Sequence[Implementation], standard: Callable[..., Any] | None
) -> Callable[..., Any]:
    """Return a function that calls the first implementation that accepts the arguments."""

    def function(*values: Any) -> Any:
        for implementation in implementations:
            if _accepts(implementation.types, values):
                return implementation.function(*values)
        if standard is None:
            raise EvaluationError("no such overload")
        return standard(*values)

    return function


def _accepts(types: Sequence[type | None], values: Sequence[Any]) -> bool:
    return len(types) == len(values) and all(
        kind is None or type(value) is kind for kind, value in zip(types, values, strict=True)
    )


# Loops

_Body: TypeAlias = Callable[[_Frame, Iterator[None]], Any]
"""Runs a loop; the iterator sets the variables of the loop to the next item."""


def _iteration(items: _Node, names: Sequence[str], accumulator: str, body: _Body) -> _Node:
    scoped = (*names, accumulator)

    def node(frame: _Frame) -> Any:
        values = items(frame)
        if not isinstance(values, (list, dict)):
            raise EvaluationError("no such overload")
        variables = frame.variables
        before = [variables.get(name) for name in scoped]
        try:
            return body(frame, _steps(frame, values, names))
        finally:
            variables.update(zip(scoped, before, strict=True))

    return node


def _steps(
    frame: _Frame, values: list[Any] | dict[Any, Any], names: Sequence[str]
) -> Iterator[None]:
    """Set the variables of a loop to each item in turn, and check the cost so far."""
    variables = frame.variables
    if len(names) == 1:
        name = names[0]
        for value in list(values):
            variables[name] = value
            yield
            if frame.cost > frame.limit:
                raise CostLimitError
        return
    first, second = names
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in pairs:
        variables[first] = key
        variables[second] = value
        yield
        if frame.cost > frame.limit:
            raise CostLimitError


def _quantified(predicate: _Node, *, decisive: bool) -> _Body:
    """Return ``all`` (``decisive`` is false) or ``exists``, in which an item decides regardless of others' errors."""
    condition_cost = 3 if decisive else 2

    def body(frame: _Frame, steps: Iterator[None]) -> Any:
        error: EvaluationError | None = None
        decided = False
        for _ in steps:
            frame.cost += condition_cost
            if decided:
                break
            frame.cost += 1
            try:
                value = predicate(frame)
            except EvaluationError as failure:
                error = error or failure
                continue
            if value is decisive:
                decided = True
            elif not isinstance(value, bool):
                error = error or EvaluationError("no such overload")
        frame.cost += 1
        if decided:
            return decisive
        if error is not None:
            raise error
        return not decisive

    return body


def _collected(condition: _Node | None, element: _Node) -> _Body:
    """Return ``map`` or ``filter``: a list with an element for each item that fulfills the condition."""

    def body(frame: _Frame, steps: Iterator[None]) -> Any:
        found: list[Any] = []
        for _ in steps:
            if condition is not None:
                selected = condition(frame)
                if selected is False:
                    continue
                if selected is not True:
                    raise EvaluationError("no such overload")
            found.append(element(frame))
            frame.cost += 2 + _NEW_LIST
        frame.cost += 1
        return found

    return body


def _folded(name: str, initial: _Node, condition: _Node, step: _Node, result: _Node) -> _Body:
    def body(frame: _Frame, steps: Iterator[None]) -> Any:
        variables = frame.variables
        variables[name] = initial(frame)
        for _ in steps:
            if condition(frame) is not True:
                break
            variables[name] = step(frame)
        return result(frame)

    return body


def _junction_operand(loop: Any) -> tuple[bool, Any] | None:
    """Return the decisive value and the predicate of the form of ``all`` or ``exists``."""
    call = loop.step.call
    decisive = _DECISIVE.get(call.function)
    if decisive is None or len(call.args) != 2 or not _is_accumulator(loop, call.args[0]):
        return None
    if loop.condition.call.function != "@not_strictly_false":
        return None
    if not loop.initial.constant.HasField("boolean"):
        return None
    if loop.initial.constant.boolean is decisive or not _is_accumulator(loop, loop.result):
        return None
    return decisive, call.args[1]


def _appended_list(loop: Any) -> tuple[Any, Any] | None:
    """Return the condition (or ``None``) and the element of the form of ``map`` or ``filter``."""
    is_list = loop.initial.HasField("list") and not loop.initial.list.elements
    is_unconditional = loop.condition.constant.HasField("boolean")
    if not is_list or not is_unconditional or not _is_accumulator(loop, loop.result):
        return None
    step = loop.step
    condition = None
    if step.call.function == "_?_:_":
        condition = step.call.args[0]
        if not _is_accumulator(loop, step.call.args[2]):
            return None
        step = step.call.args[1]
    call = step.call
    if call.function != "_+_" or not _is_accumulator(loop, call.args[0]):
        return None
    added = call.args[1]
    if not added.HasField("list") or len(added.list.elements) != 1 or added.list.optional:
        return None
    return condition, added.list.elements[0]


def _is_accumulator(loop: Any, expression: Any) -> bool:
    if not expression.HasField("identifier"):
        return False
    return bool(expression.identifier.name == loop.accumulator)


_DECISIVE: Final[Mapping[str, bool]] = {"_&&_": False, "_||_": True}


# Functions


def _key(value: Any) -> Any:
    if not isinstance(value, (str, int)):
        raise EvaluationError("unsupported key type")
    if isinstance(value, bool):
        # Python's maps do not distinguish true from 1.
        raise EvaluationError("unsupported key type")
    return value


def _is_equal(first: Any, second: Any) -> bool:
    kind = type(first)
    if kind is not type(second):
        numbers = {kind, type(second)}
        return numbers == {int, float} and bool(first == second)
    if kind is list:
        return len(first) == len(second) and all(map(_is_equal, first, second))
    if kind is dict:
        return first.keys() == second.keys() and all(
            _is_equal(value, second[key]) for key, value in first.items()
        )
    return bool(first == second)


def _is_different(first: Any, second: Any) -> bool:
    return not _is_equal(first, second)


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "_!=_": operator.ne,
    "_<=_": operator.le,
    "_<_": operator.lt,
    "_==_": operator.eq,
    "_>=_": operator.ge,
    "_>_": operator.gt,
}
_ORDERED: Final = frozenset({bool, int, float, str, bytes})


def _ordering(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def function(first: Any, second: Any) -> bool:
        kind = type(first)
        other = type(second)
        if kind is not other and {kind, other} != {int, float}:
            raise EvaluationError("no such overload")
        if kind not in _ORDERED:
            return compare(_point(first), _point(second))
        return compare(first, second)

    return function


def _point(value: Any) -> tuple[int, int]:
    """Return what times and durations, which are messages, are ordered by."""
    try:
        return value.seconds, value.nanos
    except AttributeError:
        raise EvaluationError("no such overload") from None


def _times() -> Any:
    """Return the functions for times and durations, which raise TypeError for all other values."""
    from envtest.schema import cel_times  # lazy: needs protobuf

    return cel_times


def _integer(value: int) -> int:
    if not _SMALLEST <= value <= _LARGEST:
        raise EvaluationError("integer overflow")
    return value


def _add(first: Any, second: Any) -> Any:
    kind = type(first)
    if kind is type(second):
        if kind is int:
            return _integer(first + second)
        if kind in (str, float, list, bytes):
            return first + second
    return _times().add(first, second)


def _subtract(first: Any, second: Any) -> Any:
    kind = type(first)
    if kind is type(second):
        if kind is int:
            return _integer(first - second)
        if kind is float:
            return first - second
    return _times().subtract(first, second)


def _arithmetic(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def function(first: Any, second: Any) -> Any:
        kind = type(first)
        if kind is not type(second) or kind not in (int, float):
            raise EvaluationError("no such overload")
        result = compute(first, second)
        return _integer(result) if kind is int else result

    return function


def _divide(first: Any, second: Any) -> Any:
    if isinstance(first, int):
        if second == 0:
            raise EvaluationError("division by zero")
        quotient = abs(first) // abs(second)
        return quotient if (first < 0) == (second < 0) else -quotient
    return first / second


def _modulus(first: Any, second: Any) -> Any:
    if type(first) is not int or type(second) is not int:
        raise EvaluationError("no such overload")
    if second == 0:
        raise EvaluationError("modulus by zero")
    remainder = abs(first) % abs(second)
    return -remainder if first < 0 else remainder


def _negate(value: Any) -> Any:
    if type(value) is int:
        return _integer(-value)
    if type(value) is float:
        return -value
    raise EvaluationError("no such overload")


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("no such overload")
    return not value


def _is_member(value: Any, values: Any) -> bool:
    if isinstance(values, list):
        if isinstance(value, str):
            return value in values
        return any(_is_equal(value, each) for each in values)
    if isinstance(values, dict):
        return _key(value) in values
    raise EvaluationError("no such overload")


def _item(values: Any, key: Any) -> Any:
    if isinstance(values, list):
        if type(key) is not int:
            raise EvaluationError("no such overload")
        if not 0 <= key < len(values):
            raise EvaluationError(f"index out of bounds: {key}")
        return values[key]
    if not isinstance(values, dict):
        raise EvaluationError("no such overload")
    try:
        return values[_key(key)]
    except KeyError:
        raise EvaluationError(f"no such key: {key}") from None


def _count(value: Any) -> int:
    if not isinstance(value, (str, bytes, list, dict)):
        raise EvaluationError("no such overload")
    return len(value)


def _text_test(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def function(text: Any, part: Any) -> bool:
        if not isinstance(text, str) or not isinstance(part, str):
            raise EvaluationError("no such overload")
        return test(text, part)

    return function


def _to_string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text: str = _times().to_text(value)
    return text


def _to_int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        return _integer(int(value))
    number: int = _times().to_int(value)
    return number


def _to_double(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    raise EvaluationError("no such overload")


def _range(size: Any) -> list[int]:
    if type(size) is not int:
        raise EvaluationError("no such overload")
    if size > COST_LIMIT:
        raise CostLimitError
    return list(range(size))


def _insert(entries: Any, *added: Any) -> Any:
    """Add an entry, or those of another map, to the accumulator of ``transformMap``, which nothing else refers to."""
    new = added[0] if len(added) == 1 else {_key(added[0]): added[1]}
    for key, value in new.items():
        if key in entries:
            raise EvaluationError(f"insert failed: key {key} already exists")
        entries[key] = value
    return entries


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "!_": _not,
    "-_": _negate,
    "@in": _is_member,
    "_!=_": _is_different,
    "_%_": _modulus,
    "_*_": _arithmetic(operator.mul),
    "_+_": _add,
    "_-_": _subtract,
    "_/_": _arithmetic(_divide),
    "_<=_": _ordering(operator.le),
    "_<_": _ordering(operator.lt),
    "_==_": _is_equal,
    "_>=_": _ordering(operator.ge),
    "_>_": _ordering(operator.gt),
    "_[_]": _item,
    "cel.@mapInsert": _insert,
    "contains": _text_test(operator.contains),
    "double": _to_double,
    "dyn": lambda value: value,
    "endsWith": _text_test(str.endswith),
    "int": _to_int,
    "lists.range": _range,
    "size": _count,
    "startsWith": _text_test(str.startswith),
    "string": _to_string,
}
"""The functions of the language, except those whose arguments are not all evaluated."""
