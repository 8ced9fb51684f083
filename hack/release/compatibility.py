"""Breaking changes between releases: of CRDs, and of the profiles with which existing InferenceStacks are rendered.

A change of a CRD is breaking if an object that was valid is rejected, or loses a field. Descriptions, defaults and
printer columns are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

__all__ = ["breaking_changes", "changed_profiles"]

Schema = dict[str, Any]
"""A structural schema (JSON Schema)."""

_UPPER_BOUNDS = ("maximum", "maxLength", "maxItems", "maxProperties")
_LOWER_BOUNDS = ("minimum", "minLength", "minItems", "minProperties")
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")


def breaking_changes(old: Schema, new: Schema) -> list[str]:
    """Return the breaking changes from the CRD ``old`` to ``new``, each with the version and path of the field."""
    problems = []
    for field in ("scope", "group"):
        if old["spec"].get(field) != new["spec"].get(field):
            problems.append(f"{field} was changed")
    versions = {version["name"]: version for version in new["spec"]["versions"]}
    for version in old["spec"]["versions"]:
        name = version["name"]
        if not version.get("served"):
            continue
        if not versions.get(name, {}).get("served"):
            problems.append(f"version {name} is not served any more")
            continue
        before, after = (each.get("schema", {}).get("openAPIV3Schema") or {} for each in (version, versions[name]))
        problems += [f"{name}: {problem}" for problem in _schema_changes(before, after, "")]
    return problems


def _schema_changes(old: Schema, new: Schema, path: str) -> Iterator[str]:
    where = path or "the object"
    if not _accepts_types(old, new):
        yield f"{where}: type was changed from {_type(old)} to {_type(new)}"
        return
    if old.get("nullable") and not new.get("nullable"):
        yield f"{where}: null is not allowed any more"
    if old.get("x-kubernetes-preserve-unknown-fields") and not new.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{where}: unknown fields are not kept any more"
    yield from _changed_limits(old, new, where)
    for rule in new.get("x-kubernetes-validations") or ():
        if rule.get("rule") not in {each.get("rule") for each in old.get("x-kubernetes-validations") or ()}:
            yield f"{where}: has a new rule: {rule.get('message') or rule.get('rule')}"
    for name in sorted(set(new.get("required") or ()) - set(old.get("required") or ())):
        yield f"{path}.{name}: is required".lstrip(".")
    yield from _changed_fields(old, new, path)


def _changed_fields(old: Schema, new: Schema, path: str) -> Iterator[str]:
    before, after = old.get("properties") or {}, new.get("properties") or {}
    keeps_unknown = new.get("x-kubernetes-preserve-unknown-fields")
    for name, schema in before.items():
        below = f"{path}.{name}".lstrip(".")
        if name in after:
            yield from _schema_changes(schema, after[name], below)
        elif not keeps_unknown:
            yield f"{below}: was removed"
    for name, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        one, other = old.get(name), new.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _schema_changes(one, other, f"{path}{suffix}")
        elif isinstance(other, dict) and old.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}{suffix}: has a schema"
        elif isinstance(one, dict) and not keeps_unknown:
            yield f"{path}{suffix}: was removed"


def _changed_limits(old: Schema, new: Schema, where: str) -> Iterator[str]:
    for field in _UPPER_BOUNDS:
        if field in new and (field not in old or new[field] < old[field]):
            yield f"{where}: {field} was reduced to {new[field]}"
    for field in _LOWER_BOUNDS:
        if field in new and (field not in old or new[field] > old[field]):
            yield f"{where}: {field} was increased to {new[field]}"
    for field in _EXACT:
        if field in new and new[field] != old.get(field):
            yield f"{where}: {field} was changed to {new[field]}"
    if "enum" in new:
        removed = [value for value in old.get("enum") or ("other values",) if value not in new["enum"]]
        if removed:
            yield f"{where}: {', '.join(map(str, removed))} is not allowed any more"


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    return str(schema.get("type") or "any")


def _accepts_types(old: Schema, new: Schema) -> bool:
    before, after = _type(old), _type(new)
    wider = {"integer": ("number", "integer or string"), "string": ("integer or string",)}
    return after in (before, "any", *wider.get(before, ()))


def changed_profiles(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the profiles of ``old`` that are different in ``new``, or do not exist there.

    Stacks keep their profile, so all of their pods would restart with the next release.
    """
    return [
        f"profile {name} was {'changed' if name in new else 'removed'}: all pods of stacks that have it would restart"
        for name, defaults in old.items()
        if json.dumps(new.get(name), sort_keys=True) != json.dumps(defaults, sort_keys=True)
    ]
