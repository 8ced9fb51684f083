"""RBAC rules compiled for matching, and the comparison of rules for escalation checks.

Follows ``pkg/apis/rbac/v1/evaluation_helpers.go`` and ``component-helpers/auth/rbac/validation`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envtest.apimachinery.field_errors import go_quote
from envtest.auth.attributes import Attributes

__all__ = ["PolicyRule", "compact", "compact_string", "compile_rules", "quoted_list", "uncovered"]


class PolicyRule(NamedTuple):
    """One ``PolicyRule``; ``wire`` is its JSON form, for SelfSubjectRulesReview."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    urls: tuple[str, ...]
    wire: Mapping[str, Any]

    def allows(self, attributes: Attributes) -> bool:
        """Report whether this rule allows the request."""
        if attributes.verb not in self.verbs and "*" not in self.verbs:
            return False
        if not attributes.is_resource_request:
            return any(_url_matches(url, attributes.path) for url in self.urls)
        if attributes.group not in self.groups and "*" not in self.groups:
            return False
        if not self._matches_resource(attributes):
            return False
        return not self.names or attributes.name in self.names

    def _matches_resource(self, attributes: Attributes) -> bool:
        resources = self.resources
        if "*" in resources or attributes.combined_resource in resources:
            return True
        return bool(attributes.subresource) and f"*/{attributes.subresource}" in resources

    def covers(self, other: PolicyRule) -> bool:
        """Report whether this rule grants all permissions of ``other``."""
        if not (_covers(self.verbs, other.verbs) and _covers(self.groups, other.groups)):
            return False
        if other.urls and not all(
            any(_url_covers(owned, url) for owned in self.urls) for url in other.urls
        ):
            return False
        if not all(_resource_covered(self.resources, resource) for resource in other.resources):
            return False
        return not self.names or (bool(other.names) and other.names <= self.names)


def compile_rules(rules: Iterable[Mapping[str, Any]] | None) -> tuple[PolicyRule, ...]:
    """Compile the rules of a Role or ClusterRole."""
    return tuple(
        PolicyRule(
            frozenset(rule.get("verbs") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("resources") or ()),
            frozenset(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
            rule,
        )
        for rule in rules or ()
    )


def _url_matches(rule: str, path: str) -> bool:
    return rule in ("*", path) or (rule.endswith("*") and path.startswith(rule.rstrip("*")))


def _url_covers(owned: str, url: str) -> bool:
    return owned in ("*", url) or (
        owned.endswith("*") and url.rstrip("*").startswith(owned.rstrip("*"))
    )


def _covers(owned: frozenset[str], other: frozenset[str]) -> bool:
    return "*" in owned or other <= owned


def _resource_covered(owned: frozenset[str], resource: str) -> bool:
    if "*" in owned or resource in owned:
        return True
    _, separator, subresource = resource.partition("/")
    return bool(separator) and f"*/{subresource}" in owned


def uncovered(held: Sequence[PolicyRule], requested: Iterable[PolicyRule]) -> list[dict[str, Any]]:
    """Return the permissions in ``requested`` but not in ``held``, one rule per verb, group, resource, name or URL."""
    missing = []
    for rule in requested:
        for single in _break_down(rule):
            (compiled,) = compile_rules([single])
            if not any(own.covers(compiled) for own in held):
                missing.append(single)
    return missing


def _break_down(rule: PolicyRule) -> Iterator[dict[str, Any]]:
    wire = rule.wire
    for group in wire.get("apiGroups") or ():
        for resource in wire.get("resources") or ():
            for verb in wire.get("verbs") or ():
                base = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                names = wire.get("resourceNames") or ()
                if not names:
                    yield base
                for name in names:
                    yield {**base, "resourceNames": [name]}
    for url in wire.get("nonResourceURLs") or ():
        for verb in wire.get("verbs") or ():
            yield {"nonResourceURLs": [url], "verbs": [verb]}


def compact(rules: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge the verbs of rules for the same single group, resource and name."""
    joined: dict[tuple[str, str, str | None], dict[str, Any]] = {}
    others = []
    for rule in rules:
        names = rule.get("resourceNames") or []
        if (
            rule.get("nonResourceURLs")
            or len(rule["apiGroups"]) != 1
            or len(rule["resources"]) != 1
            or len(names) > 1
        ):
            others.append(dict(rule))
            continue
        key = (rule["apiGroups"][0], rule["resources"][0], names[0] if names else None)
        if key in joined:
            joined[key]["verbs"] += [
                verb for verb in rule["verbs"] if verb not in joined[key]["verbs"]
            ]
        else:
            joined[key] = {**rule, "verbs": list(rule["verbs"])}
    return [*joined.values(), *others]


def compact_string(rule: Mapping[str, Any]) -> str:
    """Format a rule for error messages: ``{APIGroups:[""], Resources:["pods"], Verbs:["get"]}``."""
    parts = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("ResourceNames", "resourceNames"),
        ("Verbs", "verbs"),
    )
    fields = [f"{label}:{quoted_list(rule[key])}" for label, key in parts if rule.get(key)]
    return "{" + ", ".join(fields) + "}"


def quoted_list(values: Iterable[str]) -> str:
    """Format strings as Go's ``%q`` formats a slice: ``["a" "b"]``."""
    return "[" + " ".join(go_quote(value) for value in values) + "]"
