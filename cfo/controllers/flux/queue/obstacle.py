"""What keeps a FluxJob from being queued, and the message of each reason: pure functions."""

from __future__ import annotations

from cfo.controllers.flux.queue.governance import Setup
from cfo.controllers.flux.queue.group import Group
from cfo.controllers.flux.queue.model import Blocked
from cfo.controllers.flux.queue.verdict import (
    ADMITTED,
    EVICTED_BY_QUEUE,
    KUEUE,
    NAME_TAKEN,
    NO_PRIORITY_CLASS,
    NO_SETUP,
    REFUSED,
    SUSPENDED,
    blocked_message,
)
from cfo.runtime import NamespacedName

__all__ = ["message_of", "obstacle_of"]


def obstacle_of(
    key: NamespacedName, group: Group, setup: Setup | None, *, priority: int | None
) -> tuple[str, str] | None:
    """Return what keeps the job of ``group`` from being queued (reason and message), if anything does.

    ``priority`` is ``None`` if its PriorityClass does not exist.
    """
    job = group.job
    if job is None:
        return None
    if group.cluster is not None and group.cluster.job_uid != job.uid:
        return NAME_TAKEN, f"MiniCluster {key.name} exists and does not belong to this FluxJob"
    if job.is_suspended:
        return SUSPENDED, "Suspended by spec.suspend"
    if job.is_refused:
        return REFUSED, "The MiniCluster was refused"
    if job.is_queued_by_kueue or (group.cluster is not None and group.cluster.is_queued_by_kueue):
        return KUEUE, "Waiting for Kueue to admit the job"
    if setup is None:
        return NO_SETUP, f"No FluxSetup covers namespace {key.namespace}"
    if setup.kueue_queue:
        return KUEUE, f"Waiting for LocalQueue {setup.kueue_queue} of Kueue to admit the job"
    if priority is None:
        return NO_PRIORITY_CLASS, f"PriorityClass {job.priority_class} does not exist"
    return None


def message_of(key: NamespacedName, group: Group, setup: Setup | None, *, priority: int | None) -> str:
    """Return the message for ``group.reason``."""
    if group.waiting is not None and setup is not None:
        return blocked_message(Blocked(group.reason), group.waiting.demand, setup)
    if group.reason == ADMITTED:
        return f"Admitted by FluxSetup {setup.key}" if setup is not None else "Admitted"
    if group.reason == EVICTED_BY_QUEUE:
        return "Evicted in favor of a job of higher priority"
    obstacle = obstacle_of(key, group, setup, priority=priority)
    return obstacle[1] if obstacle is not None else ""
