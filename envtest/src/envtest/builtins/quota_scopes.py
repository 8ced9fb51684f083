"""Validation of the scopes of ResourceQuotas."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.builtins.resource_names import is_standard_for_quota
from envtest.field_errors import FieldError, invalid, required

__all__ = ["scope_errors"]

_COMPUTE: Final = frozenset(
    {"pods", "cpu", "memory", *(f"{kind}.{name}" for kind in ("requests", "limits") for name in ("cpu", "memory"))}
)
_SCOPES: Final[Mapping[str, Collection[str]]] = {
    "BestEffort": frozenset({"pods"}),
    **dict.fromkeys(
        ("CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating"), _COMPUTE
    ),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The scopes, and the standard resources that a quota with each scope can limit."""
_WITHOUT_VALUES: Final = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity")
_CONFLICTS: Final = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def scope_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of the scopes and of the scope selector of a quota's spec."""
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
    selector = spec.get("scopeSelector")
    if selector is not None:
        yield from _selector_errors(selector, limited)


def _selector_errors(selector: Mapping[str, Any], limited: Sequence[str]) -> Iterator[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    requirements = selector.get("matchExpressions") or ()
    for requirement in requirements:
        scope, operator = requirement.get("scopeName") or "", requirement.get("operator") or ""
        values = requirement.get("values") or []
        if scope not in _SCOPES:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        for name in limited:
            if name not in _SCOPES.get(scope, limited):
                yield invalid(path, selector, "unsupported scope applied to resource")
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
            yield invalid(path, [requirement.get("scopeName") for requirement in requirements], "conflicting scopes")
