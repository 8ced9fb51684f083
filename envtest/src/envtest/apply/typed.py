"""Operations on values of a :class:`~envtest.apply.types.Type`.

These are structured-merge-diff's walks: validate, list the fields, compare, merge, remove. Where a place allows
several kinds of value the one at hand decides; null fits everywhere, so it takes the form of what it meets.
Nothing here changes its arguments, and results may share parts with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from envtest.apply.fieldset import FieldSet, element_text, field_element, key_element, value_element
from envtest.apply.types import Type
from envtest.go_format import go_syntax, go_text, go_type

__all__ = [
    "ABSENT",
    "Comparison",
    "TypeMismatch",
    "compare",
    "field_set",
    "merge",
    "name_fields",
    "remove",
    "same",
    "validate",
]


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""No value at all, which is not null."""

_MAP, _SCALAR, _LIST, _NONE = "map", "scalar", "list", ""
_SCALARS = (str, bool, int, float)


class TypeMismatch(Exception):
    """A value does not fit its schema; the text lists every violation with its path."""

    def __init__(self, errors: Sequence[tuple[str, str]]) -> None:
        lines = [f"{path}: {message}" if path else message for path, message in errors]
        super().__init__(lines[0] if len(lines) == 1 else "\n".join(["errors:", *(f"  {line}" for line in lines)]))


class _BadItem(ValueError):
    """A list item that cannot be told apart from others."""


