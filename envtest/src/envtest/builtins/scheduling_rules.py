"""Validation of the scheduling constraints of pods: tolerations, affinity and topology spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.builtins.string_validation import label_selector_errors
from envtest.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from envtest.metadata import label_value, qualified_name

__all__ = ["affinity_errors", "node_selector_errors", "spread_errors", "toleration_errors"]

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_WEIGHT = "must be in the range 1-100"
_NO_KEY = "can not be empty"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def toleration_errors(tolerations: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors of tolerations."""
    for position, toleration in enumerate(tolerations):
        field_path, operator = f"{path}[{position}]", toleration.get("operator") or ""
        if toleration.get("key"):
            for problem in qualified_name(toleration["key"]):
                yield invalid(f"{field_path}.key", toleration["key"], problem)
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{field_path}.operator", operator, text)
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{field_path}.effect", toleration.get("effect") or "", text)
        if operator in ("", "Equal"):
            for problem in label_value(toleration.get("value") or ""):
                yield invalid(f"{field_path}.operator", toleration.get("value"), problem)
        elif operator == "Exists":
            if toleration.get("value"):
                text = "value must be empty when `operator` is 'Exists'"
                yield invalid(f"{field_path}.operator", {**toleration}, text)
        else:
            yield not_supported(f"{field_path}.operator", operator, ("Equal", "Exists"))
        effect = toleration.get("effect")
        if effect and effect not in _EFFECTS:
            yield not_supported(f"{field_path}.effect", effect, _EFFECTS)


def affinity_errors(affinity: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of node affinity, pod affinity and pod anti-affinity."""
    node = affinity.get("nodeAffinity") or {}
    if node.get(_REQUIRED) is not None:
        yield from node_selector_errors(node[_REQUIRED], f"{path}.nodeAffinity.{_REQUIRED}")
    for position, each in enumerate(node.get(_PREFERRED) or ()):
        field_path = f"{path}.nodeAffinity.{_PREFERRED}[{position}]"
        yield from _weight_errors(each, field_path)
        yield from _term_errors(each.get("preference") or {}, f"{field_path}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for position, term in enumerate(pods.get(_REQUIRED) or ()):
            yield from _pod_term_errors(term, f"{path}.{kind}.{_REQUIRED}[{position}]")
        for position, each in enumerate(pods.get(_PREFERRED) or ()):
            field_path = f"{path}.{kind}.{_PREFERRED}[{position}]"
            yield from _weight_errors(each, field_path)
            yield from _pod_term_errors(each.get("podAffinityTerm") or {}, f"{field_path}.podAffinityTerm")


def node_selector_errors(selector: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a selector of nodes, which has at least one term."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for position, term in enumerate(terms):
        yield from _term_errors(term, f"{path}.nodeSelectorTerms[{position}]")


def _weight_errors(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        yield invalid(f"{path}.weight", weight, _WEIGHT)


def _term_errors(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for position, requirement in enumerate(term.get("matchExpressions") or ()):
        field_path = f"{path}.matchExpressions[{position}]"
        operator, values = requirement.get("operator") or "", requirement.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                yield required(f"{field_path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{field_path}.values", text)
        elif operator in ("Gt", "Lt"):
            if len(values) != 1:
                text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield required(f"{field_path}.values", text)
        else:
            yield invalid(f"{field_path}.operator", operator, "not a valid selector operator")
        for problem in qualified_name(requirement.get("key") or ""):
            yield invalid(f"{field_path}.key", requirement.get("key") or "", problem)


def _pod_term_errors(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from label_selector_errors(term.get("labelSelector"), f"{path}.labelSelector")
    yield from label_selector_errors(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    yield from _topology_key_errors(term, path)


def _topology_key_errors(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = term.get("topologyKey") or ""
    if not name:
        yield required(f"{path}.topologyKey", _NO_KEY)
    else:
        for problem in qualified_name(name):
            yield invalid(f"{path}.topologyKey", name, problem)


def spread_errors(constraints: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors of topology spread constraints."""
    actions = ("DoNotSchedule", "ScheduleAnyway")
    seen: set[tuple[Any, Any]] = set()
    for position, constraint in enumerate(constraints):
        field_path, skew = f"{path}[{position}]", constraint.get("maxSkew") or 0
        if skew <= 0:
            yield invalid(f"{field_path}.maxSkew", skew, "must be greater than zero")
        yield from _topology_key_errors(constraint, field_path)
        action = constraint.get("whenUnsatisfiable") or ""
        if action not in actions:
            yield not_supported(f"{field_path}.whenUnsatisfiable", action, actions)
        pair = constraint.get("topologyKey"), action
        if pair in seen:
            yield duplicate(f"{field_path}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}")
        seen.add(pair)
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                yield invalid(f"{field_path}.minDomains", domains, "must be greater than zero")
            if action != "DoNotSchedule":
                text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                yield invalid(f"{field_path}.minDomains", domains, text)
        yield from label_selector_errors(constraint.get("labelSelector"), f"{field_path}.labelSelector")
