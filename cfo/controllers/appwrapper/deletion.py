"""How the components of an AppWrapper are deleted: gently, and after a grace period by force.

Only what is ours is deleted, each object by its uid. The deletion is over when no component is left and no pod with the
AppWrapper's label. Once the grace period is over, what hangs is removed: pods that descend from the AppWrapper lose the
time that their node would have for them (a dead node never takes it); what does not descend from it is left alone, and
not waited for any more. The clock is that of the condition ``DeletingResources``, and starts once.
"""

from __future__ import annotations

from datetime import datetime

from cfo.config.durations import format_duration
from cfo.controllers.appwrapper.components import DELETED, identity
from cfo.controllers.appwrapper.decision import Decision, Deletion, View
from cfo.controllers.appwrapper.names import DELETING_RESOURCES
from cfo.controllers.appwrapper.status import Status
from cfo.runtime.kinds import POD

__all__ = ["delete_components", "force_deadline"]

_NAMED = 5


def force_deadline(view: View) -> datetime | None:
    """When hanging pods are removed by force; ``None`` while nothing is being deleted."""
    status = view.status()
    if not status.is_true(DELETING_RESOURCES):
        return None
    return status.since(DELETING_RESOURCES) + view.settings.forceful_deletion_grace


def delete_components(view: View, decision: Decision) -> bool:
    """Goes on with the deletion of all components; returns whether it is over."""
    status = decision.status
    status.set(DELETING_RESOURCES, True, "DeletionInitiated")
    remaining = _components(view, status, decision)
    deadline = status.since(DELETING_RESOURCES) + view.settings.forceful_deletion_grace
    overdue = view.now >= deadline
    waited_for = [pod for pod in view.pods if pod.ours or not overdue]
    if not remaining and not waited_for:
        status.clear(DELETING_RESOURCES, "DeletionComplete")
        return True
    if not overdue:
        decision.look_again(deadline)
        return False
    hanging = [pod for pod in waited_for if not pod.pod.forced]
    decision.deletions += [Deletion(POD, pod.key, pod.uid, force=True) for pod in hanging]
    if hanging:
        names = ", ".join(pod.key.name for pod in hanging[:_NAMED]) + (", ..." if len(hanging) > _NAMED else "")
        decision.warn(
            "ForcefulDeletion",
            f"the deletion takes longer than {format_duration(view.settings.forceful_deletion_grace)}: "
            f"removing pods by force: {names}",
        )
    return False


def _components(view: View, status: Status, decision: Decision) -> int:
    """Deletes what is left; returns how many objects there still are."""
    remaining = 0
    for component, seen in zip(view.components, view.seen, strict=True):
        if not component.may_exist:
            continue
        if seen is None or not seen.ours:
            if component.deployed in ("True", "Unknown"):
                status.set_component(component.index, False, DELETED, status.component_message(component.index))
            continue
        remaining += 1
        if not component.deployed:  # created, and not noted: the next process has to know
            status.note_component(component.index, component.gvk, component.key.name)
            status.set_component(component.index, True, "ComponentCreatedSuccessfully", identity(component, seen.uid))
        if not seen.deleting:
            decision.deletions.append(Deletion(component.gvk, component.key, seen.uid))
    return remaining
