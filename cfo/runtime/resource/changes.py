"""Find the changes of a CRD that break stored objects or clients.

A change is breaking if an object or a request that was valid before can be rejected, or lose a field. Pure functions;
the work is linear in the size of the schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.runtime.objects import Object, name_of

__all__ = ["breaking_changes"]

_LOWER: Final = ("minimum", "minItems", "minLength", "minProperties")
_UPPER: Final = ("maximum", "maxItems", "maxLength", "maxProperties")
_EQUAL: Final = (
    "multipleOf",
    "pattern",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
)
_UNBOUNDED_FORMATS: Final = ("", "double", "int64")
_ANY: Final = "any"


def breaking_changes(old: Object, new: Object) -> list[str]:
    """Return a message for each breaking change from the CRD ``old`` to the CRD ``new``, in the order of ``old``."""
    return list(_changes(old, new))


def _changes(old: Object, new: Object) -> Iterator[str]:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if name_of(old) != name_of(new):
        yield f"metadata.name: changed from {name_of(old)} to {name_of(new)}"
    for field in ("group", "scope"):
        if before.get(field) != after.get(field):
            yield f"spec.{field}: changed from {before.get(field)} to {after.get(field)}"
    names, new_names = before.get("names") or {}, after.get("names") or {}
    for field in ("kind", "plural", "singular"):
        if names.get(field) and names[field] != new_names.get(field):
            yield f"spec.names.{field}: changed from {names[field]} to {new_names.get(field)}"
    for field in ("shortNames", "categories"):
        for name in names.get(field) or ():
            if name not in (new_names.get(field) or ()):
                yield f"spec.names.{field}: {name} was removed"
    versions = {version["name"]: version for version in after.get("versions") or ()}
    for version in before.get("versions") or ():
        yield from _version_changes(version, versions.get(version["name"]))


def _version_changes(old: Mapping[str, Any], new: Mapping[str, Any] | None) -> Iterator[str]:
    name = old["name"]
    if new is None:
        yield f"{name}: the version was removed"
        return
    if old.get("served") and not new.get("served"):
        yield f"{name}: the version is no longer served"
    for subresource, settings in (old.get("subresources") or {}).items():
        current = (new.get("subresources") or {}).get(subresource)
        if current is None:
            yield f"{name}: the subresource {subresource} was removed"
        elif current != settings:
            yield f"{name}: the paths of the subresource {subresource} were changed"
    yield from _schema_changes(_root(old), _root(new), name)


def _root(version: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _schema_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    yield from _type_changes(old, new, path)
    yield from _bound_changes(old, new, path)
    for field in _EQUAL:
        if new.get(field) != old.get(field) and (field in new or field.startswith("x-")):
            yield f"{path}: {field} was changed from {old.get(field)} to {new.get(field)}"
    if "enum" in new:
        allowed = new["enum"]
        removed = [value for value in old.get("enum") or () if value not in allowed]
        if "enum" not in old:
            yield f"{path}: an enum was added: {', '.join(map(str, allowed))}"
        elif removed:
            yield f"{path}: values were removed from the enum: {', '.join(map(str, removed))}"
    if old.get("nullable") and not new.get("nullable"):
        yield f"{path}: null is no longer allowed"
    rules = {rule.get("rule") for rule in old.get("x-kubernetes-validations") or ()}
    for rule in new.get("x-kubernetes-validations") or ():
        if rule.get("rule") not in rules:
            yield f"{path}: a validation rule was added: {rule.get('rule')}"
    yield from _field_changes(old, new, path)


def _type_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    before, after = _types(old), _types(new)
    if after != {_ANY} and not before <= after:
        yield f"{path}: the type was narrowed from {' or '.join(sorted(before))} to {' or '.join(sorted(after))}"
    format_before, format_after = old.get("format") or "", new.get("format") or ""
    if format_after not in (*_UNBOUNDED_FORMATS, format_before):
        yield f"{path}: the format was narrowed from {format_before or 'none'} to {format_after}"


def _types(schema: Mapping[str, Any]) -> set[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return {"integer", "string"}
    found = schema.get("type") or _ANY
    return {"number", "integer"} if found == "number" else {found}


def _bound_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    for fields, sign in ((_LOWER, 1), (_UPPER, -1)):
        for field in fields:
            if field not in new:
                continue
            exclusive = f"exclusive{field.capitalize()}"
            before, after = old.get(field), new[field]
            narrower = before is not None and (
                sign * after > sign * before or (after == before and new.get(exclusive) and not old.get(exclusive))
            )
            if before is None and not (sign == 1 and field != "minimum" and after == 0):
                yield f"{path}: {field} {after} was added"
            elif narrower:
                yield f"{path}: {field} was narrowed from {before} to {after}"


def _field_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    properties, new_properties = old.get("properties") or {}, new.get("properties") or {}
    values = new.get("additionalProperties")
    keeps_unknown = bool(new.get("x-kubernetes-preserve-unknown-fields"))
    if old.get("x-kubernetes-preserve-unknown-fields") and not keeps_unknown:
        yield f"{path}: unknown fields are no longer preserved"
    for name, schema in properties.items():
        child = f"{path}.{name}"
        if name in new_properties:
            yield from _schema_changes(schema, new_properties[name], child)
        elif isinstance(values, Mapping):
            yield from _schema_changes(schema, values, child)
        elif not keeps_unknown and values is not True:
            yield f"{child}: the field was removed"
    for name in new.get("required") or ():
        # The API server sets defaults before it validates.
        if name not in (old.get("required") or ()) and "default" not in (new_properties.get(name) or {}):
            yield f"{path}.{name}: the field is now required"
    old_values = old.get("additionalProperties")
    if isinstance(old_values, Mapping):
        if isinstance(values, Mapping):
            yield from _schema_changes(old_values, values, f"{path}[*]")
        elif not keeps_unknown and values is not True:
            yield f"{path}: arbitrary keys are no longer allowed"
    if isinstance(old.get("items"), Mapping) and isinstance(new.get("items"), Mapping):
        yield from _schema_changes(old["items"], new["items"], f"{path}[]")
