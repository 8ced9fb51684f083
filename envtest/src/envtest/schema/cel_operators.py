"""The functions and operators of CEL, on values of JSON; bytes, times and durations.

They raise :class:`EvaluationError`, or an exception of Python, for values that they do not accept.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from envtest.schema.cel_frame import CostLimitError, EvaluationError
from envtest.schema.cel_lists import UnorderedList
from envtest.schema.cel_macros import COST_LIMIT
from envtest.schema.cel_optionals import NONE, Optional

__all__ = ["COMPARISONS", "FUNCTIONS", "found", "key_of", "text_test", "times"]

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


def key_of(value: Any) -> Any:
    """Return the key of a map that a value is. Raises EvaluationError."""
    if not isinstance(value, (str, int)):
        raise EvaluationError("unsupported key type")
    if isinstance(value, bool):
        # Python's maps do not distinguish true from 1.
        raise EvaluationError("unsupported key type")
    return value


def _is_equal(first: Any, second: Any) -> bool:
    kind = type(first)
    if isinstance(first, list) and isinstance(second, list):
        if isinstance(first, UnorderedList):
            return first.equals(second, _is_equal)
        return len(first) == len(second) and all(map(_is_equal, first, second))
    if kind is not type(second):
        numbers = {kind, type(second)}
        return numbers == {int, float} and bool(first == second)
    if kind is dict:
        return first.keys() == second.keys() and all(
            _is_equal(value, second[key]) for key, value in first.items()
        )
    if kind is Optional:
        return first.has_value == second.has_value and _is_equal(first.value, second.value)
    return bool(first == second)


def _is_different(first: Any, second: Any) -> bool:
    return not _is_equal(first, second)


COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
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


def times() -> Any:
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
        if kind in (str, float, bytes):
            return first + second
    if isinstance(first, list) and isinstance(second, list):
        return first.merged(second) if isinstance(first, UnorderedList) else [*first, *second]
    return times().add(first, second)


def _subtract(first: Any, second: Any) -> Any:
    kind = type(first)
    if kind is type(second):
        if kind is int:
            return _integer(first - second)
        if kind is float:
            return first - second
    return times().subtract(first, second)


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
        return key_of(value) in values
    raise EvaluationError("no such overload")


def _item(values: Any, key: Any) -> Any:
    if isinstance(values, list):
        if type(key) is not int:
            raise EvaluationError("no such overload")
        if not 0 <= key < len(values):
            raise EvaluationError(f"index out of bounds: {key}")
        return values[key]
    if isinstance(values, Optional):
        return found(values, key)
    if not isinstance(values, dict):
        raise EvaluationError("no such overload")
    try:
        return values[key_of(key)]
    except KeyError:
        raise EvaluationError(f"no such key: {key}") from None


def found(values: Any, key: Any) -> Optional:
    """Return the field or item of a value, which can be optional; null and scalars have none, as in cel-go."""
    if isinstance(values, Optional):
        return found(values.value, key) if values.has_value else NONE
    if isinstance(values, dict):
        name = key_of(key)
        return Optional(True, values[name]) if name in values else NONE
    if isinstance(values, list):
        if type(key) is not int:
            raise EvaluationError("no such overload")
        return Optional(True, values[key]) if 0 <= key < len(values) else NONE
    return NONE


def _count(value: Any) -> int:
    if not isinstance(value, (str, bytes, list, dict)):
        raise EvaluationError("no such overload")
    return len(value)


def text_test(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    """Return a function that tests two strings, and does not accept other values."""

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
    text: str = times().to_text(value)
    return text


def _to_int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        return _integer(int(value))
    number: int = times().to_int(value)
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
    new = added[0] if len(added) == 1 else {key_of(added[0]): added[1]}
    for key, value in new.items():
        if key in entries:
            raise EvaluationError(f"insert failed: key {key} already exists")
        entries[key] = value
    return entries


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
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
    "_?._": found,
    "_[?_]": found,
    "_[_]": _item,
    "cel.@mapInsert": _insert,
    "contains": text_test(operator.contains),
    "double": _to_double,
    "dyn": lambda value: value,
    "endsWith": text_test(str.endswith),
    "int": _to_int,
    "lists.range": _range,
    "size": _count,
    "startsWith": text_test(str.startswith),
    "string": _to_string,
}
"""The functions of the language, except those whose arguments are not all evaluated."""
