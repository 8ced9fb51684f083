"""Reads the conditions of objects, whatever their type is."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from cfo.api.reading import MAX_MESSAGE, items, path, text
from cfo.summaries.summary import MAX_CONDITIONS, SummaryCondition, statement


def conditions_of(obj: Mapping[str, Any]) -> tuple[SummaryCondition, ...]:
    """Return the first conditions of the status of ``obj``, in its order."""
    found = (
        SummaryCondition(
            type=text(item.get("type"), 80),
            status=text(item.get("status"), 10),
            reason=text(item.get("reason"), 80),
            message=text(item.get("message"), MAX_MESSAGE),
            since=text(item.get("lastTransitionTime"), 40),
        )
        for item in items(path(obj, "status", "conditions"))
    )
    return tuple(islice((condition for condition in found if condition.type), MAX_CONDITIONS))


def condition_of(conditions: tuple[SummaryCondition, ...], kind: str) -> SummaryCondition | None:
    """Return the condition of this type, or ``None``."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: tuple[SummaryCondition, ...], kind: str) -> bool:
    """Return whether the condition of this type exists and is true."""
    return any(condition.type == kind and condition.status == "True" for condition in conditions)


def message_of(condition: SummaryCondition) -> str:
    """Return the message of a condition, or its reason, or its type."""
    return condition.message or condition.reason or condition.type


def statement_of(condition: SummaryCondition) -> str:
    """Return reason and message of a condition, or the one that is not empty, or its type."""
    return statement(condition.reason, condition.message) or condition.type


def state_of(condition: SummaryCondition | None) -> str:
    """Return the state that a condition describes: its type if it is true, else its reason; empty without one."""
    if condition is None:
        return ""
    return condition.type if condition.status == "True" else condition.reason
