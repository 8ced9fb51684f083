"""Table columns, and the cell formats that many kinds share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from envtest.apimachinery.objects import Object

__all__ = [
    "AGE",
    "CONTAINERS",
    "IMAGES",
    "NAME",
    "NONE",
    "Column",
    "Printer",
    "RowFunction",
    "age",
    "common_fields",
    "containers_and_images",
    "labels_text",
    "named_list",
    "object_age",
    "object_name",
    "selector_text",
    "since",
]

RowFunction: TypeAlias = Callable[[Object, datetime], list[Any]]
"""Returns the cells of the row of an object, given the current time."""
Printer: TypeAlias = "tuple[tuple[Column, ...], RowFunction]"

NONE: Final = "<none>"


class Column(NamedTuple):
    """A column of a Table; columns of priority 0 are always shown, others only with ``-o wide``."""

    name: str
    description: str
    type: str = "string"
    priority: int = 0
    format: str = ""

    def definition(self) -> dict[str, Any]:
        """Return the entry of ``columnDefinitions`` of a Table."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


NAME: Final = Column(
    "Name",
    "The name of the object, unique within its namespace (or within the cluster, for objects outside namespaces).",
    format="name",
)
AGE: Final = Column(
    "Age",
    "The time since the object was created, by the clock of the API server; see metadata.creationTimestamp.",
)
CONTAINERS: Final = Column("Containers", "Names of each container in the template.", priority=1)
IMAGES: Final = Column("Images", "Images referenced by each container in the template.", priority=1)


def since(moment: datetime, now: datetime) -> str:
    """Format the time from ``moment`` to ``now`` with two or three significant figures: ``42s``, ``5m3s``, ``2d4h``."""
    seconds = int((now - moment).total_seconds())
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    hours = seconds // 3600
    days = seconds // 86400
    if minutes < 10:
        return _two_units(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return _two_units(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    return _two_units(days // 365, "y", days % 365, "d") if days < 365 * 8 else f"{days // 365}y"


def _two_units(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def age(timestamp: str | None, now: datetime) -> str:
    """Format the time since an RFC 3339 timestamp like :func:`since`; ``<unknown>`` without a valid timestamp."""
    if not timestamp:
        return "<unknown>"
    try:
        return since(datetime.fromisoformat(timestamp), now)
    except (ValueError, TypeError):
        return "<unknown>"


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Format labels as ``a=b,c=d``, sorted, or ``<none>``."""
    return ",".join(f"{name}={value}" for name, value in sorted((labels or {}).items())) or NONE


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """Format a LabelSelector as ``kubectl`` does: ``a=b,c in (d,e),!f``."""
    if selector is None:
        return NONE
    parts = [
        (name, f"{name}={value}") for name, value in (selector.get("matchLabels") or {}).items()
    ]
    for requirement in selector.get("matchExpressions") or ():
        key = requirement.get("key", "")
        values = ",".join(sorted(requirement.get("values") or ()))
        texts = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append((key, texts.get(requirement.get("operator", ""), key)))
    parts.sort(key=lambda part: part[0])  # of one key, the labels remain before the expressions
    return ",".join(text for _, text in parts) or NONE


def containers_and_images(template: Mapping[str, Any] | None) -> list[str]:
    """Return the two cells that list the containers of a pod template and their images."""
    containers = ((template or {}).get("spec") or {}).get("containers") or ()
    return [
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
    ]


def named_list(items: Iterable[str], *, limit: int = 3, empty: str = "<unset>") -> str:
    """Join the first ``limit`` items, and append how many more there are."""
    texts = list(items)
    shown = ",".join(texts[:limit])
    return f"{shown} + {len(texts) - limit} more..." if len(texts) > limit else shown or empty


def object_name(obj: Object) -> str:
    """Return the cell NAME of an object."""
    name: str = obj["metadata"].get("name", "")
    return name


def object_age(obj: Object, now: datetime) -> str:
    """Return the cell AGE of an object."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def common_fields(obj: Object, now: datetime) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """Return the cells NAME and AGE, the spec and the status of an object."""
    return object_name(obj), object_age(obj, now), obj.get("spec") or {}, obj.get("status") or {}
