"""The conditions of an object's status, as the API conventions define them.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any, Final

from cfo.runtime.clock import rfc3339
from cfo.runtime.objects import Object, find_condition, set_condition

__all__ = ["Conditions", "has_condition"]

_MAX_MESSAGE: Final = 32768
_MAX_REASON: Final = 1024
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


class Conditions:
    """The conditions of the next status of ``obj``: a copy of those it has, changed by :meth:`set`.

    Each change records the generation of ``obj``, and ``now`` if the status of the condition changes.
    """

    def __init__(self, obj: Mapping[str, Any], *, now: datetime) -> None:
        self._generation = (obj.get("metadata") or {}).get("generation")
        self._now = rfc3339(now)
        self._conditions: list[dict[str, Any]] = deepcopy((obj.get("status") or {}).get("conditions") or [])

    def set(self, condition_type: str, status: bool | None, reason: str, message: str = "") -> bool:
        """Add or replace a condition (``None``: Unknown); return whether anything changed.

        ``message`` is cut at 32768 characters. Raises :class:`ValueError` for a reason that is not a CamelCase word,
        because API servers reject it.
        """
        if len(reason) > _MAX_REASON or not _REASON.fullmatch(reason):
            raise ValueError(f"condition {condition_type}: reason {reason!r}: must be a word such as PodsNotReady")
        condition = {
            "type": condition_type,
            "status": "Unknown" if status is None else str(bool(status)),
            "reason": reason,
            "message": message[:_MAX_MESSAGE],
        }
        if self._generation is not None:
            condition["observedGeneration"] = self._generation
        return set_condition(self._conditions, condition, now=self._now)

    def remove(self, condition_type: str) -> None:
        """Remove a condition if it exists."""
        self._conditions = [item for item in self._conditions if item.get("type") != condition_type]

    def is_true(self, condition_type: str) -> bool:
        """Return whether a condition is true."""
        return (find_condition(self._conditions, condition_type) or {}).get("status") == "True"

    def summarize(self, types: Iterable[str], *, ready: str = "Ready") -> bool:
        """Set the condition ``ready`` to the summary of ``types``; return whether anything changed.

        False if one of them is false, else unknown if one of them is unknown, missing, or of an earlier generation,
        else true. Reason and message are those of the first such condition; the message names it.
        """
        found = [(kind, self._current(kind)) for kind in types]
        for status in ("False", "Unknown"):
            for kind, condition in found:
                if condition["status"] == status:
                    message = f"{kind}: {condition['message']}" if condition["message"] else str(kind)
                    return self.set(ready, False if status == "False" else None, condition["reason"], message)
        return self.set(ready, True, ready)

    def as_list(self) -> list[dict[str, Any]]:
        """Return the conditions in their wire form, for ``status.conditions``."""
        return self._conditions

    def _current(self, condition_type: str) -> dict[str, str]:
        """Return status, reason and message of a condition, as far as they apply to the current generation."""
        condition = find_condition(self._conditions, condition_type)
        if condition is None:
            return {"status": "Unknown", "reason": "Missing", "message": ""}
        if _is_outdated(condition, self._generation):
            return {"status": "Unknown", "reason": "Outdated", "message": "reported for an earlier generation"}
        reason = str(condition.get("reason") or "")
        return {
            "status": str(condition.get("status")),
            "reason": reason if _REASON.fullmatch(reason) else "Unknown",
            "message": str(condition.get("message") or ""),
        }


def has_condition(condition_type: str, *, status: str = "True") -> Callable[[Object | None], bool]:
    """Return a condition for :func:`~cfo.runtime.wait.wait_for`: the object has this condition with this status.

    A condition of an earlier generation does not count.
    """

    def check(obj: Object | None) -> bool:
        if obj is None:
            return False
        condition = find_condition((obj.get("status") or {}).get("conditions"), condition_type)
        generation = (obj.get("metadata") or {}).get("generation")
        return condition is not None and condition.get("status") == status and not _is_outdated(condition, generation)

    return check


def _is_outdated(condition: Mapping[str, Any], generation: Any) -> bool:
    observed = condition.get("observedGeneration")
    return isinstance(observed, int) and isinstance(generation, int) and observed < generation
