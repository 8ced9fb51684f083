"""What the parts of an evaluation share: its variables, its cost so far, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["ConversionError", "CostLimitError", "EvaluationError", "Frame", "Node"]


class CostLimitError(Exception):
    """Raised if an evaluation costs more than its limit."""


class EvaluationError(ValueError):
    """Raised if the evaluation of a part of an expression fails for the given values."""


class ConversionError(EvaluationError):
    """Raised if an expression reads a value that does not have the type that its schema declares."""


@dataclass(slots=True)
class Frame:
    """The state of an evaluation."""

    variables: dict[str, Any]
    limit: int
    cost: int = 0

    def charge(self, cost: int) -> None:
        """Add a cost. Raises CostLimitError."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitError


Node: TypeAlias = Callable[[Frame], Any]
"""Evaluates a part of an expression."""
