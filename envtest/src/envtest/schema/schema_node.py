"""A schema as data: one node for each type, field, list item and map value.

A node is created from the JSON form of an OpenAPI v3 schema, of a CRD or a built-in kind. Its children are created on
first access: a CRD of 930 kB costs only as much as its objects use, and the recursive types of the built-in kinds do
not need special handling. Nodes are shared and immutable.

References to built-in types are resolved by the ``resolve`` function that the node was created with. Keywords next to a
reference (a default, a merge key) belong to the field and override the keywords of the referenced type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

__all__ = ["MISSING", "Resolver", "Schema"]

Resolver: TypeAlias = Callable[[str], Mapping[str, Any]]
"""Returns the JSON form of a type by its name, the last part of a ``$ref``; raises ``KeyError``."""


class _Missing:
    """The type of ``MISSING``, an absent default; ``None`` would be a valid default."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()

_EMPTY: Mapping[str, Any] = {}


class _Fields(Mapping[str, "Schema"]):
    """The properties of a node, created on first access."""

    __slots__ = ("_nodes", "_raw", "_resolve")

    def __init__(
        self,
        raw: Mapping[str, Any],
        resolve: Resolver | None,
        nodes: dict[str, Schema] | None = None,
    ) -> None:
        self._raw = raw
        self._resolve = resolve
        self._nodes: dict[str, Schema] = nodes or {}

    def __getitem__(self, name: str) -> Schema:
        node = self._nodes.get(name)
        if node is None:
            node = Schema(self._raw[name], self._resolve)
            self._nodes[name] = node
        return node

    def __contains__(self, name: object) -> bool:
        return name in self._raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


class Schema:
    """One node.

    ``raw`` is the JSON form with the reference resolved (its children keep theirs). ``ref`` is the name of the built-in
    type that the node references (``io.k8s.api.core.v1.Container``), or empty. ``type`` is the JSON type, or empty when
    any type is allowed. ``list_type`` is ``atomic``, ``set``, ``map``, or ``None`` when the schema does not set it
    (server-side apply treats this as atomic). ``map_type`` is ``granular``, ``atomic`` or ``None`` (granular).
    ``patch_strategy`` and ``patch_merge_key`` are used by strategic merge patch.
    """

    __slots__ = (
        "_additional",
        "_items",
        "_resolve",
        "additional_allowed",
        "default",
        "embedded",
        "enum",
        "format",
        "int_or_string",
        "list_map_keys",
        "list_type",
        "map_type",
        "nullable",
        "patch_merge_key",
        "patch_strategy",
        "preserve_unknown",
        "properties",
        "raw",
        "ref",
        "required",
        "type",
    )

    def __init__(self, raw: Mapping[str, Any], resolve: Resolver | None = None) -> None:
        ref, raw = _resolved(raw, resolve)
        self.raw: Mapping[str, Any] = raw
        self.ref: str = ref
        self._resolve = resolve
        self._additional: Schema | None = None
        self._items: Schema | None = None
        get = raw.get
        self.type: str = get("type") or ""
        self.format: str = get("format") or ""
        self.properties: Mapping[str, Schema] = _Fields(get("properties") or _EMPTY, resolve)
        self.required: tuple[str, ...] = tuple(get("required") or ())
        self.enum: tuple[Any, ...] = tuple(get("enum") or ())
        self.default: Any = get("default", MISSING)
        self.nullable: bool = bool(get("nullable"))
        self.additional_allowed: bool = bool(get("additionalProperties"))
        self.preserve_unknown: bool = bool(get("x-kubernetes-preserve-unknown-fields"))
        self.embedded: bool = bool(get("x-kubernetes-embedded-resource"))
        self.int_or_string: bool = (
            bool(get("x-kubernetes-int-or-string")) or self.format == "int-or-string"
        )
        self.list_type: str | None = get("x-kubernetes-list-type")
        self.list_map_keys: tuple[str, ...] = tuple(get("x-kubernetes-list-map-keys") or ())
        self.map_type: str | None = get("x-kubernetes-map-type")
        strategies = get("x-kubernetes-patch-strategy") or ""
        self.patch_strategy: tuple[str, ...] = tuple(filter(None, strategies.split(",")))
        self.patch_merge_key: str = get("x-kubernetes-patch-merge-key") or ""

    def field(self, name: str) -> Schema | None:
        """Return the node of the field or map entry ``name``; ``None`` when the schema does not describe it."""
        if name in self.properties:
            return self.properties[name]
        return self.additional

    def with_field(self, name: str, node: Schema) -> Schema:
        """Return a copy of this node with the field ``name`` described by ``node``, which can use another resolver."""
        properties = {**(self.raw.get("properties") or {}), name: node.raw}
        copy = Schema({**self.raw, "properties": properties}, self._resolve)
        copy.properties = _Fields(properties, self._resolve, {name: node})
        return copy

    @property
    def additional(self) -> Schema | None:
        """The node of a map's values, if the schema describes them (``additionalProperties: true`` does not)."""
        if self._additional is None:
            raw = self.raw.get("additionalProperties")
            if isinstance(raw, Mapping) and raw:
                self._additional = Schema(raw, self._resolve)
        return self._additional

    @property
    def items(self) -> Schema | None:
        """The node of a list's items."""
        if self._items is None:
            raw = self.raw.get("items")
            if isinstance(raw, Mapping):
                self._items = Schema(raw, self._resolve)
        return self._items

    @property
    def is_schemaless(self) -> bool:
        """Whether the schema does not restrict the value: any value is valid."""
        return not (self.type or self.properties or self.int_or_string or self.additional_allowed)

    def __repr__(self) -> str:
        return f"Schema({self.ref or self.type or 'any'})"


def _resolved(raw: Mapping[str, Any], resolve: Resolver | None) -> tuple[str, Mapping[str, Any]]:
    """Return the name of the referenced type, and the JSON form with the reference resolved."""
    target = raw.get("$ref")
    if target is None:
        parts = raw.get("allOf")
        if parts and len(parts) == 1 and "$ref" in parts[0]:
            target = parts[0]["$ref"]
    if target is None or resolve is None:
        return "", raw
    name = target.rpartition("/")[2]
    own = {word: value for word, value in raw.items() if word not in ("$ref", "allOf")}
    inner, base = _resolved(resolve(name), resolve)
    return inner or name, {**base, **own} if own else base
