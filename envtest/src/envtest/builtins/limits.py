"""Strategies of the kinds that limit a namespace: LimitRange and ResourceQuota."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envtest.builtins.strategy import BuiltinStrategy
from envtest.context import RequestContext
from envtest.field_errors import FieldError, duplicate, forbidden, invalid, key, required
from envtest.metadata import qualified_name
from envtest.objects import Object
from envtest.schema.quantity import parse_quantity

__all__ = ["LimitRangeStrategy", "ResourceQuotaStrategy"]

_ORDER = (
    ("min", "min", "max", "max"),
    ("defaultRequest", "min", "defaultRequest", "default request"),
    ("defaultRequest", "defaultRequest", "max", "max"),
    ("defaultRequest", "defaultRequest", "default", "default limit"),
    ("default", "min", "default", "default"),
    ("default", "default", "max", "max"),
)
"""Pairs of bounds that must be in order.

Each entry names the field that reports the error, the field with the lower value, the field with the higher value, and
the latter's name in messages.
"""
_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
_NAMES = {"min": "min", "default": "default", "defaultRequest": "default request"}


class LimitRangeStrategy(BuiltinStrategy):
    """Strategy of v1 LimitRange."""

    allow_create_on_update = True

    def set_defaults(self, obj: Object) -> None:
        """Derive the defaults of containers from their maximum and minimum."""
        for item in obj["spec"].get("limits") or ():
            if item.get("type") != "Container":
                continue
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            if limits:
                item["default"] = limits
            if requests:
                item["defaultRequest"] = requests

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of repeated types, of forbidden or missing fields, and of contradicting bounds."""
        seen: set[str] = set()
        for position, item in enumerate(obj["spec"].get("limits") or ()):
            path, kind = f"spec.limits[{position}]", item.get("type") or ""
            if kind in seen:
                yield duplicate(f"{path}.type", kind)
            seen.add(kind)
            for problem in qualified_name(kind):
                yield invalid(f"{path}.type", kind, problem)
            if "/" not in kind and kind and kind not in _TYPES:
                yield invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified")
            if kind == "Pod":
                for name in ("default", "defaultRequest"):
                    if item.get(name):
                        yield forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
            storage = "storage" in (item.get("min") or {}) or "storage" in (item.get("max") or {})
            if kind == "PersistentVolumeClaim" and not storage:
                text = "either minimum or maximum storage value is required, but neither was provided"
                yield required(f"{path}.limits", text)
            yield from _bounds_errors(item, path)


def _bounds_errors(item: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield an error for each resource whose minimum, defaults and maximum are not in ascending order."""
    names = {name for part in ("min", "max", "default", "defaultRequest") for name in item.get(part) or ()}
    for name in sorted(names):
        for place, low, high, high_name in _ORDER:
            lower, upper = (item.get(low) or {}).get(name), (item.get(high) or {}).get(name)
            if lower is None or upper is None or parse_quantity(lower).value <= parse_quantity(upper).value:
                continue
            value = (item.get(place) or {}).get(name)
            text = f"{_NAMES[low]} value {lower} is greater than {high_name} value {upper}"
            yield invalid(key(f"{path}.{place}", name), value, text)


class ResourceQuotaStrategy(BuiltinStrategy):
    """Strategy of v1 ResourceQuota."""

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of negative quantities, and of changes to the immutable scopes."""
        for name, quantity in (obj["spec"].get("hard") or {}).items():
            if parse_quantity(quantity).value < 0:
                yield invalid(key("spec.hard", name), quantity, "must be greater than or equal to 0")
        if old is not None and obj["spec"].get("scopes") != old["spec"].get("scopes"):
            yield invalid("spec.scopes", obj["spec"].get("scopes"), "field is immutable")
