"""Validates the list and map types of CRD schemas, which server-side apply uses: sets, keyed lists, atomic ones.

The rules follow apiextensions' ``ValidateCustomResourceDefinitionOpenAPISchema``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    key,
    not_supported_string,
    required,
)

__all__ = ["list_and_map_type_errors"]


def list_and_map_type_errors(raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the list and map types of one schema node."""
    yield from _map_type_errors(raw, path)
    yield from _list_type_errors(raw, path)


def _map_type_errors(raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    map_type = raw.get("x-kubernetes-map-type")
    kind = raw.get("type") or ""
    if map_type is None:
        return
    if kind != "object":
        text = "must be object if x-kubernetes-map-type is specified"
        yield required(f"{path}.type", text) if not kind else invalid(f"{path}.type", kind, text)
    if map_type not in ("atomic", "granular"):
        yield not_supported_string(
            f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular")
        )


def _list_type_errors(raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    list_type = raw.get("x-kubernetes-list-type")
    kind = raw.get("type") or ""
    keys = raw.get("x-kubernetes-list-map-keys")
    items = raw.get("items") if isinstance(raw.get("items"), Mapping) else None
    if list_type is not None and kind != "array":
        text = "must be array if x-kubernetes-list-type is specified"
        yield required(f"{path}.type", text) if not kind else invalid(f"{path}.type", kind, text)
    elif list_type == "set" and items is not None:
        yield from _set_items(items, f"{path}.items")
    if list_type not in (None, "atomic", "set", "map"):
        yield not_supported_string(
            f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map")
        )
    if keys:
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        if list_type is None:
            yield required(f"{path}.x-kubernetes-list-type", text)
        elif list_type != "map":
            yield invalid(f"{path}.x-kubernetes-list-type", list_type, text)
    if list_type == "map":
        yield from _map_list(raw, items, keys or (), path)
    if list_type in ("set", "map") and items is not None and items.get("nullable"):
        yield forbidden(
            f"{path}.items.nullable",
            f"cannot be nullable when x-kubernetes-list-type is {list_type}",
        )


def _set_items(items: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items.get("type") == "array" and items.get("x-kubernetes-list-type") not in (None, "atomic"):
        yield invalid(f"{path}.x-kubernetes-list-type", items.get("x-kubernetes-list-type"), text)
    elif items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield invalid(f"{path}.x-kubernetes-map-type", items.get("x-kubernetes-list-type"), text)


def _map_list(
    raw: Mapping[str, Any], items: Mapping[str, Any] | None, keys: Sequence[str], path: str
) -> Iterator[FieldError]:
    if not keys:
        yield required(
            f"{path}.x-kubernetes-list-map-keys",
            "must not be empty if x-kubernetes-list-type is map",
        )
    if items is None:
        if raw.get("items") is None:
            yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", text)
        return
    properties = items.get("properties") or {}
    needed = items.get("required") or ()
    seen: set[str] = set()
    for name in keys:
        field_path = key(f"{path}.items.properties", name)
        node = properties.get(name)
        if node is None:
            text = "entries must all be names of item properties"
            yield invalid(f"{path}.x-kubernetes-list-map-keys", list(keys), text)
        elif node.get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{field_path}.type", items.get("type"), text)
        if name in seen:
            yield invalid(
                f"{path}.x-kubernetes-list-map-keys",
                list(keys),
                "must not contain duplicate entries",
            )
        seen.add(name)
        if node is not None and name not in needed and node.get("default") is None:
            text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{field_path}.default", text)
        if node is not None and node.get("nullable"):
            text = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            yield forbidden(f"{field_path}.nullable", text)
