"""Deletes the components of an AppWrapper, first gracefully and then by force after a grace period.

Only objects that the AppWrapper owns are deleted, each by its uid. The deletion is complete when no component and no
pod with the AppWrapper's label exists. After the grace period, pods that descend from the AppWrapper are deleted with a
grace period of zero (a dead node never confirms a graceful deletion); other pods are not deleted, and the deletion no
longer waits for them. The grace period starts when the condition ``DeletingResources`` becomes true, and only once.
"""

from __future__ import annotations

from datetime import datetime

from cfo.config.durations import format_duration
from cfo.controllers.appwrapper.components import DELETED, identity_message
from cfo.controllers.appwrapper.decision import Decision, Deletion, Observation
from cfo.controllers.appwrapper.names import DELETING_RESOURCES
from cfo.controllers.appwrapper.status import Status
from cfo.runtime import POD

_MAX_NAMED_PODS = 5


def force_deadline(observation: Observation) -> datetime | None:
    """Return when remaining pods are deleted by force; ``None`` while nothing is being deleted."""
    status = observation.status()
    if not status.is_true(DELETING_RESOURCES):
        return None
    return status.last_transition(DELETING_RESOURCES) + observation.settings.forceful_deletion_grace


def delete_components(observation: Observation, decision: Decision) -> bool:
    """Begin or continue the deletion of all components; return whether it is complete."""
    status = decision.status
    status.set(DELETING_RESOURCES, True, "DeletionInitiated")
    remaining = _delete_objects(observation, status, decision)
    grace = observation.settings.forceful_deletion_grace
    deadline = status.last_transition(DELETING_RESOURCES) + grace
    overdue = observation.now >= deadline
    awaited = [pod for pod in observation.pods if pod.owned or not overdue]
    if not remaining and not awaited:
        status.clear(DELETING_RESOURCES, "DeletionComplete")
        return True
    if not overdue:
        decision.requeue_at(deadline)
        return False
    to_force = [pod for pod in awaited if not pod.pod.forced]
    decision.deletions += [Deletion(POD, pod.key, pod.uid, force=True) for pod in to_force]
    if to_force:
        names = ", ".join(pod.key.name for pod in to_force[:_MAX_NAMED_PODS])
        if len(to_force) > _MAX_NAMED_PODS:
            names += ", ..."
        decision.record_warning(
            "ForcefulDeletion",
            f"The deletion has exceeded its grace period of {format_duration(grace)}; force-deleting pods: {names}",
        )
    return False


def _delete_objects(observation: Observation, status: Status, decision: Decision) -> int:
    """Delete the remaining objects of components; return how many still exist."""
    remaining = 0
    for component, obj in zip(observation.components, observation.objects, strict=True):
        if not component.may_exist:
            continue
        if obj is None or not obj.owned:
            if component.deployed in ("True", "Unknown"):
                message = status.component_message(component.index)
                status.set_component_condition(component.index, False, DELETED, message)
            continue
        remaining += 1
        if not component.deployed:  # created but not recorded yet; record it in case this process exits
            status.set_component_identity(component.index, component.gvk, component.key.name)
            status.set_component_condition(
                component.index, True, "ComponentCreatedSuccessfully", identity_message(component, obj.uid)
            )
        if not obj.deleting:
            decision.deletions.append(Deletion(component.gvk, component.key, obj.uid))
    return remaining
