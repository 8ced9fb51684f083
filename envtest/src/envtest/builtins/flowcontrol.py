"""Strategies of flowcontrol.apiserver.k8s.io: the configuration of API priority and fairness."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from envtest.apimachinery.name_rules import dns_label, dns_subdomain
from envtest.apimachinery.objects import Object
from envtest.builtins.flow_control_defaults import FIXED_LEVELS, FIXED_SCHEMAS
from envtest.builtins.go_rendering import internal
from envtest.builtins.strategy import GenerationStrategy
from envtest.registry.resource import RequestContext

__all__ = ["FlowSchemaStrategy", "PriorityLevelStrategy"]

_MAX_PRECEDENCE: Final = 10_000
_MAX_QUEUES: Final = 10_000_000
_MAX_ENTROPY_BITS: Final = 60
_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
)
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}


class FlowSchemaStrategy(GenerationStrategy):
    """Strategy of flowcontrol.apiserver.k8s.io FlowSchema."""

    def set_defaults(self, obj: Object) -> None:
        """Set ``matchingPrecedence`` to 1000."""
        if not obj["spec"].get("matchingPrecedence"):
            obj["spec"]["matchingPrecedence"] = 1000

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the precedence, the priority level and the rules; mandatory schemas have fixed specs."""
        if ctx.subresource == "status":
            conditions = obj["status"].get("conditions") or ()
            yield from _condition_errors(conditions, "must not be empty")
            return
        spec = obj["spec"]
        name = obj["metadata"].get("name") or ""
        fixed = FIXED_SCHEMAS.get(name)
        if fixed is not None and spec != fixed:
            yield invalid("spec", _rendered(spec), f"spec of '{name}' must equal the fixed value")
            return
        precedence = spec.get("matchingPrecedence") or 0
        if precedence <= 0:
            yield invalid("spec.matchingPrecedence", precedence, "must be a positive value")
        if precedence > _MAX_PRECEDENCE:
            text = f"must not be greater than {_MAX_PRECEDENCE}"
            yield invalid("spec.matchingPrecedence", precedence, text)
        if precedence == 1 and name != "exempt":
            text = "only the schema named 'exempt' may have matchingPrecedence 1"
            yield invalid("spec.matchingPrecedence", precedence, text)
        method = spec.get("distinguisherMethod")
        if method is not None and method.get("type") not in ("ByNamespace", "ByUser"):
            shown = Verbatim(internal({"type": method.get("type") or ""}))
            yield not_supported("spec.distinguisherMethod.type", shown, ("ByNamespace", "ByUser"))
        path = "spec.priorityLevelConfiguration.name"
        level = spec["priorityLevelConfiguration"].get("name") or ""
        if not level:
            yield required(path, "must reference a priority level")
        else:
            for problem in dns_subdomain(level):
                yield invalid(path, level, problem)
        for position, rule in enumerate(spec.get("rules") or ()):
            yield from _rule_errors(rule, f"spec.rules[{position}]")


def _rendered(value: Mapping[str, Any]) -> Verbatim:
    return Verbatim(internal(value))


