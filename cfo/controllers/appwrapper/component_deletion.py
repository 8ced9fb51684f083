"""The step of the state machine that several phases share: the deletion of the components.

Components are deleted first gracefully, and by force after a grace period. Only objects that the AppWrapper owns are
deleted, each by its uid. The deletion is complete when no component and no pod with the AppWrapper's label exists, or
after two minutes, when no component and no pod that descends from the AppWrapper does.

After the grace period, pods that descend from the AppWrapper are deleted with a grace period of zero (a dead node never
confirms a graceful deletion); other pods are not deleted, and the deletion no longer waits for them. The grace period
starts when the condition ``DeletingResources`` becomes true, and only once. If the AppWrapper itself is deleted, it
starts then, also while the condition cannot be written: its user can change the AppWrapper faster than the status.
It is a minute at most while pods are seen that no queue has admitted (:func:`forceful_grace`).

Finalizers of tenants can keep objects without end. So after the grace period, only pods that can run are waited for
(:func:`holds_after_grace`), and components that are not being deleted yet. One that is being deleted creates no pods:
controllers stop at the ``deletionTimestamp`` of their object, and the garbage collector deletes what it owns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from cfo.api.appwrapper.created_components import CREATED, DELETED, identity_message
from cfo.api.appwrapper.inference import INFERRED_KINDS
from cfo.api.appwrapper.kinds import known_kind
from cfo.api.appwrapper.names import DELETING_RESOURCES, RESOURCES_DEPLOYED
from cfo.controllers.appwrapper.components import Component, ComponentObject
from cfo.controllers.appwrapper.decision import (
    EXCESS_GRACE,
    MAX_NAME_LENGTH,
    Deletion,
    PendingEvent,
    WrapperDecision,
    WrapperObservation,
)
from cfo.controllers.appwrapper.excess import unadmitted_pods_message
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import WrapperPod, time_or_none
from cfo.controllers.appwrapper.retries import limited_by_readiness
from cfo.controllers.appwrapper.status import WrapperStatus
from cfo.runtime import POD, Object, is_deleting
from cfo.runtime.objects import format_duration
from cfo.runtime.process import printable

_MAX_NAMED: Final = 5

FORCED_TERMINATION: Final = timedelta(minutes=1)
"""How long containers may run on a node after the forced deletion of their pod; a kubelet kills them after 2 s."""

LAST_CREATION: Final = timedelta(minutes=10)
"""How long after the begin of a deletion the owners of pods may still create some, until they are deleted."""

_LABEL_WAIT: Final = timedelta(minutes=2)
"""How long a deletion waits for pods that have only the label of the AppWrapper, which any user can create."""

_OWNER_WAIT: Final = timedelta(minutes=10)
"""How long at most for pods with another owner: own ones, if their owners were deleted before this process started."""

LEAST_GRACE: Final = timedelta(minutes=10)
"""How long pods may take to end even if their AppWrapper has kept its quota for as long as it may; the default."""

_COLLECTION: Final = timedelta(seconds=10)
"""How long the garbage collector has at least to delete what components own, so that it creates no pods."""


def forceful_grace(observation: WrapperObservation) -> timedelta:
    """Return after which time the deletion of the components deletes pods by force.

    Pods without quota must not choose how long they take to end, whatever the components are deleted for. The pods of
    an AppWrapper that has no more than were admitted get the time that its user chooses.
    """
    return limited_grace(
        observation.settings.forceful_deletion_grace, unadmitted_pods_message(observation)
    )


def limited_grace(grace: timedelta, unadmitted: str) -> timedelta:
    """Return ``grace``, or a shorter period if pods are ``unadmitted``, as this says."""
    return min(grace, EXCESS_GRACE) if unadmitted else grace


def _forced_from(
    observation: WrapperObservation, status: WrapperStatus, began: datetime
) -> datetime:
    """Return from when on a deletion that ``began`` at a time deletes pods by force."""
    grace = forceful_grace(observation)
    limited = limited_by_readiness(observation, status, began + grace)
    return observation.limited(max(limited, began + min(grace, LEAST_GRACE)))


def must_delete(wrapper: Object, status: WrapperStatus) -> bool:
    """Return whether the components are being deleted, or must be because the AppWrapper is."""
    is_deployed = status.is_true(RESOURCES_DEPLOYED)
    return status.is_true(DELETING_RESOURCES) or (is_deleting(wrapper) and is_deployed)


def deletion_began(observation: WrapperObservation, status: WrapperStatus) -> datetime | None:
    """Return when the deletion of the components began; ``None`` while nothing is being deleted.

    ``status`` is the stored one or that of the decision, which may be refused again and again.
    """
    if not must_delete(observation.wrapper, status):
        return None
    began = observation.now
    if status.is_true(DELETING_RESOURCES):
        began = status.last_transition(DELETING_RESOURCES)
    if is_deleting(observation.wrapper) and observation.deletion_seen_at is not None:
        began = min(began, observation.deletion_seen_at)
    return began


def own_pods_from(observation: WrapperObservation, status: WrapperStatus) -> datetime | None:
    """Return from when on a deletion waits only for own pods; ``None`` while nothing is being deleted."""
    began = deletion_began(observation, status)
    if began is None:
        return None
    wait = _LABEL_WAIT
    if has_unknown_owners(observation.components) or any(map(may_be_own, observation.pods)):
        wait = _OWNER_WAIT
    return began + min(wait, forceful_grace(observation))


def may_be_own(pod: WrapperPod) -> bool:
    """Return whether a pod can descend from the AppWrapper, although its owners do not prove that."""
    return pod.has_controller and not pod.ancestor


def has_unknown_owners(components: Iterable[Component]) -> bool:
    """Return whether pods of ``components`` may have owners of kinds that the operator cannot read.

    Any user can create pods with the label of the AppWrapper, and so keep the quota of pods that cannot be created. So
    pods of known kinds count only if their owners lead to the AppWrapper by uid.
    """
    return any(
        component.expected_pods and known_kind(component.gvk) not in INFERRED_KINDS
        for component in components
    )


def delete_components(observation: WrapperObservation, decision: WrapperDecision) -> bool:
    """Begin or continue the deletion of all components; return whether it is complete."""
    status = decision.status
    remaining = _delete_objects(observation, status, decision)
    status.set(DELETING_RESOURCES, True, "DeletionInitiated", _remaining_message(remaining))
    if observation.is_queued:
        decision.others = observation.others
    began = deletion_began(observation, status) or observation.now
    deadline = _forced_from(observation, status, began)
    own = [pod for pod in observation.pods if pod.ancestor]
    if observation.now < deadline:
        own_from = own_pods_from(observation, status) or deadline
        awaits_all = observation.now < own_from
        waited = observation.pods if awaits_all else own
        has_unknown_owners = observation.knowledge is PodKnowledge.OWNERS_UNKNOWN
        if not remaining and not waited and not has_unknown_owners:
            status.clear(DELETING_RESOURCES, "DeletionComplete")
            return True
        decision.requeue_at(min(own_from, deadline) if awaits_all else deadline)
        return False
    # A component that is a pod too large for the cache is not among the pods.
    decision.deletions = [
        replace(deletion, force=deletion.gvk == POD) for deletion in decision.deletions
    ]
    forced = forced_deletions(own)
    decision.deletions += forced
    if forced:
        unadmitted = unadmitted_pods_message(observation)
        decision.events.append(forced_event(forced, deadline - began, unadmitted))
    if _must_wait(observation, decision, began, remaining, own):
        return False
    if remaining:
        names = _enumeration([component.display_name for component, _ in remaining])
        decision.record_warning(
            "FinalizersRemain", f"No longer waiting for the finalizers of {names}"
        )
    status.clear(DELETING_RESOURCES, "DeletionComplete")
    return True


def _remaining_message(remaining: Sequence[tuple[Component, ComponentObject]]) -> str:
    """Return which components still exist, with their finalizers; empty if only pods may do.

    Components disappear with a change of their own conditions, so the message causes no writes of its own.
    """
    names = []
    for component, obj in remaining[:_MAX_NAMED]:
        name = printable(component.display_name, MAX_NAME_LENGTH)
        finalizers = f" (finalizers: {', '.join(obj.finalizers)})" if obj.finalizers else ""
        names.append(f"{name}{finalizers}")
    if len(remaining) > _MAX_NAMED:
        names.append("...")
    return f"Waiting for the deletion of {', '.join(names)}" if names else ""


def _must_wait(
    observation: WrapperObservation,
    decision: WrapperDecision,
    began: datetime,
    remaining: Iterable[tuple[Component, ComponentObject]],
    own: Iterable[WrapperPod],
) -> bool:
    """Return whether something holds quota after the grace period; ask for a reconcile when that may end.

    ``began``: when the deletion did.
    """
    now = observation.now
    if observation.deletion_seen_at is not None:
        began = max(began, observation.deletion_seen_at)
    latest_creation = began + LAST_CREATION
    # Users can create pods faster than their owners are read.
    has_unknown_owners = observation.knowledge is PodKnowledge.OWNERS_UNKNOWN
    must_wait = has_unknown_owners and now < latest_creation
    for _, obj in remaining:
        if not obj.deleting:
            must_wait = True
        elif now < began + _COLLECTION:
            must_wait = True
            decision.requeue_at(began + _COLLECTION)
    for pod in own:
        if not holds_after_grace(pod, latest_creation, now):
            continue
        must_wait = True
        if pod.forced:
            decision.requeue_at((pod.forced_since or now) + FORCED_TERMINATION)
    return must_wait


def holds_after_grace(pod: WrapperPod, latest: datetime, now: datetime) -> bool:
    """Return whether a pod that descends from an AppWrapper holds quota after the grace period of a deletion.

    It does until it is being deleted by force, and then, if it runs on a node, for as long as its containers may need
    to end. Pods that were created after ``latest`` hold nothing. Without these limits, quota could be held without end:
    users can create pods with any owner, and keep them with finalizers.
    """
    created_at = time_or_none(pod.created)
    if created_at is not None and created_at > latest:
        return False
    if not pod.forced:
        return True
    if not pod.has_node or not pod.holds_resources:
        return False
    return pod.forced_since is None or now < pod.forced_since + FORCED_TERMINATION


def forced_deletions(pods: Iterable[WrapperPod]) -> list[Deletion]:
    """Return the deletions by force of those of ``pods`` that are not being deleted by force."""
    return [Deletion(POD, pod.key, pod.uid, force=True) for pod in pods if not pod.forced]


def forced_event(deletions: Sequence[Deletion], grace: timedelta, unadmitted: str) -> PendingEvent:
    """Return the Event that says that pods are deleted by force after the grace period ``grace``.

    ``unadmitted``: which pods shorten it, if any do.
    """
    names = _enumeration([deletion.key.name for deletion in deletions])
    cause = f" for pods without quota ({unadmitted})" if unadmitted else ""
    message = (
        f"The deletion has exceeded its grace period of {format_duration(grace)}{cause}; "
        f"force-deleting pods: {names}"
    )
    return PendingEvent("Warning", "ForcefulDeletion", message)


def _enumeration(names: Sequence[str]) -> str:
    """Return the first five names."""
    enumeration = ", ".join(printable(name, MAX_NAME_LENGTH) for name in names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        enumeration += ", ..."
    return enumeration


def _delete_objects(
    observation: WrapperObservation, status: WrapperStatus, decision: WrapperDecision
) -> list[tuple[Component, ComponentObject]]:
    """Delete the remaining objects of components; return those that still exist."""
    remaining: list[tuple[Component, ComponentObject]] = []
    for component, obj in zip(observation.components, observation.objects, strict=True):
        if not component.may_exist:
            continue
        if obj is None or not obj.owned:
            if component.is_created:
                message = status.component_message(component.index)
                status.set_component_condition(component.index, False, DELETED, message)
            continue
        remaining.append((component, obj))
        if (
            not component.deployed
        ):  # created but not recorded yet; record it in case this process exits
            status.set_component_identity(component.index, component.gvk, component.key.name)
            status.set_component_condition(
                component.index, True, CREATED, identity_message(component.display_name, obj.uid)
            )
        if not obj.deleting:
            decision.deletions.append(Deletion(component.gvk, component.key, obj.uid))
    return remaining
