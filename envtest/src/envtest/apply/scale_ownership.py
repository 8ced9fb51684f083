"""Ownership of the replicas, converted between an object and its ``scale`` subresource.

A Scale is an object with its own managedFields, which record the owners of *its* ``spec.replicas``. They are derived
from the managedFields of the scaled object, and ownership changes by a write to the Scale are copied back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from envtest.apply.fieldset import FieldSet, InvalidFields, Path
from envtest.apply.manager import decode_managers, encode_managers
from envtest.apply.updater import Managers, OwnedFields

__all__ = ["from_scale", "to_scale"]

_SCALE_VERSION: Final = "autoscaling/v1"
_REPLICAS: Final[Path] = ("f:spec", "f:replicas")

Entries = Sequence[Mapping[str, Any]]


def to_scale(entries: Entries, paths: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Return the managedFields of the Scale of an object that has ``entries``.

    ``paths`` maps each ``apiVersion`` of the object to the path of its replicas, as path elements
    (``("f:spec", "f:replicas")``).
    """
    try:
        managers, times = decode_managers(entries)
    except InvalidFields:
        return []
    scale_managers: Managers = {}
    for manager, owned in managers.items():
        path = paths.get(owned.api_version)
        if path and owned.fields.has(path):
            scale_managers[manager] = OwnedFields(
                FieldSet.of(_REPLICAS), _SCALE_VERSION, owned.applied
            )
    return encode_managers(
        scale_managers, {manager: times[manager] for manager in scale_managers if manager in times}
    )


def from_scale(
    entries: Entries, scale_entries: Entries, api_version: str, paths: Mapping[str, Path]
) -> list[dict[str, Any]]:
    """Return the managedFields of an object after a write to its Scale, which now has ``scale_entries``.

    ``entries`` are the entries before the write; ``api_version`` is the version in which the object was scaled.
    """
    try:
        managers, times = decode_managers(entries)
        scale_managers, _ = decode_managers(scale_entries)
    except InvalidFields:
        return list(map(dict, entries))
    result: Managers = {}
    for manager, owned in managers.items():
        if owned.api_version not in paths:
            continue
        path = paths[owned.api_version]
        if not path or not owned.fields.has(path) or scale_managers.pop(manager, None) is not None:
            result[manager] = owned
            continue
        rest = owned.fields - FieldSet.of(path)
        if rest:
            result[manager] = owned._replace(fields=rest)
    for manager, owned in scale_managers.items():
        if owned.fields.has(_REPLICAS):
            result[manager] = OwnedFields(
                FieldSet.of(paths[api_version]), api_version, owned.applied
            )
    times = {manager: times[manager] for manager in result if manager in times}
    return encode_managers(result, times)
