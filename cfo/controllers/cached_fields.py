"""Reads single fields of cached objects; nothing else of an object is decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from cfo.runtime import Entry

_T = TypeVar("_T")


def field_reader(*path: str, kind: type[_T], default: _T) -> Callable[[Entry], _T]:
    """Return a function that returns the field at ``path`` of a cached object; ``default`` if it is missing or null.

    The same if the field, or a part of its path, has another type: a CRD without a schema accepts any.
    """
    top, *below = path
    decoded: Any = kind
    for name in reversed(below):
        fields = [("value", decoded | None, None)]
        decoded = msgspec.defstruct("Field", fields, rename={"value": name}, gc=False)
    decoder = msgspec.json.Decoder(decoded | None)

    def read(entry: Entry) -> _T:
        try:
            found: Any = decoder.decode(entry.part(top) or b"null")
        except msgspec.ValidationError:
            return default
        for _ in below:
            found = found.value if found is not None else None
        return default if found is None else found

    return read


class CachedCondition(msgspec.Struct, gc=False):
    """A condition, without its times."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


conditions_of = field_reader("status", "conditions", kind=tuple[CachedCondition, ...], default=())
"""Return the conditions of an object."""
