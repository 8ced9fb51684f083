"""Which settings of a stored webhook let objects bypass it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final, NamedTuple

from cfo.runtime.cache.selectors import LabelSelector

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label with the name of a Namespace, which API servers set."""
_OLM_PREFIX: Final = "olm.operatorgroup.uid/"
_DEFAULT_MATCH_POLICY: Final = "Equivalent"


class Gap(NamedTuple):
    """A setting of a webhook with which objects bypass it, and how."""

    setting: str
    reason: str


def gaps_of(webhook: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Gap]:
    """Yield why objects can bypass ``webhook`` in the namespaces that it selects.

    ``wanted`` is the webhook as its server needs it; its rules are lists without wildcards.

    A namespaceSelector is allowed if no tenant can change what it selects: it may only use the label with the name of
    the namespace, which API servers set, and the label of an OperatorGroup, with which OLM marks the namespaces for
    which an operator is installed. Objects in other namespaces bypass the webhook.
    """
    may_fail = wanted.get("failurePolicy", "Fail") != "Fail"
    if webhook.get("failurePolicy", "Fail") != "Fail" and not may_fail:
        yield Gap("failurePolicy", "its failurePolicy is not Fail")
    for name in ("objectSelector", "matchConditions"):
        if webhook.get(name) and webhook[name] != wanted.get(name):
            yield Gap(name, f"its {name} can exclude objects")
    reason = _unstable_selection(webhook)
    if reason:
        yield Gap("namespaceSelector", reason)
    match_policy = webhook.get("matchPolicy", _DEFAULT_MATCH_POLICY)
    if wanted.get("matchPolicy", match_policy) != match_policy:
        yield Gap("matchPolicy", "its matchPolicy excludes the other versions of its resources")
    for rule in wanted.get("rules") or ():
        for operation in rule["operations"]:
            if not _matches(webhook, {**rule, "operations": [operation]}):
                resource = f"{rule['resources'][0]}.{rule['apiGroups'][0]}"
                yield Gap("rules", f"its rules do not match every {operation} of {resource}")


def namespace_selector(webhook: Mapping[str, Any]) -> LabelSelector:
    """Return the namespaceSelector of ``webhook``. Raises :class:`ValueError` if it is invalid."""
    return LabelSelector.of(webhook.get("namespaceSelector") or None)


def _unstable_selection(webhook: Mapping[str, Any]) -> str:
    """Return why the namespaces that ``webhook`` selects can change without a trace; empty if they cannot."""
    try:
        requirements = namespace_selector(webhook).requirements
    except ValueError as error:
        return f"its namespaceSelector is invalid: {error}"
    for requirement in requirements:
        of_group = requirement.key.startswith(_OLM_PREFIX)
        selects = requirement.operator in ("In", "Exists")
        if requirement.key != NAMESPACE_NAME_LABEL and not (of_group and selects):
            return f"its namespaceSelector {requirement} depends on a label that can change without a trace"
    return ""


def _matches(webhook: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the rules of ``webhook`` match all that the rule ``wanted`` matches."""
    rules = webhook.get("rules") or ()
    combinations = product(
        wanted["apiGroups"], wanted["apiVersions"], wanted["operations"], wanted["resources"]
    )

    def is_matched(combination: tuple[str, str, str, str]) -> bool:
        return any(_has_all(rule, *combination) for rule in rules)

    return all(map(is_matched, combinations))


def _has_all(
    rule: Mapping[str, Any], group: str, version: str, operation: str, resource: str
) -> bool:
    def has(key: str, *values: str) -> bool:
        return any(value in values for value in rule.get(key) or ())

    return (
        has("apiGroups", group, "*")
        and has("apiVersions", version, "*")
        and has("operations", operation, "*")
        and has("resources", resource, "*", "*/*")
        and rule.get("scope", "*") in ("*", "Namespaced")
    )
