"""Optional values of CEL: what ``.?field``, ``[?key]`` and ``optional.of`` return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from envtest.schema.cel_frame import EvaluationError, Frame, Node

__all__ = ["FUNCTIONS", "NONE", "SOURCES", "Optional", "alternative", "has_optional", "optional_of"]


@dataclass(frozen=True, slots=True)
class Optional:
    """A value, or none."""

    has_value: bool
    value: Any = None


NONE: Final = Optional(False)
SOURCES: Final = frozenset(
    {"_?._", "_[?_]", "optional.none", "optional.of", "optional.ofNonZeroValue"}
)
"""The functions that all optional values come from."""

_ZERO_TYPES: Final = (bool, int, float, str, bytes, list, dict)


def optional_of(value: Any) -> Optional:
    """Return a value that must be optional. Raises EvaluationError."""
    if not isinstance(value, Optional):
        raise EvaluationError("no such overload")
    return value


def has_optional(value: Any) -> bool:
    """Report whether a value is, or contains, an optional one."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, Optional):
            return True
        if isinstance(each, dict):
            todo += dict.values(each)
        elif isinstance(each, list):
            todo += list.copy(each)
    return False


def alternative(first: Node, second: Node, *, unwraps: bool) -> Node:
    """Return ``a.or(b)``, or with ``unwraps`` ``a.orValue(b)``: the second is evaluated only without the first."""

    def node(frame: Frame) -> Any:
        value = optional_of(first(frame))
        frame.charge(1)
        if not value.has_value:
            return second(frame) if unwraps else optional_of(second(frame))
        return value.value if unwraps else value

    return node


def _of(value: Any) -> Optional:
    return Optional(True, value)


def _of_non_zero(value: Any) -> Optional:
    if value is None:
        return NONE
    if not isinstance(value, _ZERO_TYPES):
        raise EvaluationError("no such overload")  # times: the library knows which are zero
    return _of(value) if value else NONE


def _none() -> Optional:
    return NONE


def _has_value(value: Any) -> bool:
    return optional_of(value).has_value


def _value(value: Any) -> Any:
    if not optional_of(value).has_value:
        raise EvaluationError("optional.none() dereference")
    return value.value


def _unwrap(values: Sequence[Any]) -> list[Any]:
    return [each.value for each in map(optional_of, values) if each.has_value]


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "hasValue": _has_value,
    "optional.none": _none,
    "optional.of": _of,
    "optional.ofNonZeroValue": _of_non_zero,
    "optional.unwrap": _unwrap,
    "unwrapOpt": _unwrap,
    "value": _value,
}
"""The functions of optional values, except those whose arguments are not all evaluated."""
