"""Filters: which objects and changes a handler is for."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias


class Token(enum.Enum):
    """Filters by the presence of a label, an annotation or a field."""

    PRESENT = enum.auto()
    ABSENT = enum.auto()


PRESENT: Final = Token.PRESENT
ABSENT: Final = Token.ABSENT

MetaFilter: TypeAlias = Mapping[str, str | Token | Callable[..., bool]]
"""For each label or annotation a string, :data:`PRESENT`, :data:`ABSENT`, or a function of the value and the kwargs."""

Kwargs: TypeAlias = Callable[[], Mapping[str, Any]]

MISSING: Final = object()


def not_(function: Callable[..., bool]) -> Callable[..., bool]:
    """Return a filter that is true if ``function`` is false."""
    return lambda *args, **kwargs: not function(*args, **kwargs)


def all_(functions: Collection[Callable[..., bool]]) -> Callable[..., bool]:
    """Return a filter that is true if all functions are true."""

    def accept(*args: Any, **kwargs: Any) -> bool:
        return all(function(*args, **kwargs) for function in functions)

    return accept


def any_(functions: Collection[Callable[..., bool]]) -> Callable[..., bool]:
    """Return a filter that is true if any function is true."""

    def accept(*args: Any, **kwargs: Any) -> bool:
        return any(function(*args, **kwargs) for function in functions)

    return accept


def none_(functions: Collection[Callable[..., bool]]) -> Callable[..., bool]:
    """Return a filter that is true if no function is true."""
    return not_(any_(functions))


def accepts(wanted: Any, value: Any, kwargs: Kwargs) -> bool:
    """Return whether a filter accepts a value, which is :data:`MISSING` if there is none."""
    if wanted is PRESENT:
        return value is not MISSING
    if wanted is ABSENT:
        return value is MISSING
    if callable(wanted):
        given = None if value is MISSING else value
        return bool(wanted(given, **kwargs()))
    return bool(wanted == value)
