"""The loops of CEL's macros (``all``, ``exists``, ``map``, ``filter`` and others), as closures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from envtest.schema.cel_costs import NEW_LIST
from envtest.schema.cel_frame import CostLimitError, EvaluationError, Frame, Node

__all__ = [
    "Body",
    "appended_list",
    "collected",
    "folded",
    "iteration",
    "junction_operand",
    "quantified",
]

Body: TypeAlias = Callable[[Frame, Iterator[None]], Any]
"""Runs a loop; the iterator sets the variables of the loop to the next item."""


def iteration(items: Node, names: Sequence[str], accumulator: str, body: Body) -> Node:
    """Return a loop over the items of a list or the entries of a map."""
    scoped = (*names, accumulator)

    def node(frame: Frame) -> Any:
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
    frame: Frame, values: list[Any] | dict[Any, Any], names: Sequence[str]
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


def quantified(predicate: Node, *, decisive: bool) -> Body:
    """Return ``all`` (``decisive`` is false) or ``exists``, in which an item decides regardless of others' errors."""
    condition_cost = 3 if decisive else 2

    def body(frame: Frame, steps: Iterator[None]) -> Any:
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


def collected(condition: Node | None, element: Node) -> Body:
    """Return ``map`` or ``filter``: a list with an element for each item that fulfills the condition."""

    def body(frame: Frame, steps: Iterator[None]) -> Any:
        found: list[Any] = []
        for _ in steps:
            if condition is not None:
                selected = condition(frame)
                if selected is False:
                    continue
                if selected is not True:
                    raise EvaluationError("no such overload")
            found.append(element(frame))
            frame.cost += 2 + NEW_LIST
        frame.cost += 1
        return found

    return body


def folded(name: str, initial: Node, condition: Node, step: Node, result: Node) -> Body:
    """Return a loop of no known form: each step returns the next value of the accumulator."""

    def body(frame: Frame, steps: Iterator[None]) -> Any:
        variables = frame.variables
        variables[name] = initial(frame)
        for _ in steps:
            if condition(frame) is not True:
                break
            variables[name] = step(frame)
        return result(frame)

    return body


def junction_operand(loop: Any) -> tuple[bool, Any] | None:
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


def appended_list(loop: Any) -> tuple[Any, Any] | None:
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
