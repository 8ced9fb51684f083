"""Transforms: what an informer leaves out of the objects that it keeps, to save memory.

A transform is called with each object before it is stored, also with the responses to our own writes. It may only
remove fields, never change or add any: the client compares the stored values with those to apply. It cannot remove what
the cache itself needs: apiVersion, kind, and the metadata except for annotations. An object for which a transform
fails, or does something else, is logged once and kept whole.

:func:`drop_fields` removes fields without decoding the object, and is several times as fast as a function.

An object without some of its fields must not be written back: :meth:`~cfo.runtime.client.client.Client.update` refuses
it (:class:`~cfo.runtime.client.partial_objects.PartialObjectError`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cfo.runtime.objects.unstructured import Object

__all__ = [
    "FieldDropper",
    "TransformError",
    "check_transformed",
    "drop_fields",
]

_REMOVABLE_METADATA: Final = frozenset({"annotations"})

_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_encode: Final = msgspec.json.Encoder().encode


class TransformError(ValueError):
    """A transform that removed a field which the cache needs, or did more than removing fields."""


class FieldDropper:
    """A transform that removes the fields at ``paths``; see :func:`drop_fields`."""

    def __init__(self, paths: Sequence[tuple[str, ...]]) -> None:
        self.paths = tuple(paths)
        self._tree: dict[str, Any] = {}
        for path in self.paths:
            node = self._tree
            for key in path[:-1]:
                node = node.setdefault(key, {})
                if node is None:
                    break  # a shorter path removes the whole value
            else:
                node[path[-1]] = None

    def __call__(self, obj: Object) -> Object:
        """Return ``obj`` without the fields; modifies it."""
        _drop(obj, self._tree)
        return obj

    def drop_encoded(self, parts: dict[str, msgspec.Raw]) -> bool:
        """Remove the fields from an object whose fields are encoded; return whether there were any."""
        return _drop_encoded(parts, self._tree)


def drop_fields(*paths: str | Sequence[str]) -> FieldDropper:
    """Return a transform that removes the fields at ``paths``, with everything below them.

    A path is a string such as ``spec.template``, or a sequence of keys if a key contains a dot:
    ``("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")``. It cannot lead through a list.
    Raises :class:`ValueError` for a field that the cache needs.
    """
    split = [tuple(path.split(".")) if isinstance(path, str) else tuple(path) for path in paths]
    for path in split:
        if not path or not all(path):
            raise ValueError(f"{path!r}: must be the keys of a field")
        if path[0] in ("apiVersion", "kind") or (
            path[0] == "metadata" and (len(path) == 1 or path[1] not in _REMOVABLE_METADATA)
        ):
            raise ValueError(f"{'.'.join(path)}: the cache needs this field")
    return FieldDropper(split)


def check_transformed(original: Mapping[str, Any], transformed: Any) -> None:
    """Raise :class:`TransformError` unless ``transformed`` is ``original`` without fields that can be removed."""
    if not isinstance(transformed, Mapping):
        raise TransformError(f"returned {type(transformed).__name__}: must return the object")
    metadata = transformed.get("metadata")
    if not isinstance(metadata, Mapping):
        raise TransformError("removed metadata, which the cache needs")
    for path, needed, kept in (
        *((key, original.get(key), transformed.get(key)) for key in ("apiVersion", "kind")),
        *(
            (f"metadata.{key}", value, metadata.get(key))
            for key, value in original["metadata"].items()
            if key not in _REMOVABLE_METADATA
        ),
    ):
        if needed != kept:
            raise TransformError(f"removed or changed {path}, which the cache needs")
    changed = _changed_field(original, transformed, "")
    if changed:
        raise TransformError(f"changed or added {changed}; a transform may only remove fields")


def _drop(obj: Any, tree: Mapping[str, Any]) -> None:
    if not isinstance(obj, dict):
        return
    for key, below in tree.items():
        if below is None:
            obj.pop(key, None)
        else:
            _drop(obj.get(key), below)


def _drop_encoded(parts: dict[str, msgspec.Raw], tree: Mapping[str, Any]) -> bool:
    has_dropped = False
    for key, below in tree.items():
        if key not in parts:
            continue
        if below is None:
            del parts[key]
            has_dropped = True
            continue
        try:
            members = _parts.decode(parts[key])
        except msgspec.ValidationError:
            continue  # not an object: the field does not exist
        if members is not None and _drop_encoded(members, below):
            parts[key] = msgspec.Raw(_encode(members))
            has_dropped = True
    return has_dropped


def _changed_field(original: Any, transformed: Any, path: str) -> str:
    """Return the path of a value in ``transformed`` that ``original`` does not have; empty if there is none."""
    if isinstance(transformed, Mapping) and isinstance(original, Mapping):
        for key, value in transformed.items():
            if key not in original:
                return f"{path}.{key}".lstrip(".")
            changed = _changed_field(original[key], value, f"{path}.{key}")
            if changed:
                return changed
        return ""
    if isinstance(transformed, list) and isinstance(original, list) and len(transformed) == len(original):
        for number, (one, other) in enumerate(zip(original, transformed, strict=True)):
            changed = _changed_field(one, other, f"{path}[{number}]")
            if changed:
                return changed
        return ""
    return "" if type(transformed) is type(original) and transformed == original else path.lstrip(".")
