"""Pruning and defaulting of custom resources, compiled from their schema.

A pruner removes fields that the schema does not describe and reports their paths. A defaulter removes nulls that are
not allowed and sets defaults. Both change the object in place. The closure for a part of a schema is created when an
object first contains that part, so that a large CRD costs only as much as its objects use.

The rules follow apiextensions' ``structural/pruning`` and ``structural/defaulting``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from envtest.schema.schema_node import MISSING, Schema

__all__ = ["Default", "Prune", "compile_defaulter", "compile_pruner", "copy_json"]

Prune: TypeAlias = Callable[[Any, str, list[str]], None]
"""Prunes a value at a path, in place; appends the paths of the removed fields to the list."""
Default: TypeAlias = Callable[[Any], None]
"""Sets the defaults of a value, in place."""

_IDENTITY = frozenset({"apiVersion", "kind", "metadata"})


def copy_json(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if isinstance(value, dict):
        return {name: copy_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value


def compile_pruner(schema: Schema | None, *, resource_root: bool = False) -> Prune:
    """Return the pruner of a node; at the resource root it does not change apiVersion, kind and metadata."""
    if schema is None:
        return _prune_all
    keep = _IDENTITY if resource_root or schema.embedded else frozenset()
    properties = schema.properties
    additional = schema.additional
    open_map = schema.additional_allowed
    preserve = schema.preserve_unknown
    children: dict[str, Prune] = {}
    items: list[Prune] = []

    def prune(value: Any, path: str, unknown: list[str]) -> None:
        if isinstance(value, dict):
            removed: list[str] = []
            prefix = f"{path}." if path else ""
            for name, item in value.items():
                if name in keep:
                    continue
                if name in properties:
                    if isinstance(item, (dict, list)):
                        inner = children.get(name) or children.setdefault(
                            name, compile_pruner(properties[name])
                        )
                        inner(item, prefix + name, unknown)
                elif open_map:
                    if isinstance(item, (dict, list)):
                        inner = children.get("") or children.setdefault(
                            "", compile_pruner(additional)
                        )
                        inner(item, prefix + name, unknown)
                elif not preserve:
                    removed.append(name)
            for name in removed:
                del value[name]
                unknown.append(prefix + name)
        elif isinstance(value, list):
            if not items:
                if preserve and schema.items is None:
                    items.append(_prune_none)
                else:
                    items.append(compile_pruner(schema.items))
            inner = items[0]
            for position, item in enumerate(value):
                if isinstance(item, (dict, list)):
                    inner(item, f"{path}[{position}]", unknown)

    return prune


def _prune_none(value: Any, path: str, unknown: list[str]) -> None:
    """Prune nothing: the schema describes nothing here and preserves unknown fields."""


def _prune_all(value: Any, path: str, unknown: list[str]) -> None:
    """Remove all fields: the schema describes nothing here and does not preserve unknown fields."""
    if isinstance(value, dict):
        unknown.extend(f"{path}.{name}" if path else name for name in value)
        value.clear()
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _prune_all(item, f"{path}[{position}]", unknown)


def compile_defaulter(
    schema: Schema, *, resource_root: bool = False, keeps_nulls: bool = False
) -> Default:
    """Return the defaulter of a node: it removes nulls that are not allowed, then sets defaults.

    With ``keeps_nulls`` it only sets defaults.
    """
    skip = _IDENTITY if resource_root else frozenset()
    drop = None if keeps_nulls else _null_dropper(schema, skip)
    fill = _default_setter(schema, skip) if _has_default(schema.raw) else None

    def default(value: Any) -> None:
        if drop is not None:
            drop(value)
        if fill is not None:
            fill(value)

    return default


def _has_default(raw: Any) -> bool:
    """Report whether any part of a schema has a default; reads the JSON form without creating nodes."""
    if not isinstance(raw, Mapping):
        return False
    if raw.get("default") is not None:
        return True
    if any(_has_default(inner) for inner in (raw.get("properties") or {}).values()):
        return True
    return _has_default(raw.get("items")) or _has_default(raw.get("additionalProperties"))


def _null_dropper(schema: Schema, skip: frozenset[str] = frozenset()) -> Default:
    properties = schema.properties
    children: dict[str, Default] = {}
    items: list[Default | None] = []

    def drop(value: Any) -> None:
        if isinstance(value, dict):
            removed: list[str] = []
            for name, item in value.items():
                if item is not None and not isinstance(item, (dict, list)):
                    continue
                node = properties.get(name, schema.additional)
                if node is None or name in skip:
                    continue
                if item is None:
                    if not node.nullable and (node.default is MISSING or node.default is None):
                        removed.append(name)
                else:
                    key = name if name in properties else ""
                    (children.get(key) or children.setdefault(key, _null_dropper(node)))(item)
            for name in removed:
                del value[name]
        elif isinstance(value, list):
            if not items:
                dropper = _null_dropper(schema.items) if schema.items is not None else None
                items.append(dropper)
            inner = items[0]
            if inner is not None:
                for item in value:
                    if isinstance(item, (dict, list)):
                        inner(item)

    return drop


def _default_setter(schema: Schema, skip: frozenset[str] = frozenset()) -> Default:
    """Return the function that sets the defaults inside a node; the node's own default is set by its parent."""
    properties = schema.properties
    raw_properties: Mapping[str, Any] = schema.raw.get("properties") or {}
    own = [
        (name, inner["default"], bool(inner.get("nullable")))
        for name, inner in raw_properties.items()
        if isinstance(inner, Mapping) and inner.get("default") is not None
    ]
    with_defaults = frozenset(
        name for name, inner in raw_properties.items() if name not in skip and _has_default(inner)
    )
    children: dict[str, Default] = {}
    rest = schema.additional
    rest_default = rest.default if rest is not None and rest.default is not MISSING else None
    rest_fill = _default_setter(rest) if rest is not None and _has_default(rest.raw) else None
    element = schema.items
    element_default = (
        element.default if element is not None and element.default is not MISSING else None
    )
    element_fill = (
        _default_setter(element) if element is not None and _has_default(element.raw) else None
    )

    def fill(value: Any) -> None:
        if isinstance(value, dict):
            for name, default, nullable in own:
                if name not in value or (value[name] is None and not nullable):
                    value[name] = copy_json(default)
            for name, item in value.items():
                if name in with_defaults:
                    if isinstance(item, (dict, list)):
                        (
                            children.get(name)
                            or children.setdefault(name, _default_setter(properties[name]))
                        )(item)
                elif rest is not None and name not in raw_properties:
                    if item is None and rest_default is not None and not rest.nullable:
                        item = copy_json(rest_default)
                        value[name] = item
                    if rest_fill is not None and isinstance(item, (dict, list)):
                        rest_fill(item)
        elif isinstance(value, list) and element is not None:
            for position, item in enumerate(value):
                if item is None and element_default is not None and not element.nullable:
                    item = copy_json(element_default)
                    value[position] = item
                if element_fill is not None and isinstance(item, (dict, list)):
                    element_fill(item)

    return fill
