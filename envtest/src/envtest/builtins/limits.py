"""Strategies of the kinds that limit a namespace: LimitRange and ResourceQuota."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    key,
    required,
)
from envtest.apimachinery.name_rules import qualified_name
from envtest.apimachinery.objects import Object
from envtest.builtins.go_rendering import internal_scope_selector
from envtest.builtins.resource_names import (
    container_resource_errors,
    is_overcommit_allowed,
    is_standard_for_quota,
    quantity_errors,
    quota_resource_errors,
    resource_name_errors,
)
from envtest.builtins.strategy import BuiltinStrategy
from envtest.registry.resource import RequestContext
from envtest.schema.quantity import parse_quantity

__all__ = ["LimitRangeStrategy", "ResourceQuotaStrategy", "scope_errors"]

_ORDER = (
    ("min", "min", "min", "max"),
    ("defaultRequest", "defaultRequest", "min", "defaultRequest"),
    ("defaultRequest", "defaultRequest", "defaultRequest", "max"),
    ("defaultRequest", "defaultRequest", "defaultRequest", "default"),
    ("default", "min", "min", "default"),
    ("default", "max", "default", "max"),
)
"""Pairs of bounds that must be in order.

Each entry names the field that reports the error, the field whose value the error shows, and the fields with the lower
and the higher value.
"""
_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
_NAMES = {"defaultRequest": "default request"}
_COMPUTE: Final = frozenset(
    {
        "pods",
        "cpu",
        "memory",
        *(f"{kind}.{name}" for kind in ("requests", "limits") for name in ("cpu", "memory")),
    }
)
_SCOPES: Final[Mapping[str, Collection[str]]] = {
    "BestEffort": frozenset({"pods"}),
    **dict.fromkeys(
        (
            "CrossNamespacePodAffinity",
            "NotBestEffort",
            "NotTerminating",
            "PriorityClass",
            "Terminating",
        ),
        _COMPUTE,
    ),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The scopes, and the standard resources that a quota with each scope can limit."""
_WITHOUT_VALUES: Final = (
    "BestEffort",
    "NotBestEffort",
    "Terminating",
    "NotTerminating",
    "CrossNamespacePodAffinity",
)
_CONFLICTS: Final = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


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

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """See :meth:`Strategy.prepare_create`: a LimitRange without a name gets one."""
        super().prepare_create(obj, ctx)
        if not obj["metadata"].get("name"):
            obj["metadata"]["name"] = str(uuid4())

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of repeated types, forbidden or missing fields, and contradicting bounds."""
        seen: set[str] = set()
        for position, item in enumerate(obj["spec"].get("limits") or ()):
            path = f"spec.limits[{position}]"
            kind = item.get("type") or ""
            yield from _type_errors(kind, f"{path}.type")
            if kind in seen:
                yield duplicate(f"{path}.type", kind)
            seen.add(kind)
            if kind == "Pod":
                for name in ("default", "defaultRequest"):
                    if item.get(name):
                        yield forbidden(
                            f"{path}.{name}", "may not be specified when `type` is 'Pod'"
                        )
                item = {
                    name: value
                    for name, value in item.items()
                    if name not in ("default", "defaultRequest")
                }
            storage = "storage" in (item.get("min") or {}) or "storage" in (item.get("max") or {})
            if kind == "PersistentVolumeClaim" and not storage:
                text = (
                    "either minimum or maximum storage value is required, but neither was provided"
                )
                yield required(f"{path}.limits", text)
            yield from _bounds_errors(item, path)


def _type_errors(kind: str, path: str) -> Iterator[FieldError]:
    problems = qualified_name(kind)
    for problem in problems:
        yield invalid(path, kind, problem)
    if not problems and "/" not in kind and kind not in _TYPES:
        yield invalid(path, kind, "must be a standard limit type or fully qualified")


_BOUNDS = ("max", "min", "default", "defaultRequest")


def _bounds_errors(item: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the resources' names, and of bounds that are not in ascending order."""
    name_errors = (
        container_resource_errors
        if item.get("type") in ("Container", "Pod")
        else resource_name_errors
    )
    for part in (*_BOUNDS, "maxLimitRequestRatio"):
        for name in item.get(part) or ():
            yield from name_errors(name, key(f"{path}.{part}", name))
    names = {name for part in (*_BOUNDS, "maxLimitRequestRatio") for name in item.get(part) or ()}
    for name in sorted(names):
        for place, shown, low, high in _ORDER:
            lower = (item.get(low) or {}).get(name)
            upper = (item.get(high) or {}).get(name)
            if (
                lower is None
                or upper is None
                or parse_quantity(lower).value <= parse_quantity(upper).value
            ):
                continue
            high_name = (
                "default limit"
                if (low, high) == ("defaultRequest", "default")
                else _NAMES.get(high, high)
            )
            text = f"{_NAMES.get(low, low)} value {lower} is greater than {high_name} value {upper}"
            yield invalid(key(f"{path}.{place}", name), (item.get(shown) or {}).get(name), text)
        yield from _ratio_errors(item, name, path)
        if not is_overcommit_allowed(name):
            yield from _equality_errors(item, name, path)


