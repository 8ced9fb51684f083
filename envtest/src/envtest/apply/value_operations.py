"""Operations on values of a :class:`~envtest.apply.schema_types.Type`.

They follow structured-merge-diff: validate, list the fields, compare, merge, remove. If a type allows several kinds of
values, the actual value decides; null is valid everywhere and treated like the value it is compared with. Arguments are
never modified, and results can share parts with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from envtest.apimachinery.repetition import repeated_positions
from envtest.apply.fieldset import (
    FieldSet,
    field_element,
    format_element,
    key_element,
    value_element,
)
from envtest.apply.schema_types import Type
from envtest.formats.go_format import go_syntax, go_text, go_type

__all__ = [
    "ABSENT",
    "Comparison",
    "TypeMismatch",
    "compare",
    "field_set",
    "json_equal",
    "merge",
    "remove",
    "validate",
    "with_named_parents",
]


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""No value; different from null."""

_MAP = "map"
_SCALAR = "scalar"
_LIST = "list"
_NONE = ""
_SCALARS = (str, bool, int, float)


class TypeMismatch(Exception):
    """Raised if a value does not fit its schema; the message lists each violation with its path."""

    def __init__(self, errors: Sequence[tuple[str, str]]) -> None:
        lines = [f"{path}: {message}" if path else message for path, message in errors]
        if len(lines) == 1:
            super().__init__(lines[0])
        else:
            super().__init__("\n".join(["errors:", *(f"  {line}" for line in lines)]))


class _InvalidItem(ValueError):
    """Raised if a list item has no valid key and cannot be identified."""


