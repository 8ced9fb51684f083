"""Deprecated labels of nodes, wherever nodes are selected.

Follows ``pkg/api/node`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from envtest.apimachinery.name_rules import label_value

__all__ = ["DEPRECATED_LABELS", "has_stable_names", "selector_warnings", "term_warnings"]

DEPRECATED_LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
}
_STABLE_LABELS: Final = {name: text.split('"')[1] for name, text in DEPRECATED_LABELS.items()}


def has_stable_names(term: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether ``term`` differs from the term ``old`` at most in stable names of deprecated labels."""
    for name in ("matchExpressions", "matchFields"):
        after = term.get(name) or ()
        before = old.get(name) or ()
        if len(after) != len(before):
            return False
        for new, previous in zip(after, before, strict=True):
            label = new.get("key")
            is_renamed = (
                label is not None and _STABLE_LABELS.get(previous.get("key") or "") == label
            )
            if is_renamed:
                previous = {**previous, "key": label}
            if new != previous:
                return False
    return True


def term_warnings(term: Mapping[str, Any], path: str, *, values: bool = False) -> Iterator[str]:
    """Yield the warnings about a term of a node selector; with ``values`` also about those that no label can have."""
    for position, expression in enumerate(term.get("matchExpressions") or ()):
        expression_path = f"{path}.matchExpressions[{position}]"
        label = expression.get("key")
        if label in DEPRECATED_LABELS:
            yield f"{expression_path}.key: {label} is {DEPRECATED_LABELS[label]}"
        if not values:
            continue
        for number, value in enumerate(expression.get("values") or ()):
            for problem in label_value(value):
                yield f"{expression_path}.values[{number}]: {value} is invalid, {problem}"


def selector_warnings(selector: Mapping[str, Any] | None, path: str) -> Iterator[str]:
    """Yield the warnings about a label selector of nodes."""
    yield from term_warnings(selector or {}, path)
    for label in (selector or {}).get("matchLabels") or ():
        if label in DEPRECATED_LABELS:
            yield f"{path}.matchLabels.{label}: {DEPRECATED_LABELS[label]}"
