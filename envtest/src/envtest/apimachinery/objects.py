"""Accessors for the metadata of Kubernetes objects.

An object is a plain ``dict`` in its wire form. These functions do not copy it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "NamespacedName",
    "Object",
    "annotations_of",
    "controller_of",
    "find_condition",
    "format_time",
    "full_name",
    "has_finalizer",
    "labels_of",
    "owner_reference",
    "set_condition",
]

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object in its wire form."""


class NamespacedName(NamedTuple):
    """The name of an object; ``namespace`` is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def _metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return obj.get("metadata") or {}


def full_name(obj: Mapping[str, Any]) -> str:
    """Return ``namespace/name`` of an object that is not decoded yet; what is not a string counts as empty."""
    metadata = _metadata(obj)
    values = (metadata.get("namespace"), metadata.get("name")) if isinstance(metadata, dict) else ()
    return "/".join(value if isinstance(value, str) else "" for value in values or ("", ""))


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return ``metadata.labels``, or an empty dict (not attached to the object)."""
    return _metadata(obj).get("labels") or {}


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return ``metadata.annotations``, or an empty dict (not attached to the object)."""
    return _metadata(obj).get("annotations") or {}


def has_finalizer(obj: Mapping[str, Any], finalizer: str) -> bool:
    """Return whether the object has ``finalizer``."""
    return finalizer in (_metadata(obj).get("finalizers") or ())


def owner_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the controller reference to ``owner``, which blocks the owner's foreground deletion."""
    metadata = _metadata(owner)
    return {
        "apiVersion": owner.get("apiVersion") or "",
        "kind": owner.get("kind") or "",
        "name": metadata.get("name") or "",
        "uid": metadata.get("uid") or "",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the owner reference whose ``controller`` is true, or ``None``."""
    references: list[dict[str, Any]] = _metadata(obj).get("ownerReferences") or []
    for reference in references:
        if reference.get("controller"):
            return reference
    return None


def find_condition(
    conditions: Iterable[Mapping[str, Any]] | None, kind: str
) -> Mapping[str, Any] | None:
    """Return the condition of type ``kind``, or ``None``."""
    for condition in conditions or ():
        if condition.get("type") == kind:
            return condition
    return None


def set_condition(conditions: list[dict[str, Any]], condition: dict[str, Any], *, now: str) -> bool:
    """Add or replace the condition of the same type; return whether anything changed.

    A reason or message that ``condition`` does not have is removed; other fields are kept.
    ``lastTransitionTime`` becomes ``now`` (RFC 3339) only if the status changes, as in apimachinery's
    ``meta.SetStatusCondition``.
    """
    for index, existing in enumerate(conditions):
        if existing.get("type") != condition["type"]:
            continue
        transitioned = existing.get("status") != condition["status"]
        kept = {
            name: value for name, value in existing.items() if name not in ("reason", "message")
        }
        merged = {**kept, **condition}
        merged["lastTransitionTime"] = (
            now if transitioned else existing.get("lastTransitionTime", now)
        )
        conditions[index] = merged
        return merged != existing
    conditions.append({**condition, "lastTransitionTime": now})
    return True


def format_time(moment: datetime, fraction: str = "") -> str:
    """Return a time in UTC in the format of object metadata: RFC 3339, whole seconds, then ``fraction``.

    ``strftime`` is not used, because it writes years below 1000 with fewer than four digits on Linux.
    """
    return moment.isoformat(timespec="seconds")[:19] + fraction + "Z"
