"""Objects from a cache that does not store all their fields, which must not be written back as if they were whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cfo.runtime.objects.unstructured import Object

__all__ = ["PartialObjectError", "Transform", "removed_field"]

Transform = Callable[[Object], Object]
"""Returns the object without the fields that need not be stored; it may modify and return its argument."""


class PartialObjectError(ValueError):
    """Raised for an update with an object from the cache of which a transform has removed fields."""


def removed_field(whole: Any, transformed: Any, obj: Any) -> str:
    """Return the path of a field that ``obj`` lacks because of a transform, or an empty string.

    ``whole`` is the object on the API server, and ``transformed`` is the same without the fields that the transform
    removes.
    """
    if isinstance(whole, Mapping) and isinstance(transformed, Mapping) and isinstance(obj, Mapping):
        for key, value in whole.items():
            if key not in obj:
                if key not in transformed:
                    return str(key)
            elif key in transformed:
                below = removed_field(value, transformed[key], obj[key])
                if below:
                    return f"{key}.{below}"
    lists = [each for each in (whole, transformed, obj) if isinstance(each, list)]
    if len(lists) == 3 and len({len(each) for each in lists}) == 1:
        for number, (value, kept, item) in enumerate(zip(*lists, strict=True)):
            below = removed_field(value, kept, item)
            if below:
                return f"{number}.{below}"
    return ""
