"""Who owns the replicas, seen from the ``scale`` subresource and back.

A Scale is an object of its own, with managedFields that say who owns *its* ``spec.replicas``. They are made from
those of the scaled object, and what a write to the Scale changes in them is carried back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from envtest.apply.fieldset import FieldSet, InvalidFields, Path
from envtest.apply.manager import decode_managers, encode_managers
from envtest.apply.updater import Managers, Owned

__all__ = ["from_scale", "to_scale"]

_SCALE_VERSION: Final = "autoscaling/v1"
_REPLICAS: Final[Path] = ("f:spec", "f:replicas")

Entries = Sequence[Mapping[str, Any]]


def to_scale(entries: Entries, paths: Mapping[str, Path]) -> list[dict[str, Any]]:
    """The managedFields of the Scale of an object with ``entries``.

    ``paths`` says for each ``apiVersion`` of the object where its replicas are, as path elements
    (``("f:spec", "f:replicas")``).
    """
    try:
        managers, times = decode_managers(entries)
    except InvalidFields:
        return []
    seen: Managers = {}
    for manager, owned in managers.items():
        path = paths.get(owned.api_version)
        if path and owned.fields.has(path):
            seen[manager] = Owned(FieldSet.of(_REPLICAS), _SCALE_VERSION, owned.applied)
    return encode_managers(seen, {manager: times[manager] for manager in seen if manager in times})


def from_scale(
    entries: Entries, scale_entries: Entries, api_version: str, paths: Mapping[str, Path]
) -> list[dict[str, Any]]:
    """The managedFields of an object after a write to its Scale left that with ``scale_entries``.

    ``entries`` are those from before the write, ``api_version`` is the one that the object was scaled in.
    """
    try:
        managers, times = decode_managers(entries)
        scale_managers, _ = decode_managers(scale_entries)
    except InvalidFields:
        return list(map(dict, entries))
    kept: Managers = {}
    for manager, owned in managers.items():
        if owned.api_version not in paths:
            continue
        path = paths[owned.api_version]
        if not path or not owned.fields.has(path) or scale_managers.pop(manager, None) is not None:
            kept[manager] = owned
        elif rest := owned.fields - FieldSet.of(path):
            kept[manager] = owned._replace(fields=rest)
    for manager, owned in scale_managers.items():
        if owned.fields.has(_REPLICAS):
            kept[manager] = Owned(FieldSet.of(paths[api_version]), api_version, owned.applied)
    times = {manager: times[manager] for manager in kept if manager in times}
    return encode_managers(kept, times)
