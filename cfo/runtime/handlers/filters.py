"""Filters: which objects and changes a handler is for."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

from cfo.runtime.handlers.diffs import FieldPath, resolve


class Token(enum.Enum):
    """Filters by the presence of a label, an annotation or a field."""

    PRESENT = enum.auto()
    ABSENT = enum.auto()


PRESENT: Final = Token.PRESENT
ABSENT: Final = Token.ABSENT

MetaFilter: TypeAlias = Mapping[str, Any]
"""For each label or annotation a string, :data:`PRESENT`, :data:`ABSENT`, or a function of the value and the kwargs."""

Kwargs: TypeAlias = Callable[[], Mapping[str, Any]]

_MISSING: Final = object()


def not_(function: Callable[..., Any]) -> Callable[..., bool]:
    """Return a filter that is true if ``function`` is false."""
    return lambda *args, **kwargs: not function(*args, **kwargs)


def all_(functions: Collection[Callable[..., Any]]) -> Callable[..., bool]:
    """Return a filter that is true if all functions are true."""
    return lambda *args, **kwargs: all(function(*args, **kwargs) for function in functions)


def any_(functions: Collection[Callable[..., Any]]) -> Callable[..., bool]:
    """Return a filter that is true if any function is true."""
    return lambda *args, **kwargs: any(function(*args, **kwargs) for function in functions)


def none_(functions: Collection[Callable[..., Any]]) -> Callable[..., bool]:
    """Return a filter that is true if no function is true."""
    return not_(any_(functions))


def matches_metadata(wanted: MetaFilter | None, actual: Mapping[str, str], kwargs: Kwargs) -> bool:
    """Return whether labels or annotations match."""
    return all(_matches(value, actual.get(key, _MISSING), kwargs) for key, value in (wanted or {}).items())


def matches_value(path: FieldPath, wanted: Any, states: Collection[Any], kwargs: Kwargs) -> bool:
    """Return whether the field ``path`` of at least one of ``states`` matches; ``None`` matches if it is present."""
    values = [resolve(state, path, _MISSING) for state in states]
    return any(_matches(PRESENT if wanted is None else wanted, value, kwargs) for value in values)


def matches_changes(path: FieldPath, old: Any, new: Any, states: tuple[Any, Any], kwargs: Kwargs) -> bool:
    """Return whether the former and the current value of a field match ``old`` and ``new`` (``None``: any value)."""
    return all(
        wanted is None or _matches(wanted, resolve(state, path, _MISSING), kwargs)
        for wanted, state in zip((old, new), states, strict=True)
    )


def is_changed(path: FieldPath, states: tuple[Any, Any]) -> bool:
    """Return whether the two states of an object differ in a field."""
    old, new = (resolve(state, path, _MISSING) for state in states)
    return bool(old != new)


def _matches(wanted: Any, value: Any, kwargs: Kwargs) -> bool:
    if wanted is PRESENT:
        return value is not _MISSING
    if wanted is ABSENT:
        return value is _MISSING
    if callable(wanted):
        return bool(wanted(None if value is _MISSING else value, **kwargs()))
    return bool(wanted == value)
