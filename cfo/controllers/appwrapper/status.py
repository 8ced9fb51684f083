"""The status of an AppWrapper that a reconcile is going to write.

Changing a field here does not write it: the reconciler applies the whole status at its end, at most once.

Deadlines count from ``lastTransitionTime``, so it has microsecond precision: `metav1.Time`_ is parsed with or without a
fraction of seconds. The time is also reset when a new period starts without a status change (a different kind of
failure, a pause before a deletion), and when it is in the future, because the clock was ahead when it was written.

.. _metav1.Time: https://pkg.go.dev/k8s.io/apimachinery/pkg/apis/meta/v1#Time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from cfo.api.appwrapper.created_components import CREATED, DELETED
from cfo.api.appwrapper.names import (
    OWN_CONDITIONS,
    RESOURCES_DEPLOYED,
    UNKNOWN_FIELDS,
    VALIDATED,
    Phase,
)
from cfo.api.appwrapper.podsets import MAX_POD_SET_BYTES, declared_bytes
from cfo.runtime import GVK, Object, find_condition, objects
from cfo.runtime.objects import Conditions, ConditionStatus, copied, parse_time
from cfo.runtime.process import micro_time, printable

MESSAGE_LIMIT: Final = 4096
"""The maximum length of a condition's message, in characters; the API allows eight times as many."""


def is_true(conditions: Sequence[Mapping[str, Any]] | None, kind: str) -> bool:
    """Return whether the condition ``kind`` exists and is true."""
    return (find_condition(conditions, kind) or {}).get("status") == "True"


def set_condition(
    conditions: list[Object],
    kind: str,
    status: ConditionStatus,
    reason: str,
    message: str,
    now: datetime,
    *,
    restart: bool = False,
) -> bool:
    """Add or replace a condition (``status`` ``None``: Unknown); return whether anything changed.

    Its time changes with its status and, with ``restart``, also with its reason.
    """
    if len(message) > MESSAGE_LIMIT:
        message = message[: MESSAGE_LIMIT - 3] + "..."
    for existing in conditions:
        if restart and existing.get("type") == kind and existing.get("reason") != reason:
            existing["status"] = ""  # so that its time changes
    value = "Unknown" if status is None else str(status)
    condition = {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": printable(message, MESSAGE_LIMIT),
    }
    return objects.set_condition(conditions, condition, now=micro_time(now))


