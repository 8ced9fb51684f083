"""Find the changes of a CRD that break stored objects or clients.

A change is breaking if an object or a request that was valid before can be rejected, or lose a field. Pure functions;
the work is linear in the size of the schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

__all__ = ["breaking_changes"]

Object = dict[str, Any]
_LOWER: Final = ("minimum", "minItems", "minLength", "minProperties")
_UPPER: Final = ("maximum", "maxItems", "maxLength", "maxProperties")
_STRUCTURE: Final = {
    "x-kubernetes-list-map-keys": [],
    "x-kubernetes-list-type": "atomic",
    "x-kubernetes-map-type": "granular",
}
"""How lists and maps are merged when they are applied, with the default of each field."""

_COMBINATIONS: Final = ("allOf", "anyOf", "not", "oneOf")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_UNBOUNDED_FORMATS: Final = ("", "double", "int64")
_ANY: Final = "any"
_WITHOUT_RESTRICTION: Final = frozenset(
    {"description", "title", "example", "externalDocs", _PRESERVE, "default"}
)
"""The fields of a schema that restrict no value."""


def breaking_changes(old: Object, new: Object) -> list[str]:
    """Return a message for each breaking change from the CRD ``old`` to the CRD ``new``, in the order of ``old``."""
    return list(_changes(old, new))


def _changes(old: Object, new: Object) -> Iterator[str]:
    before = old.get("spec") or {}
    after = new.get("spec") or {}
    old_name = (old.get("metadata") or {}).get("name")
    new_name = (new.get("metadata") or {}).get("name")
    if old_name != new_name:
        yield f"metadata.name: changed from {old_name} to {new_name}"
    for field in ("group", "scope"):
        if before.get(field) != after.get(field):
            yield f"spec.{field}: changed from {before.get(field)} to {after.get(field)}"
    names = _names(before)
    new_names = _names(after)
    for field in ("kind", "listKind", "plural", "singular"):
        if names[field] != new_names[field]:
            yield f"spec.names.{field}: changed from {names[field]} to {new_names[field]}"
    for field in ("shortNames", "categories"):
        for name in names.get(field) or ():
            if name not in (new_names.get(field) or ()):
                yield f"spec.names.{field}: {name} was removed"
    versions = {version["name"]: version for version in after.get("versions") or ()}
    if _is_converted(before) and len(versions) > 1 and not _is_converted(after):
        yield "spec.conversion: the webhook that converts between the versions was removed"
    for version in before.get("versions") or ():
        yield from _version_changes(version, versions.get(version["name"]))


def _names(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of a CRD with the API server's defaults."""
    names = dict(spec.get("names") or {})
    kind = str(names.get("kind"))
    return {
        "plural": None,
        "singular": kind.lower(),
        "listKind": f"{kind}List",
        **names,
        "kind": kind,
    }


def _is_converted(spec: Mapping[str, Any]) -> bool:
    return (spec.get("conversion") or {}).get("strategy") == "Webhook"


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
    selectable = [field.get("jsonPath") for field in new.get("selectableFields") or ()]
    for field in old.get("selectableFields") or ():
        if field.get("jsonPath") not in selectable:
            yield f"{name}: the selectable field {field.get('jsonPath')} was removed"
    yield from _schema_changes(_root(old), _root(new), name)