class Comparison(NamedTuple):
    """The differences between two values; the three sets are disjoint."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet


def _form(kind: Type, value: Any) -> str:
    """Return how to treat ``value``; null and values that do not fit are treated as the first form that is allowed."""
    if isinstance(value, dict):
        if kind.is_map:
            return _MAP
    elif isinstance(value, list):
        if kind.is_list:
            return _LIST
    elif kind.scalar and isinstance(value, _SCALARS):
        return _SCALAR
    if kind.is_map:
        return _MAP
    if kind.scalar:
        return _SCALAR
    return _LIST if kind.is_list else _NONE


def _item_element(kind: Type, item: Any) -> str:
    """Return the path element of a list item. Raises _InvalidItem."""
    if kind.list_keys:
        if item is None:
            raise _InvalidItem("associative list with keys may not have a null element")
        if not isinstance(item, dict):
            raise _InvalidItem("associative list with keys may not have non-map elements")
        keys = {}
        for name in kind.list_keys:
            if name in item:
                keys[name] = item[name]
                continue
            default = kind.item.key_default(name)
            if default is not None:
                keys[name] = default
        if not keys:
            names = " ".join(orjson.dumps(name).decode() for name in kind.list_keys)
            raise _InvalidItem(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
        return key_element(keys)
    if isinstance(item, dict):
        raise _InvalidItem("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise _InvalidItem("not supported: associative list with lists as elements")
    if item is None:
        raise _InvalidItem("associative list without keys has an element that's an explicit null")
    return value_element(item)


def validate(kind: Type, value: Any, *, allow_duplicates: bool = False) -> None:
    """Check that ``value`` fits, and has no duplicates in sets and list maps. Raises TypeMismatch."""
    errors: list[tuple[str, str]] = []
    _validate(kind, value, allow_duplicates, errors)
    if errors:
        raise TypeMismatch(errors)


def _validate(kind: Type, value: Any, duplicates: bool, errors: list[tuple[str, str]]) -> None:
    """Append the violations, with paths relative to this value."""
    form = _form(kind, value)
    if value is None:
        return
    if form == _MAP:
        if not isinstance(value, dict):
            errors.append(("", f"expected map, got &{{{go_text(value)}}}"))
            return
        for name, item in value.items():
            field = kind.field(name)
            if field is None:
                errors.append((f".{name}", "field not declared in schema"))
                return
            count = len(errors)
            _validate(field, item, duplicates, errors)
            if len(errors) > count:
                _prefix(f".{name}", errors, count)
    elif form == _SCALAR:
        message = _scalar_error(kind.scalar, value)
        if message:
            errors.append(("", message))
    elif form == _LIST:
        if not isinstance(value, list):
            errors.append(("", f"expected list, got &{{{go_text(value)}}}"))
            return
        _validate_items(kind, value, duplicates, errors)
    else:
        errors.append(("", "schema error: invalid atom: inlined"))


def _prefix(path: str, errors: list[tuple[str, str]], start: int) -> None:
    errors[start:] = [(path + rest, message) for rest, message in errors[start:]]


def _validate_items(
    kind: Type, items: list[Any], duplicates: bool, errors: list[tuple[str, str]]
) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        element = f"i:{index}"
        if not kind.list_atomic:
            try:
                element = _item_element(kind, item)
            except _InvalidItem as bad:
                errors.append(("", f"element {index}: {bad}"))
                return
            if element in seen and not duplicates:
                errors.append(("", f"duplicate entries for key {format_element(element)}"))
            seen.add(element)
        count = len(errors)
        _validate(kind.item, item, duplicates, errors)
        if len(errors) > count:
            _prefix(format_element(element), errors, count)


def _scalar_error(scalar: str, value: Any) -> str:
    if scalar == "string":
        if isinstance(value, str):
            return ""
        return f"expected string, got &value.valueUnstructured{{Value:{go_syntax(value)}}}"
    if scalar == "numeric":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return ""
        return f"expected numeric (int or float), got {go_type(value)}"
    if scalar == "boolean":
        return "" if isinstance(value, bool) else f"expected boolean, got &{{{go_text(value)}}}"
    return "" if isinstance(value, _SCALARS) else f"expected any scalar, got &{{{go_text(value)}}}"


def field_set(kind: Type, value: Any) -> FieldSet:
    """Return all leaf fields and items that are set in ``value``."""
    found = FieldSet()
    _collect(kind, value, found)
    return found


def _collect(kind: Type, value: Any, into: FieldSet) -> bool:
    """Add the fields inside ``value`` to ``into``; return whether the value itself is a leaf."""
    form = _form(kind, value)
    if form == _SCALAR:
        return True
    if form == _MAP:
        if kind.map_atomic:
            return True
        if isinstance(value, dict):
            for name, item in value.items():
                element = field_element(name)
                field = kind.field(name) or _UNKNOWN
                if field.scalar and isinstance(item, _SCALARS):
                    into.members.add(element)
                    continue
                child = FieldSet()
                leaf = _collect(field, item, child)
                if child.members or child.children:
                    into.children[element] = child
                if leaf or item is None or item == {} or not kind.declares(name):
                    into.members.add(element)
        return False
    if form == _LIST:
        if kind.list_atomic:
            return True
        if isinstance(value, list):
            _collect_items(kind, value, into)
    return False


_UNKNOWN = Type(None)


def _collect_items(kind: Type, items: list[Any], into: FieldSet) -> None:
    elements = _elements(kind, items)
    counts = Counter(elements)
    for index, item in enumerate(items):
        element = elements[index]
        into.members.add(element)
        if not isinstance(item, dict | list) or counts[element] > 1:
            continue
        child = FieldSet()
        _collect(kind.item, item, child)
        if child.members or child.children:
            into.children[element] = child


def _elements(kind: Type, items: list[Any]) -> list[str]:
    """Return the path elements of a list; raises TypeMismatch when the list is not valid."""
    found = []
    for index, item in enumerate(items):
        try:
            found.append(_item_element(kind, item))
        except _InvalidItem as bad:
            raise TypeMismatch([("", f"element {index}: {bad}")]) from bad
    return found


def json_equal(left: Any, right: Any) -> bool:
    """Compare as JSON: ``1`` equals ``1.0``, but neither equals ``true``."""
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        return all(name in right and json_equal(item, right[name]) for name, item in left.items())
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(right):
            return False
        return all(map(json_equal, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def compare(kind: Type, left: Any, right: Any) -> Comparison:
    """Return the fields that are removed from, modified in and added to ``left`` to get ``right``."""
    found = Comparison(FieldSet(), FieldSet(), FieldSet())
    if left is ABSENT or right is ABSENT or len(left) != len(right) or not _identical(left, right):
        _compare(kind, left, right, found)
    return found


def _identical(left: Any, right: Any) -> bool:
    """Report whether two values are identical, including the order; a fast check that avoids a full comparison."""
    return bool(orjson.dumps(left) == orjson.dumps(right))


def _all_paths(kind: Type, value: Any) -> FieldSet | None:
    """Return all paths, leaves and containers, inside a value that is added or removed as a whole."""
    form = _form(kind, value)
    if form == _MAP and not kind.map_atomic and isinstance(value, dict) and value:
        found = FieldSet()
        for name, item in value.items():
            element = field_element(name)
            found.members.add(element)
            if isinstance(item, dict | list):
                item_paths = _all_paths(kind.field(name) or _UNKNOWN, item)
                if item_paths:
                    found.children[element] = item_paths
        return found
    if form == _LIST and not kind.list_atomic and isinstance(value, list) and value:
        found = FieldSet()
        for element, items in _by_element(kind, value).items():
            found.members.add(element)
            if len(items) == 1:
                item_paths = _all_paths(kind.item, items[0])
                if item_paths:
                    found.children[element] = item_paths
        return found
    return None


def _compare(kind: Type, left: Any, right: Any, found: Comparison) -> bool:
    """Add the differences inside the value to ``found``; return whether the value itself was modified."""
    form = _form(kind, right)
    other = _form(kind, left)
    modified = False
    if other != form and left is not None and right is not None:
        modified = _compare_as(other, kind, left, right, found)
    return _compare_as(form, kind, left, right, found) or modified


def _compare_as(form: str, kind: Type, left: Any, right: Any, found: Comparison) -> bool:
    if form == _MAP:
        ones = left if isinstance(left, dict) else None
        others = right if isinstance(right, dict) else None
        if not kind.map_atomic and (ones or others):
            _compare_fields(kind, ones or {}, others or {}, found)
            return False
    elif form == _LIST:
        items = left if isinstance(left, list) else None
        other_items = right if isinstance(right, list) else None
        if not kind.list_atomic and (items or other_items):
            _compare_items(kind, items or [], other_items or [], found)
            return False
    return not json_equal(left, right)


def _record(kind: Type, element: str, value: Any, into: FieldSet) -> None:
    """Add a whole value to ``into``, the set of added or of removed fields."""
    into.members.add(element)
    if isinstance(value, dict | list):
        child = _all_paths(kind, value)
        if child:
            into.children[element] = child


def _descend(kind: Type, element: str, left: Any, right: Any, found: Comparison) -> None:
    child = Comparison(FieldSet(), FieldSet(), FieldSet())
    if _compare(kind, left, right, child):
        found.modified.members.add(element)
    for part, into in zip(child, found, strict=True):
        if part.members or part.children:
            into.children[element] = part


def _compare_fields(
    kind: Type, left: dict[str, Any], right: dict[str, Any], found: Comparison
) -> None:
    for name, one in left.items():
        other = right.get(name, ABSENT)
        if one is other:
            continue
        if other is ABSENT:
            _record(kind.field(name) or _UNKNOWN, field_element(name), one, found.removed)
        elif isinstance(one, _SCALARS) and isinstance(other, _SCALARS):
            if not json_equal(one, other):
                found.modified.members.add(field_element(name))
        elif not _identical(one, other):
            _descend(kind.field(name) or _UNKNOWN, field_element(name), one, other, found)
    for name, other in right.items():
        if name not in left:
            _record(kind.field(name) or _UNKNOWN, field_element(name), other, found.added)


def _by_element(kind: Type, items: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for element, item in zip(_elements(kind, items), items, strict=True):
        found.setdefault(element, []).append(item)
    return found


def _compare_items(kind: Type, left: list[Any], right: list[Any], found: Comparison) -> None:
    ones = _by_element(kind, left)
    others = _by_element(kind, right)
    for element in [*ones, *(element for element in others if element not in ones)]:
        one = ones.get(element, [])
        other = others.get(element, [])
        if len(one) == 1 and len(other) == 1:
            if not _identical(one[0], other[0]):
                _descend(kind.item, element, one[0], other[0], found)
        elif len(one) > 1 and len(other) > 1:
            if not json_equal(one, other):
                found.modified.members.add(element)
        else:
            _record_all(kind.item, element, one, found.removed)
            _record_all(kind.item, element, other, found.added)


def _record_all(kind: Type, element: str, items: list[Any], into: FieldSet) -> None:
    """Like _record, for an item that can occur several times; then only the item itself is recorded."""
    if len(items) == 1:
        _record(kind, element, items[0], into)
    elif items:
        into.members.add(element)


def merge(kind: Type, left: Any, right: Any) -> Any:
    """Return ``left`` with all values that ``right`` sets; nothing is removed. ``ABSENT`` when nothing remains.

    Items that are in ``right`` have its order, the others keep their position.
    Raises TypeMismatch for duplicates in ``right``.
    """
    shown = left if right is ABSENT else right
    form = _form(kind, shown)
    if form == _MAP and not kind.map_atomic:
        ones = left if isinstance(left, dict) else None
        others = right if isinstance(right, dict) else None
        if ones or others:
            return _merge_fields(kind, ones or {}, others or {})
    elif form == _LIST and not kind.list_atomic:
        items = left if isinstance(left, list) else None
        other_items = right if isinstance(right, list) else None
        if items or other_items:
            return _merge_items(kind, items or [], other_items or [])
    return left if right is ABSENT else right


def _merge_fields(kind: Type, left: dict[str, Any], right: dict[str, Any]) -> Any:
    merged = {}
    for name, one in left.items():
        other = right.get(name, ABSENT)
        value = one if other is ABSENT else merge(kind.field(name) or _UNKNOWN, one, other)
        if value is not ABSENT:
            merged[name] = value
    for name, other in right.items():
        if name not in left:
            value = merge(kind.field(name) or _UNKNOWN, ABSENT, other)
            if value is not ABSENT:
                merged[name] = value
    return merged or ABSENT


def _merge_items(kind: Type, left: list[Any], right: list[Any]) -> Any:
    left_elements = _elements(kind, left)
    right_elements = _elements(kind, right)
    if len(set(right_elements)) < len(right_elements):
        duplicate = right_elements[min(repeated_positions(right_elements))]
        raise TypeMismatch([("", f"duplicate entries for key {format_element(duplicate)}")])
    # A duplicate item in the live list is not merged with the one in the configuration, but replaced by it.
    live: dict[str, Any] = {}
    for element, item in zip(left_elements, left, strict=True):
        live[element] = None if element in live else item
    updates = dict(zip(right_elements, right, strict=True))
    shared = [element for element in right_elements if element in live]
    merged: list[Any] = []
    done: set[str] = set()

    def take(one: Any, other: Any) -> None:
        value = merge(kind.item, one, other)
        if value is not ABSENT:
            merged.append(value)

    left_index = 0
    right_index = 0
    while left_index < len(left_elements) or right_index < len(right_elements):
        if left_index < len(left_elements) and right_index < len(right_elements):
            element = left_elements[left_index]
            if element == right_elements[right_index]:
                done.add(element)
                take(live[element], updates[element])
                left_index += 1
                right_index += 1
                del shared[:1]
                continue
            if element in updates and shared and shared[0] != element:
                left_index += 1
                continue
        if left_index < len(left_elements):
            element = left_elements[left_index]
            if element not in updates:
                take(left[left_index], ABSENT)
                left_index += 1
                continue
            if element in done:
                left_index += 1
        if right_index < len(right_elements):
            element = right_elements[right_index]
            done.add(element)
            take(live.get(element, ABSENT), updates[element])
            right_index += 1
            if shared and shared[0] == element:
                del shared[0]
    return merged or ABSENT


def remove(kind: Type, value: Any, items: FieldSet) -> Any:
    """Return ``value`` without the fields and items of ``items``.

    A container that becomes empty stays if its parent remains, and becomes null otherwise.
    """
    form = _form(kind, value)
    if form == _SCALAR:
        return value
    if form == _MAP:
        if not isinstance(value, dict) or not value or kind.map_atomic:
            return None
        kept = {}
        for name, item in value.items():
            element = field_element(name)
            if element in items.members:
                continue
            child = items.children.get(element)
            kept[name] = _remaining(kind.field(name) or _UNKNOWN, item, child) if child else item
        return kept or None
    if form == _LIST:
        if not isinstance(value, list) or not value or kind.list_atomic:
            return None
        rest = []
        for element, item in zip(_elements(kind, value), value, strict=True):
            if element in items.members:
                continue
            child = items.children.get(element)
            if child:
                item = _remaining(kind.item, item, child)
            rest.append(item)
        return rest or None
    return None


def _remaining(kind: Type, value: Any, items: FieldSet) -> Any:
    """Return what :func:`remove` leaves of a field or an item: at least an empty container."""
    rest = remove(kind, value, items)
    if rest is None and isinstance(value, dict):
        return {}
    if rest is None and isinstance(value, list):
        return []
    return rest


def with_named_parents(kind: Type | None, fields: FieldSet) -> FieldSet:
    """Return ``fields`` with each declared field on the path to a member as a member; map keys are not added."""
    members = set(fields.members)
    children = {}
    for element, child in fields.children.items():
        child_type: Type | None = None
        if element[0] == "f" and kind is not None and kind.is_map:
            name = element[2:]
            child_type = kind.field(name)
            if kind.declares(name):
                members.add(element)
        elif element[0] == "k" and kind is not None and kind.is_list:
            child_type = kind.item
        children[element] = with_named_parents(child_type, child)
    return FieldSet(members, children)
