"""The conditions of an object's status, as the API conventions define them.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from cfo.runtime.objects.unstructured import (
    Object,
    TypedObject,
    copied,
    find_condition,
    set_condition,
    to_object,
)
from cfo.runtime.process.arguments import (
    InvalidArgument,
    require_plain_function,
    require_type,
    wrong_result,
)
from cfo.runtime.process.clock import rfc3339
from cfo.runtime.process.strings import require_list

if TYPE_CHECKING:
    from cfo.runtime.objects.resource.field_types import Condition  # imports pydantic

_MAX_REASON: Final = 1024
_REASON_PATTERN: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")

ConditionStatus: TypeAlias = bool | Literal["True", "False", "Unknown"] | None
"""The status of a condition: as the API writes it, or true, false, or ``None`` for Unknown."""

_STATUSES: Final = ("True", "False", "Unknown")


class Conditions:
    """The conditions of the next status of ``obj``: a copy of those it has, changed by :meth:`set`.

    Each change records the generation of ``obj``, and ``now`` (see :mod:`~cfo.runtime.process.clock` for
    ``time_format``) if the status of the condition changes. Stored elements that are not conditions (objects with a
    type) are left out.
    """

    def __init__(
        self,
        obj: Mapping[str, Any] | TypedObject,
        *,
        now: datetime,
        time_format: Callable[[datetime], str] = rfc3339,
    ) -> None:
        require_type("now", now, datetime, "a datetime, such as manager.clock.now()")
        if time_format is not rfc3339:
            require_plain_function("time_format", time_format, "a function of a datetime")
        wire = obj.to_object() if isinstance(obj, TypedObject) else obj
        self._generation = _generation_of(wire)
        self._now = time_format(now)
        if not isinstance(self._now, str):
            raise wrong_result("time_format", self._now, "a string")
        self._conditions: list[dict[str, Any]] = copied(_conditions_of(wire))

    def set(
        self, condition_type: str, status: ConditionStatus, reason: str, message: str = ""
    ) -> bool:
        """Add or replace a condition; return whether anything changed.

        ``status`` is a boolean, ``None`` (Unknown), or what the API has: ``"True"``, ``"False"`` or ``"Unknown"``.
        ``message`` is cut at 32768 characters. Raises :class:`ValueError` for another status, and for a reason that is
        not a CamelCase word, because API servers reject it; :class:`TypeError` for a status of another type.
        """
        if not _is_reason(reason):
            raise InvalidArgument(
                f"condition {condition_type}: reason {reason!r}: must be a word such as PodsNotReady"
            )
        condition = {
            "type": str(condition_type),
            "status": _status_text(condition_type, status),
            "reason": str(reason),
            "message": message,
        }
        if self._generation is not None:
            condition["observedGeneration"] = self._generation
        return set_condition(self._conditions, condition, now=self._now)

    def clear(self, condition_type: str, reason: str, message: str = "") -> None:
        """Set a condition to false, if it is true."""
        if self.is_true(condition_type):
            self.set(condition_type, False, reason, message)

    def remove(self, condition_type: str) -> None:
        """Remove a condition if it exists."""
        self._conditions = [item for item in self._conditions if item.get("type") != condition_type]

    def is_true(self, condition_type: str) -> bool:
        """Return whether a condition is true."""
        return self.find(condition_type).get("status") == "True"

    def find(self, condition_type: str) -> Mapping[str, Any]:
        """Return a condition; empty if it does not exist."""
        return find_condition(self._conditions, condition_type) or {}

    def summarize(self, types: Iterable[str], *, ready: str = "Ready") -> bool:
        """Set the condition ``ready`` to the summary of ``types``; return whether anything changed.

        False if one is false, else unknown if one is unknown, missing, or of an earlier generation,
        else true. Reason and message are those of the first such condition; the message names it. Raises
        :class:`ValueError` if ``types`` contains ``ready``, and :class:`TypeError` if it is one string.
        """
        require_list("types", types)
        found = {kind: self._current(kind) for kind in types}
        if ready in found:
            raise InvalidArgument(f"condition {ready}: must not be a part of its own summary")
        summaries: list[tuple[str, bool | None]] = [("False", False), ("Unknown", None)]
        for status, summary in summaries:
            for kind, condition in found.items():
                if condition["status"] != status:
                    continue
                message = str(kind)
                if condition["message"]:
                    message = f"{kind}: {condition['message']}"
                return self.set(ready, summary, condition["reason"], message)
        return self.set(ready, True, ready)

    def as_list(self) -> list[dict[str, Any]]:
        """Return the conditions in their wire form, for ``status.conditions``."""
        return self._conditions

    def as_models(self) -> list[Condition]:
        """Return the conditions for the field ``conditions`` of a typed status.

        Raises :class:`pydantic.ValidationError` if a stored condition has a field of another type.
        """
        from cfo.runtime.objects.resource.field_types import Condition  # lazily: pydantic

        return [Condition.model_validate(condition) for condition in self._conditions]

    def _current(self, condition_type: str) -> dict[str, str]:
        """Return status, reason and message of a condition, as far as they apply to the current generation."""
        condition = find_condition(self._conditions, condition_type)
        if condition is None:
            return {"status": "Unknown", "reason": "Missing", "message": ""}
        if _is_outdated(condition, self._generation):
            return {
                "status": "Unknown",
                "reason": "Outdated",
                "message": "reported for an earlier generation",
            }
        status = condition.get("status")
        if status not in ("True", "False"):
            status = "Unknown"
        reason = str(condition.get("reason") or "")
        if not _is_reason(reason):
            reason = "Unknown"
        message = str(condition.get("message") or "")
        return {"status": str(status), "reason": reason, "message": message}


def has_condition(
    condition_type: str, *, status: ConditionStatus = True
) -> Callable[[Object | TypedObject | None], bool]:
    """Return a condition for :func:`~cfo.runtime.cache.wait.wait_for`: the object has this condition with this status.

    ``status`` is one of those that :meth:`Conditions.set` accepts, with the same errors. A condition of an earlier
    generation does not count.
    """
    expected = _status_text(condition_type, status)

    def check(obj: Object | TypedObject | None) -> bool:
        if obj is None:
            return False
        wire = to_object(obj)
        condition = find_condition(_conditions_of(wire), condition_type)
        if condition is None or condition.get("status") != expected:
            return False
        return not _is_outdated(condition, _generation_of(wire))

    return check


def _generation_of(obj: Mapping[str, Any]) -> Any:
    return (obj.get("metadata") or {}).get("generation")


def _conditions_of(obj: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the stored conditions; the status of a kind without a schema can have any type."""
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    if not isinstance(conditions, list):
        return []
    return [
        item for item in conditions if isinstance(item, dict) and isinstance(item.get("type"), str)
    ]


def _status_text(condition_type: str, status: object) -> str:
    """Return the status as the API writes it."""
    allowed = 'must be True, False, None, "True", "False" or "Unknown"'
    if status is None:
        return "Unknown"
    if isinstance(status, bool):
        return str(status)
    if not isinstance(status, str):
        raise TypeError(f"condition {condition_type}: status {status!r:.200}: {allowed}")
    if status not in _STATUSES:
        raise InvalidArgument(f"condition {condition_type}: status {status!r:.200}: {allowed}")
    return status


def _is_reason(text: str) -> bool:
    return len(text) <= _MAX_REASON and _REASON_PATTERN.fullmatch(text) is not None


def _is_outdated(condition: Mapping[str, Any], generation: Any) -> bool:
    observed = condition.get("observedGeneration")
    if not isinstance(observed, int) or not isinstance(generation, int):
        return False
    return observed < generation
