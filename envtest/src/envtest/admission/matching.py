"""Which hooks and policies a request concerns: rules, namespace and object selectors, equivalent resources.

Follows ``k8s.io/apiserver/pkg/admission/plugin/webhook/predicates``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from envtest.context import RequestContext
from envtest.errors import GroupResource, not_found
from envtest.label_selectors import LabelSelector
from envtest.objects import Object
from envtest.registry import Registry, ResourceInfo
from envtest.storage import Store

__all__ = ["NAMESPACES", "Match", "Matcher", "Rule", "label_selector", "object_name", "request_namespace"]

NAMESPACES: Final = GroupResource("", "namespaces")
_EXEMPT: Final = frozenset(
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
    """Compiles a ``LabelSelector`` object; ``None`` and the empty one match everything."""
    selector = selector or {}
    requirements: list[Callable[[Mapping[str, str]], bool]] = []
    for key, value in (selector.get("matchLabels") or {}).items():
        requirements.append(_in(key, frozenset((value,))))
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], frozenset(expression.get("values") or ())
        requirements.append(_EXPRESSIONS[expression["operator"]](key, values))
    return LabelSelector(requirements)


def _in(key: str, values: frozenset[str]) -> Callable[[Mapping[str, str]], bool]:
    return lambda labels: labels.get(key) in values


_EXPRESSIONS: Final[dict[str, Callable[[str, frozenset[str]], Callable[[Mapping[str, str]], bool]]]] = {
    "In": _in,
    "NotIn": lambda key, values: lambda labels: labels.get(key) not in values,
    "Exists": lambda key, _: lambda labels: key in labels,
    "DoesNotExist": lambda key, _: lambda labels: key not in labels,
}


def object_name(ctx: RequestContext, obj: Object) -> str:
    """The name that admission goes by: the request's, or else the object's own; none for a whole collection."""
    if ctx.verb == "deletecollection":
        return ""
    name: str = ctx.name or (obj.get("metadata") or {}).get("name") or ""
    return name


def request_namespace(ctx: RequestContext, obj: Object) -> str:
    """The namespace that admission goes by; that of a Namespace is its own name."""
    if ctx.namespace or ctx.info.resource != NAMESPACES:
        return ctx.namespace
    return object_name(ctx, obj)


class Rule:
    """One ``RuleWithOperations``; ``names`` (policies have them) limit it to objects of these names."""

    __slots__ = ("_groups", "_names", "_operations", "_resources", "_scope", "_versions")

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self._groups = frozenset(rule.get("apiGroups") or ())
        self._versions = frozenset(rule.get("apiVersions") or ())
        self._operations = frozenset(rule.get("operations") or ())
        self._resources = [tuple(each.partition("/")[::2]) for each in rule.get("resources") or ()]
        self._names = frozenset(rule.get("resourceNames") or ())
        self._scope = rule.get("scope") or "*"

    def matches(self, ctx: RequestContext, obj: Object, info: ResourceInfo) -> bool:
        """Whether the rule is about this request, taken as one for ``info`` (an equivalent of ``ctx.info``)."""
        return (
            (ctx.operation in self._operations or "*" in self._operations)
            and (info.group in self._groups or "*" in self._groups)
            and (info.version in self._versions or "*" in self._versions)
            and any(
                name in ("*", info.plural) and subresource in ("*", ctx.subresource)
                for name, subresource in self._resources
            )
            and self._in_scope(ctx, obj)
            and (not self._names or object_name(ctx, obj) in self._names)
        )

    def _in_scope(self, ctx: RequestContext, obj: Object) -> bool:
        if self._scope == "*":
            return True
        namespaced = bool(request_namespace(ctx, obj)) and ctx.info.resource != NAMESPACES
        return namespaced == (self._scope == "Namespaced")


class Match(NamedTuple):
    """The resource as the hook knows it: the request's own, or an equivalent that a rule names."""

    info: ResourceInfo


class Matcher:
    """Answers whether rules and selectors concern a request."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._generation = -1
        self._versions: dict[GroupResource, list[ResourceInfo]] = {}

    @staticmethod
    def exempt(ctx: RequestContext) -> bool:
        """Whether a request is beyond hooks and policies, because they could lock themselves in."""
        return ctx.info.group == "admissionregistration.k8s.io" and ctx.info.plural in _EXEMPT

    def match_rules(self, ctx: RequestContext, obj: Object, rules: Sequence[Rule], *, equivalent: bool) -> Match | None:
        """The first match of the request itself, or else (``equivalent``) of the same objects in another version."""
        if any(rule.matches(ctx, obj, ctx.info) for rule in rules):
            return Match(ctx.info)
        if equivalent:
            for rule in rules:
                for info in self._equivalents(ctx.info):
                    if rule.matches(ctx, obj, info):
                        return Match(info)
        return None

    def _equivalents(self, info: ResourceInfo) -> Sequence[ResourceInfo]:
        """The resources that show the same objects."""
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            self._versions = {}
            for each in self._registry:
                self._versions.setdefault(each.storage, []).append(each)
        return self._versions.get(info.storage, ())

    def namespace_matches(self, ctx: RequestContext, obj: Object, selector: LabelSelector) -> bool:
        """Whether the labels of the request's namespace match. Raises StatusError where it does not exist.

        Cluster-scoped objects always match, Namespaces by their own labels, those to come included.
        """
        if selector.empty:
            return True
        if ctx.info.resource == NAMESPACES and not ctx.subresource and ctx.operation in ("CREATE", "UPDATE"):
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
        """Whether the object matches as it was or as it will be."""
        if selector.empty:
            return True
        return any(each and selector.matches((each.get("metadata") or {}).get("labels")) for each in (obj, old))
