"""The status of an AppWrapper, as it is going to be written.

Nothing is written by setting a field here: the reconciler applies the whole of it at the end, at most once.

``lastTransitionTime`` is what deadlines count from, so it is kept to the microsecond: `metav1.Time`_ is read with or
without a fraction of seconds. Where a period begins although the condition's status stays as it was (a failure of
another sort, a pause before a deletion), the clock is restarted.

.. _metav1.Time: https://pkg.go.dev/k8s.io/apimachinery/pkg/apis/meta/v1#Time
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from cfo.api.appwrapper import Phase
from cfo.controllers.appwrapper.names import OWN_CONDITIONS, RESOURCES_DEPLOYED
from cfo.runtime.clock import micro_time
from cfo.runtime.objects import GVK, Object, find_condition

__all__ = ["MESSAGE_LIMIT", "Status", "is_true", "since"]

MESSAGE_LIMIT: Final = 4096
"""How long a condition's message may become; the API allows eight times as much."""


def is_true(conditions: Sequence[Mapping[str, Any]] | None, kind: str) -> bool:
    """Whether the condition ``kind`` is there and true."""
    return (find_condition(conditions, kind) or {}).get("status") == "True"


def since(conditions: Sequence[Mapping[str, Any]] | None, kind: str, default: datetime) -> datetime:
    """When the condition ``kind`` became what it is; ``default`` where nobody knows."""
    text = (find_condition(conditions, kind) or {}).get("lastTransitionTime")
    try:
        return datetime.fromisoformat(text) if text else default
    except ValueError:
        return default


def put_condition(
    conditions: list[Object],
    kind: str,
    status: bool | None,
    reason: str,
    message: str,
    now: datetime,
    *,
    restart: bool = False,
) -> None:
    """Adds or replaces a condition; its time changes with its status or, with ``restart``, with its reason too."""
    word = "Unknown" if status is None else str(status)
    if len(message) > MESSAGE_LIMIT:
        message = message[: MESSAGE_LIMIT - 3] + "..."
    existing = next((item for item in conditions if item.get("type") == kind), None)
    if existing is None:
        existing = {"type": kind}
        conditions.append(existing)
    if existing.get("status") != word or (restart and existing.get("reason") != reason):
        existing["lastTransitionTime"] = micro_time(now)
    existing |= {"status": word, "reason": reason, "message": message}


class Status:
    """A copy of an AppWrapper's status, to be changed; ``now`` is the time of the changes."""

    def __init__(self, wrapper: Mapping[str, Any], now: datetime) -> None:
        status = wrapper.get("status") or {}
        self.now = now
        self.phase = Phase(status.get("phase") or "")
        self._retries: int | None = status.get("resettingCount")
        own = [item for item in status.get("conditions") or () if item.get("type") in OWN_CONDITIONS]
        self.conditions: list[Object] = copy.deepcopy(own)
        self.components: list[Object] = copy.deepcopy(status.get("componentStatus") or [])
        if self.phase is not Phase.EMPTY:  # one for each component, also where another writer made it otherwise
            missing = len((wrapper.get("spec") or {}).get("components") or ()) - len(self.components)
            self.components += [{"apiVersion": "", "kind": "", "name": "", "podSets": []} for _ in range(missing)]

    @property
    def retries(self) -> int:
        """How many retries there were since the admission."""
        return self._retries or 0

    def count_retry(self) -> None:
        """There is one more."""
        self._retries = self.retries + 1

    def forget_retries(self) -> None:
        """Counts anew. (A zero is written where there was a number, which another writer may own too.)"""
        self._retries = None if self._retries is None else 0

    def is_true(self, kind: str) -> bool:
        """Whether the condition ``kind`` is true."""
        return is_true(self.conditions, kind)

    def reason(self, kind: str) -> str:
        """The reason of the condition ``kind``, or nothing."""
        return (find_condition(self.conditions, kind) or {}).get("reason") or ""

    def since(self, kind: str) -> datetime:
        """When the condition ``kind`` became what it is; now, if there is none."""
        return since(self.conditions, kind, self.now)

    def set(self, kind: str, status: bool, reason: str, message: str = "", *, restart: bool = False) -> None:
        """Sets a condition; ``restart``: its time counts from now also when only the reason is another."""
        put_condition(self.conditions, kind, status, reason, message, self.now, restart=restart)

    def clear(self, kind: str, reason: str, message: str = "") -> None:
        """Makes a condition false, if it is true."""
        if self.is_true(kind):
            self.set(kind, False, reason, message)

    def set_component(self, index: int, status: bool | None, reason: str, message: str = "") -> None:
        """Says whether a component exists (``None``: unknown)."""
        conditions: list[Object] = self.components[index].setdefault("conditions", [])
        put_condition(conditions, RESOURCES_DEPLOYED, status, reason, message, self.now)

    def component_message(self, index: int) -> str:
        """What the condition of a component says."""
        return (find_condition(self.components[index].get("conditions"), RESOURCES_DEPLOYED) or {}).get("message") or ""

    def note_component(self, index: int, gvk: GVK, name: str) -> None:
        """Says which object a component is."""
        self.components[index] |= {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": name}

    def forget_components(self) -> None:
        """Says nothing of the components any more, since they are going to be created."""
        for component in self.components:
            component.pop("conditions", None)

    def as_object(self) -> Object:
        """The status in its wire form, with what this controller owns and nothing else."""
        status: Object = {"phase": self.phase.value} if self.phase else {}
        if self._retries is not None:
            status["resettingCount"] = self._retries
        if self.conditions:
            status["conditions"] = self.conditions
        if self.components:
            status["componentStatus"] = self.components
        return status
