"""Builds the CRDs of typed resources."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import Final

from pydantic import ValidationError

from cfo.runtime.objects.errors import SchemaError
from cfo.runtime.objects.resource.custom_resource import CustomResource
from cfo.runtime.objects.resource.declaration import Declaration
from cfo.runtime.objects.resource.schema import structural_schema, without_defaults
from cfo.runtime.objects.unstructured import Object

_FIELDS: Final = re.compile(r"(\.[A-Za-z0-9_]+)+(?=$|\[)")
"""The first fields of a JSONPath, up to an index or a filter."""


def custom_resource_definition(*versions: type[CustomResource]) -> Object:
    """Return the CRD of one kind; ``versions`` are its classes, the newest first.

    They must have the same schema, because the API server changes only ``apiVersion`` when it converts an object.

    Raises :class:`SchemaError` if the classes do not belong to one kind, if their schemas differ, if not exactly one
    has ``storage`` true, if a field has no structural schema, or if the path of a printer column or of the scale
    subresource leads to no field.
    """
    declarations = [_declaration_of(version) for version in versions]
    if not declarations:
        raise SchemaError("a CRD needs at least one version")
    first = declarations[0]
    _check_versions(declarations)
    schemas = [_schema(version) for version in versions]
    first_schema = _without_descriptions(schemas[0])
    for declared, schema in zip(declarations[1:], schemas[1:], strict=True):
        field = _first_difference(first_schema, _without_descriptions(schema), "")
        if field is not None:
            raise SchemaError(
                f"{first.kind}: the versions must have the same schema: "
                f"{first.version} and {declared.version} differ in {field or 'the object'}"
            )
    spec: Object = {
        "group": first.group,
        "names": first.names,
        "scope": first.scope,
        "versions": [
            _version_entry(declared, schema)
            for declared, schema in zip(declarations, schemas, strict=True)
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{first.plural}.{first.group}"},
        "spec": spec,
    }


def custom_resource_definitions(classes: Iterable[type[CustomResource]]) -> list[Object]:
    """Return the CRD of each kind among ``classes``."""
    kinds: dict[tuple[str, str], list[type[CustomResource]]] = {}
    for resource in classes:
        declared = _declaration_of(resource)
        kinds.setdefault((declared.group, declared.kind), []).append(resource)
    return [custom_resource_definition(*versions) for versions in kinds.values()]


def resources_in(module: ModuleType) -> list[type[CustomResource]]:
    """Return the classes in ``module`` that declare a kind, in the order in which it defines or imports them."""
    found: list[type[CustomResource]] = []
    for value in vars(module).values():
        is_resource = isinstance(value, type) and issubclass(value, CustomResource)
        # A class can have several names in a module.
        if is_resource and _declares_kind(value) and value not in found:
            found.append(value)
    return found


def _declares_kind(resource: type[CustomResource]) -> bool:
    """Return whether a class has the keywords of a kind; a base class of several kinds has none."""
    return hasattr(resource, "declaration")


def _declaration_of(resource: type[CustomResource]) -> Declaration:
    if not isinstance(resource, type):
        raise SchemaError(f"{resource!r:.200}: must be a class that declares a kind")
    if not _declares_kind(resource):
        raise SchemaError(
            f"class {resource.__name__}: declares no kind: set the class keywords group and version"
        )
    return resource.declaration


def _identity(declared: Declaration) -> Object:
    """Return the part of a CRD that is common to all versions of a kind."""
    return {"group": declared.group, "scope": declared.scope, **declared.names}


def _check_versions(declarations: Collection[Declaration]) -> None:
    """Raise :class:`SchemaError` unless these are different versions of one kind, of which one is stored."""
    first, *others = declarations
    for other in others:
        wanted = _identity(first)
        given = _identity(other)
        for name in {**wanted, **given}:
            if given.get(name) != wanted.get(name):
                raise SchemaError(
                    f"{first.kind}: {name} of {other.version} and {first.version} must be equal: "
                    f"{given.get(name)!r}, {wanted.get(name)!r}"
                )
    if len({declared.version for declared in declarations}) != len(declarations):
        raise SchemaError(f"{first.kind}: several classes declare the same version")
    stored = [declared.version for declared in declarations if declared.storage]
    if len(stored) != 1:
        versions = ", ".join(stored) or "none"
        raise SchemaError(
            f"{first.kind}: storage must be true for exactly one version; it is true for: {versions}"
        )


def _schema(resource: type[CustomResource]) -> Object:
    """Return the schema of a whole object."""
    _check_status(resource)
    schema = structural_schema(resource)
    properties = schema["properties"]
    if "status" in properties:
        # Defaults in a schema would make the API server write a status that no controller has reported.
        properties["status"] = without_defaults(properties["status"])
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        **properties,
        "metadata": {"type": "object"},
    }
    return schema


def _check_status(resource: type[CustomResource]) -> None:
    """Raise :class:`SchemaError` if the class cannot read an object without a status, as each object is at first."""
    status = resource.model_fields.get("status")
    if status is None:
        return
    try:
        status.get_default(call_default_factory=True, validated_data={})
    except ValidationError as error:
        paths = [("status", *detail["loc"]) for detail in error.errors()]
        fields = ", ".join(".".join(map(str, path)) for path in paths)
        raise SchemaError(
            f"class {resource.__name__}: {fields}: must have a default, because an object has no status when it is "
            "created"
        ) from None


def _check_paths(declared: Declaration, schema: Object) -> None:
    """Raise :class:`SchemaError` for a path that leads to no field; the API server would show and count nothing."""
    paths = {
        f"PrinterColumn {column.name!r}": column.json_path for column in declared.printer_columns
    }
    if declared.scale is not None:
        paths["Scale: spec_replicas"] = declared.scale.spec_replicas
        paths["Scale: status_replicas"] = declared.scale.status_replicas
        paths["Scale: label_selector"] = declared.scale.label_selector
    for name, path in paths.items():
        fields = _FIELDS.match(path)
        missing = _missing_field(schema, fields[0]) if fields else None
        if missing is not None:
            raise SchemaError(
                f"class {declared.kind}: {name}: {path!r}: the schema has no field {missing} there; "
                "names are camelCase"
            )


def _missing_field(schema: Object, path: str) -> str | None:
    """Return the first field of ``path`` that its parent does not have; ``None`` if all exist or can exist."""
    node = schema
    for name in path.split(".")[1:]:
        properties = node.get("properties")
        if properties is None:
            return None
        if name not in properties:
            return name
        node = properties[name]
    return None


def _version_entry(declared: Declaration, schema: Object) -> Object:
    """Return the entry of one version in ``spec.versions``."""
    _check_paths(declared, schema)
    version: Object = {
        "name": declared.version,
        "served": declared.served,
        "storage": declared.storage,
        "schema": {"openAPIV3Schema": schema},
    }
    if declared.deprecation_warning:
        version["deprecated"] = True
        version["deprecationWarning"] = declared.deprecation_warning
    subresources: Object = {}
    if "status" in schema["properties"]:
        subresources["status"] = {}
    if declared.scale is not None:
        subresources["scale"] = declared.scale.entry()
    if subresources:
        version["subresources"] = subresources
    if declared.printer_columns:
        version["additionalPrinterColumns"] = [
            column.entry() for column in declared.printer_columns
        ]
    return version


def _first_difference(one: Object, other: Object, path: str) -> str | None:
    """Return the path of the first field whose schemas differ; ``None`` if they are equal."""
    if one == other:
        return None
    for part, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(one.get(part), dict) and isinstance(other.get(part), dict):
            found = _first_difference(one[part], other[part], path + suffix)
            if found is not None:
                return found
    properties = one.get("properties") or {}
    others = other.get("properties") or {}
    for name in [*properties, *others]:
        child = f"{path}.{name}" if path else name
        if name not in properties or name not in others:
            return child
        found = _first_difference(properties[name], others[name], child)
        if found is not None:
            return found
    return path


def _without_descriptions(schema: Object) -> Object:
    """Return ``schema`` without descriptions, in which versions can differ."""
    result = {key: value for key, value in schema.items() if key != "description"}
    properties = schema.get("properties")
    if properties:
        result["properties"] = {
            name: _without_descriptions(child) for name, child in properties.items()
        }
    for key in ("additionalProperties", "items"):
        if key in schema:
            result[key] = _without_descriptions(schema[key])
    return result
