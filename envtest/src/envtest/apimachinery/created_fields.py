"""The ``managedFields`` of objects that the API server itself creates at its start.

Their fields are read from the objects, which contain no lists with keys. This costs less than the schemas of their
kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from envtest.apimachinery.objects import Object

__all__ = ["API_SERVER", "condition_entry", "creation_entry"]

API_SERVER: Final = "kube-apiserver"
_UNTRACKED: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_REQUIRED: Final = frozenset({"spec", "priorityLevelConfiguration"})
"""The fields that are always present in objects of their kinds, so that no manager owns them as a whole."""
_ATOMIC: Final = frozenset({"roleRef"})


def creation_entry(obj: Object, manager: str, now: str) -> dict[str, Any]:
    """Return the entry of ``manager``, which created ``obj`` with its labels and annotations, without its status."""
    fields = _fields({name: value for name, value in obj.items() if name not in _UNTRACKED})
    metadata = obj["metadata"]
    described = {
        name: metadata[name] for name in ("annotations", "labels") if metadata.get(name) is not None
    }
    if described:
        fields["f:metadata"] = _fields(described)
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": obj["apiVersion"],
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def condition_entry(
    condition: Mapping[str, str], api_version: str, manager: str, now: str
) -> dict[str, Any]:
    """Return the entry of ``manager``, which applied a condition of the status."""
    fields: dict[str, Any] = {
        ".": {},
        **{f"f:{name}": {} for name, value in condition.items() if value},
    }
    key = f'k:{{"type":"{condition["type"]}"}}'
    return {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:conditions": {key: fields}}},
        "subresource": "status",
    }


def _fields(value: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, item in value.items():
        if item is None:
            continue
        if not isinstance(item, Mapping) or name in _ATOMIC:
            fields[f"f:{name}"] = {}
        elif name in _REQUIRED:
            fields[f"f:{name}"] = _fields(item)
        else:
            fields[f"f:{name}"] = {".": {}, **_fields(item)}
    return fields