def _equality_errors(item: Mapping[str, Any], name: str, path: str) -> Iterator[FieldError]:
    """Yield an error if the defaults of a resource whose request must equal its limit are different."""
    limit = (item.get("default") or {}).get(name)
    request = (item.get("defaultRequest") or {}).get(name)
    if (
        limit is not None
        and request is not None
        and parse_quantity(limit).value != parse_quantity(request).value
    ):
        text = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        yield invalid(key(f"{path}.defaultRequest", name), request, text)


def _ratio_errors(item: Mapping[str, Any], name: str, path: str) -> Iterator[FieldError]:
    text = (item.get("maxLimitRequestRatio") or {}).get(name)
    if text is None:
        return
    ratio = parse_quantity(text).value
    field_path = key(f"{path}.maxLimitRequestRatio", name)
    if ratio < 1:
        yield invalid(field_path, text, f"ratio {text} is less than 1")
    low = (item.get("min") or {}).get(name)
    high = (item.get("max") or {}).get(name)
    if low is not None and high is not None:
        smallest = parse_quantity(low).value
        if smallest:
            largest = parse_quantity(high).value / smallest
            if ratio > largest:
                yield invalid(
                    field_path, text, f"ratio {text} is greater than max/min = {float(largest):f}"
                )


class ResourceQuotaStrategy(BuiltinStrategy):
    """Strategy of v1 ResourceQuota."""

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of names, quantities and scopes; the scopes are immutable."""
        if ctx.subresource == "status":
            for part in ("hard", "used"):
                yield from _quantities_errors(
                    (obj.get("status") or {}).get(part) or {}, f"status.{part}"
                )
            return
        spec = obj["spec"]
        yield from _quantities_errors(spec.get("hard") or {}, "spec.hard")
        yield from scope_errors(spec)
        if old is not None and set(spec.get("scopes") or ()) != set(
            old["spec"].get("scopes") or ()
        ):
            yield invalid("spec.scopes", spec.get("scopes"), "field is immutable")


def _quantities_errors(quantities: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for name, quantity in quantities.items():
        field_path = key(path, name)
        yield from quota_resource_errors(name, field_path)
        yield from quantity_errors(name, quantity, field_path)


def scope_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors in the scopes and the scope selector of a quota's spec."""
    limited = [name for name in sorted(spec.get("hard") or ()) if is_standard_for_quota(name)]
    scopes: Sequence[str] = spec.get("scopes") or ()
    for scope in scopes:
        if scope not in _SCOPES:
            yield invalid("spec.scopes", scopes, "unsupported scope")
        for name in limited:
            if name not in _SCOPES.get(scope, limited):
                yield invalid("spec.scopes", scopes, "unsupported scope applied to resource")
    for pair in _CONFLICTS:
        if pair <= set(scopes):
            yield invalid("spec.scopes", scopes, "conflicting scopes")
    if spec.get("scopeSelector") is not None:
        yield from _selector_errors(spec, limited)


def _selector_errors(spec: Mapping[str, Any], limited: Sequence[str]) -> Iterator[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    selector = spec["scopeSelector"]
    requirements = selector.get("matchExpressions") or ()
    for requirement in requirements:
        scope = requirement.get("scopeName") or ""
        operator = requirement.get("operator") or ""
        values = requirement.get("values") or []
        if scope not in _SCOPES:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        for name in limited:
            if name not in _SCOPES.get(scope, limited):
                shown = internal_scope_selector(selector)
                yield invalid(path, shown, "unsupported scope applied to resource")
        if scope in _WITHOUT_VALUES and operator != "Exists":
            text = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating,"
                " ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            yield invalid(f"{path}.operator", operator, text)
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required(f"{path}.values", text)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                yield invalid(f"{path}.values", values, text)
        else:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    for pair in _CONFLICTS:
        if pair <= {requirement.get("scopeName") for requirement in requirements}:
            # not those of the selector
            yield invalid(path, spec.get("scopes"), "conflicting scopes")
