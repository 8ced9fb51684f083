"""Field paths, and the differences of two objects.

A diff is computed in one pass over both objects. It has at most 1,000 items and looks at most 32 levels deep: what is
deeper, or in excess, is reported as a change of the enclosing field.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

FieldPath: TypeAlias = tuple[str, ...]
FieldSpec: TypeAlias = str | Iterable[str] | None

_MAX_ITEMS: Final = 1000
_MAX_DEPTH: Final = 32


def parse_field(field: FieldSpec) -> FieldPath:
    """Return the path for ``spec.field`` or for a sequence of names. Raises :class:`ValueError` for empty names."""
    if field is None:
        return ()
    path = tuple(field.split(".")) if isinstance(field, str) else tuple(field)
    if not all(path):
        raise ValueError(f"field {field!r}: must consist of names that are not empty")
    return path


def resolve(obj: Any, path: FieldPath, default: Any = None) -> Any:
    """Return the value of a field, or ``default`` if it or one of its parents is absent or not a mapping."""
    for name in path:
        if not isinstance(obj, Mapping) or name not in obj:
            return default
        obj = obj[name]
    return obj


def store(obj: MutableMapping[str, Any], path: FieldPath, value: Any) -> None:
    """Set a field, and create its parents. Raises :class:`TypeError` if a parent is not a mapping."""
    for name in path[:-1]:
        child = obj.setdefault(name, {})
        if not isinstance(child, MutableMapping):
            raise TypeError(f"field {'.'.join(path)}: {name} is not an object")
        obj = child
    obj[path[-1]] = value


def remove(obj: MutableMapping[str, Any], path: FieldPath) -> None:
    """Remove a field, and its parents that become empty; an absent field is ignored."""
    parents: list[MutableMapping[str, Any]] = []
    current: Any = obj
    for name in path:
        if not isinstance(current, MutableMapping) or name not in current:
            return
        parents.append(current)
        current = current[name]
    for parent, name in zip(reversed(parents), reversed(path), strict=True):
        del parent[name]
        if parent:
            break


class DiffOperation(enum.StrEnum):
    """What happened to a field."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"

    def __repr__(self) -> str:
        return repr(str(self))


class DiffItem(NamedTuple):
    """One changed field; ``old`` or ``new`` is ``None`` if the field was added or removed."""

    operation: DiffOperation
    field: FieldPath
    old: Any
    new: Any

    def __repr__(self) -> str:
        return repr(tuple(self))

    @property
    def op(self) -> DiffOperation:
        """The operation."""
        return self.operation


class Diff(tuple[DiffItem, ...]):
    """The changed fields of an object: equal to any sequence of equal tuples."""

    __slots__ = ()

    def __new__(cls, items: Iterable[tuple[Any, ...]] = ()) -> Self:
        """Return a diff of ``items``: operation, field, old and new value."""
        return super().__new__(cls, (DiffItem(*item) for item in items))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return super().__eq__(tuple(other))

    def __hash__(self) -> int:
        return hash(len(self))


def compute_diff(old: Any, new: Any) -> Diff:
    """Return the differences of two values. Lists are compared as a whole."""
    items: list[DiffItem] = []
    _compare(old, new, (), items)
    if len(items) > _MAX_ITEMS:
        del items[:]
        for name in sorted({*old, *new}):
            before = old.get(name)
            after = new.get(name)
            if before != after:
                items.append(_item((name,), before, after))
    return Diff(items)


def _compare(old: Any, new: Any, path: FieldPath, items: list[DiffItem]) -> None:
    if old is new or len(items) > _MAX_ITEMS:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping) and len(path) < _MAX_DEPTH:
        for name in new:
            _compare(old.get(name), new[name], (*path, name), items)
        for name in old:
            if name not in new:
                _compare(old[name], None, (*path, name), items)
    elif old != new:
        items.append(_item(path, old, new))


def _item(path: FieldPath, old: Any, new: Any) -> DiffItem:
    operation = DiffOperation.CHANGE
    if old is None:
        operation = DiffOperation.ADD
    elif new is None:
        operation = DiffOperation.REMOVE
    return DiffItem(operation, path, old, new)


def reduce_diff(diff: Iterable[DiffItem], path: FieldPath) -> Diff:
    """Return the part of a diff that concerns one field, with the paths relative to that field."""
    items: list[DiffItem] = []
    for item in diff:
        field = tuple(item.field)
        if field[: len(path)] == path:
            items.append(item._replace(field=field[len(path) :]))
        elif field == path[: len(field)]:
            rest = path[len(field) :]
            items += compute_diff(resolve(item.old, rest), resolve(item.new, rest))
    return Diff(items)
