"""The view that server-side apply has of a schema.

A :class:`Type` describes which values are valid at a path (a scalar, a list, a map, or several of these), which
containers are atomic (owned as a whole) and which keys identify the items of a list. It is derived lazily from a
:class:`~envtest.schema.schema_node.Schema`, by the rules of kube-openapi's ``schemaconv``:

- a schema without a type allows any value; by default, maps are granular and lists are atomic;
- an object with neither properties nor ``additionalProperties`` is free-form; ``x-kubernetes-preserve-unknown-fields``
  applies to everything below it;
- lists are atomic unless ``x-kubernetes-list-type`` or, without it, the patch strategy specifies another type.

:class:`ObjectType` adds the rules for whole objects: custom resources' metadata have the schema of ObjectMeta, and an
object of a built-in kind is never empty, because its Go struct has zero values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from envtest.builtins.catalog import schema_of
from envtest.builtins.normalization import zero
from envtest.schema.schema_node import MISSING, Schema

__all__ = ["ANYTHING", "ObjectType", "Type"]

_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW_EXTENSION: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_TIMES: Final = frozenset(
    f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}" for name in ("Time", "MicroTime")
)
_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class Type:
    """The valid values at one path.

    ``scalar`` is ``string``, ``numeric``, ``boolean``, ``untyped`` (any of these) or empty. ``is_list`` comes with
    ``list_atomic``, ``list_keys`` (empty for sets) and :meth:`item`; ``is_map`` with ``map_atomic`` and :meth:`field`.
    """

    __slots__ = (
        "_element",
        "_element_resolved",
        "_fields",
        "_item",
        "_metadata",
        "_preserve",
        "_root",
        "_schema",
        "is_list",
        "is_map",
        "list_atomic",
        "list_keys",
        "map_atomic",
        "scalar",
    )

    def __init__(
        self,
        schema: Schema | None,
        *,
        preserve: bool = False,
        metadata: Type | None = None,
        root: bool = False,
    ) -> None:
        self._schema = schema
        self._metadata = metadata
        self._fields: dict[str, Type | None] = {}
        self._item: Type | None = None
        self._element: Type | None = None
        self._element_resolved = False
        self.scalar = ""
        self.is_list = False
        self.is_map = False
        self.list_atomic = True
        self.list_keys: tuple[str, ...] = ()
        self.map_atomic = False
        self._preserve = False
        self._root = root
        if schema is None:
            return
        if schema.ref == _QUANTITY:
            self.scalar = "untyped"
            return
        if schema.ref == _RAW_EXTENSION:
            self._allow_any()
            self.map_atomic = True
            self._item = UNTYPED
            self._element = UNTYPED
            self._element_resolved = True
            return
        self._preserve = (preserve and not schema.ref) or schema.preserve_unknown
        kind = schema.type
        if kind in ("object", ""):
            self.is_map = True
            self.map_atomic = schema.map_type == "atomic"
        if kind in ("array", ""):
            self.is_list = True
            self._read_list(schema)
        if kind == "":
            self.scalar = "untyped"
        elif kind in ("integer", "number"):
            self.scalar = "numeric"
        elif kind == "boolean":
            self.scalar = "boolean"
        elif kind == "string":
            self.scalar = "string" if schema.format in ("", "byte") else "untyped"

    def _allow_any(self) -> None:
        self.scalar = "untyped"
        self.is_list = True
        self.is_map = True

    def _read_list(self, schema: Schema) -> None:
        if schema.list_type:
            self.list_atomic = schema.list_type == "atomic"
            self.list_keys = schema.list_map_keys if schema.list_type == "map" else ()
        elif "merge" in schema.patch_strategy:
            self.list_atomic = False
            self.list_keys = (schema.patch_merge_key,) if schema.patch_merge_key else ()

    @property
    def item(self) -> Type:
        """The type of a list's items."""
        if self._item is None:
            items = self._schema.items if self._schema is not None else None
            self._item = UNTYPED if items is None else self._child(items)
        return self._item

    def _child(self, schema: Schema) -> Type:
        return Type(schema, preserve=self._preserve, metadata=self._metadata)

    def declares(self, name: str) -> bool:
        """Report whether ``name`` is a declared field, and not only a key of a map."""
        if self._schema is None:
            return False
        return name in self._schema.properties or (
            self._is_object and name in ("apiVersion", "kind", "metadata")
        )

    @property
    def has_fields(self) -> bool:
        """Whether any field is declared."""
        return self._is_object or bool(self._schema is not None and self._schema.properties)

    @property
    def _is_object(self) -> bool:
        """Whether the value is a whole object: the root of a custom resource, or an embedded resource."""
        return self._root or (
            self._metadata is not None and self._schema is not None and self._schema.embedded
        )

    def field(self, name: str) -> Type | None:
        """Return the type of a field or map value; ``None`` when ``name`` is not allowed."""
        try:
            return self._fields[name]
        except KeyError:
            pass
        if self._is_object and name in ("apiVersion", "kind", "metadata"):
            found: Type | None = self._metadata if name == "metadata" else STRING
        elif self._schema is not None and name in self._schema.properties:
            found = self._child(self._schema.properties[name])
        else:
            return self.element
        self._fields[name] = found
        return found

    @property
    def element(self) -> Type | None:
        """The type of map values whose keys are not declared; ``None`` when such keys are not allowed."""
        if not self._element_resolved:
            self._element = self._resolve_element()
            self._element_resolved = True
        return self._element

    def _resolve_element(self) -> Type | None:
        if self._schema is None:
            return None
        additional = self._schema.raw.get("additionalProperties")
        if additional is None:
            return ANYTHING if self._preserve or not self.has_fields else None
        if isinstance(additional, Mapping):
            inner = self._schema.additional
            if inner is None:
                inner = _EMPTY
            return self._child(inner)
        return ANYTHING if additional else None

    def key_default(self, name: str) -> Any:
        """Return the default of a key field in items of this type; ``None`` when there is none."""
        if self._schema is None or name not in self._schema.properties:
            return None
        default = self._schema.properties[name].default
        return None if default is MISSING else default

    @property
    def is_free_form(self) -> bool:
        """Whether nothing is declared inside the map, so that schema changes never change ownership there."""
        return self.is_map and not self.has_fields and self.element is ANYTHING

    def __repr__(self) -> str:
        kinds = [self.scalar] if self.scalar else []
        kinds += ["list"] * self.is_list + ["map"] * self.is_map
        return f"Type({' or '.join(kinds)})"


