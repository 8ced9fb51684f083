"""Completion of the label selectors of a new pod with the values of its own labels (``matchLabelKeys``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envtest.objects import Object

__all__ = ["merge_label_keys"]

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_OPERATORS = (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))


def merge_label_keys(spec: Object, labels: Mapping[str, str]) -> None:
    """Add expressions to the selectors of affinity terms and spread constraints for the keys in ``labels``."""
    for term in _terms(spec):
        selector = term.get("labelSelector")
        if selector is None:
            continue
        for kind, operator in _OPERATORS:
            for key in term.get(kind) or ():
                if key in labels:
                    expression = {"key": key, "operator": operator, "values": [labels[key]]}
                    selector.setdefault("matchExpressions", []).append(expression)


def _terms(spec: Object) -> Iterator[Any]:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        yield from affinity.get(_REQUIRED) or ()
        for each in affinity.get(_PREFERRED) or ():
            yield each.get("podAffinityTerm") or {}
    yield from spec.get("topologySpreadConstraints") or ()