class Comparison(NamedTuple):
    """What distinguishes two values: no path is in more than one of these."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet


def _form(kind: Type, value: Any) -> str:
    """As what ``value`` is to be treated; what does not fit (null, too) is treated as the first that is allowed."""
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
    """The path element of an item of a list; raises _BadItem."""
    if kind.list_keys:
        if item is None:
            raise _BadItem("associative list with keys may not have a null element")
        if not isinstance(item, dict):
            raise _BadItem("associative list with keys may not have non-map elements")
        keys = {}
        for name in kind.list_keys:
            if name in item:
                keys[name] = item[name]
            elif (default := kind.item.key_default(name)) is not None:
                keys[name] = default
        if not keys:
            names = " ".join(orjson.dumps(name).decode() for name in kind.list_keys)
            raise _BadItem(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
        return key_element(keys)
    if isinstance(item, dict):
        raise _BadItem("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise _BadItem("not supported: associative list with lists as elements")
    if item is None:
        raise _BadItem("associative list without keys has an element that's an explicit null")
    return value_element(item)


def validate(kind: Type, value: Any, *, allow_duplicates: bool = False) -> None:
    """Raises TypeMismatch where ``value`` does not fit; duplicates are those in sets and list maps."""
    errors: list[tuple[str, str]] = []
    _validate(kind, value, allow_duplicates, errors)
    if errors:
        raise TypeMismatch(errors)


def _validate(kind: Type, value: Any, duplicates: bool, errors: list[tuple[str, str]]) -> None:
    """Appends violations, with paths that begin at this place."""
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
            known = len(errors)
            _validate(field, item, duplicates, errors)
            if len(errors) > known:
                _prefix(f".{name}", errors, known)
    elif form == _SCALAR:
        if problem := _scalar_problem(kind.scalar, value):
            errors.append(("", problem))
    elif form == _LIST:
        if not isinstance(value, list):
            errors.append(("", f"expected list, got &{{{go_text(value)}}}"))
            return
        _validate_items(kind, value, duplicates, errors)
    else:
        errors.append(("", "schema error: invalid atom: inlined"))


def _prefix(path: str, errors: list[tuple[str, str]], start: int) -> None:
    errors[start:] = [(path + rest, message) for rest, message in errors[start:]]


def _validate_items(kind: Type, items: list[Any], duplicates: bool, errors: list[tuple[str, str]]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        element = f"i:{index}"
        if not kind.list_atomic:
            try:
                element = _item_element(kind, item)
            except _BadItem as bad:
                errors.append(("", f"element {index}: {bad}"))
                return
            if element in seen and not duplicates:
                errors.append(("", f"duplicate entries for key {element_text(element)}"))
            seen.add(element)
        known = len(errors)
        _validate(kind.item, item, duplicates, errors)
        if len(errors) > known:
            _prefix(element_text(element), errors, known)


def _scalar_problem(scalar: str, value: Any) -> str:
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
    """Every leaf field and item that ``value`` mentions."""
    found = FieldSet()
    _collect(kind, value, found)
    return found


def _collect(kind: Type, value: Any, into: FieldSet) -> bool:
    """Puts what lies below ``value`` into ``into``; returns whether the place itself is a leaf."""
    form = _form(kind, value)
    if form == _SCALAR:
        return True
    if form == _MAP:
        if kind.map_atomic:
            return True
        if isinstance(value, dict):
            for name, item in value.items():
                element = field_element(name)
                field = kind.field(name) or _nothing
                if field.scalar and isinstance(item, _SCALARS):
                    into.members.add(element)
                    continue
                below = FieldSet()
                leaf = _collect(field, item, below)
                if below.members or below.children:
                    into.children[element] = below
                if leaf or item is None or item == {} or not kind.declares(name):
                    into.members.add(element)
        return False
    if form == _LIST:
        if kind.list_atomic:
            return True
        if isinstance(value, list):
            _collect_items(kind, value, into)
    return False


_nothing = Type(None)


def _collect_items(kind: Type, items: list[Any], into: FieldSet) -> None:
    elements = _elements(kind, items)
    unique = len(set(elements)) == len(elements)
    for index, item in enumerate(items):
        element = elements[index]
        into.members.add(element)
        if not isinstance(item, dict | list) or not (unique or elements.count(element) == 1):
            continue
        below = FieldSet()
        _collect(kind.item, item, below)
        if below.members or below.children:
            into.children[element] = below


def _elements(kind: Type, items: list[Any]) -> list[str]:
    """The path elements of a list that was validated before; raises TypeMismatch if it was not."""
    found = []
    for index, item in enumerate(items):
        try:
            found.append(_item_element(kind, item))
        except _BadItem as bad:
            raise TypeMismatch([("", f"element {index}: {bad}")]) from bad
    return found


def same(left: Any, right: Any) -> bool:
    """Equality as JSON has it: ``1`` is ``1.0`` but neither is ``true``."""
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        return all(name in right and same(item, right[name]) for name, item in left.items())
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(right):
            return False
        return all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def compare(kind: Type, left: Any, right: Any) -> Comparison:
    """What was removed from, modified in and added to ``left`` so that it became ``right``."""
    found = Comparison(FieldSet(), FieldSet(), FieldSet())
    if left is ABSENT or right is ABSENT or not _alike(left, right):
        _compare(kind, left, right, found)
    return found


def _alike(left: Any, right: Any) -> bool:
    """Whether two values are the same in every respect, order too: a quick look that spares a thorough one."""
    return bool(orjson.dumps(left) == orjson.dumps(right))


def _everything(kind: Type, value: Any) -> FieldSet | None:
    """All that lies below a value which appears or vanishes as a whole: leaves and containers alike."""
    form = _form(kind, value)
    if form == _MAP and not kind.map_atomic and isinstance(value, dict) and value:
        below = FieldSet()
        for name, item in value.items():
            element = field_element(name)
            below.members.add(element)
            if isinstance(item, dict | list) and (deeper := _everything(kind.field(name) or _nothing, item)):
                below.children[element] = deeper
        return below
    if form == _LIST and not kind.list_atomic and isinstance(value, list) and value:
        below = FieldSet()
        for element, items in _by_element(kind, value).items():
            below.members.add(element)
            if len(items) == 1 and (deeper := _everything(kind.item, items[0])):
                below.children[element] = deeper
        return below
    return None


def _compare(kind: Type, left: Any, right: Any, found: Comparison) -> bool:
    """Puts the differences below the place into ``found``; returns whether the place itself was modified."""
    form, other = _form(kind, right), _form(kind, left)
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
    return not same(left, right)


def _appear(kind: Type, element: str, value: Any, into: FieldSet) -> None:
    """Notes a whole value in ``into``, which is what was added or what was removed."""
    into.members.add(element)
    if isinstance(value, dict | list) and (below := _everything(kind, value)):
        into.children[element] = below


def _descend(kind: Type, element: str, left: Any, right: Any, found: Comparison) -> None:
    below = Comparison(FieldSet(), FieldSet(), FieldSet())
    if _compare(kind, left, right, below):
        found.modified.members.add(element)
    for part, into in zip(below, found, strict=True):
        if part.members or part.children:
            into.children[element] = part


def _compare_fields(kind: Type, left: dict[str, Any], right: dict[str, Any], found: Comparison) -> None:
    for name, one in left.items():
        other = right.get(name, ABSENT)
        if one is other:
            continue
        if other is ABSENT:
            _appear(kind.field(name) or _nothing, field_element(name), one, found.removed)
        elif isinstance(one, _SCALARS) and isinstance(other, _SCALARS):
            if not same(one, other):
                found.modified.members.add(field_element(name))
        elif not _alike(one, other):
            _descend(kind.field(name) or _nothing, field_element(name), one, other, found)
    for name, other in right.items():
        if name not in left:
            _appear(kind.field(name) or _nothing, field_element(name), other, found.added)


def _by_element(kind: Type, items: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for element, item in zip(_elements(kind, items), items, strict=True):
        found.setdefault(element, []).append(item)
    return found


def _compare_items(kind: Type, left: list[Any], right: list[Any], found: Comparison) -> None:
    ones, others = _by_element(kind, left), _by_element(kind, right)
    for element in [*ones, *(element for element in others if element not in ones)]:
        one, other = ones.get(element, []), others.get(element, [])
        if len(one) == 1 and len(other) == 1:
            if not _alike(one[0], other[0]):
                _descend(kind.item, element, one[0], other[0], found)
        elif len(one) > 1 and len(other) > 1:
            if not same(one, other):
                found.modified.members.add(element)
        else:
            _appear_all(kind.item, element, one, found.removed)
            _appear_all(kind.item, element, other, found.added)


def _appear_all(kind: Type, element: str, items: list[Any], into: FieldSet) -> None:
    """As _appear, for an item that may be there several times: then only the item as such is noted."""
    if len(items) == 1:
        _appear(kind, element, items[0], into)
    elif items:
        into.members.add(element)


def merge(kind: Type, left: Any, right: Any) -> Any:
    """``left`` with everything that ``right`` says; nothing is removed. ``ABSENT`` where nothing remains.

    Items that ``right`` orders anew come in its order, the others keep their place.
    Raises TypeMismatch for duplicates in ``right``.
    """
    form = _form(kind, left if right is ABSENT else right)
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
        value = one if other is ABSENT else merge(kind.field(name) or _nothing, one, other)
        if value is not ABSENT:
            merged[name] = value
    for name, other in right.items():
        if name not in left:
            value = merge(kind.field(name) or _nothing, ABSENT, other)
            if value is not ABSENT:
                merged[name] = value
    return merged or ABSENT


def _merge_items(kind: Type, left: list[Any], right: list[Any]) -> Any:
    ours, theirs = _elements(kind, left), _elements(kind, right)
    if len(set(theirs)) < len(theirs):
        twice = next(element for index, element in enumerate(theirs) if element in theirs[:index])
        raise TypeMismatch([("", f"duplicate entries for key {element_text(twice)}")])
    # A duplicated item of the live list is not merged with what is said of it: it is replaced.
    mine: dict[str, Any] = {}
    for element, item in zip(ours, left, strict=True):
        mine[element] = None if element in mine else item
    said = dict(zip(theirs, right, strict=True))
    shared = [element for element in theirs if element in mine]
    merged: list[Any] = []
    done: set[str] = set()

    def take(one: Any, other: Any) -> None:
        value = merge(kind.item, one, other)
        if value is not ABSENT:
            merged.append(value)

    at, there = 0, 0
    while at < len(ours) or there < len(theirs):
        if at < len(ours) and there < len(theirs):
            element = ours[at]
            if element == theirs[there]:
                done.add(element)
                take(mine[element], said[element])
                at, there = at + 1, there + 1
                del shared[:1]
                continue
            if element in said and shared and shared[0] != element:
                at += 1
                continue
        if at < len(ours):
            element = ours[at]
            if element not in said:
                take(left[at], ABSENT)
                at += 1
                continue
            if element in done:
                at += 1
        if there < len(theirs):
            element = theirs[there]
            done.add(element)
            take(mine.get(element, ABSENT), said[element])
            there += 1
            if shared and shared[0] == element:
                del shared[0]
    return merged or ABSENT


def remove(kind: Type, value: Any, items: FieldSet) -> Any:
    """``value`` without the fields and items of ``items``; containers that become empty so become null."""
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
            below = items.children.get(element)
            kept[name] = remove(kind.field(name) or _nothing, item, below) if below else item
        return kept or None
    if form == _LIST:
        if not isinstance(value, list) or not value or kind.list_atomic:
            return None
        rest = []
        for element, item in zip(_elements(kind, value), value, strict=True):
            if element in items.members:
                continue
            below = items.children.get(element)
            rest.append(remove(kind.item, item, below) if below else item)
        return rest or None
    return None


def name_fields(kind: Type | None, fields: FieldSet) -> FieldSet:
    """``fields``, with every declared field on the way to a member a member too; keys of maps are not."""
    members = set(fields.members)
    children = {}
    for element, child in fields.children.items():
        below: Type | None = None
        if element[0] == "f" and kind is not None and kind.is_map:
            name = element[2:]
            below = kind.field(name)
            if kind.declares(name):
                members.add(element)
        elif element[0] == "k" and kind is not None and kind.is_list:
            below = kind.item
        children[element] = name_fields(below, child)
    return FieldSet(members, children)
