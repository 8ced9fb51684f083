"""Closures for the parts of an expression that are not loops: calls, and operators whose operands may not run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from envtest.schema.cel_frame import CostLimitError, EvaluationError, Frame, Node
from envtest.schema.cel_optionals import Optional

__all__ = [
    "comparison",
    "conditional",
    "constant",
    "discounted",
    "invocation",
    "junction",
    "presence",
]


_SCALARS: Final = (bool, int, float, str, bytes)


def constant(value: Any) -> Node:
    """Return a constant."""
    return lambda frame: value


def presence(operand: Node, name: str) -> Node:
    """Return ``has(x.name)``, which is false for null and scalars, as in cel-go: ``oldObject`` is null on a create."""

    def node(frame: Frame) -> Any:
        value = operand(frame)
        if isinstance(value, Optional):
            value = value.value
        if isinstance(value, dict):
            return name in value
        if value is None or isinstance(value, _SCALARS):
            return False
        raise EvaluationError("no such overload")

    return node


def junction(operands: Sequence[Node], *, decisive: bool) -> Node:
    """Return ``||`` or ``&&``: an operand with the value ``decisive`` decides, regardless of errors in the others."""

    def node(frame: Frame) -> Any:
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


def conditional(condition: Node, first: Node, second: Node) -> Node:
    """Return ``condition ? first : second``."""

    def node(frame: Frame) -> Any:
        value = condition(frame)
        if value is True:
            return first(frame)
        if value is False:
            return second(frame)
        raise EvaluationError("no such overload")

    return node


def discounted(node: Node) -> Node:
    """Return a part that costs one unit less."""

    def discounted(frame: Frame) -> Any:
        frame.cost -= 1
        return node(frame)

    return discounted


def invocation(
    function: Callable[..., Any],
    args: Sequence[Node],
    cost: Callable[[Sequence[Any], Any], int],
) -> Node:
    """Return a call; errors of Python mean that the function does not accept the values."""

    def node(frame: Frame) -> Any:
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


def comparison(
    compare: Callable[[Any, Any], bool],
    first: Node,
    second: Node,
    function: Callable[..., Any],
    cost: Callable[[Sequence[Any], Any], int],
) -> Node:
    """Return a comparison: of integers, which loops often compare, without further calls."""

    def node(frame: Frame) -> Any:
        left = first(frame)
        right = second(frame)
        if type(left) is int and type(right) is int:
            frame.cost += 1
            return compare(left, right)
        return other(frame, left, right)

    def other(frame: Frame, left: Any, right: Any) -> Any:
        result = function(left, right)
        frame.charge(cost((left, right), result))
        return result

    return node
