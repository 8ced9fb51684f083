"""RBAC rules compiled for matching, and the algebra that escalation checks need: do these rules cover those?

Follows ``pkg/apis/rbac/v1/evaluation_helpers.go`` and
``component-helpers/auth/rbac/validation`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envtest.auth.attributes import Attributes
from envtest.field_errors import go_quote

__all__ = ["PolicyRule", "compact", "compact_string", "compile_rules", "quoted_list", "uncovered"]


class PolicyRule(NamedTuple):
    """One ``PolicyRule``; ``wire`` is how it was written, for SelfSubjectRulesReview."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    urls: tuple[str, ...]
    wire: Mapping[str, Any]

    def allows(self, attributes: Attributes) -> bool:
        """Whether this rule alone permits the request."""
        if attributes.verb not in self.verbs and "*" not in self.verbs:
            return False
        if not attributes.is_resource_request:
            return any(_url_matches(url, attributes.path) for url in self.urls)
        if attributes.group not in self.groups and "*" not in self.groups:
            return False
        if not self._concerns(attributes):
            return False
        return not self.names or attributes.name in self.names

    def _concerns(self, attributes: Attributes) -> bool:
        resources = self.resources
        if "*" in resources or attributes.combined_resource in resources:
            return True
        return bool(attributes.subresource) and f"*/{attributes.subresource}" in resources

    def covers(self, other: PolicyRule) -> bool:
        """Whether everything that ``other`` grants is granted by this rule."""
        if not (_covers(self.verbs, other.verbs) and _covers(self.groups, other.groups)):
            return False
        if other.urls and not all(any(_url_covers(mine, url) for mine in self.urls) for url in other.urls):
            return False
        if not all(_resource_covered(self.resources, resource) for resource in other.resources):
            return False
        return not self.names or (bool(other.names) and other.names <= self.names)


def compile_rules(rules: Iterable[Mapping[str, Any]] | None) -> tuple[PolicyRule, ...]:
    """The rules of a Role or ClusterRole."""
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


def _url_covers(mine: str, url: str) -> bool:
    return mine in ("*", url) or (mine.endswith("*") and url.rstrip("*").startswith(mine.rstrip("*")))


def _covers(mine: frozenset[str], theirs: frozenset[str]) -> bool:
    return "*" in mine or theirs <= mine


def _resource_covered(mine: frozenset[str], resource: str) -> bool:
    if "*" in mine or resource in mine:
        return True
    _, separator, subresource = resource.partition("/")
    return bool(separator) and f"*/{subresource}" in mine


def uncovered(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[dict[str, Any]]:
    """What ``wanted`` grants and ``owned`` does not, one rule for each verb, group, resource, name or URL."""
    missing = []
    for rule in wanted:
        for atom in _atoms(rule):
            (compiled,) = compile_rules([atom])
            if not any(mine.covers(compiled) for mine in owned):
                missing.append(atom)
    return missing


def _atoms(rule: PolicyRule) -> Iterator[dict[str, Any]]:
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
    """Joins the verbs of rules which are about the same single group, resource and name."""
    joined: dict[tuple[str, str, str | None], dict[str, Any]] = {}
    others = []
    for rule in rules:
        names = rule.get("resourceNames") or []
        if rule.get("nonResourceURLs") or len(rule["apiGroups"]) != 1 or len(rule["resources"]) != 1 or len(names) > 1:
            others.append(dict(rule))
            continue
        key = (rule["apiGroups"][0], rule["resources"][0], names[0] if names else None)
        if key in joined:
            joined[key]["verbs"] += [verb for verb in rule["verbs"] if verb not in joined[key]["verbs"]]
        else:
            joined[key] = {**rule, "verbs": list(rule["verbs"])}
    return [*joined.values(), *others]


def compact_string(rule: Mapping[str, Any]) -> str:
    """A rule as refusals print it: ``{APIGroups:[""], Resources:["pods"], Verbs:["get"]}``."""
    parts = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("ResourceNames", "resourceNames"),
        ("Verbs", "verbs"),
    )
    texts = [f"{label}:{quoted_list(rule[key])}" for label, key in parts if rule.get(key)]
    return "{" + ", ".join(texts) + "}"


def quoted_list(values: Iterable[str]) -> str:
    """Texts as Go's ``%q`` prints a slice of them: ``["a" "b"]``."""
    return "[" + " ".join(go_quote(value) for value in values) + "]"