def _rule_errors(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    subjects = rule.get("subjects") or ()
    if not subjects:
        yield required(f"{path}.subjects", "subjects must contain at least one value")
    for position, subject in enumerate(subjects):
        yield from _subject_errors(subject, f"{path}.subjects[{position}]")
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        yield required(
            path, "at least one of resourceRules and nonResourceRules has to be non-empty"
        )
    for position, each in enumerate(rule.get("resourceRules") or ()):
        yield from _resource_rule_errors(each, f"{path}.resourceRules[{position}]")
    for position, each in enumerate(rule.get("nonResourceRules") or ()):
        yield from _non_resource_rule_errors(each, f"{path}.nonResourceRules[{position}]")


def _subject_errors(subject: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = subject.get("kind") or ""
    if kind not in _SUBJECTS:
        yield not_supported(f"{path}.kind", kind, sorted(_SUBJECTS))
        return
    for each, field in _SUBJECTS.items():
        value = subject.get(field)
        if each != kind:
            if value is not None:
                yield forbidden(
                    f"{path}.{field}", f"{field} is forbidden when subject kind is not '{each}'"
                )
        elif value is None:
            yield required(f"{path}.{field}", f"{field} is required when subject kind is '{each}'")
        else:
            yield from _name_errors(value, kind, f"{path}.{field}")


def _name_errors(value: Mapping[str, Any], kind: str, path: str) -> Iterator[FieldError]:
    name = value.get("name") or ""
    namespace = value.get("namespace") or ""
    if not name:
        yield required(f"{path}.name")
    if kind != "ServiceAccount":
        return
    if name and name != "*":
        for problem in dns_subdomain(name):
            yield invalid(f"{path}.name", name, problem)
    if not namespace:
        yield required(f"{path}.namespace", "must specify namespace for service account")
    else:
        for problem in dns_label(namespace):
            yield invalid(f"{path}.namespace", namespace, problem)


def _resource_rule_errors(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _verb_errors(rule.get("verbs") or (), f"{path}.verbs")
    for field, noun in (("apiGroups", "api groups"), ("resources", "resources")):
        values = rule.get(field) or ()
        if not values:
            yield required(
                f"{path}.{field}",
                f"resource rules must supply at least one {noun.removesuffix('s')}",
            )
        yield from _wildcard_errors(values, f"{path}.{field}", noun)
    namespaces = rule.get("namespaces") or ()
    if not namespaces and not rule.get("clusterScope"):
        text = "resource rules that are not cluster scoped must supply at least one namespace"
        yield required(f"{path}.namespaces", text)
    elif "*" in namespaces and len(namespaces) > 1:
        text = "if '*' is present, must not specify other namespaces"
        yield invalid(f"{path}.namespaces", list(namespaces), text)
    else:
        for position, each in enumerate(namespaces):
            if each != "*":
                for problem in dns_label(each):
                    text = f"each member of this list must be '*' or a DNS-1123 label; {problem}"
                    yield invalid(f"{path}.namespaces[{position}]", each, text)


def _wildcard_errors(values: Sequence[str], path: str, noun: str) -> Iterator[FieldError]:
    if "*" in values and len(values) > 1:
        yield invalid(path, list(values), f"if '*' is present, must not specify other {noun}")


def _verb_errors(verbs: Sequence[str], path: str) -> Iterator[FieldError]:
    if not verbs:
        yield required(path, "verbs must contain at least one value")
    elif "*" in verbs:
        yield from _wildcard_errors(verbs, path, "verbs")
    elif any(verb not in _VERBS for verb in verbs):
        yield not_supported(path, list(verbs), _VERBS)


def _non_resource_rule_errors(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    verbs = rule.get("verbs") or ()
    urls = rule.get("nonResourceURLs") or ()
    yield from _verb_errors(verbs, f"{path}.verbs")
    if not urls:
        yield required(f"{path}.nonResourceURLs", "nonResourceURLs must contain at least one value")
    elif "*" in urls:
        yield from _wildcard_errors(urls, f"{path}.nonResourceURLs", "non-resource URLs")
    else:
        for position, url in enumerate(urls):
            problem = _url_problem(url)
            if problem:
                yield invalid(f"{path}.nonResourceURLs[{position}]", url, problem)


def _url_problem(url: str) -> str:
    if not url.startswith("/"):
        return "must start with slash" if url else "must not be empty"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    if "*" in url and (url.count("*") > 1 or not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


def _condition_errors(
    conditions: Sequence[Mapping[str, Any]], missing: str
) -> Iterator[FieldError]:
    """Yield the errors of the types of conditions; ``missing`` is the detail of the error if there is none."""
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        path = f"status.conditions[{position}].type"
        kind = condition.get("type") or ""
        if kind in seen:
            yield duplicate(path, kind)
        seen.add(kind)
        if not kind:
            yield required(path, missing)


class PriorityLevelStrategy(GenerationStrategy):
    """Strategy of flowcontrol.apiserver.k8s.io PriorityLevelConfiguration."""

    def set_defaults(self, obj: Object) -> None:
        """Set the concurrency shares and the queue parameters."""
        exempt = obj["spec"].get("exempt")
        limited = obj["spec"].get("limited")
        if exempt is None and obj["spec"].get("type") == "Exempt":
            exempt = {}
            obj["spec"]["exempt"] = exempt
        for part, shares in ((exempt, 0), (limited, 30)):
            if part is not None:
                if part.get("nominalConcurrencyShares") is None:
                    part["nominalConcurrencyShares"] = shares
                if part.get("lendablePercent") is None:
                    part["lendablePercent"] = 0
        queuing = ((limited or {}).get("limitResponse") or {}).get("queuing")
        if queuing is not None:
            for name, value in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
                if not queuing.get(name):
                    queuing[name] = value

    def check(self, obj: Object, old: Object | None, ctx: RequestContext) -> Iterator[FieldError]:
        """Yield the errors of the type and its parameters; mandatory levels have fixed specs."""
        if ctx.subresource == "status":
            yield from _condition_errors(obj["status"].get("conditions") or (), "")
            return
        spec = obj["spec"]
        name = obj["metadata"].get("name") or ""
        fixed = FIXED_LEVELS.get(name)
        if fixed is not None:
            text = f"spec of '{name}' must equal the fixed value"
            shown = spec
            wanted = fixed
            if name == "exempt":
                text = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
                shown = {key: spec[key] for key in spec if key != "exempt"}
                wanted = {key: fixed[key] for key in fixed if key != "exempt"}
            if shown != wanted:
                yield invalid("spec", _rendered(spec), text)
        kind = spec.get("type") or ""
        exempt = spec.get("exempt")
        limited = spec.get("limited")
        if kind not in ("Exempt", "Limited"):
            yield not_supported("spec.type", kind, ("Exempt", "Limited"))
            return
        if (kind == "Exempt") != (name == "exempt"):
            yield invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'")
        if kind == "Exempt":
            if limited is not None:
                yield forbidden("spec.limited", "must be nil if the type is not Limited")
            if exempt is None:
                yield required("spec.exempt", "must not be empty when type is Exempt")
            else:
                yield from _share_errors(exempt, "spec.exempt")
            return
        if exempt is not None:
            yield forbidden("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            yield required("spec.limited", "must not be empty when type is Limited")
        else:
            yield from _limited_errors(limited)


def _share_errors(part: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    shares = part.get("nominalConcurrencyShares")
    percent = part.get("lendablePercent")
    if shares is not None and shares < 0:
        yield invalid(f"{path}.nominalConcurrencyShares", shares, "must be a non-negative integer")
    if percent is not None and not 0 <= percent <= 100:
        yield invalid(f"{path}.lendablePercent", percent, "must be between 0 and 100, inclusive")


def _limited_errors(limited: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "spec.limited"
    borrowing = limited.get("borrowingLimitPercent")
    yield from _share_errors(limited, path)
    if borrowing is not None and borrowing < 0:
        text = "if specified, must be a non-negative integer"
        yield invalid(f"{path}.borrowingLimitPercent", borrowing, text)
    response = limited.get("limitResponse") or {}
    kind = response.get("type") or ""
    queuing = response.get("queuing")
    path = f"{path}.limitResponse"
    if kind not in ("Queue", "Reject"):
        yield not_supported(f"{path}.type", kind, ("Queue", "Reject"))
    elif kind == "Reject":
        if queuing is not None:
            yield forbidden(
                f"{path}.queuing", "must be nil if limited.limitResponse.type is not Limited"
            )
    elif queuing is None:
        yield required(
            f"{path}.queuing", "must not be empty if limited.limitResponse.type is Limited"
        )
    else:
        yield from _queuing_errors(queuing, f"{path}.queuing")


def _queuing_errors(queuing: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    queues = queuing.get("queues") or 0
    hand = queuing.get("handSize") or 0
    length = queuing.get("queueLengthLimit") or 0
    if length <= 0:
        yield invalid(f"{path}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield invalid(f"{path}.queues", queues, "must be positive")
    elif queues > _MAX_QUEUES:
        yield invalid(f"{path}.queues", queues, f"must not be greater than {_MAX_QUEUES}")
    if hand <= 0:
        yield invalid(f"{path}.handSize", hand, "must be positive")
    elif hand > queues:
        yield invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})")
    elif _entropy_bits(queues, hand) > _MAX_ENTROPY_BITS:
        text = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than "
        yield invalid(f"{path}.handSize", hand, f"{text}{_MAX_ENTROPY_BITS}")


def _entropy_bits(deck: int, hand: int) -> int:
    """Return the bits that shuffle sharding needs to deal ``hand`` of ``deck`` cards; at most one above the limit."""
    combinations = 1.0
    for dealt in range(min(hand, _MAX_ENTROPY_BITS + 1)):
        combinations *= deck - dealt
        if combinations > 2.0 ** (_MAX_ENTROPY_BITS + 1):
            return _MAX_ENTROPY_BITS + 1
    return math.ceil(math.log2(combinations))