_EMPTY: Final = Schema({})
_FREE_FORM: Final = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})

UNTYPED: Final = Type(None)
"""Any value, atomic."""

ANYTHING: Final = Type(None)
"""Any value; maps are granular, lists atomic."""

STRING: Final = Type(Schema({"type": "string"}))

for _each in (UNTYPED, ANYTHING):
    _each._allow_any()
    _each._item = UNTYPED
    _each._element = _each
    _each._element_resolved = True
UNTYPED.map_atomic = True


class ObjectType:
    """The type of whole objects of one kind in one version.

    ``zero`` is the object of the kind before any field is set; a new object is compared with it.
    """

    __slots__ = ("root", "zero")

    def __init__(self, root: Type, zero: Mapping[str, Any]) -> None:
        self.root = root
        self.zero = zero

    @classmethod
    def builtin(cls, name: str) -> ObjectType:
        """Return the type of a built-in kind by the name of its schema (``io.k8s.api.core.v1.Pod``)."""
        schema = schema_of(name)
        return cls(Type(schema), _zero_object(zero(name)))

    @classmethod
    def custom(cls, schema: Schema | None, metadata: Schema) -> ObjectType:
        """Return the type of a custom resource; ``metadata`` is the schema of ``ObjectMeta``."""
        if schema is None:
            schema = _FREE_FORM
        return cls(Type(schema, metadata=Type(metadata), root=True), {})


def _zero_object(zero_value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a zero value without the identity of the object."""
    return {name: value for name, value in zero_value.items() if name not in ("apiVersion", "kind")}
