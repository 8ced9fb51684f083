"""Evaluates checked CEL expressions, and counts the cost of what it evaluates in cel-go's units.

The CEL library stops after 10,000 iterations of loops and does not count costs. :func:`prepare_evaluator` turns the
checked expression into closures. It returns ``None`` if the expression has a part that is not implemented here (uint,
types, some functions of the list library); the library evaluates such an expression.

The message of an evaluation that fails is rough: the library evaluates the expression again to find the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from envtest.schema.cel_costs import NEW_LIST, NEW_MAP, call_cost
from envtest.schema.cel_frame import ConversionError, EvaluationError, Frame, Node
from envtest.schema.cel_loops import (
    Body,
    appended_list,
    collected,
    folded,
    iteration,
    junction_operand,
    quantified,
)
from envtest.schema.cel_nodes import (
    comparison,
    conditional,
    constant,
    discounted,
    invocation,
    junction,
    presence,
)
from envtest.schema.cel_operators import COMPARISONS, FUNCTIONS, found, key_of, text_test, times
from envtest.schema.cel_optionals import FUNCTIONS as OPTIONAL_FUNCTIONS
from envtest.schema.cel_optionals import (
    SOURCES,
    Optional,
    alternative,
    has_optional,
    optional_of,
)
from envtest.schema.cel_workload import is_binding

__all__ = [
    "OPTIONAL_RESULT",
    "Evaluator",
    "Implementation",
    "Implementations",
    "Outcome",
    "prepare_evaluator",
]


class Implementation(NamedTuple):
    """A function in Python, and the types of its arguments; ``None`` accepts any value."""

    function: Callable[..., Any]
    types: tuple[type | None, ...]


Implementations: TypeAlias = Mapping[str, Implementation]
"""Functions by the names of their overloads."""


OPTIONAL_RESULT: Final = "a result with an optional value is not supported by envtest"


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
    """An expression that can be evaluated; ``uses_optionals`` is whether it has optional values."""

    root: Node
    uses_optionals: bool

    def evaluate(self, variables: Mapping[str, Any], limit: int) -> Outcome:
        """Return the outcome of the expression. Raises :class:`CostLimitError` if it costs more than ``limit``."""
        frame = Frame(dict(variables), limit)
        try:
            value = self.root(frame)
        except EvaluationError as failure:
            frame.charge(0)
            is_exact = isinstance(failure, ConversionError)
            return Outcome(None, frame.cost, str(failure) or "evaluation failed", is_exact)
        frame.charge(0)
        if self.uses_optionals and has_optional(value):
            return Outcome(None, frame.cost, OPTIONAL_RESULT, True)
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
        root = compiler.compile(checked.expr)
    except _UnsupportedError:
        return None
    return Evaluator(root, compiler.uses_optionals)


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
        self.uses_optionals = False
        self._functions = {
            **FUNCTIONS,
            **OPTIONAL_FUNCTIONS,
            **times().FUNCTIONS,
            "matches": text_test(matches),
        }

    def compile(self, expression: Any) -> Node:
        """Return the closure of a part of the expression. Raises _UnsupportedError."""
        if expression.HasField("call"):
            return self._call(expression)
        if expression.HasField("identifier"):
            return self._identifier(expression.identifier.name)
        if expression.HasField("select"):
            return self._select(expression.select)
        if expression.HasField("constant"):
            return constant(_constant_value(expression.constant))
        if expression.HasField("loop"):
            return self._loop(expression.loop)
        if expression.HasField("list"):
            return self._list(expression.list)
        if expression.HasField("struct"):
            return self._map(expression.struct)
        raise _UnsupportedError

    def _identifier(self, name: str) -> Node:
        if name not in self._names:
            raise _UnsupportedError

        def node(frame: Frame) -> Any:
            frame.cost += 1
            return frame.variables[name]

        return node

    def _select(self, select: Any) -> Node:
        operand = self.compile(select.operand)
        name = select.field
        if select.is_test:
            return presence(operand, name)

        def node(frame: Frame) -> Any:
            value = operand(frame)
            frame.cost += 1
            try:
                return value[name]
            except KeyError:
                raise EvaluationError(f"no such key: {name}") from None
            except TypeError:
                if isinstance(value, Optional):
                    return found(value, name)
                raise EvaluationError("no such overload") from None

        return node

    def _list(self, content: Any) -> Node:
        elements = [self.compile(element) for element in content.elements]
        if content.optional:
            return self._optional_list(elements, frozenset(content.optional))
        is_constant = all(_is_constant(element) for element in content.elements)
        cost = 0 if is_constant else NEW_LIST

        def node(frame: Frame) -> Any:
            frame.cost += cost
            return [element(frame) for element in elements]

        return node

    @staticmethod
    def _optional_list(elements: Sequence[Node], optional: frozenset[int]) -> Node:
        def node(frame: Frame) -> Any:
            frame.cost += NEW_LIST
            created = []
            for position, element in enumerate(elements):
                value = element(frame)
                if position not in optional:
                    created.append(value)
                elif optional_of(value).has_value:
                    created.append(value.value)
            return created

        return node

    def _map(self, content: Any) -> Node:
        if content.message_name:
            raise _UnsupportedError
        entries = [
            (self.compile(entry.map_key), self.compile(entry.value), entry.optional)
            for entry in content.entries
        ]
        is_constant = all(
            _is_constant(entry.map_key) and _is_constant(entry.value) for entry in content.entries
        )
        cost = 0 if is_constant else NEW_MAP

        def node(frame: Frame) -> Any:
            frame.cost += cost
            created: dict[Any, Any] = {}
            for key, node, is_optional in entries:
                name = key_of(key(frame))
                if name in created:
                    raise EvaluationError("duplicate key in map")
                value = node(frame)
                if not is_optional:
                    created[name] = value
                elif optional_of(value).has_value:
                    created[name] = value.value
            return created

        return node

    # Calls

    def _call(self, expression: Any) -> Node:
        call = expression.call
        parts = list(call.args)
        if call.HasField("target"):
            parts.insert(0, call.target)
        args = [self.compile(part) for part in parts]
        if call.function in SOURCES:
            self.uses_optionals = True
        match call.function:
            case "_&&_":
                return junction(args, decisive=False)
            case "_||_":
                return junction(args, decisive=True)
            case "or":
                return alternative(*args, unwraps=False)
            case "orValue":
                return alternative(*args, unwraps=True)
            case "_[_]" if _is_attribute(parts[1]):
                # cel-go does not count the variable of an index that is an attribute.
                args[1] = discounted(args[1])
            case "_?_:_":
                # cel-go does not count the variable of a result that is an attribute.
                results = [
                    discounted(arg) if _is_attribute(part) else arg
                    for part, arg in zip(parts[1:], args[1:], strict=True)
                ]
                return conditional(args[0], *results)
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
        compare = COMPARISONS.get(call.function)
        if compare is not None:
            first, second = args
            return comparison(compare, first, second, function, call_cost(call.function))
        return invocation(function, args, call_cost(call.function))

    # Loops

    def _loop(self, loop: Any) -> Node:
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
        return iteration(items, names, loop.accumulator, body)

    def _binding(self, loop: Any) -> Node:
        initial = self.compile(loop.initial)
        outer = self._names
        name = loop.accumulator
        self._names = outer | {name}
        try:
            result = self.compile(loop.result)
        finally:
            self._names = outer

        def node(frame: Frame) -> Any:
            value = initial(frame)
            before = frame.variables.get(name)
            frame.variables[name] = value
            try:
                return result(frame)
            finally:
                frame.variables[name] = before

        return node

    def _body(self, loop: Any) -> Body:
        """Return what runs for the items of a range; the macros have forms of their own."""
        junction = junction_operand(loop)
        if junction is not None:
            decisive, operand = junction
            return quantified(self.compile(operand), decisive=decisive)
        appended = appended_list(loop)
        if appended is not None:
            condition, element = appended
            return collected(
                None if condition is None else self.compile(condition), self.compile(element)
            )
        return folded(
            loop.accumulator,
            self.compile(loop.initial),
            self.compile(loop.condition),
            self.compile(loop.step),
            self.compile(loop.result),
        )


def _constant_value(constant: Any) -> Any:
    for field in ("boolean", "integer", "text", "double", "binary"):
        if constant.HasField(field):
            return getattr(constant, field)
    if constant.HasField("null"):
        return None
    raise _UnsupportedError


def _is_constant(expression: Any) -> bool:
    return bool(expression.HasField("constant"))


def _is_attribute(expression: Any) -> bool:
    """Report whether an expression is a variable, or a field or item of one."""
    while True:
        if expression.HasField("select") and not expression.select.is_test:
            expression = expression.select.operand
        elif expression.call.function == "_[_]":
            expression = expression.call.args[0]
        else:
            return bool(expression.HasField("identifier"))


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
    return len(types) == len(values) and all(map(_has_type, types, values))


def _has_type(kind: type | None, value: Any) -> bool:
    """Report whether a value has a type; a boolean is not an integer, but a list or map can have its own class."""
    if kind is None or type(value) is kind:
        return True
    return kind in (list, dict) and isinstance(value, kind)
