"""The frame of each rendered object: its kind, name, namespace, labels and annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.api.inferencestack.resolution import ResolvedStack
from cfo.runtime import GVK, Object

__all__ = ["new_object"]


def new_object(
    stack: ResolvedStack,
    gvk: GVK,
    name: str,
    component: str = "",
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Object:
    """Return an object of ``component`` (empty for those of the whole stack) with further top-level ``fields``.

    It shares no maps or lists with the arguments, and has no ``null`` values.
    """
    metadata: Object = {"name": name, "namespace": stack.namespace, "labels": stack.names.labels(component)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **_copied(fields)}


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
