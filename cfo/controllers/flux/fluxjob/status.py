"""The status of a FluxJob that a reconcile is going to write.

The conditions begin with the five states of the first Flux Operator in its order, each with its type as reason, and
exactly one of them is true. Further conditions follow: ``QuotaReserved`` with the reason why the job waits,
``Evicted``, ``Succeeded``, ``Valid``, ``UpToDate`` and ``MiniClusterRefused``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cfo.api.flux import STATES, State
from cfo.api.flux.conditions import is_true
from cfo.runtime import Object, find_condition, name_of, set_condition, uid_of
from cfo.runtime.process import micro_time

__all__ = ["Status", "state_of"]

_MESSAGE_LIMIT: Final = 4096


def state_of(job: Mapping[str, Any]) -> State | None:
    """Return the state of a FluxJob: the first of the five conditions that is true."""
    return next((state for state in STATES if is_true(job, state)), None)


class Status:
    """A copy of the job's status that is changed, for its current generation; ``now`` is the time of the changes."""

    def __init__(self, job: Object, now: datetime) -> None:
        self._now = micro_time(now)
        self._generation = int(job["metadata"].get("generation") or 0)
        self._fields: Object = copy.deepcopy(job.get("status") or {})
        self._conditions: list[Object] = self._fields.pop("conditions", None) or []
        self.state = state_of(job)
        self._fields.setdefault("jobid", f"{name_of(job)}-{uid_of(job)}")
        self._fields["observedGeneration"] = self._generation

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a field of the status; ``None`` removes it."""
        if value is None:
            self._fields.pop(name, None)
        else:
            self._fields[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._fields.get(name)

    def enter(self, state: State, message: str = "") -> None:
        """Make ``state`` the only state, with this message (default: its name)."""
        self.state = state
        for kind in STATES:
            self._put(kind, kind is state, kind, (message or kind) if kind is state else kind)

    def set(self, kind: str, value: bool, reason: str, message: str) -> None:
        """Set one of the further conditions."""
        self._put(kind, value, reason, message)

    def clear(self, kind: str, reason: str, message: str) -> None:
        """Make a condition false if it is true."""
        if self.is_true(kind):
            self._put(kind, False, reason, message)

    def remove(self, kind: str) -> None:
        """Remove a condition."""
        self._conditions = [item for item in self._conditions if item.get("type") != kind]

    def is_true(self, kind: str) -> bool:
        """Return whether a condition is true."""
        return (find_condition(self._conditions, kind) or {}).get("status") == "True"

    def condition(self, kind: str) -> Mapping[str, Any]:
        """Return a condition; empty if it does not exist."""
        return find_condition(self._conditions, kind) or {}

    @property
    def now(self) -> str:
        """The time of the changes."""
        return self._now

    def as_object(self) -> Object:
        """Return the status in its wire form."""
        order = {kind: index for index, kind in enumerate(STATES)}
        conditions = sorted(self._conditions, key=lambda item: order.get(item["type"], len(order)))
        return {**self._fields, "conditions": conditions}

    def _put(self, kind: str, value: bool, reason: str, message: str) -> None:
        condition = {
            "type": str(kind),
            "status": str(value),
            "reason": str(reason),
            "message": str(message)[:_MESSAGE_LIMIT],
            "observedGeneration": self._generation,
        }
        set_condition(self._conditions, condition, now=self._now)
