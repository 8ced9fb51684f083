"""Strategic merge patch: a merge patch with support for lists.

Lists whose schema has the patch strategy ``merge`` are merged by their merge key, lists of scalars as sets; all other
lists are replaced. Directives change this: ``$patch`` (``replace``, ``delete``, and the default ``merge``),
``$retainKeys``, ``$deleteFromPrimitiveList/<field>``, ``$setElementOrder/<field>``. See `the API conventions`_. The
order of merged lists and the error messages equal those in apimachinery's ``util/strategicpatch``.

.. _the API conventions: https://git.k8s.io/community/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from envtest.apimachinery.errors import StatusError, bad_request, plain_error
from envtest.apply.value_operations import json_equal
from envtest.builtins.catalog import plain_name
from envtest.formats.go_format import go_text, go_type
from envtest.schema.schema_node import Schema

__all__ = ["UncomparableKeys", "strategic_merge"]

_PATCH: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList"
_ORDER: Final = "$setElementOrder"

_BAD_DELETION: Final = "invalid patch format of primitive list"
_BAD_RETAIN_KEYS: Final = "invalid patch format of retainKeys"
_BAD_ORDER: Final = "invalid patch format of setElementOrder list"

_Map = dict[str, Any]
_REMOVED: Final = object()


class UncomparableKeys(ConnectionAbortedError):
    """Raised for merge keys that are two maps or two lists, whose comparison ends the connection without a response.

    Go cannot compare them: the handler of kube-apiserver panics.
    """


def _same_key(one: Any, other: Any) -> bool:
    """Compare two merge keys. Raises UncomparableKeys."""
    if isinstance(one, (dict, list)) and type(one) is type(other):
        raise UncomparableKeys("merge keys that are maps or lists cannot be compared")
    return json_equal(one, other)


def strategic_merge(schema: Schema | None, target: _Map, patch: _Map) -> _Map:
    """Return ``target`` after ``patch``; neither is modified, and the result shares nothing with them.

    Raises StatusError: 400 for malformed directives, 500 for a missing merge key or an unknown ``$patch``, as
    kube-apiserver does; UncomparableKeys.
    """
    return _merge_map(orjson.loads(orjson.dumps(target)), orjson.loads(orjson.dumps(patch)), schema)


def _no_merge_key(item: _Map, key: str) -> StatusError:
    return plain_error(f"map: {go_text(item)} does not contain declared merge key: {key}")


def _bad_type(expected: str, value: Any) -> StatusError:
    received = "%!s(<nil>)" if value is None else go_type(value)
    return plain_error(f"expected a {expected}, but received a {received}")


def _bad_directive(directive: Any, item: _Map) -> StatusError:
    return plain_error(f"unknown patch type: {go_text(directive)} in map: {go_text(item)}")


def _field(schema: Schema | None, name: str) -> Schema | None:
    return schema.field(name) if schema is not None else None


def _strategy(schema: Schema | None) -> str:
    """Return ``merge``, ``replace`` or an empty string."""
    others = (
        [name for name in schema.patch_strategy if name != "retainKeys"]
        if schema is not None
        else []
    )
    return others[0] if others else ""


def _merge_map(original: _Map, patch: _Map, schema: Schema | None) -> _Map:
    if _PATCH in patch:
        directive = patch[_PATCH]
        if directive == "replace":
            del patch[_PATCH]
            return patch
        if directive == "delete":
            return {}
        raise _bad_directive(directive, patch)
    _retain_keys(original, patch)
    _merge_ordered_lists(original, patch, schema)
    for key, value in patch.items():
        name = key
        deletes = key.startswith(_DELETE_FROM)
        if deletes:
            name = _directive_field(key, _BAD_DELETION)
        if value is None:
            original.pop(name, None)
        else:
            _merge_value(original, name, value, schema, deletes=deletes)
    return original


def _merge_value(
    original: _Map, name: str, value: Any, schema: Schema | None, *, deletes: bool
) -> None:
    current = original.get(name)
    field = _field(schema, name)
    if isinstance(current, dict) and isinstance(value, dict):
        if field is not None and field.ref.endswith(_RAW):
            _check_embedded(current, value)
        original[name] = (
            value if _strategy(field) == "replace" else _merge_map(current, value, field)
        )
    elif isinstance(current, list) and isinstance(value, list):
        original[name] = _merge_list_value(current, value, field, deletes=deletes)
    elif not deletes:
        same_kind = name in original and type(current) is type(value)
        if not same_kind:
            value = _without_nulls(value)
        value_to_set = _without_directives(value)
        if value_to_set is _REMOVED:
            original.pop(name, None)
        else:
            original[name] = value_to_set


_RAW: Final = ".RawExtension"
"""The type of embedded objects, whose fields have no schema."""


def _check_embedded(current: _Map, patch: _Map) -> None:
    """Raise StatusError (500) if maps or lists of an embedded object would be merged."""
    for name, value in patch.items():
        if isinstance(value, (dict, list)) and type(value) is type(current.get(name)):
            raise plain_error(
                f'unable to find api field in struct RawExtension for the json field "{name}"'
            )


def _directive_field(key: str, problem: str) -> str:
    """Return the field of a directive of the form ``$directive/field``."""
    directive, slash, name = key.partition("/")
    if not slash or directive not in (_DELETE_FROM, _ORDER):
        raise bad_request(problem)
    return name


def _retain_keys(original: _Map, patch: _Map) -> None:
    if _RETAIN_KEYS not in patch:
        return
    names = patch.pop(_RETAIN_KEYS)
    if not isinstance(names, list):
        raise bad_request(_BAD_RETAIN_KEYS)
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE_FROM, _ORDER)) and key not in names:
            raise bad_request(_BAD_RETAIN_KEYS)
    for key in [key for key in original if key not in names]:
        del original[key]


def _merge_ordered_lists(original: _Map, patch: _Map, schema: Schema | None) -> None:
    """Merge the lists for which the patch sets the order."""
    for directive in [key for key in patch if key.startswith(_ORDER)]:
        order = patch.pop(directive)
        if not isinstance(order, list):
            raise _bad_type("[]interface {}", order)
        name = _directive_field(directive, _BAD_ORDER)
        field = _field(schema, name)
        key = field.patch_merge_key if field is not None else ""
        for holder in (original, patch):
            if name in holder and not isinstance(holder[name], list):
                raise _bad_type("[]interface {}", holder[name])
        live = original.get(name)
        patched = patch.get(name)
        _check_order(patched or [], order, key)
        if live is None and patched is None:
            continue
        if patched is None:
            merged = live or []
        elif live is None:
            merged = _without_directives(patched)
        else:
            merged = _merge_list_value(live, patched, field, deletes=False)
        listed, others = _partition(merged, order, key)
        _check_items(live or [], patched or [])
        original[name] = _in_order(listed, others, order, live or [], key)
        patch.pop(name, None)


def _check_order(patched: list[Any], order: list[Any], key: str) -> None:
    """Reject a patch whose items are in an order other than the one that it sets."""
    if not order or not patched:
        return
    items = [item for item in patched if not _has_directive(item)] if key else patched
    item_index = 0
    order_index = 0
    while item_index < len(items) and order_index < len(order):
        if _same_item(items[item_index], order[order_index], key):
            item_index += 1
        order_index += 1
    if item_index < len(items):
        raise plain_error(
            f"The order in patch list:\n{go_text(patched)}\n doesn't match {_ORDER} list:\n{go_text(order)}\n"
        )


def _has_directive(item: Any) -> bool:
    return isinstance(item, dict) and _PATCH in item


def _same_item(left: Any, right: Any, key: str) -> bool:
    if not key:
        return json_equal(left, right)
    for item in (left, right):
        if not isinstance(item, dict):
            raise _bad_type("map[string]interface {}", item)
        if key not in item:
            raise _no_merge_key(item, key)
    return _same_key(left[key], right[key])


def _check_items(*lists: list[Any]) -> bool:
    """Return whether the items are maps; rejects lists of lists and lists of mixed types."""
    kinds = [go_type(item) for items in lists for item in items]
    if not kinds:
        raise plain_error("no elements in any of the given slices")
    if kinds[0] == "[]interface {}":
        raise StatusError(
            422, "Invalid", "the server rejected our request due to an error in our request", {}
        )
    if any(kind != kinds[0] for kind in kinds):
        raise plain_error(f"list element types are not identical: {go_text(list(lists))}")
    return kinds[0] == "map[string]interface {}"


def _merge_list_value(
    current: list[Any], patch: list[Any], field: Schema | None, *, deletes: bool
) -> list[Any]:
    if _strategy(field) != "merge" and not deletes:
        return patch
    if not current and not patch:
        return current
    key = field.patch_merge_key if field is not None else ""
    if not _check_items(current, patch):
        if deletes:
            return [item for item in current if not _contains(patch, item)]
        merged = _unique([*current, *patch])
    else:
        if not key:
            type_name = plain_name(field.ref) if field is not None else ""
            raise plain_error(f"cannot merge lists without merge key for {type_name}")
        current, patch = _apply_item_directives(current, patch, key)
        item_schema = field.items if field is not None else None
        merged = _merge_items(current, patch, key, item_schema)
    listed, others = _partition(merged, patch, key)
    return _in_order(listed, others, patch, current, key)


def _contains(items: list[Any], item: Any) -> bool:
    return any(json_equal(item, each) for each in items)


def _unique(items: list[Any]) -> list[Any]:
    """Return the items without duplicates; each removed item is replaced by the last item of the list."""
    items = list(items)
    first = 0
    while first < len(items) - 1:
        second = first + 1
        while second < len(items):
            if json_equal(items[first], items[second]):
                items[second] = items[-1]
                items.pop()
            else:
                second += 1
        first += 1
    return items


def _apply_item_directives(
    current: list[Any], patch: list[Any], key: str
) -> tuple[list[Any], list[Any]]:
    """Apply the ``$patch`` directives of items; return the remaining items of both lists."""
    plain = []
    replace = False
    for item in patch:
        if _PATCH not in item:
            plain.append(item)
        elif item[_PATCH] == "delete":
            if key not in item:
                raise _no_merge_key(item, key)
            current = [
                one for one in current if not (key in one and _same_key(one[key], item[key]))
            ]
        elif item[_PATCH] == "replace":
            replace = True
        elif item[_PATCH] == "merge":
            raise plain_error("merging lists cannot yet be specified in the patch")
        else:
            raise _bad_directive(item[_PATCH], item)
    return (plain, []) if replace else (current, plain)


def _merge_items(
    current: list[Any], patch: list[Any], key: str, schema: Schema | None
) -> list[Any]:
    merged = list(current)
    for item in patch:
        if key not in item:
            raise _no_merge_key(item, key)
        for index, one in enumerate(merged):
            if key in one and _same_key(one[key], item[key]):
                merged[index] = _merge_map(one, item, schema)
                break
        else:
            merged.append(item)
    return merged


def _partition(merged: list[Any], listed: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Split ``merged`` into the items that are in ``listed`` and the others."""
    named: list[Any] = []
    others: list[Any] = []
    for item in merged:
        if key:
            if not isinstance(item, dict):
                raise _bad_type("map[string]interface {}", item)
            if key not in item:
                raise _no_merge_key(item, key)
        (named if _position(listed, item, key) >= 0 else others).append(item)
    return named, others


