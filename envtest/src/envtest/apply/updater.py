"""Who owns what after an operation, over all managers of an object.

The rules are those of structured-merge-diff's ``merge`` package. An update takes what it changed from everybody else;
an apply owns exactly what it says, conflicts with whoever owns something that it would change, and removes what it
said last time, does not say now, and nobody else owns. Managers may have written in other versions of the kind: what
they own is compared in theirs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from envtest.apply.fieldset import FieldSet, Path
from envtest.apply.typed import (
    ABSENT,
    Comparison,
    TypeMismatch,
    compare,
    field_set,
    merge,
    name_fields,
    remove,
    same,
    validate,
)
from envtest.apply.types import ObjectType, Type

__all__ = ["Conflicts", "Convert", "Inconvertible", "ManagerId", "Managers", "Owned", "Unconverted", "Updater"]


class ManagerId(NamedTuple):
    """What tells managers apart. ``api_version`` is empty for appliers: they stay who they are in every version."""

    manager: str
    operation: str
    api_version: str = ""
    subresource: str = ""


class Owned(NamedTuple):
    """What a manager owns, in the version in which it said so."""

    fields: FieldSet
    api_version: str
    applied: bool


Managers: TypeAlias = dict[ManagerId, Owned]
Convert: TypeAlias = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
"""From an object and an ``apiVersion`` to the object in that version; raises Inconvertible or Unconverted."""


class Conflicts(Exception):
    """An apply would change what others own: the paths, by manager."""

    def __init__(self, by_manager: Mapping[ManagerId, list[Path]]) -> None:
        super().__init__("conflicts")
        self.by_manager = dict(by_manager)


class Inconvertible(Exception):
    """An object does not fit the schema of another version, in which a manager owns some of it."""


class Unconverted(Exception):
    """A conversion is needed that takes a while: await ``convert``, then try again."""

    def __init__(self, convert: Callable[[], Awaitable[None]]) -> None:
        super().__init__("a conversion has to be done first")
        self.convert = convert


class _Typed(NamedTuple):
    value: Any
    api_version: str


class Updater:
    """The rules, for one kind as seen through one endpoint.

    ``types`` gives the type of a version, ``None`` if it is not served any more: what its managers owned is forgotten.
    ``reset`` are the fields that the endpoint does not let through: nobody comes to own them there.
    """

    def __init__(
        self, types: Callable[[str], ObjectType | None], convert: Convert, reset: Mapping[str, FieldSet]
    ) -> None:
        self._types = types
        self._convert_object = convert
        self._reset = reset

    def update(self, live: Any, new: Any, api_version: str, managers: Managers, manager: ManagerId) -> Managers:
        """The owners after ``manager`` made ``new`` of ``live``; raises TypeMismatch and Inconvertible."""
        old, now = _Typed(live, api_version), _Typed(new, api_version)
        managers = self._follow_schema(old, managers)
        managers, change = self._take(old, now, managers, manager, force=True)
        before = managers[manager].fields if manager in managers else FieldSet()
        fields = self._let_through((before - change.removed) | change.modified | change.added, api_version)
        if fields:
            managers[manager] = Owned(fields, api_version, applied=False)
        else:
            managers.pop(manager, None)
        return managers

    def apply(
        self, live: Any, config: Any, api_version: str, managers: Managers, manager: ManagerId, *, force: bool
    ) -> tuple[Any, Managers]:
        """The object after ``config`` was applied to ``live``, ``ABSENT`` if nothing changed, and its owners.

        Raises Conflicts (unless ``force``), TypeMismatch and Inconvertible.
        """
        old = _Typed(live, api_version)
        managers = self._follow_schema(old, managers)
        root = self._root(api_version)
        merged = _Typed(merge(root, live, config), api_version)
        last = managers.get(manager)
        fields = self._let_through(field_set(root, config), api_version)
        managers[manager] = Owned(fields, api_version, applied=True)
        new = self._prune(merged, managers, manager, last)
        managers, _ = self._take(old, new, managers, manager, force=force)
        return ABSENT if same(live, new.value) else new.value, managers

    def _root(self, api_version: str) -> Type:
        kind = self._types(api_version)
        if kind is None:
            raise LookupError(api_version)
        return kind.root

    def _convert(self, typed: _Typed, api_version: str, what: str) -> _Typed | None:
        """``None`` where the version is not known. Raises Inconvertible, which says ``what`` failed."""
        if typed.api_version == api_version:
            return typed
        kind = self._types(api_version)
        if kind is None:
            return None
        try:
            value = self._convert_object(typed.value, api_version)
            validate(kind.root, value)
        except (TypeMismatch, Inconvertible) as error:
            raise Inconvertible(f"{what}: {error}" if what else str(error)) from error
        return _Typed(value, api_version)

    def _let_through(self, fields: FieldSet, api_version: str) -> FieldSet:
        reset = self._reset.get(api_version)
        return fields if reset is None else fields.without(reset)

    def _compare(self, old: _Typed, new: _Typed) -> Comparison:
        change = compare(self._root(old.api_version), old.value, new.value)
        return Comparison(*(self._let_through(part, old.api_version) for part in change))

    def _take(
        self, old: _Typed, new: _Typed, managers: Managers, manager: ManagerId, *, force: bool
    ) -> tuple[Managers, Comparison]:
        """Takes what changed from the others, or raises Conflicts."""
        change = self._compare(old, new)
        changes: dict[str, Comparison | None] = {old.api_version: change}
        conflicts: dict[ManagerId, FieldSet] = {}
        left: Managers = {}
        for other, owned in managers.items():
            if other == manager:
                left[other] = owned
                continue
            version = owned.api_version
            if version not in changes:
                one = self._convert(old, version, "failed to convert old object")
                two = self._convert(new, version, "failed to convert new object")
                changes[version] = None if one is None or two is None else self._compare(one, two)
            theirs = changes[version]
            if theirs is None:
                continue
            lost = owned.fields & (theirs.modified | theirs.added)
            if lost:
                conflicts[other] = lost
            left[other] = owned._replace(fields=owned.fields - lost - theirs.removed)
        if conflicts and not force:
            raise Conflicts({other: list(fields) for other, fields in conflicts.items()})
        return {other: owned for other, owned in left.items() if owned.fields}, change

    def _prune(self, merged: _Typed, managers: Managers, manager: ManagerId, last: Owned | None) -> _Typed:
        """Removes what only the last apply of ``manager`` said."""
        if last is None or not last.fields:
            return merged
        if last.api_version == merged.api_version and not last.fields - managers[manager].fields:
            return merged
        failed = "failed to prune fields: failed to convert {} object to last applied version"
        whole = self._convert(merged, last.api_version, failed.format("merged"))
        if whole is None:
            return merged
        root = self._root(last.api_version)
        pruned = _Typed(remove(root, whole.value, name_fields(root, last.fields)), last.api_version)
        pruned = self._add_back_owned(whole, pruned, managers)
        pruned = self._add_back_dangling(whole, pruned, last)
        return self._convert(pruned, merged.api_version, "failed to prune fields") or merged

    def _add_back_owned(self, merged: _Typed, pruned: _Typed, managers: Managers) -> _Typed:
        """Adds back what others own, or what the manager itself says now."""
        by_version: dict[str, FieldSet] = {pruned.api_version: FieldSet()}
        for owned in managers.values():
            by_version[owned.api_version] = by_version.get(owned.api_version, FieldSet()) | owned.fields
        for version, fields in by_version.items():
            failed = "failed to prune fields: failed add back owned items: failed to convert {} object at version "
            failed += version
            whole = self._convert(merged, version, failed.format("merged"))
            rest = self._convert(pruned, version, failed.format("pruned"))
            if whole is None or rest is None:
                continue
            root = self._root(version)
            kept = name_fields(root, field_set(root, rest.value)) | name_fields(root, fields)
            gone = name_fields(root, field_set(root, whole.value)) - kept
            merged, pruned = whole, _Typed(remove(root, whole.value, gone), version)
        return pruned

    def _add_back_dangling(self, merged: _Typed, pruned: _Typed, last: Owned) -> _Typed:
        """Adds back what nobody owns: only what the manager itself once applied goes."""
        failed = "failed to prune fields: failed add back dangling items: failed to convert pruned object"
        rest = self._convert(pruned, last.api_version, f"{failed} to last applied version")
        if rest is None:
            return merged
        root = self._root(last.api_version)
        kept = name_fields(root, field_set(root, rest.value))
        whole = name_fields(root, field_set(root, merged.value))
        gone = (whole - kept) & name_fields(root, last.fields)
        return _Typed(remove(root, merged.value, gone), last.api_version)

    def _follow_schema(self, live: _Typed, managers: Managers) -> Managers:
        """Adapts to a schema in which something became atomic since: its owners now own the whole."""
        followed: Managers = {}
        for manager, owned in managers.items():
            kind = self._types(owned.api_version)
            if kind is None or self._convert(live, owned.api_version, "") is None:
                continue
            drop, add = FieldSet(), FieldSet()
            _became_atomic(kind.root, owned.fields, (), is_leaf=False, drop=drop, add=add)
            fields = owned.fields.without(drop) | add if drop or add else owned.fields
            followed[manager] = owned._replace(fields=fields)
        return followed


def _became_atomic(
    kind: Type, fields: FieldSet | None, path: Path, *, is_leaf: bool, drop: FieldSet, add: FieldSet
) -> None:
    """Collects where ``fields`` go into something that is atomic now: what to drop, with all below it, and to add."""
    if kind.is_map:
        if kind.is_free_form:
            return
        atomic = kind.map_atomic
        if atomic and not fields:
            return
    elif kind.scalar or not kind.is_list:
        return
    else:
        atomic = kind.list_atomic
    if atomic and not is_leaf:
        drop.insert(path)
        add.insert(path)
        return
    if fields is None:
        return
    for element in fields.members | fields.children.keys():
        below: Type | None = kind.item if not kind.is_map else None
        if kind.is_map:
            below = kind.field(element[2:]) if element[0] == "f" else kind.element
        if below is None:
            continue
        child = fields.children.get(element)
        leaf = element in fields.members and child is None
        _became_atomic(below, child, (*path, element), is_leaf=leaf, drop=drop, add=add)
