"""The input and output of the state machine of AppWrappers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from cfo.config.appwrapper_settings import Settings
from cfo.controllers.appwrapper.admission import ValidatedCondition
from cfo.controllers.appwrapper.components import Component, ComponentObject
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.appwrapper.status import WrapperStatus
from cfo.controllers.pod_status import PodFailure
from cfo.runtime import GVK, EventType, NamespacedName, Object


class WrapperObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An AppWrapper and the state of everything that belongs to it, at the time ``now``.

    ``monotonic`` is that time in seconds of a clock that is not stepped. What is remembered only in this process counts
    from such seconds, and its dates here are as far from ``now``, so a step of the date ends or extends no period.
    ``objects`` has an item for each component: its object, or ``None`` if that does not exist. ``unserved`` are the
    indexes of components whose kind is not served. ``no_execute`` are, by node, the resources that pods must not
    continue to use there. ``is_queued``: whether a queue decides about it, so that it has a quota.
    ``awaits_admission``: whether it must wait for its queue. ``workload``: its Workload, if it has one.
    ``knowledge``: what is known of its pods. ``deletion_seen_at``: when this process first saw that the components are
    being deleted, or must be. ``validation``: the new state of its condition ``Validated``, or ``None`` if that does
    not change. ``others``: objects that the AppWrapper controls, that are no components, and from which pods with its
    label descend, as far as they are known. ``refusal``: why missing pods cannot be created, if that was asked for and
    is known. ``unused_until``: until when it may keep quota that its pods do not request; ``None`` if they do, or if
    that is not known. ``reads_owners_at``: when owners of pods are read again that could not be read; ``None`` if there
    are none. ``owners_unknown_since``: since when owners of pods are not known; ``None`` if they are.
    ``unproven_since``: since when not enough is known to tell whether it is ready; ``None`` if enough was.
    """

    wrapper: Object
    components: Sequence[Component]
    objects: Sequence[ComponentObject | None]
    pods: Sequence[WrapperPod]
    settings: Settings
    now: datetime
    monotonic: float = 0.0
    unserved: frozenset[int] = frozenset()
    no_execute: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    is_queued: bool = False
    awaits_admission: bool = False
    workload: Object | None = None
    knowledge: PodKnowledge = PodKnowledge.CACHED
    deletion_seen_at: datetime | None = None
    validation: ValidatedCondition | None = None
    others: Sequence[Deletion] = ()
    refusal: PodFailure | None = None
    unused_until: datetime | None = None
    reads_owners_at: datetime | None = None
    owners_unknown_since: datetime | None = None
    unproven_since: datetime | None = None

    def date_of(self, at: float) -> datetime:
        """Return the date of a time in seconds of the clock that is not stepped."""
        return self.now + timedelta(seconds=at - self.monotonic)

    @property
    def suspended(self) -> bool:
        """Whether ``spec.suspend`` is set, so no components should exist."""
        return bool((self.wrapper.get("spec") or {}).get("suspend"))

    @property
    def is_overdue(self) -> bool:
        """Whether it has kept quota for too long that its pods do not request."""
        return self.unused_until is not None and self.now >= self.unused_until

    def limited(self, deadline: datetime) -> datetime:
        """Return ``deadline``, or an earlier one if it keeps quota that its pods do not request."""
        return deadline if self.unused_until is None else min(deadline, self.unused_until)

    def status(self) -> WrapperStatus:
        """Return a copy of the current status, to be changed."""
        return WrapperStatus(self.wrapper, self.now)


class PendingEvent(msgspec.Struct, frozen=True):
    """An Event to record once the status is written."""

    type: EventType
    reason: str
    message: str


class Deletion(msgspec.Struct, frozen=True):
    """An object to delete, identified by its uid. ``force``: with a grace period of zero."""

    gvk: GVK
    key: NamespacedName
    uid: str
    force: bool = False


class WrapperDecision(msgspec.Struct, kw_only=True):
    """The actions to take: add the finalizer, write the status, delete objects, remove the finalizer, in this order.

    With ``create`` the missing components are created first, and their result determines the remaining actions.
    ``others`` are deletions of objects that users created, of any kind.
    ``is_unproven``: not enough is known to tell whether it is ready; ``None`` if that was not examined.
    ``deadline``: when to reconcile again even if nothing changes. ``unexplained``: a component that lacks pods; the
    decision is made again once it is known whether they are refused.
    """

    status: WrapperStatus
    add_finalizer: bool = False
    remove_finalizer: bool = False
    create: bool = False
    deletions: list[Deletion] = msgspec.field(default_factory=list)
    others: Sequence[Deletion] = ()
    events: list[PendingEvent] = msgspec.field(default_factory=list)
    is_unproven: bool | None = None
    deadline: datetime | None = None
    unexplained: Component | None = None

    def record_warning(self, reason: str, message: str) -> None:
        """Record a Warning Event."""
        self.events.append(PendingEvent("Warning", reason, message))

    def record_normal(self, reason: str, message: str) -> None:
        """Record a Normal Event."""
        self.events.append(PendingEvent("Normal", reason, message))

    def requeue_at(self, at: datetime) -> None:
        """Request a reconcile at the time ``at``; the earliest of several requests applies."""
        self.deadline = at if self.deadline is None else min(self.deadline, at)


MAX_NAME_LENGTH: Final = 320
"""Characters of a component's kind and name in a message: the longest name and a usual kind."""

MAX_SHOWN_COMPONENTS: Final = 3
"""How many components a message names at most."""

EXCESS: Final = "ExcessPods"
"""The reason of the condition ``Unhealthy`` of an AppWrapper with more pods than its queue admitted."""

EXCESS_GRACE: Final = timedelta(minutes=1)
"""How long at most a component may have more pods than were admitted, such as while KubeRay replaces a cluster.

The deletion of pods without quota is forced after the same time: they must not choose how long they take to end.
"""
