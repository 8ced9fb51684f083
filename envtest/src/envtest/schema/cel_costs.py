"""The costs of CEL functions when an expression is evaluated, in cel-go's units.

They follow ``interpreter/runtimecost.go`` of cel-go and ``cel/library/cost.go`` of Kubernetes: most calls cost 1, and
those that read a string or compare lists cost a part of their sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

__all__ = ["NEW_LIST", "NEW_MAP", "call_cost", "is_free"]

Cost: TypeAlias = Callable[[Sequence[Any], Any], int]
"""Returns the cost of a call from its arguments (a method's object is the first) and its result."""

NEW_LIST: Final = 10
NEW_MAP: Final = 30
_TRAVERSAL: Final = 0.1
"""The cost of reading a character."""

_PATTERN: Final = 0.25
"""The cost of a regular expression's character, for each unit of the string that it is applied to."""

_NAME_FORMAT_PATTERN: Final = 128
_AUTHORIZATION_CHECK: Final = 350_000
_MAX_NETWORK_BYTES: Final = 16
_OPAQUE: Final = frozenset({"cidr", "ip", "quantity", "semver", "url"})
"""The only key of a map that represents a value of such a type."""


def _traversal(size: int, factor: float = _TRAVERSAL) -> int:
    return math.ceil(size * factor)


def _size(value: Any) -> int:
    """Return the number of characters, items or entries of a value; 1 for other values."""
    return len(value) if isinstance(value, (str, bytes, list, dict)) else 1


def _one(args: Sequence[Any], result: Any) -> int:
    return 1


def _read_first(args: Sequence[Any], result: Any) -> int:
    return _traversal(_size(args[0]))


def _read_twice(args: Sequence[Any], result: Any) -> int:
    return _traversal(_size(args[0]), 2 * _TRAVERSAL)


def _equality(args: Sequence[Any], result: Any) -> int:
    first = args[0]
    if isinstance(first, dict) and len(first) == 1 and _OPAQUE.issuperset(first):
        return 1
    return _traversal(min(_size(first), _size(args[1])))


def _ordering(args: Sequence[Any], result: Any) -> int:
    if isinstance(args[0], (str, bytes)):
        return _traversal(min(_size(args[0]), _size(args[1])))
    return 1


def _addition(args: Sequence[Any], result: Any) -> int:
    return _traversal(len(result)) if isinstance(result, (str, bytes)) else 1


def _membership(args: Sequence[Any], result: Any) -> int:
    return len(args[1]) if isinstance(args[1], list) else 1


def _pattern(args: Sequence[Any], result: Any) -> int:
    return _traversal(1 + _size(args[0])) * math.ceil(_size(args[1]) * _PATTERN)


def _containment(args: Sequence[Any], result: Any) -> int:
    return _traversal(_size(args[0])) * _traversal(_size(args[1]))


def _conversion(args: Sequence[Any], result: Any) -> int:
    """Return the cost of ``string`` and ``bytes``, which read what they convert to each other."""
    converts = isinstance(args[0], (str, bytes)) and type(args[0]) is not type(result)
    return _read_first(args, result) if converts else 1


def _nested(args: Sequence[Any], result: Any) -> int:
    """Return the cost of reading everything in a value."""
    cost = 0
    todo = [args[0]]
    while todo:
        value = todo.pop()
        if isinstance(value, (str, bytes)):
            cost += int(len(value) * _TRAVERSAL)
        elif isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            todo += value
            todo += value.values()
        else:
            cost += 1
    return cost


def _joining(args: Sequence[Any], result: Any) -> int:
    return _traversal(len(result), 2 * _TRAVERSAL)


def _sets(args: Sequence[Any], result: Any) -> int:
    return 1 + _size(args[0]) * _size(args[1])


def _equivalence(args: Sequence[Any], result: Any) -> int:
    return 1 + 2 * _size(args[0]) * _size(args[1])


def _network_address(args: Sequence[Any], result: Any) -> int:
    """Return the cost of ``ip``, which parses a string or reads the address of a network."""
    return _read_first(args, result) if isinstance(args[0], str) else 1


def _network(args: Sequence[Any], result: Any) -> int:
    cost = _traversal(2 * _MAX_NETWORK_BYTES)
    return cost + _traversal(len(args[1])) if isinstance(args[1], str) else cost


def _wider_network(args: Sequence[Any], result: Any) -> int:
    return _network(args, result) + _traversal(_MAX_NETWORK_BYTES) + 1


def _named_format(args: Sequence[Any], result: Any) -> int:
    return _traversal(1 + _size(args[-1])) * math.ceil(_NAME_FORMAT_PATTERN * _PATTERN)


def _authorization(args: Sequence[Any], result: Any) -> int:
    return _AUTHORIZATION_CHECK


def _range(args: Sequence[Any], result: Any) -> int:
    return 11 + len(result)


_FREE: Final = frozenset({"_&&_", "_||_", "_?_:_"})
_COSTS: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(("_==_", "_!=_"), _equality),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _ordering),
    **dict.fromkeys(("startsWith", "endsWith", "format", "strings.quote"), _read_first),
    **dict.fromkeys(
        ("cidr", "isCIDR", "isIP", "isQuantity", "isSemver", "quantity", "semver"), _read_first
    ),
    **dict.fromkeys(
        ("jsonpatch.escapeKey", "lowerAscii", "substring", "trim", "upperAscii", "url"),
        _read_first,
    ),
    **dict.fromkeys(("ip.isCanonical", "replace", "split"), _read_twice),
    **dict.fromkeys(("find", "findAll", "matches"), _pattern),
    **dict.fromkeys(("indexOf", "isSorted", "lastIndexOf", "max", "min", "sum"), _nested),
    **dict.fromkeys(("sets.contains", "sets.intersects"), _sets),
    **dict.fromkeys(("string", "bytes"), _conversion),
    "@in": _membership,
    "_+_": _addition,
    "check": _authorization,
    "contains": _containment,
    "containsCIDR": _wider_network,
    "containsIP": _network,
    "ip": _network_address,
    "join": _joining,
    "lists.range": _range,
    "sets.equivalent": _equivalence,
    "validate": _named_format,
}
"""The functions whose cost is not always 1."""


def is_free(function: str) -> bool:
    """Report whether a function costs nothing itself."""
    return function in _FREE


def call_cost(function: str) -> Cost:
    """Return the cost of the calls of a function."""
    return _COSTS.get(function, _one)
