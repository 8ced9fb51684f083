"""Field ownership after an operation, across all managers of an object.

The rules follow structured-merge-diff's ``merge`` package. An update takes ownership of the fields it changed from all
other managers. An apply owns exactly the fields in its configuration; it conflicts with managers that own a field that
it would change, and it removes fields of its last configuration that are not in the new one and that no other manager
owns. Managers may have written in other versions of the kind: their fields are compared in that version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from envtest.apply.fieldset import FieldSet, Path
from envtest.apply.schema_types import ObjectType, Type
from envtest.apply.value_operations import (
    ABSENT,
    Comparison,
    TypeMismatch,
    compare,
    field_set,
    json_equal,
    merge,
    remove,
    validate,
    with_named_parents,
)

__all__ = [
    "Conflicts",
    "ConversionFailed",
    "ConversionPending",
    "Convert",
    "ManagerId",
    "Managers",
    "OwnedFields",
    "Updater",
]


class ManagerId(NamedTuple):
    """The identity of a manager. ``api_version`` is empty for appliers, which are the same in every version."""

    manager: str
    operation: str
    api_version: str = ""
    subresource: str = ""


class OwnedFields(NamedTuple):
    """The fields that a manager owns, in the version in which it wrote them."""

    fields: FieldSet
    api_version: str
    applied: bool


Managers: TypeAlias = dict[ManagerId, OwnedFields]
Convert: TypeAlias = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
"""Converts an object to an ``apiVersion``; raises ConversionFailed or ConversionPending."""


class Conflicts(Exception):
    """Raised if an apply would change fields that other managers own; contains the paths by manager."""

    def __init__(self, by_manager: Mapping[ManagerId, list[Path]]) -> None:
        super().__init__("conflicts")
        self.by_manager = dict(by_manager)


class ConversionFailed(Exception):
    """Raised if an object does not fit the schema of another version in which a manager owns some of its fields."""


class ConversionPending(Exception):
    """Raised if an asynchronous conversion is necessary: await ``convert``, then repeat the operation."""

    def __init__(self, convert: Callable[[], Awaitable[None]]) -> None:
        super().__init__("a conversion has to be done first")
        self.convert = convert


class _VersionedValue(NamedTuple):
    value: Any
    api_version: str


class Updater:
    """The ownership rules for one kind, for one endpoint.

    ``types`` returns the type of a version, or ``None`` if it is no longer served, in which case the fields that
    managers own in that version are dropped; it raises ConversionFailed if objects cannot have that version. ``reset``
    are the fields that the endpoint ignores, so that no manager becomes their owner there.
    """

    def __init__(
        self,
        types: Callable[[str], ObjectType | None],
        convert: Convert,
        reset: Mapping[str, FieldSet],
    ) -> None:
        self._types = types
        self._convert_object = convert
        self._reset = reset

    def update(
        self, live: Any, new: Any, api_version: str, managers: Managers, manager: ManagerId
    ) -> Managers:
        """Return the managers after ``manager`` changed ``live`` to ``new``. Raises TypeMismatch, ConversionFailed."""
        old = _VersionedValue(live, api_version)
        current = _VersionedValue(new, api_version)
        managers = self._follow_schema_changes(old, managers)
        managers, change = self._transfer_ownership(old, current, managers, manager, force=True)
        before = managers[manager].fields if manager in managers else FieldSet()
        fields = self._without_reset_fields(
            (before - change.removed) | change.modified | change.added, api_version
        )
        if fields:
            managers[manager] = OwnedFields(fields, api_version, applied=False)
        else:
            managers.pop(manager, None)
        return managers

    def apply(
        self,
        live: Any,
        config: Any,
        api_version: str,
        managers: Managers,
        manager: ManagerId,
        *,
        force: bool,
    ) -> tuple[Any, Managers]:
        """Return the object after ``config`` was applied to ``live`` (``ABSENT``: no change), and its managers.

        Raises Conflicts (unless ``force``), TypeMismatch and ConversionFailed.
        """
        old = _VersionedValue(live, api_version)
        managers = self._follow_schema_changes(old, managers)
        root = self._root(api_version)
        merged = _VersionedValue(merge(root, live, config), api_version)
        last = managers.get(manager)
        fields = self._without_reset_fields(field_set(root, config), api_version)
        managers[manager] = OwnedFields(fields, api_version, applied=True)
        new = self._prune(merged, managers, manager, last)
        managers, _ = self._transfer_ownership(old, new, managers, manager, force=force)
        return ABSENT if json_equal(live, new.value) else new.value, managers

    def _root(self, api_version: str) -> Type:
        kind = self._types(api_version)
        if kind is None:
            raise LookupError(api_version)
        return kind.root

    def _convert(
        self, typed: _VersionedValue, api_version: str, failure: str
    ) -> _VersionedValue | None:
        """Return ``None`` when the version is unknown. Raises ConversionFailed with ``failure`` in its message."""
        if typed.api_version == api_version:
            return typed
        kind = self._types(api_version)
        if kind is None:
            return None
        try:
            value = self._convert_object(typed.value, api_version)
            validate(kind.root, value)
        except (TypeMismatch, ConversionFailed) as error:
            message = f"{failure}: {error}" if failure else str(error)
            raise ConversionFailed(message) from error
        return _VersionedValue(value, api_version)

    def _without_reset_fields(self, fields: FieldSet, api_version: str) -> FieldSet:
        reset = self._reset.get(api_version)
        return fields if reset is None else fields.without(reset)

    def _compare(self, old: _VersionedValue, new: _VersionedValue) -> Comparison:
        change = compare(self._root(old.api_version), old.value, new.value)
        return Comparison(*(self._without_reset_fields(part, old.api_version) for part in change))

    def _transfer_ownership(
        self,
        old: _VersionedValue,
        new: _VersionedValue,
        managers: Managers,
        manager: ManagerId,
        *,
        force: bool,
    ) -> tuple[Managers, Comparison]:
        """Remove the changed fields from the other managers, or raise Conflicts."""
        change = self._compare(old, new)
        changes: dict[str, Comparison | None] = {old.api_version: change}
        conflicts: dict[ManagerId, FieldSet] = {}
        remaining: Managers = {}
        for other, owned in managers.items():
            if other == manager:
                remaining[other] = owned
                continue
            version = owned.api_version
            if version not in changes:
                one = self._convert(old, version, "failed to convert old object")
                two = self._convert(new, version, "failed to convert new object")
                changes[version] = None if one is None or two is None else self._compare(one, two)
            difference = changes[version]
            if difference is None:
                continue
            lost = owned.fields & (difference.modified | difference.added)
            if lost:
                conflicts[other] = lost
            remaining[other] = owned._replace(fields=owned.fields - lost - difference.removed)
        if conflicts and not force:
            raise Conflicts({other: list(fields) for other, fields in conflicts.items()})
        return {other: owned for other, owned in remaining.items() if owned.fields}, change

    def _prune(
        self,
        merged: _VersionedValue,
        managers: Managers,
        manager: ManagerId,
        last: OwnedFields | None,
    ) -> _VersionedValue:
        """Remove the fields that only the last apply of ``manager`` had set."""
        if last is None or not last.fields:
            return merged
        if last.api_version == merged.api_version and not last.fields - managers[manager].fields:
            return merged
        failure = "failed to prune fields: failed to convert {} object to last applied version"
        whole = self._convert(merged, last.api_version, failure.format("merged"))
        if whole is None:
            return merged
        root = self._root(last.api_version)
        pruned = _VersionedValue(
            remove(root, whole.value, with_named_parents(root, last.fields)), last.api_version
        )
        pruned = self._add_back_owned(whole, pruned, managers)
        pruned = self._add_back_dangling(whole, pruned, last)
        return self._convert(pruned, merged.api_version, "failed to prune fields") or merged

    def _add_back_owned(
        self, merged: _VersionedValue, pruned: _VersionedValue, managers: Managers
    ) -> _VersionedValue:
        """Add back fields that other managers own, or that the manager's new configuration sets."""
        by_version: dict[str, FieldSet] = {pruned.api_version: FieldSet()}
        for owned in managers.values():
            by_version[owned.api_version] = (
                by_version.get(owned.api_version, FieldSet()) | owned.fields
            )
        for version, fields in by_version.items():
            failure = "failed to prune fields: failed add back owned items: failed to convert {} object at version "
            failure += version
            whole = self._convert(merged, version, failure.format("merged"))
            rest = self._convert(pruned, version, failure.format("pruned"))
            if whole is None or rest is None:
                continue
            root = self._root(version)
            kept = with_named_parents(root, field_set(root, rest.value)) | with_named_parents(
                root, fields
            )
            removed = with_named_parents(root, field_set(root, whole.value)) - kept
            merged = whole
            pruned = _VersionedValue(remove(root, whole.value, removed), version)
        return pruned

    def _add_back_dangling(
        self, merged: _VersionedValue, pruned: _VersionedValue, last: OwnedFields
    ) -> _VersionedValue:
        """Add back fields without an owner: only fields that the manager itself applied are removed."""
        failure = "failed to prune fields: failed add back dangling items: failed to convert pruned object"
        rest = self._convert(pruned, last.api_version, f"{failure} to last applied version")
        if rest is None:
            return merged
        root = self._root(last.api_version)
        kept = with_named_parents(root, field_set(root, rest.value))
        whole = with_named_parents(root, field_set(root, merged.value))
        removed = (whole - kept) & with_named_parents(root, last.fields)
        return _VersionedValue(remove(root, merged.value, removed), last.api_version)

    def _follow_schema_changes(self, live: _VersionedValue, managers: Managers) -> Managers:
        """Adapt to values that a newer schema declares atomic: a manager that owned a part now owns all of it."""
        adapted: Managers = {}
        for manager, owned in managers.items():
            kind = self._types(owned.api_version)
            if kind is None or self._convert(live, owned.api_version, "") is None:
                continue
            drop = FieldSet()
            add = FieldSet()
            _became_atomic(kind.root, owned.fields, (), is_leaf=False, drop=drop, add=add)
            fields = owned.fields.without(drop) | add if drop or add else owned.fields
            adapted[manager] = owned._replace(fields=fields)
        return adapted


def _became_atomic(
    kind: Type, fields: FieldSet | None, path: Path, *, is_leaf: bool, drop: FieldSet, add: FieldSet
) -> None:
    """Collect the paths at which ``fields`` are inside an atomic value.

    ``drop`` gets the paths to remove with everything below them, ``add`` the paths to add.
    """
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
        child_type: Type | None = kind.item if not kind.is_map else None
        if kind.is_map:
            child_type = kind.field(element[2:]) if element[0] == "f" else kind.element
        if child_type is None:
            continue
        child = fields.children.get(element)
        leaf = element in fields.members and child is None
        _became_atomic(child_type, child, (*path, element), is_leaf=leaf, drop=drop, add=add)
