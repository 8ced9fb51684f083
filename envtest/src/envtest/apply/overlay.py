"""Merging an apply configuration into an object without field ownership, as mutating policies do.

Follows ``k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch``. Fields are only set or added; lists without
keys, and maps and structs that are owned as a whole, cannot be part of the configuration, because merging would
replace them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envtest.apimachinery.objects import Object
from envtest.apply.schema_types import ObjectType, Type
from envtest.apply.value_operations import ABSENT, TypeMismatch, merge, validate

__all__ = ["InvalidConfiguration", "overlay"]


class InvalidConfiguration(ValueError):
    """Raised if a configuration cannot be merged; the message is kube-apiserver's."""


def overlay(kind: ObjectType, live: Object, configuration: Mapping[str, Any]) -> Object:
    """Return ``live`` with all values of ``configuration``; neither is modified. Raises InvalidConfiguration."""
    root = kind.root
    try:
        validate(root, configuration)
    except TypeMismatch as error:
        raise InvalidConfiguration(
            f"failed to convert patch object to typed object: {error}"
        ) from error
    atomic = list(_atomic_paths(root, configuration, ""))
    if atomic:
        why = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise InvalidConfiguration(f"invalid ApplyConfiguration: {why}")
    try:
        validate(root, live, allow_duplicates=True)
    except TypeMismatch as error:
        raise InvalidConfiguration(
            f"failed to convert original object to typed object: {error}"
        ) from error
    try:
        merged = merge(root, live, configuration)
    except TypeMismatch as error:
        raise InvalidConfiguration(f"failed to merge patch: {error}") from error
    result: Object = {} if merged is ABSENT else merged
    return result


def _atomic_paths(kind: Type, value: Any, path: str) -> Iterator[str]:
    """Yield the paths of values that are owned as a whole."""
    if isinstance(value, dict) and kind.is_map:
        if kind.map_atomic:
            yield path
        for name, item in value.items():
            field = kind.field(name) if kind.declares(name) else None
            if field is not None:
                yield from _atomic_paths(field, item, f"{path}.{name}")
    elif isinstance(value, list) and kind.is_list:
        if kind.list_atomic:
            yield path
        for index, item in enumerate(value):
            yield from _atomic_paths(kind.item, item, f"{path}[{index}]")
