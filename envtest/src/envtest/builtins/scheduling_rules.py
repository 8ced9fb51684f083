"""Validation of the scheduling constraints of pods: tolerations, affinity and topology spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from envtest.apimachinery.name_rules import dns_label, dns_subdomain, label_value, qualified_name
from envtest.builtins.string_validation import label_selector_errors

__all__ = ["affinity_errors", "node_selector_errors", "spread_errors", "toleration_errors"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = "must be in the range 1-100"
_NO_KEY = "can not be empty"
_NO_OPERATOR = "not a valid selector operator"
_NO_SELECTOR = "must not be specified when labelSelector is not set"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_COMPARISONS = ("Lt", "Gt")
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSION = ("Honor", "Ignore")


def toleration_errors(tolerations: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors of tolerations."""
    for position, toleration in enumerate(tolerations):
        field_path = f"{path}[{position}]"
        operator = toleration.get("operator") or ""
        if toleration.get("key"):
            for problem in qualified_name(toleration["key"]):
                yield invalid(f"{field_path}.key", toleration["key"], problem)
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{field_path}.operator", operator, text)
        if (
            toleration.get("tolerationSeconds") is not None
            and toleration.get("effect") != "NoExecute"
        ):
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{field_path}.effect", toleration.get("effect") or "", text)
        if operator in ("", "Equal"):
            problems = label_value(toleration.get("value") or "")
            if problems:
                yield invalid(f"{field_path}.operator", toleration.get("value"), ";".join(problems))
        elif operator == "Exists":
            if toleration.get("value"):
                text = "value must be empty when `operator` is 'Exists'"
                yield invalid(f"{field_path}.operator", toleration["value"], text)
        elif operator in _COMPARISONS:  # behind the feature gate TaintTolerationComparisonOperators
            supported = ("Equal", "Exists", *_COMPARISONS)
            yield not_supported(f"{field_path}.operator", operator, supported)
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
        yield from _term_errors(
            each.get("preference") or {}, f"{field_path}.preference", check_values=False
        )
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for position, term in enumerate(pods.get(_REQUIRED) or ()):
            yield from _pod_term_errors(term, f"{path}.{kind}.{_REQUIRED}[{position}]")
        for position, each in enumerate(pods.get(_PREFERRED) or ()):
            field_path = f"{path}.{kind}.{_PREFERRED}[{position}]"
            yield from _weight_errors(each, field_path)
            yield from _pod_term_errors(
                each.get("podAffinityTerm") or {}, f"{field_path}.podAffinityTerm"
            )


