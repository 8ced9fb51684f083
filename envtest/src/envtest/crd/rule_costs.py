"""The limits of the estimated costs of validation rules: for each expression, and for all expressions in a schema.

A rule costs as much as one evaluation, times the number of values that it is evaluated on. The limits and messages are
those of apiextensions' ``validation.go`` and ``cel_validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from envtest.apimachinery.field_errors import FieldError, forbidden
from envtest.schema.cel_cost import MAX_COST

__all__ = ["RuleCosts", "child_occurrences", "rule_cost"]

_MAX_RULE_COST: Final = 10_000_000
_MAX_TOTAL_COST: Final = 100_000_000
_REPORTED_SHARE: Final = 100
"""The expressions that cost more than one part of this many of the limit are reported if all cost too much."""

_MAX_REPORTED: Final = 4
_LARGE_FACTOR: Final = 100
_SMALL_FACTOR: Final = 1.5


class _Reported(NamedTuple):
    path: str
    cost: int


def child_occurrences(raw: Mapping[str, Any], occurrences: int | None) -> int | None:
    """Return how often the children of a node can occur in an object; ``None`` is without a limit.

    ``occurrences`` is how often the node itself can.
    """
    limit: int | None = 1
    if raw.get("type") == "array":
        limit = raw.get("maxItems")
    elif raw.get("type") == "object" and raw.get("additionalProperties") is not None:
        limit = raw.get("maxProperties")
    if occurrences is None or limit is None:
        return None
    return min(occurrences * max(limit, 0), MAX_COST)


def rule_cost(cost: int, occurrences: int) -> int:
    """Return the cost of a rule that is evaluated on as many values as can occur."""
    return min(cost * occurrences, MAX_COST)


class RuleCosts:
    """The costs of the expressions of one schema. ``is_unchanged`` is whether the schema is stored already."""

    def __init__(self, *, is_unchanged: bool) -> None:
        self._is_unchanged = is_unchanged
        self._total = 0
        self._most_expensive: list[_Reported] = []

    def add(self, name: str, path: str, cost: int) -> Iterator[FieldError]:
        """Count the cost of the expression at ``path``, and yield an error if it is too large."""
        self._total = min(self._total + cost, MAX_COST)
        if cost >= _MAX_TOTAL_COST // _REPORTED_SHARE:
            self._most_expensive.append(_Reported(path, cost))
            self._most_expensive.sort(key=lambda each: -each.cost)
            del self._most_expensive[_MAX_REPORTED:]
        if cost > _MAX_RULE_COST and not self._is_unchanged:
            yield forbidden(path, _message(f"estimated {name} cost", cost, _MAX_RULE_COST))

    def total_errors(self, path: str) -> Iterator[FieldError]:
        """Yield errors of the most expensive expressions and of the schema at ``path`` if all cost too much."""
        if self._total <= _MAX_TOTAL_COST:
            return
        for expression in self._most_expensive:
            text = (
                "contributed to estimated rule cost total exceeding cost limit for entire "
                "OpenAPIv3 schema"
            )
            yield forbidden(expression.path, text)
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield forbidden(path, _message(name, self._total, _MAX_TOTAL_COST))


def _message(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > _LARGE_FACTOR:
        shown = f"more than {_LARGE_FACTOR}x"
    elif factor < _SMALL_FACTOR:
        shown = f"{factor:f}x"
    else:
        shown = f"{factor:.1f}x"
    return (
        f"{name} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, "
        "and maxLength where arrays, maps, and strings are declared)"
    )
