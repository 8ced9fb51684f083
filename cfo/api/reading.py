"""Reads fields of objects whatever their type is, and makes bounded, printable text of them.

CRDs with ``x-kubernetes-preserve-unknown-fields`` and other clients allow any JSON where a status is expected, and
anyone can create Events. A terminal interprets control characters, and some Unicode characters reverse the text after
them; none of these is printable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

from cfo.runtime.objects import parse_time
from cfo.runtime.process import printable

MAX_TEXT: Final = 300
"""The maximum length of a text in characters."""
MAX_MESSAGE: Final = 1024
"""The maximum length of the message in a condition or an Event (as in the API server); its end can be a remedy."""
MAX_ITEMS: Final = 200
"""The maximum number of items of a list that are read."""
MAX_SPEC_VALUES: Final = 100_000
"""The maximum number of values in the spec of an object with pod templates, at all levels.

Small values take 20 times their JSON in memory, of which an object can have 1.5 MB."""

_CONTAINERS: Final = (dict, list)

MALFORMED: Final = (
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    ArithmeticError,
    RecursionError,
)
"""What functions raise that expect fields of the right type, if they are not."""


def mapping(value: object) -> Mapping[str, Any]:
    """Return ``value`` if it is an object; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def elements(value: object) -> list[Any]:
    """Return ``value`` if it is a list; otherwise an empty one."""
    return value if isinstance(value, list) else []


def items(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the objects among the first :data:`MAX_ITEMS` items of ``value``; nothing if it is not a list."""
    if not isinstance(value, list):
        return
    for item in islice(value, MAX_ITEMS):
        if isinstance(item, dict):
            yield item


def path(value: object, *fields: str) -> Any:
    """Return the value at ``fields``; ``None`` if one of them is missing."""
    for field in fields:
        value = mapping(value).get(field)
    return value


def text(value: object, limit: int = MAX_TEXT) -> str:
    """Return a string or number as one printable line of at most ``limit`` characters; empty for any other type."""
    match value:
        case str():
            given = value
        case bool():
            return ""
        case int():
            given = _integer(value)
        case float():
            given = f"{value:.15g}"
        case _:
            return ""
    one_line = " ".join(given[: 4 * limit].split())
    return printable(one_line, limit)


def _integer(value: int) -> str:
    # Formatting takes time that is quadratic in the number of digits.
    return str(value) if abs(value) < 2**64 else ""


def number(value: object) -> int:
    """Return a number that is not negative, as an integer; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 2**63 else 0


def time_of(value: object) -> datetime | None:
    """Return the time of an RFC 3339 string; ``None`` if it is not one."""
    try:
        return parse_time(value)
    except ValueError:
        return None


def milliseconds(time: str | datetime | None) -> int:
    """Return a time (also as RFC 3339) in milliseconds since 1970; 0 if there is none."""
    known = time_of(time) if isinstance(time, str) else time
    return int(known.timestamp() * 1000) if known is not None else 0


def has_more_values_than(limit: int, obj: Mapping[str, Any]) -> bool:
    """Return whether ``obj`` has more than ``limit`` values, at all levels; stops counting above ``limit``."""
    count = 0
    pending: list[Any] = [obj]
    while pending:
        value = pending.pop()
        count += len(value)
        if count > limit:
            return True
        inner_values = value if isinstance(value, list) else value.values()
        for inner in inner_values:
            if isinstance(inner, _CONTAINERS):
                pending.append(inner)  # noqa: PERF401 (measured: a comprehension takes longer for short lists)
    return False