def node_selector_errors(selector: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a selector of nodes, which has at least one term."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for position, term in enumerate(terms):
        yield from _term_errors(term, f"{path}.nodeSelectorTerms[{position}]", check_values=True)


def _weight_errors(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        yield invalid(f"{path}.weight", weight, _WEIGHT)


def _term_errors(term: Mapping[str, Any], path: str, *, check_values: bool) -> Iterator[FieldError]:
    """Yield the errors of a term; preferred terms may compare with values that no label can have."""
    for position, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from _expression_errors(
            requirement, f"{path}.matchExpressions[{position}]", check_values=check_values
        )
    for position, requirement in enumerate(term.get("matchFields") or ()):
        field_path = f"{path}.matchFields[{position}]"
        operator = requirement.get("operator") or ""
        values = requirement.get("values") or ()
        if operator not in ("In", "NotIn"):
            yield invalid(f"{field_path}.operator", operator, _NO_OPERATOR)
        elif len(values) != 1:
            text = (
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            yield required(f"{field_path}.values", text)
        if requirement.get("key") != "metadata.name":
            yield invalid(
                f"{field_path}.key", requirement.get("key") or "", "not a valid field selector key"
            )
            continue
        for number, value in enumerate(values):
            for problem in dns_subdomain(value):
                yield invalid(f"{field_path}.values[{number}]", value, problem)


def _expression_errors(
    requirement: Mapping[str, Any], path: str, *, check_values: bool
) -> Iterator[FieldError]:
    operator = requirement.get("operator") or ""
    values = requirement.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(
                f"{path}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(
                f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"
            )
    else:
        yield invalid(f"{path}.operator", operator, _NO_OPERATOR)
    for problem in qualified_name(requirement.get("key") or ""):
        yield invalid(f"{path}.key", requirement.get("key") or "", problem)
    if not check_values:
        return
    for number, value in enumerate(values):
        for problem in label_value(value):
            yield invalid(f"{path}.values[{number}]", value, problem)


def _pod_term_errors(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from label_selector_errors(term.get("labelSelector"), f"{path}.labelSelector")
    yield from label_selector_errors(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for namespace in term.get("namespaces") or ():
        for problem in dns_label(namespace):
            yield invalid(f"{path}.namespace", namespace, problem)
    yield from _label_keys_errors(term, path)
    name = term.get("topologyKey") or ""
    if not name:
        yield required(f"{path}.topologyKey", _NO_KEY)
    for problem in qualified_name(name):
        yield invalid(f"{path}.topologyKey", name, problem)


def _label_keys_errors(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors in the label keys by which the pods of an affinity term agree or differ."""
    matched = term.get("matchLabelKeys") or ()
    mismatched = term.get("mismatchLabelKeys") or ()
    for kind, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)):
        if keys and term.get("labelSelector") is None:
            yield forbidden(f"{path}.{kind}", _NO_SELECTOR)
            continue
        for position, name in enumerate(keys):
            for problem in qualified_name(name):
                yield invalid(f"{path}.{kind}[{position}]", name, problem)
    positions = {name: position for position, name in enumerate(matched)}
    for name in _repeated_keys(term.get("labelSelector") or {}):
        if name in positions:
            yield invalid(
                f"{path}[{positions[name]}]",
                name,
                "exists in both matchLabelKeys and labelSelector",
            )
    for position, name in enumerate(matched):
        if name in mismatched:
            text = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{path}.matchLabelKeys[{position}]", name, text)


def _repeated_keys(selector: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of a selector's expressions that an earlier part of it has too."""
    seen = set(selector.get("matchLabels") or ())
    for expression in selector.get("matchExpressions") or ():
        name = expression.get("key") or ""
        if name in seen:
            yield name
        seen.add(name)


def spread_errors(constraints: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Yield the errors of topology spread constraints."""
    pairs = [
        (each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints
    ]
    last = {pair: position for position, pair in enumerate(pairs)}
    for position, constraint in enumerate(constraints):
        field_path = f"{path}[{position}]"
        skew = constraint.get("maxSkew") or 0
        topology_key, action = pairs[position]
        if skew <= 0:
            yield invalid(f"{field_path}.maxSkew", skew, "must be greater than zero")
        if not topology_key:
            yield required(f"{field_path}.topologyKey", _NO_KEY)
        if action not in _ACTIONS:
            yield not_supported(f"{field_path}.whenUnsatisfiable", action, _ACTIONS)
        if last[pairs[position]] > position:
            yield duplicate(
                f"{field_path}.{{topologyKey, whenUnsatisfiable}}", f"{{{topology_key}, {action}}}"
            )
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                yield invalid(f"{field_path}.minDomains", domains, "must be greater than zero")
            if action != "DoNotSchedule":
                text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                yield invalid(f"{field_path}.minDomains", domains, text)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(name) is not None and constraint[name] not in _INCLUSION:
                yield not_supported(f"{field_path}.{name}", constraint[name], _INCLUSION)
        yield from _spread_keys_errors(constraint, f"{field_path}.matchLabelKeys")
        yield from label_selector_errors(
            constraint.get("labelSelector"), f"{field_path}.labelSelector"
        )


def _spread_keys_errors(constraint: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    keys = constraint.get("matchLabelKeys") or ()
    selector = constraint.get("labelSelector")
    if keys and selector is None:
        yield forbidden(path, _NO_SELECTOR)
    used = {*((selector or {}).get("matchLabels") or ()), *_repeated_keys(selector or {})}
    for position, name in enumerate(keys):
        for problem in qualified_name(name):
            yield invalid(f"{path}[{position}]", name, problem)
        if name in used:
            yield invalid(
                f"{path}[{position}]", name, "exists in both matchLabelKeys and labelSelector"
            )