def _position(items: list[Any], item: Any, key: str) -> int:
    for index, one in enumerate(items):
        if key:
            if isinstance(one, dict) and key in one and _same_key(one[key], item.get(key)):
                return index
        elif json_equal(one, item):
            return index
    return -1


def _sorted_by(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """Sort items in the order of another list; an item that is not in that list precedes the item before it."""
    if key:
        for item in (*items, *order):
            if not isinstance(item, dict):
                raise _no_merge_key({}, key)
            if key not in item:
                raise _no_merge_key(item, key)
    placed = [item for item in items if not (key and _is_deletion(item))]
    for start in range(1, len(placed)):
        position = start
        while position > 0 and _precedes(placed[position], placed[position - 1], order, key):
            item = placed[position]
            placed[position] = placed[position - 1]
            placed[position - 1] = item
            position -= 1
    return placed + [item for item in items if key and _is_deletion(item)]


def _is_deletion(item: Any) -> bool:
    return isinstance(item, dict) and item.get(_PATCH) == "delete"


def _precedes(left: Any, right: Any, order: list[Any], key: str) -> bool:
    one = _position(order, left, key)
    other = _position(order, right, key)
    if one < 0 or other < 0:
        return True
    return one < other


def _in_order(
    listed: list[Any], others: list[Any], order: list[Any], live: list[Any], key: str
) -> list[Any]:
    """Merge the items that the patch does not list into those that it lists, at their position in the live list."""
    listed = _sorted_by(listed, order, key)
    others = _sorted_by(others, live, key)
    merged: list[Any] = []
    other_index = 0
    listed_index = 0
    while other_index < len(others) and listed_index < len(listed):
        one = _position(live, others[other_index], key)
        other = _position(live, listed[listed_index], key)
        if 0 <= one < other:
            merged.append(others[other_index])
            other_index += 1
        else:
            merged.append(listed[listed_index])
            listed_index += 1
    return merged + others[other_index:] + listed[listed_index:]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _without_directives(value: Any) -> Any:
    """Return ``value`` as a new value: parts with ``$patch`` apply to existing values only, and are omitted."""
    if isinstance(value, dict):
        if _PATCH in value:
            return _REMOVED
        fields = {name: _without_directives(item) for name, item in value.items()}
        return {name: item for name, item in fields.items() if item is not _REMOVED}
    if isinstance(value, list):
        return [item for item in map(_without_directives, value) if item is not _REMOVED]
    return value