class WrapperStatus(Conditions):
    """A mutable copy of an AppWrapper's status; ``now`` is the time of the changes.

    Its conditions have no ``observedGeneration``, as in the Go operator.
    """

    def __init__(self, wrapper: Mapping[str, Any], now: datetime) -> None:
        status = wrapper.get("status") or {}
        self.now = now
        self.phase = Phase(status.get("phase") or "")
        self._retries: int | None = status.get("resettingCount")
        own = [
            item for item in status.get("conditions") or () if item.get("type") in OWN_CONDITIONS
        ]
        super().__init__({"status": {"conditions": own}}, now=now, time_format=micro_time)
        self.has_corrected_times = self._correct_future_times()
        self.components: list[Object] = copied(status.get("componentStatus") or [])
        if (
            self.phase is not Phase.EMPTY
        ):  # ensure one entry per component, even if another client wrote fewer
            missing = len((wrapper.get("spec") or {}).get("components") or ()) - len(
                self.components
            )
            self.components += [
                {"apiVersion": "", "kind": "", "name": "", "podSets": []} for _ in range(missing)
            ]

    def _correct_future_times(self) -> bool:
        """Let conditions whose time is in the future have changed now; return whether any is."""
        future = [
            condition
            for condition in self.as_list()
            if self.last_transition(condition["type"]) > self.now
            and not self._determines_names(condition["type"])
        ]
        for condition in future:
            condition["lastTransitionTime"] = micro_time(self.now)
        return bool(future)

    def _determines_names(self, kind: str) -> bool:
        """Return whether generated names of components, which are not recorded yet, depend on a condition's time."""
        return kind == RESOURCES_DEPLOYED and self.is_true(kind) and self.phase is not Phase.RUNNING

    @property
    def retries(self) -> int:
        """The number of retries since admission."""
        return self._retries or 0

    @property
    def may_create_components(self) -> bool:
        """Whether components may be created: the AppWrapper was validated, or validation is not required."""
        return not self.reason(VALIDATED) or self.is_true(VALIDATED)

    def count_retry(self) -> None:
        """Increment the number of retries."""
        self._retries = self.retries + 1

    def reset_retries(self) -> None:
        """Reset the number of retries.

        An existing number is set to zero instead of being removed, because another field manager may also own it, in
        which case it would remain.
        """
        self._retries = None if self._retries is None else 0

    def _text(self, kind: str, field: str) -> str:
        return self.find(kind).get(field) or ""

    def reason(self, kind: str) -> str:
        """Return the reason of the condition ``kind``, or the empty string."""
        return self._text(kind, "reason")

    def message(self, kind: str) -> str:
        """Return the message of the condition ``kind``, or the empty string."""
        return self._text(kind, "message")

    def last_transition(self, kind: str) -> datetime:
        """Return the last transition time of the condition ``kind``; ``now`` if it does not exist."""
        try:
            return parse_time(self._text(kind, "lastTransitionTime"))
        except ValueError:
            return self.now

    def set(
        self,
        condition_type: str,
        status: ConditionStatus,
        reason: str,
        message: str = "",
        *,
        restart: bool = False,
    ) -> bool:
        """Set a condition (``None``: Unknown); with ``restart`` its time is reset also when only the reason changes."""
        return set_condition(
            self.as_list(), condition_type, status, reason, message, self.now, restart=restart
        )

    def set_component_condition(
        self, index: int, status: bool | None, reason: str, message: str = ""
    ) -> None:
        """Set the condition that reports whether a component exists (``None``: unknown)."""
        conditions: list[Object] = self.components[index].setdefault("conditions", [])
        set_condition(conditions, RESOURCES_DEPLOYED, status, reason, message, self.now)

    def set_unknown_fields(self, index: int, message: str) -> None:
        """Set the condition that a component was created without fields that the API server does not know."""
        conditions: list[Object] = self.components[index].setdefault("conditions", [])
        set_condition(conditions, UNKNOWN_FIELDS, True, "FieldsDropped", message, self.now)

    def component_message(self, index: int) -> str:
        """Return the message of a component's condition, or the empty string."""
        return (
            find_condition(self.components[index].get("conditions"), RESOURCES_DEPLOYED) or {}
        ).get("message") or ""

    def set_component_identity(self, index: int, gvk: GVK, name: str) -> None:
        """Record the object created for a component."""
        self.components[index] |= {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": name}

    def clear_component_conditions(self) -> None:
        """Remove the conditions of all components, which are about to be created."""
        for component in self.components:
            component.pop("conditions", None)

    def shrink_pod_sets(self) -> bool:
        """Shrink pod sets that are larger than admission allows; return whether they were.

        Those that an earlier version recorded can fill the AppWrapper, so that it could not even be deleted.
        """
        if declared_bytes(self.components) <= MAX_POD_SET_BYTES:
            return False
        before = self.components
        self.components = [{**item, "podSets": _small_pod_sets(item)} for item in before]
        return self.components != before

    def as_small_object(self) -> Object:
        """Return the status without what it repeats and what only people read, for an AppWrapper that is full.

        The rest is what the next steps need. So it is smaller than the status of the step before.
        """
        status = self.as_object()
        status["conditions"] = [_small_condition(item) for item in self.as_list()]
        if self.components:
            status["componentStatus"] = [_small_component(item) for item in self.components]
        return status

    def as_object(self) -> Object:
        """Return the status in its wire form, with only the fields that this controller owns."""
        status: Object = {"phase": self.phase.value} if self.phase else {}
        if self._retries is not None:
            status["resettingCount"] = self._retries
        conditions = self.as_list()
        if conditions:
            status["conditions"] = conditions
        if self.components:
            status["componentStatus"] = self.components
        return status


def _small_condition(condition: Object) -> Object:
    """Return a condition without its message, unless that says for which content an AppWrapper was validated."""
    if condition["type"] == VALIDATED:
        return condition
    return {**condition, "message": ""}


def _small_component(component: Mapping[str, Any]) -> Object:
    """Return the status of a component with its identity only if its object was created, and with small pod sets."""
    small: Object = {
        "apiVersion": "",
        "kind": "",
        "name": "",
        "podSets": _small_pod_sets(component),
    }
    recorded = find_condition(component.get("conditions"), RESOURCES_DEPLOYED)
    if recorded is None:
        return small
    if recorded.get("status") in ("True", "Unknown"):
        small |= {name: component.get(name) or "" for name in ("apiVersion", "kind", "name")}
    if recorded.get("reason") not in (CREATED, DELETED):
        recorded = {**recorded, "message": ""}
    small["conditions"] = [recorded]
    return small


def _small_pod_sets(component: Mapping[str, Any]) -> list[Object]:
    """Return the pod sets without annotations; none if their paths are too large, so that the spec's are used."""
    pod_sets = [
        {name: pod_set[name] for name in ("path", "replicas") if name in pod_set}
        for pod_set in component.get("podSets") or ()
    ]
    if declared_bytes([{"podSets": pod_sets}]) > MAX_POD_SET_BYTES:
        return []
    return pod_sets
