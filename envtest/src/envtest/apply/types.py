"""What server-side apply needs to know of a schema.

A :class:`Type` says what may stand at a place: a scalar, a list, a map, or several of these; which containers are
atomic (owned as a whole) and by which keys the items of a list are told apart. It is derived from a
:class:`~envtest.schema.node.Schema` by the rules of kube-openapi's ``schemaconv``, piece by piece as objects ask
for it:

- a place without a type takes anything; what nothing is known of has granular maps and atomic lists;
- an object with neither properties nor ``additionalProperties`` is free-form; ``x-kubernetes-preserve-unknown-fields``
  holds for everything below it;
- lists are atomic unless ``x-kubernetes-list-type`` or, failing that, the patch strategy says otherwise.

:class:`ObjectType` adds what is only true of whole objects: the metadata of custom resources is that of every object,
and a built-in kind is never empty, because its Go struct is not (see :func:`zero_object`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from envtest.schema.node import MISSING, Schema

__all__ = ["ANYTHING", "ObjectType", "Type", "zero_object"]

_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_TIMES: Final = frozenset(f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}" for name in ("Time", "MicroTime"))
_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class Type:
    """What may stand at one place.

    ``scalar`` is ``string``, ``numeric``, ``boolean``, ``untyped`` (any of these) or empty. ``is_list`` with
    ``list_atomic``, ``list_keys`` (empty for sets) and :meth:`item`; ``is_map`` with ``map_atomic`` and :meth:`field`.
    """

    __slots__ = (
        "_element",
        "_element_made",
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
        self, schema: Schema | None, *, preserve: bool = False, metadata: Type | None = None, root: bool = False
    ) -> None:
        self._schema = schema
        self._metadata = metadata
        self._fields: dict[str, Type | None] = {}
        self._item: Type | None = None
        self._element: Type | None = None
        self._element_made = False
        self.scalar = ""
        self.is_list = self.is_map = False
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
        if schema.ref == _RAW:
            self._any()
            self.map_atomic = True
            self._item, self._element, self._element_made = UNTYPED, UNTYPED, True
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

    def _any(self) -> None:
        self.scalar = "untyped"
        self.is_list = self.is_map = True

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
        """Whether ``name`` is a field of its own, and not just a key of a map."""
        if self._schema is None:
            return False
        return name in self._schema.properties or (self._is_object and name in ("apiVersion", "kind", "metadata"))

    @property
    def has_fields(self) -> bool:
        """Whether any field is declared."""
        return self._is_object or bool(self._schema is not None and self._schema.properties)

    @property
    def _is_object(self) -> bool:
        """Whether a whole object of its own stands here: the root of a custom resource, or an embedded one."""
        return self._root or (self._metadata is not None and self._schema is not None and self._schema.embedded)

    def field(self, name: str) -> Type | None:
        """The type of a field or map value; ``None`` where ``name`` is not allowed."""
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
        """The type of map values whose keys are not declared; ``None`` where there may be none."""
        if not self._element_made:
            self._element = self._make_element()
            self._element_made = True
        return self._element

    def _make_element(self) -> Type | None:
        if self._schema is None:
            return None
        additional = self._schema.raw.get("additionalProperties")
        if additional is None:
            return ANYTHING if self._preserve or not self.has_fields else None
        if isinstance(additional, Mapping):
            inner = self._schema.additional
            return self._child(inner if inner is not None else _EMPTY)
        return ANYTHING if additional else None

    def key_default(self, name: str) -> Any:
        """The default of a key field of the items described by this type; ``None`` where there is none."""
        if self._schema is None or name not in self._schema.properties:
            return None
        default = self._schema.properties[name].default
        return None if default is MISSING else default

    @property
    def is_free_form(self) -> bool:
        """Whether nothing is known of what is below: ownership there is never changed by a change of the schema."""
        return self.is_map and not self.has_fields and self.element is ANYTHING

    def __repr__(self) -> str:
        kinds = [self.scalar] if self.scalar else []
        kinds += ["list"] * self.is_list + ["map"] * self.is_map
        return f"Type({' or '.join(kinds)})"


_EMPTY: Final = Schema({})
_FREE_FORM: Final = Schema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})

UNTYPED: Final = Type(None)
"""Anything, atomic."""

ANYTHING: Final = Type(None)
"""Anything: maps are granular, lists atomic."""

STRING: Final = Type(Schema({"type": "string"}))

for _each in (UNTYPED, ANYTHING):
    _each._any()
    _each._item = UNTYPED
    _each._element = _each
    _each._element_made = True
UNTYPED.map_atomic = True


class ObjectType:
    """The type of whole objects of one kind in one version.

    ``zero`` is what an object of the kind is before anything was said: what a creation is compared with.
    """

    __slots__ = ("root", "zero")

    def __init__(self, root: Type, zero: Mapping[str, Any]) -> None:
        self.root = root
        self.zero = zero

    @classmethod
    def builtin(cls, schema: Schema) -> ObjectType:
        """The type of a built-in kind."""
        return cls(Type(schema), zero_object(schema))

    @classmethod
    def custom(cls, schema: Schema | None, metadata: Schema) -> ObjectType:
        """The type of a custom resource; ``metadata`` is the schema of ``ObjectMeta``."""
        return cls(Type(schema if schema is not None else _FREE_FORM, metadata=Type(metadata), root=True), {})


def zero_object(schema: Schema) -> dict[str, Any]:
    """What an empty Go struct of a built-in type looks like as JSON.

    OpenAPI tells: structs that are not pointers have the default ``{}`` and are always written; scalars without
    ``omitempty`` have their zero value as default; what is required is written, too, and for lists, maps and pointers
    its zero value is null.
    """
    zero: dict[str, Any] = {}
    in_metadata = schema.ref == _METADATA
    for name in schema.properties:
        field = schema.properties[name]
        if field.ref in _TIMES:
            if not in_metadata:
                zero[name] = None
        elif field.type == "object" and field.default == {}:
            zero[name] = zero_object(field)
        elif name in schema.required or _is_zero(field.default):
            zero[name] = _zero_value(field)
    return zero


def _is_zero(default: Any) -> bool:
    return default is not MISSING and default in ("", 0, False)


def _zero_value(field: Schema) -> Any:
    if field.ref or field.type not in ("string", "integer", "number", "boolean"):
        return None
    return {"string": "", "boolean": False}.get(field.type, 0)