def _root(version: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _schema_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    yield from _type_changes(old, new, path)
    yield from _bound_changes(old, new, path)
    for field, default in _STRUCTURE.items():
        if new.get(field, default) != old.get(field, default):
            yield f"{path}: {field} was changed from {old.get(field, default)} to {new.get(field, default)}"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{path}: pattern was changed from {old.get('pattern')} to {new['pattern']}"
    if "multipleOf" in new and not _divides(new["multipleOf"], old.get("multipleOf")):
        yield f"{path}: multipleOf was changed from {old.get('multipleOf')} to {new['multipleOf']}"
    for field in _COMBINATIONS:
        if field in new and new[field] != old.get(field) and not _is_int_or_string(field, new):
            yield f"{path}: {field} was added or changed"
    if "enum" in new:
        allowed = new["enum"]
        removed = [value for value in old.get("enum") or () if value not in allowed]
        if "enum" not in old:
            yield f"{path}: an enum was added: {', '.join(map(str, allowed))}"
        elif removed:
            yield f"{path}: values were removed from the enum: {', '.join(map(str, removed))}"
    if old.get("nullable") and not new.get("nullable"):
        yield f"{path}: null is no longer allowed"
    rules = {_rule(rule) for rule in old.get("x-kubernetes-validations") or ()}
    for rule in new.get("x-kubernetes-validations") or ():
        if _rule(rule) not in rules:
            yield f"{path}: a validation rule was added: {rule.get('rule')}"
    if new.get(_EMBEDDED) and not old.get(_EMBEDDED):
        yield f"{path}: the value must now be a whole object ({_EMBEDDED})"
    elif old.get(_EMBEDDED) and not new.get(_EMBEDDED) and not new.get(_PRESERVE):
        yield f"{path}: {_EMBEDDED} was removed"
    yield from _field_changes(old, new, path)


def _rule(rule: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return what a rule rejects: with ``optionalOldSelf``, creations as well."""
    return rule.get("rule"), bool(rule.get("optionalOldSelf"))


def _divides(new: Any, old: Any) -> bool:
    """Return whether each multiple of ``old`` is a multiple of ``new``."""
    return old is not None and Decimal(str(old)) % Decimal(str(new)) == 0


def _is_int_or_string(field: str, schema: Mapping[str, Any]) -> bool:
    """Return whether ``field`` repeats what ``x-kubernetes-int-or-string`` means."""
    if field != "anyOf" or not schema.get("x-kubernetes-int-or-string"):
        return False
    types = [str(option.get("type")) for option in schema[field] if isinstance(option, Mapping)]
    return sorted(types) == ["integer", "string"]


def _type_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    before = _types(old)
    after = _types(new)
    if after != {_ANY} and not before <= after:
        yield f"{path}: the type was narrowed from {' or '.join(sorted(before))} to {' or '.join(sorted(after))}"
    format_before = old.get("format") or ""
    format_after = new.get("format") or ""
    if format_after not in (*_UNBOUNDED_FORMATS, format_before):
        yield f"{path}: the format was narrowed from {format_before or 'none'} to {format_after}"


def _types(schema: Mapping[str, Any]) -> set[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return {"integer", "string"}
    found = schema.get("type") or _ANY
    if found == "number":
        return {"number", "integer"}
    return {found}


def _bound_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    for fields, sign in ((_LOWER, 1), (_UPPER, -1)):
        for field in fields:
            if field not in new:
                continue
            before = old.get(field)
            after = new[field]
            if before is None:
                # At least 0 items, characters or properties is no restriction.
                allows_all = sign == 1 and field != "minimum" and after == 0
                if not allows_all:
                    yield f"{path}: {field} {after} was added"
                continue
            exclusive = f"exclusive{field.capitalize()}"
            becomes_exclusive = new.get(exclusive) and not old.get(exclusive)
            is_narrower = sign * after > sign * before
            if is_narrower or (after == before and becomes_exclusive):
                yield f"{path}: {field} was narrowed from {before} to {after}"


def _field_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    properties = old.get("properties") or {}
    new_properties = new.get("properties") or {}
    old_values = old.get("additionalProperties")
    values = new.get("additionalProperties")
    keeps_unknown = bool(new.get(_PRESERVE)) or values is True
    accepted_unknown = bool(old.get(_PRESERVE)) or old_values is True
    if accepted_unknown and not keeps_unknown:
        yield f"{path}: unknown fields are no longer preserved"
    for name, schema in properties.items():
        child = f"{path}.{name}"
        if name in new_properties:
            yield from _schema_changes(schema, new_properties[name], child)
        elif isinstance(values, Mapping):
            yield from _schema_changes(schema, values, child)
        elif not keeps_unknown:
            yield f"{child}: the field was removed"
    for name, schema in new_properties.items():
        if name in properties:
            continue
        if isinstance(old_values, Mapping):
            yield from _schema_changes(old_values, schema, f"{path}.{name}")
        elif accepted_unknown and _restricts(schema):
            yield f"{path}.{name}: the values of a field that was not described are now restricted"
    for name in new.get("required") or ():
        # The API server sets defaults before it validates.
        had_default = "default" in (properties.get(name) or {})
        has_default = "default" in (new_properties.get(name) or {})
        was_required = name in (old.get("required") or ()) and not had_default
        if not was_required and not has_default:
            yield f"{path}.{name}: the field is now required"
    if isinstance(old_values, Mapping):
        if isinstance(values, Mapping):
            yield from _schema_changes(old_values, values, f"{path}[*]")
        elif not keeps_unknown:
            yield f"{path}: arbitrary keys are no longer allowed"
    elif accepted_unknown and isinstance(values, Mapping) and _restricts(values):
        yield f"{path}[*]: the values of arbitrary keys are now restricted"
    if isinstance(old.get("items"), Mapping) and isinstance(new.get("items"), Mapping):
        yield from _schema_changes(old["items"], new["items"], f"{path}[]")


def _restricts(schema: Mapping[str, Any]) -> bool:
    """Return whether a value, or a part of it, can be rejected or dropped by ``schema``."""
    if not schema.get(_PRESERVE):
        return True
    return bool(schema.keys() - _WITHOUT_RESTRICTION)
