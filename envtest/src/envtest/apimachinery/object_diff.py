"""The difference between two versions of an object, one line for each field that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from envtest.apimachinery.objects import Object

__all__ = ["object_diff"]

MAX_LINES: Final = 50
MAX_VALUE: Final = 120
"""Maximum characters of a value in a line."""
_MAX_DEPTH: Final = 20
_IGNORED: Final = frozenset({"metadata.managedFields", "metadata.resourceVersion"})
_IGNORED_IF_NEW: Final = frozenset(
    {"apiVersion", "kind", "metadata.creationTimestamp", "metadata.uid", "metadata.name"}
)
_SECRET_FIELDS: Final = ("data", "stringData")
_ABSENT: Final = object()


def object_diff(before: Object | None, after: Object | None) -> list[str]:
    """Return the lines: ``+ field: value``, ``- field: value`` or ``~ field: old -> new``.

    ``None`` means that the object did not exist or was deleted. The values of Secrets are not shown. Long values, and
    more than :data:`MAX_LINES` lines, are cut.
    """
    obj = after or before or {}
    hidden = _SECRET_FIELDS if obj.get("kind") == "Secret" else ()
    ignored = _IGNORED if before and after else _IGNORED | _IGNORED_IF_NEW
    lines: list[str] = []
    for path, old, new in _changes("", before or {}, after or {}, 0, ignored):
        if len(lines) == MAX_LINES:
            lines.append("... more fields")
            break
        secret = path.split(".", 1)[0] in hidden or (
            bool(hidden) and path.startswith("metadata.annotations")
        )
        lines.append(_line(path, old, new, secret=secret))
    return lines


def _changes(
    path: str, old: Any, new: Any, depth: int, ignored: frozenset[str]
) -> Iterator[tuple[str, Any, Any]]:
    if old == new or path in ignored:
        return
    old_items = _items(old)
    new_items = _items(new)
    mixed = type(old) is not type(new) and _ABSENT not in (old, new)
    if (
        depth >= _MAX_DEPTH
        or mixed
        or not (old_items or new_items)
        or None in (old_items, new_items)
    ):
        yield path, old, new
        return
    assert old_items is not None
    assert new_items is not None
    for key in {**old_items, **new_items}:
        inner = f"{path}.{key}" if path else str(key)
        if isinstance(key, int):
            inner = f"{path}[{key}]"
        yield from _changes(
            inner, old_items.get(key, _ABSENT), new_items.get(key, _ABSENT), depth + 1, ignored
        )


def _items(value: Any) -> Mapping[Any, Any] | None:
    """Return the children of a value by key or index; ``None`` if it cannot have any."""
    if value is _ABSENT:
        return {}
    if isinstance(value, dict):
        return value
    return dict(enumerate(value)) if isinstance(value, list) else None


def _line(path: str, old: Any, new: Any, *, secret: bool) -> str:
    if old is _ABSENT:
        return f"+ {path}: {_shown(new, secret=secret)}"
    if new is _ABSENT:
        return f"- {path}: {_shown(old, secret=secret)}"
    return f"~ {path}: {_shown(old, secret=secret)} -> {_shown(new, secret=secret)}"


def _shown(value: Any, *, secret: bool) -> str:
    if secret:
        return "(hidden)"
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # nested more deeply than orjson encodes
        return "(deeply nested)"
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
