"""The strategy of custom resources: the behavior that their CRD defines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from envtest.apimachinery.errors import bad_request
from envtest.apimachinery.field_errors import FieldError, duplicate, go_json, invalid
from envtest.apimachinery.name_rules import qualified_name
from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import OBJECT_META
from envtest.builtins.normalization import DecodeError, EmbeddedTypeError, decode
from envtest.crd.embedded_resources import (
    embedded_resource_errors,
    embedded_resources,
    path_below,
)
from envtest.formats.go_format import go_text, go_type
from envtest.registry.resource import MetadataChecks, RequestContext, Strategy
from envtest.schema.cel_rules import compile_rules
from envtest.schema.schema_node import Schema
from envtest.schema.shaping import compile_defaulter, compile_pruner, copy_json
from envtest.schema.validation import compile_validator, validate

__all__ = ["CustomResourceStrategy", "value_at"]

_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_IDENTITY = frozenset({"apiVersion", "kind", "metadata"})
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_MAX_INT32 = 2**31 - 1


class CustomResourceStrategy(Strategy):
    """Decodes, defaults and validates the objects of one version of a CRD.

    ``schema`` is the version's ``openAPIV3Schema``, ``scale`` its scale subresource or ``None``.
    """

    allow_create_on_update = False
    has_qualified_finalizers = False
    allow_unconditional_update = False
    has_spec_generation = True
    metadata_checks = MetadataChecks(content=0)

    def __init__(
        self,
        kind: str,
        api_version: str,
        schema: Mapping[str, Any],
        *,
        has_status: bool = False,
        scale: Mapping[str, Any] | None = None,
    ) -> None:
        self.versions: dict[str, CustomResourceStrategy] = {}
        """The strategies of all versions of the CRD, by ``apiVersion``."""
        self.kind = kind
        self.api_version = api_version
        self.schema = Schema(schema)
        self.has_status = has_status
        self.scale = scale
        self._prune = compile_pruner(self.schema, resource_root=True)
        self._default = compile_defaulter(self.schema, resource_root=True)
        self._fill = compile_defaulter(self.schema, resource_root=True, keeps_nulls=True)
        self._check = compile_validator(self.schema)
        status = self.schema.properties.get("status")
        self._status = status
        self._check_status = compile_validator(status) if status is not None else None
        self._rules = compile_rules(self.schema)
        self._special = _specials(schema)

    def decode(self, obj: Object, ctx: RequestContext) -> list[str]:
        """See :meth:`Strategy.decode`: by the schema of the version of the object; other kinds only have metadata.

        Of this kind in a version that does not exist, only metadata is known.
        """
        api_version = obj.get("apiVersion") or ""
        sender = self.versions.get(api_version)
        try:
            if sender is not None and obj.get("kind") == self.kind:
                paths = sender._shape(obj)
            else:
                paths = _coerce_metadata(obj, "metadata") if "metadata" in obj else []
                if obj.get("kind") == self.kind and self._has_group_of(api_version):
                    paths += _prune_content(obj)
            return [f'unknown field "{path}"' for path in paths]
        except DecodeError as error:
            version = api_version.rpartition("/")[2]
            text = f'{self.kind} in version "{version}" cannot be handled as a {self.kind}: {error}'
            raise bad_request(text) from error

    def _has_group_of(self, api_version: str) -> bool:
        return api_version.rpartition("/")[0] == self.api_version.rpartition("/")[0]

    def restore(self, obj: Object) -> None:
        """See :meth:`Strategy.restore`: the defaults of the stored version apply, not of the requested one."""
        stored = self.versions.get(obj.get("apiVersion") or "", self)
        with suppress(DecodeError):
            stored._shape(obj)
        stored._default(obj)

    def decode_stored(self, obj: Object) -> None:
        """See :meth:`Strategy.decode_stored`: conversion sets no defaults."""
        with suppress(DecodeError):
            self._shape(obj)

    def _shape(self, obj: Object) -> list[str]:
        """Prune in place; return the paths of unknown fields.

        Paths in metadata are first, then the others sorted, then paths in embedded metadata.
        """
        unknown: list[str] = []
        if "metadata" in obj:
            unknown += _coerce_metadata(obj, "metadata")
        pruned: list[str] = []
        self._prune(obj, "", pruned)
        unknown += sorted(pruned)
        if self._special.embedded:
            for path, embedded in embedded_resources(self.schema, obj, ""):
                prefix = f"{path}." if path else ""
                unknown += _coerce_embedded(embedded, prefix)
        return unknown

    def default(self, obj: Object) -> None:
        """See :meth:`Strategy.default`."""
        self._default(obj)

    def default_applied(self, obj: Object) -> None:
        """See :meth:`Strategy.default_applied`: nulls that are not allowed remain, so that validation reports them."""
        self._fill(obj)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_create`."""
        if self.has_status:
            obj.pop("status", None)

    def prepare_update(self, new: Object, old: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_update`."""
        if ctx.subresource == "status":
            self._keep_all_but_status(new, old)
        elif self.has_status:
            if "status" in old:
                new["status"] = copy_json(old["status"])
            else:
                new.pop("status", None)
        elif new.get("status") != old.get("status"):
            metadata = new["metadata"]
            metadata["generation"] = (old["metadata"].get("generation") or 0) + 1

    def _keep_all_but_status(self, new: Object, old: Object) -> None:
        metadata = new["metadata"]
        managers = metadata.get("managedFields")
        metadata.clear()
        metadata.update(copy_json(old["metadata"]))
        metadata.pop("managedFields", None)
        if managers is not None:
            metadata["managedFields"] = managers
        for name in (new.keys() | old.keys()) - {"metadata", "status"}:
            if name in old:
                new[name] = copy_json(old[name])
            else:
                del new[name]

    def validate(
        self,
        obj: Object,
        old: Object | None,
        ctx: RequestContext,
        metadata_errors: Sequence[FieldError] = (),
    ) -> Sequence[FieldError]:
        """See :meth:`Strategy.validate`."""
        errors = self._identity_errors(obj)
        if errors:
            return errors
        if ctx.subresource == "status":
            errors += self._status_errors(obj, old or {})
            errors += self._scale_errors(obj, ("statusReplicasPath", "labelSelectorPath"))
        else:
            errors += validate(self._check, obj, schema=self.schema, old=old)
            errors += self._scale_errors(
                obj, ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
            )
            if self._special.embedded:
                for path, embedded in embedded_resources(self.schema, obj, ""):
                    errors += embedded_resource_errors(embedded, path)
        errors += self._list_errors(obj, old)
        if self._rules is not None:
            if any(error.reason in _BLOCKING for error in (*metadata_errors, *errors)):
                errors.append(invalid("<nil>", None, _UNCHECKED))
            else:
                errors += self._rules(obj, old, old is not None, ctx.warn)
        return errors

    def _identity_errors(self, obj: Object) -> list[FieldError]:
        errors = []
        if obj.get("kind") != self.kind:
            errors.append(invalid("kind", obj.get("kind") or "", f"must be {self.kind}"))
        if obj.get("apiVersion") != self.api_version:
            errors.append(
                invalid("apiVersion", obj.get("apiVersion") or "", f"must be {self.api_version}")
            )
        return errors

    def _status_errors(self, obj: Object, old: Object) -> list[FieldError]:
        if "status" not in obj or self._check_status is None:
            return []
        return validate(
            self._check_status,
            obj["status"],
            prefix="status",
            schema=self._status,
            old=old.get("status"),
        )

    def _scale_errors(self, obj: Object, names: Sequence[str]) -> list[FieldError]:
        errors = []
        for name in names:
            path = (self.scale or {}).get(name) or ""
            if not path:
                continue
            is_selector = name == "labelSelectorPath"
            try:
                value = _field_at(obj, path, str if is_selector else int)
            except _WrongType as error:
                errors.append(invalid(path, "" if is_selector else 0, str(error)))
                continue
            if value is None or is_selector:
                continue
            if value < 0:
                errors.append(invalid(path, value, "should be a non-negative integer"))
            elif value > _MAX_INT32:
                errors.append(invalid(path, value, f"should be less than or equal to {_MAX_INT32}"))
        return errors

    def _list_errors(self, obj: Object, old: Object | None) -> list[FieldError]:
        if not self._special.lists:
            return []
        errors = list(_list_duplicates(self.schema, obj, ""))
        if errors and old is not None and any(_list_duplicates(self.schema, old, "")):
            return []
        return errors

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> Sequence[str]:
        """See :meth:`Strategy.warnings`: warn about finalizer names that may collide."""
        before = (old or {}).get("metadata", {}).get("finalizers") or ()
        texts = []
        for finalizer in sorted(set(obj["metadata"].get("finalizers") or ()) - set(before)):
            texts += [
                f'metadata.finalizers: "{finalizer}": {problem}'
                for problem in qualified_name(finalizer)
            ]
            if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
                path = " including a path (/)" if "." in finalizer else ""
                texts.append(
                    f'metadata.finalizers: "{finalizer}": prefer a domain-qualified finalizer name{path} to avoid '
                    "accidental conflicts with other finalizer writers"
                )
        return texts


def value_at(obj: Mapping[str, Any], path: str) -> Any:
    """Return the value at a simple path (``spec.replicas``), or ``None``."""
    value: Any = obj
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


class _WrongType(Exception):
    """Raised for a value, or one of its parents, that has another type than a scale subresource needs."""

    def __init__(self, names: Sequence[str], value: Any, expected: str) -> None:
        path = "".join(f".{name}" for name in names)
        kind = go_type(value)
        super().__init__(
            f"{path} accessor error: {go_text(value)} is of the type {kind}, expected {expected}"
        )


def _field_at(obj: Mapping[str, Any], path: str, expected: type[str] | type[int]) -> Any:
    """Return the value at a simple path, or ``None`` if it is absent. Raises :class:`_WrongType`."""
    names = path.removeprefix(".").split(".")
    value: Any = obj
    for depth, name in enumerate(names, 1):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _WrongType(names[:depth], value, "map[string]interface{}")
        if name not in value:
            return None
        value = value[name]
    if not isinstance(value, expected) or isinstance(value, bool):
        raise _WrongType(names, value, "string" if expected is str else "int64")
    return value


class _SpecialParts:
    """Whether a schema has embedded resources, or lists of type ``set`` or ``map``, which need a separate walk."""

    __slots__ = ("embedded", "lists")

    def __init__(self) -> None:
        self.embedded = False
        self.lists = False


def _specials(raw: Any, found: _SpecialParts | None = None) -> _SpecialParts:
    found = found or _SpecialParts()
    if isinstance(raw, Mapping):
        found.embedded |= bool(raw.get("x-kubernetes-embedded-resource"))
        found.lists |= raw.get("x-kubernetes-list-type") in ("set", "map")
        for inner in (raw.get("properties") or {}).values():
            _specials(inner, found)
        _specials(raw.get("items"), found)
        _specials(raw.get("additionalProperties"), found)
    return found


def _coerce_embedded(obj: Object, prefix: str) -> list[str]:
    """Decode the type and the metadata of an embedded resource, as :func:`_coerce_metadata` does."""
    for name in ("apiVersion", "kind"):
        if name in obj and not isinstance(obj[name], str):
            path = f"{prefix}{name}"
            raise EmbeddedTypeError(str(invalid(path, obj[name], "must be a string")), path)
    if obj.get("metadata") is None:
        return []
    path = f"{prefix}metadata"
    try:
        return _coerce_metadata(obj, path)
    except DecodeError as error:
        raise DecodeError(str(invalid(path, obj["metadata"], str(error))), error.path) from error


def _prune_content(obj: Object) -> list[str]:
    """Remove all fields that do not identify an object; return their names, sorted."""
    names = sorted(obj.keys() - _IDENTITY)
    for name in names:
        del obj[name]
    return names


def _coerce_metadata(obj: Object, path: str) -> list[str]:
    """Decode metadata as the typed ObjectMeta; return the paths of unknown fields. Raises DecodeError."""
    try:
        metadata, unknown = decode(OBJECT_META, obj["metadata"])
    except DecodeError as error:
        error.path = f"{path}.{error.path}" if error.path else path
        raise
    obj["metadata"] = metadata
    return [f"{path}.{name}" for name in unknown]


def _list_duplicates(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    """Yield an error for each duplicate item in a list of type ``set`` or ``map``."""
    if isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, (dict, list)):
                is_field = name in schema.properties
                node = schema.properties[name] if is_field else schema.additional
                if node is not None:
                    below = path_below(path, name, is_field=is_field)
                    yield from _list_duplicates(node, item, below)
    elif isinstance(value, list):
        if schema.list_type == "set":
            yield from _repeated_items(value, value, path)
        elif schema.list_type == "map":
            for position, item in enumerate(value):
                if not isinstance(item, dict | None):
                    detail = "must be an object for an array of list-type map"
                    yield invalid(f"{path}[{position}]", item, detail)
                    break
            else:
                keys = [_keys_of(item or {}, schema.list_map_keys) for item in value]
                yield from _repeated_items(keys, keys, path)
        if schema.items is not None:
            for position, item in enumerate(value):
                if isinstance(item, (dict, list)):
                    yield from _list_duplicates(schema.items, item, f"{path}[{position}]")


def _keys_of(item: Mapping[str, Any], names: Sequence[str]) -> Object:
    return {name: item[name] for name in names if name in item}


def _repeated_items(items: Sequence[Any], shown: Sequence[Any], path: str) -> Iterator[FieldError]:
    """Yield an error for the second occurrence of each item."""
    counts: dict[str, int] = {}
    for position, item in enumerate(items):
        key = go_json(item)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] == 2:
            yield duplicate(f"{path}[{position}]", shown[position])
