"""Whether a pod may run on a node: node selector, required node affinity and tolerations. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from envtest.objects import Object, labels_of

__all__ = ["matches_node", "tolerates_taints"]


def matches_node(spec: Mapping[str, Any], node: Object) -> bool:
    """Return whether the node has the labels of ``nodeSelector`` and satisfies the required node affinity."""
    labels, fields = labels_of(node), {"metadata.name": node["metadata"]["name"]}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_matches_term(term, labels, fields) for term in required.get("nodeSelectorTerms") or ())


def _matches_term(term: Mapping[str, Any], labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not by_field:
        return False
    return all(_matches(each, labels) for each in expressions) and all(_matches(each, fields) for each in by_field)


def _matches(requirement: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    value, wanted = values.get(requirement.get("key", "")), requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                number, limit = int(value or ""), int(next(iter(wanted), ""))
            except ValueError:
                return False
            return number > limit if operator == "Gt" else number < limit
    return False


def tolerates_taints(
    tolerations: Iterable[Mapping[str, Any]], taints: Iterable[Mapping[str, Any]], effects: Iterable[str]
) -> bool:
    """Return whether each taint with one of the effects is tolerated."""
    tolerations, effects = list(tolerations), set(effects)
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.get("effect") in effects
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")
