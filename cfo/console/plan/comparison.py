"""The part of an existing object that a server-side apply would change.

An existing object contains more than what the operator applies: defaults of the API server, the status, and fields of
other managers. :func:`restricted` removes these, so that the rest can be compared with the desired object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cfo.api.quantity import is_quantity, parse_quantity
from cfo.runtime import Object

_KEYS: Final = ("mountPath", "containerPort", "name", "port")
"""The fields that identify the items of lists, the most specific one first."""

_QUANTITY_FIELDS: Final = frozenset({"limits", "requests", "sizeLimit"})


def restricted(live: Object, *shapes: Object) -> Object:
    """Return ``live`` with only the fields that one of ``shapes`` has, in the order and notation of the shapes.

    Lists are matched by the key of their items, or by position.
    """
    metadata = ("apiVersion", "kind")
    kept: Object = _restricted(live, [shape for shape in shapes if shape], is_quantity_field=False)
    return {**{key: live[key] for key in metadata if key in live}, **kept}


def _restricted(live: Any, shapes: Sequence[Any], *, is_quantity_field: bool) -> Any:
    if isinstance(live, Mapping):
        maps = [shape for shape in shapes if isinstance(shape, Mapping)]
        if not maps:
            return live
        return {
            key: _restricted(
                live[key],
                [shape[key] for shape in maps if key in shape],
                is_quantity_field=is_quantity_field or key in _QUANTITY_FIELDS,
            )
            for key in dict.fromkeys(key for shape in maps for key in shape)
            if key in live
        }
    if isinstance(live, list):
        return _restricted_list(live, [shape for shape in shapes if isinstance(shape, list)], is_quantity_field)
    if is_quantity_field:
        return next((shape for shape in shapes if _is_same_quantity(live, shape)), live)
    return live


def _restricted_list(live: list[Any], shapes: list[list[Any]], is_quantity_field: bool) -> list[Any]:
    key = next((key for key in _KEYS if all(_identifies(key, items) for items in (live, *shapes))), None)
    if key is None:
        return [
            _restricted(
                item,
                [shape[index] for shape in shapes if len(shape) == len(live)],
                is_quantity_field=is_quantity_field,
            )
            for index, item in enumerate(live)
        ]
    by_key = {item[key]: item for item in live}
    wanted: dict[Any, list[Any]] = {}
    for shape in shapes:
        for item in shape:
            wanted.setdefault(item[key], []).append(item)
    return [
        _restricted(by_key[value], items, is_quantity_field=is_quantity_field)
        for value, items in wanted.items()
        if value in by_key
    ]


def _identifies(key: str, items: Iterable[Any]) -> bool:
    """Return whether each item has a different scalar as ``key``."""
    seen = set()
    for item in items:
        value = item.get(key) if isinstance(item, Mapping) else None
        if not isinstance(value, (str, int)) or value in seen:
            return False
        seen.add(value)
    return True


def _is_same_quantity(one: Any, other: Any) -> bool:
    return all(is_quantity(str(value)) for value in (one, other)) and parse_quantity(str(one)) == parse_quantity(
        str(other)
    )
