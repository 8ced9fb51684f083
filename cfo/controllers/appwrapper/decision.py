"""The input and output of the state machine: the observed state of an AppWrapper, and the actions to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cfo.controllers.appwrapper.admission import Validation
from cfo.controllers.appwrapper.components import Component, ComponentObject
from cfo.controllers.appwrapper.pods import LabeledPod
from cfo.controllers.appwrapper.settings import Settings
from cfo.controllers.appwrapper.status import Status
from cfo.runtime import GVK, EventType, NamespacedName, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An AppWrapper and the state of everything that belongs to it, at the time ``now``.

    ``objects`` has an item for each component: its object, or ``None`` if that does not exist. ``unserved`` are the
    indexes of components whose kind is not served. ``no_execute`` are, by node, the resources that pods must not
    continue to use there. ``awaits_admission``: whether it must wait for admission by its queue. ``validation``: the
    new state of its condition ``Validated``, or ``None`` if that does not change.
    """

    wrapper: Object
    components: Sequence[Component]
    objects: Sequence[ComponentObject | None]
    pods: Sequence[LabeledPod]
    settings: Settings
    now: datetime
    unserved: frozenset[int] = frozenset()
    no_execute: Mapping[str, frozenset[str]] = field(default_factory=dict)
    awaits_admission: bool = False
    validation: Validation | None = None

    @property
    def suspended(self) -> bool:
        """Whether ``spec.suspend`` is set, so no components should exist."""
        return bool((self.wrapper.get("spec") or {}).get("suspend"))

    def status(self) -> Status:
        """Return a copy of the current status, to be changed."""
        return Status(self.wrapper, self.now)


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An Event to record once the status is written."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """An object to delete, identified by its uid. ``force``: with a grace period of zero."""

    gvk: GVK
    key: NamespacedName
    uid: str
    force: bool = False


@dataclass(slots=True, kw_only=True)
class Decision:
    """The actions to take: add the finalizer, write the status, delete objects, remove the finalizer, in this order.

    With ``create`` the missing components are created first, and their result determines the remaining actions.
    ``deadline``: when to reconcile again even if nothing changes.
    """

    status: Status
    add_finalizer: bool = False
    remove_finalizer: bool = False
    create: bool = False
    deletions: list[Deletion] = field(default_factory=list)
    events: list[PendingEvent] = field(default_factory=list)
    deadline: datetime | None = None

    def record_warning(self, reason: str, message: str) -> None:
        """Record a Warning Event."""
        self.events.append(PendingEvent("Warning", reason, message))

    def record_normal(self, reason: str, message: str) -> None:
        """Record a Normal Event."""
        self.events.append(PendingEvent("Normal", reason, message))

    def requeue_at(self, at: datetime) -> None:
        """Request a reconcile at the time ``at``; the earliest of several requests applies."""
        self.deadline = at if self.deadline is None else min(self.deadline, at)
