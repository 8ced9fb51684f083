"""How much a checked CEL expression evaluates, which limits the expressions whose costs are not counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Workload", "direct_parts", "is_binding", "workload"]


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
            todo += [(part, depth) for part in direct_parts(expression)]
    return Workload(parts, deepest)


def direct_parts(expression: Any) -> Iterator[Any]:
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
