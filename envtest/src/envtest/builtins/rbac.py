"""Strategies of rbac.authorization.k8s.io: roles and bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    go_json,
    invalid,
    not_supported_string,
    required,
)
from envtest.apimachinery.name_rules import dns_subdomain, path_segment
from envtest.apimachinery.objects import Object
from envtest.builtins.strategy import PathSegmentNameStrategy
from envtest.builtins.string_validation import label_selector_errors
from envtest.registry.resource import RequestContext

__all__ = ["BindingStrategy", "RoleStrategy"]

_GROUP = "rbac.authorization.k8s.io"


class RoleStrategy(PathSegmentNameStrategy):
    """Strategy of Role and ClusterRole."""

    allow_create_on_update = True

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the rules and of the aggregation rule."""
        for position, rule in enumerate(obj.get("rules") or ()):
            yield from _rule_errors(rule, f"rules[{position}]", namespaced=self.resource.namespaced)
        selectors = (obj.get("aggregationRule") or {}).get("clusterRoleSelectors")
        if "aggregationRule" in obj and not selectors:
            text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            yield required("aggregationRule.clusterRoleSelectors", text)
        for position, selector in enumerate(selectors or ()):
            path = f"aggregationRule.clusterRoleSelectors[{position}]"
            problems = list(label_selector_errors(selector, path))
            yield from problems
            if problems:
                yield invalid(path, None, "invalid label selector.")


def _rule_errors(rule: Mapping[str, Any], path: str, *, namespaced: bool) -> Iterator[FieldError]:
    urls = rule.get("nonResourceURLs") or ()
    if not rule.get("verbs"):
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    if urls:
        if namespaced:
            yield invalid(
                f"{path}.nonResourceURLs",
                list(urls),
                "namespaced rules cannot apply to non-resource URLs",
            )
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid(f"{path}.nonResourceURLs", list(urls), text)
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


class BindingStrategy(PathSegmentNameStrategy):
    """Strategy of RoleBinding and ClusterRoleBinding."""

    allow_create_on_update = True

    def set_defaults(self, obj: Object) -> None:
        """Set the API group of the role reference and of users and groups."""
        reference = obj["roleRef"]
        if not reference.get("apiGroup"):
            reference["apiGroup"] = _GROUP
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", _GROUP)

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the role reference, which is immutable, and of the subjects."""
        reference = obj["roleRef"]
        if reference.get("apiGroup") != _GROUP:
            yield not_supported_string(
                "roleRef.apiGroup", reference.get("apiGroup") or "", (_GROUP,)
            )
        kinds: Sequence[str] = (
            ("Role", "ClusterRole") if self.resource.namespaced else ("ClusterRole",)
        )
        if reference.get("kind") not in kinds:
            yield not_supported_string("roleRef.kind", reference.get("kind") or "", kinds)
        if not reference.get("name"):
            yield required("roleRef.name")
        else:
            for problem in path_segment(reference["name"]):
                yield invalid("roleRef.name", reference["name"], problem)
        for position, subject in enumerate(obj.get("subjects") or ()):
            yield from _subject_errors(
                subject, f"subjects[{position}]", namespaced=self.resource.namespaced
            )
        if old is not None and old["roleRef"] != reference:
            names = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
            rendered = ",".join(
                f'"{go}":{go_json(reference.get(name) or "")}' for go, name in names
            )
            yield invalid("roleRef", Verbatim("{" + rendered + "}"), "cannot change roleRef")


def _subject_errors(
    subject: Mapping[str, Any], path: str, *, namespaced: bool
) -> Iterator[FieldError]:
    kind = subject.get("kind") or ""
    group = subject.get("apiGroup") or ""
    if not subject.get("name"):
        yield required(f"{path}.name")
    if kind == "ServiceAccount":
        if subject.get("name"):
            for problem in dns_subdomain(subject["name"]):
                yield invalid(f"{path}.name", subject["name"], problem)
        if group:
            yield not_supported_string(f"{path}.apiGroup", group, ("",))
        if not subject.get("namespace") and not namespaced:
            yield required(f"{path}.namespace")
    elif kind in ("User", "Group"):
        if group != _GROUP:
            yield not_supported_string(f"{path}.apiGroup", group, (_GROUP,))
    else:
        yield not_supported_string(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))
