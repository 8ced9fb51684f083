"""The resources inside custom resources and defaults: values of ``x-kubernetes-embedded-resource`` schemas.

The rules follow ``pkg/apiserver/schema/objectmeta`` of apiextensions-apiserver.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envtest.apimachinery.field_errors import FieldError, invalid, required
from envtest.apimachinery.name_rules import dns_1035_label
from envtest.apimachinery.objects import Object
from envtest.builtins.catalog import OBJECT_META
from envtest.builtins.normalization import DecodeError, decode
from envtest.registry.object_metadata import validate_embedded_metadata
from envtest.schema.schema_node import Schema

__all__ = ["embedded_resource_errors", "embedded_resources", "path_below"]


def embedded_resources(schema: Schema, value: Any, path: str) -> Iterator[tuple[str, Object]]:
    """Yield the embedded resources in ``value``, with their paths."""
    if isinstance(value, dict):
        if schema.embedded:
            yield path, value
        for name, item in list(value.items()):
            if isinstance(item, (dict, list)):
                is_field = name in schema.properties
                node = schema.properties[name] if is_field else schema.additional
                if node is not None:
                    below = path_below(path, name, is_field=is_field)
                    yield from embedded_resources(node, item, below)
    elif isinstance(value, list) and schema.items is not None:
        for position, item in enumerate(value):
            if isinstance(item, (dict, list)):
                yield from embedded_resources(schema.items, item, f"{path}[{position}]")


def path_below(path: str, name: str, *, is_field: bool) -> str:
    """Return the path that kube-apiserver shows for a declared field or a key of ``additionalProperties``."""
    if not is_field:
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def embedded_resource_errors(obj: Object, path: str) -> Iterator[FieldError]:
    """Yield the errors of the type and the metadata of an embedded resource; ``path`` is empty for a root."""
    prefix = f"{path}." if path else ""
    for name in ("apiVersion", "kind"):
        field_path = f"{prefix}{name}"
        value = obj.get(name)
        if name not in obj:
            yield required(field_path)
        elif not isinstance(value, str):
            yield invalid(field_path, value, "must be a string")
        elif not value:
            yield invalid(field_path, "", "must not be empty")
        elif name == "apiVersion" and value.count("/") > 1:
            yield invalid(field_path, value, f"unexpected GroupVersion string: {value}")
        elif name == "kind":
            problems = dns_1035_label(value.lower())
            if problems:
                detail = f"may have mixed case, but should otherwise match: {','.join(problems)}"
                yield invalid(field_path, value, detail)
    if obj.get("metadata") is None:
        return
    try:
        metadata, _ = decode(OBJECT_META, obj["metadata"])
    except DecodeError as error:
        yield invalid(f"{prefix}metadata", obj["metadata"], str(error))
    else:
        yield from validate_embedded_metadata(metadata, f"{prefix}metadata")
