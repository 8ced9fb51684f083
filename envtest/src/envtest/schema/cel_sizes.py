"""The largest sizes of the values that a schema admits, from which the cost of a rule is estimated.

The sizes are those of ``SchemaDeclType`` in ``k8s.io/apiserver/pkg/cel/common``. A schema without a limit admits as
much as a request has room for: 3 MiB, divided by the size of the smallest item in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from envtest.schema.cel_types import escape

__all__ = ["Sized", "SizedSchemas"]

_MAX_REQUEST: Final = 3 * 1024 * 1024
_MAX_STRING: Final = _MAX_REQUEST - 2
"""The bytes of a string, without its quotes, that fills a request."""

_BYTES_PER_CHARACTER: Final = 4
_EMPTY: Final = 2
"""The bytes of ``""``, ``[]`` and ``{}``."""

_MEMBER_PUNCTUATION: Final = 4
"""The bytes of the quotes, the colon and the comma of a required property."""

_ENTRY_PUNCTUATION: Final = 6
"""The bytes that kube-apiserver adds to the value of a map entry, for its key and punctuation."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A type of values: its ``kind``, the most elements (items, entries, bytes) and the fewest bytes in JSON.

    ``kind`` is ``list``, ``map``, ``object`` or a scalar's CEL type; ``element`` is the type of items, or of a map's
    values; ``fields`` are the types of an object's fields by CEL identifier.
    """

    kind: str
    max_elements: int = 0
    min_bytes: int = _EMPTY
    element: Sized | None = None
    fields: Mapping[str, Sized] = field(default_factory=dict)

    @property
    def max_occurrences(self) -> int:
        """How many of these values fit into a request; each has a comma."""
        return _MAX_REQUEST // (self.min_bytes + 1)

    def at(self, step: str) -> Sized | None:
        """Return the type at one step of a path: ``@items``, ``@values``, ``@keys`` or the name of a field."""
        match step:
            case "@items" | "@values":
                return self.element
            case "@keys":
                return _STRING if self.kind == "map" else None
        return self.fields.get(step)


_STRING: Final = Sized("string")
_SCALARS: Final[Mapping[str, Sized]] = {
    "boolean": Sized("bool", min_bytes=4),
    "integer": Sized("int", min_bytes=1),
    "number": Sized("double", min_bytes=1),
}
_FORMATS: Final[Mapping[str, Sized]] = {
    "date": Sized("timestamp", max_elements=12, min_bytes=12),
    "date-time": Sized("timestamp", max_elements=32, min_bytes=21),
    "duration": Sized("duration", max_elements=32, min_bytes=3),
}
_UNLIMITED_STRING: Final = Sized("string", max_elements=_MAX_STRING)
_METADATA: Final = Sized(
    "object", fields={"name": _UNLIMITED_STRING, "generateName": _UNLIMITED_STRING}
)
_OBJECT_FIELDS: Final[Mapping[str, Sized]] = {
    "apiVersion": _UNLIMITED_STRING,
    "kind": _UNLIMITED_STRING,
    "metadata": _METADATA,
}
"""The fields of each object with a kind, which replace those in the schema."""


class SizedSchemas:
    """The types of the nodes of one schema; each node is read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bool], tuple[Mapping[str, Any], Sized | None]] = {}

    def of(self, raw: Mapping[str, Any], *, is_resource: bool = False) -> Sized | None:
        """Return the type of a node; ``None`` if CEL expressions do not see its values.

        ``is_resource`` is whether the node describes an object with a kind: a root or an embedded resource.
        """
        key = (id(raw), is_resource)
        known = self._known.get(key)
        if known is None:
            # The node is stored too, so that its id cannot become that of another node.
            known = (raw, self._read(raw, is_resource=is_resource))
            self._known[key] = known
        return known[1]

    def _child(self, raw: Mapping[str, Any]) -> Sized | None:
        return self.of(raw, is_resource=bool(raw.get("x-kubernetes-embedded-resource")))

    def _read(self, raw: Mapping[str, Any], *, is_resource: bool) -> Sized | None:
        if raw.get("x-kubernetes-int-or-string"):
            return Sized("dyn", max_elements=_max_length(raw, _MAX_STRING), min_bytes=1)
        match raw.get("type"):
            case "array":
                return self._list(raw)
            case "object":
                if isinstance(raw.get("additionalProperties"), Mapping):
                    return self._map(raw)
                return self._object(raw, is_resource=is_resource)
            case "string":
                return _string(raw)
        return _SCALARS.get(raw.get("type") or "")

    def _list(self, raw: Mapping[str, Any]) -> Sized | None:
        items = raw.get("items")
        element = self._child(items) if isinstance(items, Mapping) else None
        if element is None:
            return None
        limit = raw.get("maxItems")
        if limit is None:
            limit = (_MAX_REQUEST - _EMPTY) // (element.min_bytes + 1)
        return Sized("list", max_elements=max(limit, 0), element=element)

    def _map(self, raw: Mapping[str, Any]) -> Sized | None:
        element = self._child(raw["additionalProperties"])
        if element is None:
            return None
        limit = raw.get("maxProperties")
        if limit is None:
            limit = (_MAX_REQUEST - _EMPTY) // (element.min_bytes + _ENTRY_PUNCTUATION)
        return Sized("map", max_elements=max(limit, 0), element=element)

    def _object(self, raw: Mapping[str, Any], *, is_resource: bool) -> Sized:
        required = frozenset(raw.get("required") or ())
        types = {name: self._child(node) for name, node in (raw.get("properties") or {}).items()}
        defaulted = {
            name
            for name, node in (raw.get("properties") or {}).items()
            if node.get("default") is not None
        }
        if is_resource:
            types |= _OBJECT_FIELDS
            defaulted -= _OBJECT_FIELDS.keys()
        fields: dict[str, Sized] = {}
        min_bytes = _EMPTY
        for name, each in types.items():
            if each is None:
                continue
            identifier = escape(name)
            if identifier is not None:
                fields[identifier] = each
            if name in required and name not in defaulted:
                min_bytes += len(name.encode()) + each.min_bytes + _MEMBER_PUNCTUATION
        return Sized("object", min_bytes=min_bytes, fields=fields)


def _max_length(raw: Mapping[str, Any], default: int) -> int:
    """Return the most bytes of a string whose length in characters is limited."""
    limit = raw.get("maxLength")
    return default if limit is None else max(limit, 0) * _BYTES_PER_CHARACTER


def _string(raw: Mapping[str, Any]) -> Sized:
    kind = raw.get("format") or ""
    if kind in _FORMATS:
        return _FORMATS[kind]
    if kind == "byte":
        limit = raw.get("maxLength")
        return Sized("bytes", max_elements=_MAX_STRING if limit is None else max(limit, 0))
    default = _MAX_STRING
    if raw.get("enum"):
        texts = [text for text in raw["enum"] if isinstance(text, str)]
        default = max((len(text.encode()) for text in texts), default=0)
    return Sized("string", max_elements=_max_length(raw, default))
