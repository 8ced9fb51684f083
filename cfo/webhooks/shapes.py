"""Check that objects have the JSON types that webhooks rely on, before anything else reads them.

API servers call mutating webhooks before they validate an object against its schema, and any pod can call a webhook, so
each field can have any type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Mismatch = tuple[str, Any, type]
"""The path of a field relative to the checked value, the field's value, and the type that it must have."""


class Shape(msgspec.Struct, frozen=True):
    """The type that a value must have, and the shapes of its ``fields``, or of all its ``values`` or ``items``.

    Fields without a shape are not read. ``None`` is allowed unless ``required``; a missing field always is. ``type``
    ``object`` allows every type: the fields are checked if the value is an object. ``int`` includes 1.0, as for API
    servers.
    """

    type: type
    fields: Mapping[str, Shape] = msgspec.field(default_factory=dict)
    values: Shape | None = None
    items: Shape | None = None
    required: bool = False


def mismatches(value: Any, shape: Shape) -> Iterator[Mismatch]:
    """Yield the fields of ``value`` that have a wrong type, in the order of the shapes. Only their paths are built."""
    if value is None and not shape.required:
        return
    if not _has_type(value, shape.type):
        yield "", value, shape.type
    elif isinstance(value, dict):
        for name, inner in shape.fields.items():
            if name in value:
                for path, wrong, expected in mismatches(value[name], inner):
                    yield f".{name}{path}", wrong, expected
        if shape.values is not None:
            for name, inner_value in value.items():
                for path, wrong, expected in mismatches(inner_value, shape.values):
                    yield f"[{name}]{path}", wrong, expected
    elif shape.items is not None:
        for at, item in enumerate(value):
            for path, wrong, expected in mismatches(item, shape.items):
                yield f"[{at}]{path}", wrong, expected


def _has_type(value: Any, expected: type) -> bool:
    if expected is not int:
        return isinstance(value, expected)
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)
