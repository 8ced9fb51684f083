"""Matching of requests with webhooks and policies: rules, namespace and object selectors, equivalent resources.

Follows ``k8s.io/apiserver/pkg/admission/plugin/webhook/predicates``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from envtest.apimachinery.errors import GroupResource, not_found
from envtest.apimachinery.label_selectors import LabelSelector
from envtest.apimachinery.objects import Object
from envtest.registry.registry import Registry
from envtest.registry.resource import RequestContext, ResourceInfo
from envtest.storage import Store

__all__ = [
    "NAMESPACES",
    "Match",
    "Matcher",
    "Rule",
    "label_selector",
    "object_name",
    "request_namespace",
]

NAMESPACES: Final = GroupResource("", "namespaces")
_EXEMPT_RESOURCES: Final = frozenset(
    {
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    }
)


def label_selector(selector: Mapping[str, Any] | None) -> LabelSelector:
    """Compile a ``LabelSelector`` object; ``None`` and the empty selector match everything."""
    selector = selector or {}
    requirements: list[Callable[[Mapping[str, str]], bool]] = []
    for key, value in (selector.get("matchLabels") or {}).items():
        requirements.append(_in(key, frozenset((value,))))
    for expression in selector.get("matchExpressions") or ():
        key = expression["key"]
        values = frozenset(expression.get("values") or ())
        requirements.append(_EXPRESSIONS[expression["operator"]](key, values))
    return LabelSelector(requirements)


def _in(key: str, values: frozenset[str]) -> Callable[[Mapping[str, str]], bool]:
    return lambda labels: labels.get(key) in values


_EXPRESSIONS: Final[
    dict[str, Callable[[str, frozenset[str]], Callable[[Mapping[str, str]], bool]]]
] = {
    "In": _in,
    "NotIn": lambda key, values: lambda labels: labels.get(key) not in values,
    "Exists": lambda key, _: lambda labels: key in labels,
    "DoesNotExist": lambda key, _: lambda labels: key not in labels,
}


def object_name(ctx: RequestContext, obj: Object) -> str:
    """Return the name that admission uses: the request's, else the object's own; empty for ``deletecollection``."""
    if ctx.verb == "deletecollection":
        return ""
    name: str = ctx.name or (obj.get("metadata") or {}).get("name") or ""
    return name


def request_namespace(ctx: RequestContext, obj: Object) -> str:
    """Return the namespace that admission uses; for a Namespace this is its own name."""
    if ctx.namespace or ctx.info.resource != NAMESPACES:
        return ctx.namespace
    return object_name(ctx, obj)


class Rule:
    """One ``RuleWithOperations``; with ``resourceNames`` (only in policies) it matches objects of these names only."""

    __slots__ = ("_groups", "_names", "_operations", "_resources", "_scope", "_versions")

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self._groups = frozenset(rule.get("apiGroups") or ())
        self._versions = frozenset(rule.get("apiVersions") or ())
        self._operations = frozenset(rule.get("operations") or ())
        self._resources = [tuple(each.partition("/")[::2]) for each in rule.get("resources") or ()]
        self._names = frozenset(rule.get("resourceNames") or ())
        self._scope = rule.get("scope") or "*"

    def matches(self, ctx: RequestContext, obj: Object, info: ResourceInfo) -> bool:
        """Report whether the rule matches the request for ``info``, which is ``ctx.info`` or an equivalent of it."""
        if ctx.operation not in self._operations and "*" not in self._operations:
            return False
        if info.group not in self._groups and "*" not in self._groups:
            return False
        if info.version not in self._versions and "*" not in self._versions:
            return False
        if not any(
            name in ("*", info.plural) and subresource in ("*", ctx.subresource)
            for name, subresource in self._resources
        ):
            return False
        if not self._in_scope(ctx, obj):
            return False
        return not self._names or object_name(ctx, obj) in self._names

    def _in_scope(self, ctx: RequestContext, obj: Object) -> bool:
        if self._scope == "*":
            return True
        namespaced = bool(request_namespace(ctx, obj)) and ctx.info.resource != NAMESPACES
        return namespaced == (self._scope == "Namespaced")


class Match(NamedTuple):
    """The resource that the rule matched: the request's own, or an equivalent one."""

    info: ResourceInfo


class Matcher:
    """Evaluates rules and selectors for requests."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._generation = -1
        self._versions: dict[GroupResource, list[ResourceInfo]] = {}

    @staticmethod
    def is_exempt(ctx: RequestContext) -> bool:
        """Report whether hooks and policies skip the request.

        They do not apply to their own configurations; otherwise one could block its own removal.
        """
        return (
            ctx.info.group == "admissionregistration.k8s.io"
            and ctx.info.plural in _EXEMPT_RESOURCES
        )

    def match_rules(
        self, ctx: RequestContext, obj: Object, rules: Sequence[Rule], *, equivalent: bool
    ) -> Match | None:
        """Return the match of the request itself, else (``equivalent``) of the same objects in another version."""
        if any(rule.matches(ctx, obj, ctx.info) for rule in rules):
            return Match(ctx.info)
        if equivalent:
            for rule in rules:
                for info in self._equivalents(ctx.info):
                    if rule.matches(ctx, obj, info):
                        return Match(info)
        return None

    def _equivalents(self, info: ResourceInfo) -> Sequence[ResourceInfo]:
        """Return the resources that serve the same stored objects."""
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            self._versions = {}
            for each in self._registry:
                self._versions.setdefault(each.storage, []).append(each)
        return self._versions.get(info.storage, ())

    def namespace_matches(self, ctx: RequestContext, obj: Object, selector: LabelSelector) -> bool:
        """Report whether the namespace's labels match. Raises StatusError when the namespace does not exist.

        Cluster-scoped objects always match. A Namespace is matched by its own labels, on creation and update by those
        that the request sets.
        """
        if selector.empty:
            return True
        if (
            ctx.info.resource == NAMESPACES
            and not ctx.subresource
            and ctx.operation in ("CREATE", "UPDATE")
        ):
            return selector.matches((obj.get("metadata") or {}).get("labels"))
        namespace = request_namespace(ctx, obj)
        if not namespace:
            return True
        record = self._store.get(NAMESPACES, "", namespace)
        if record is None:
            raise not_found(NAMESPACES, namespace)
        return selector.matches(record.labels)

    @staticmethod
    def object_matches(obj: Object, old: Object | None, selector: LabelSelector) -> bool:
        """Report whether the old or the new object matches."""
        if selector.empty:
            return True
        return any(
            each and selector.matches((each.get("metadata") or {}).get("labels"))
            for each in (obj, old)
        )
