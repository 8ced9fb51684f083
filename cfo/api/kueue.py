"""The names that Kueue and its users agree on: labels and annotations of objects, gates and conditions of pods.

Source: ``pkg/constants``, ``pkg/controller/constants`` and ``pkg/controller/jobs/pod`` of Kueue 0.19.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cfo.api.reading import MAX_MESSAGE, text
from cfo.runtime import GVK, find_condition

PREFIX: Final = "kueue.x-k8s.io/"
"""The prefix of all labels, annotations and gates of Kueue."""

QUEUE_NAME_LABEL: Final = f"{PREFIX}queue-name"
"""The LocalQueue that admits an object; it is in the namespace of the object."""

SUSPENDED_WITHOUT_QUEUE: Final = (
    f"spec.suspend is true, and no queue resumes it: set spec.suspend to false, or add the label {QUEUE_NAME_LABEL} "
    "with the name of a LocalQueue"
)
"""Why nothing happens to an object that is suspended and has no queue, and what to do."""

LOCAL_QUEUES: Final = (
    GVK("kueue.x-k8s.io", "v1beta2", "LocalQueue"),
    GVK("kueue.x-k8s.io", "v1beta1", "LocalQueue"),
)
"""LocalQueues in all versions that are supported, the newest first."""

WORKLOADS: Final = (
    GVK("kueue.x-k8s.io", "v1beta2", "Workload"),
    GVK("kueue.x-k8s.io", "v1beta1", "Workload"),
)
"""Workloads in all versions that are supported, the newest first."""

PRIORITY_CLASS_LABEL: Final = f"{PREFIX}priority-class"
"""The WorkloadPriorityClass of an object in a queue."""

PLACEMENT_PREFIX: Final = f"{PREFIX}podset-"
"""The prefix of the annotations of pods with which Kueue chooses nodes near each other."""

ADMISSION_GATE: Final = f"{PREFIX}admission"
"""The scheduling gate of a pod that Kueue has not admitted; Kueue removes it."""

TERMINATION_TARGET: Final = "TerminationTarget"
"""The condition of a pod that is deleted on purpose; Kueue gives the cause of an eviction as the reason."""

EVICTION_PREFIX: Final = "WorkloadEvicted"
"""The prefix of the reasons of evictions: ``WorkloadEvictedDueToPreempted``."""

ADMITTED: Final = "AdmittedByKueue"
"""The reason of the condition ``QuotaReserved`` of an object that Kueue has admitted."""

WAITING: Final = "WaitingForKueue"
"""The reason of the condition ``QuotaReserved`` of an object that Kueue has not admitted."""

INADMISSIBLE: Final = "Inadmissible"
"""The reason with which Kueue reports that a queue does not exist or is stopped, or that no quota can be enough."""


def missing_queue_message(queue: str) -> str:
    """Return the message about an object whose LocalQueue does not exist; it is Kueue's."""
    return f"LocalQueue {queue} doesn't exist"


def inadmissible_message(workload: Mapping[str, Any]) -> str | None:
    """Return why Kueue cannot admit the Workload at all, such as without its LocalQueue; ``None`` if it can."""
    conditions = (workload.get("status") or {}).get("conditions")
    reserved = find_condition(conditions, "QuotaReserved") or {}
    if reserved.get("status") != "False" or reserved.get("reason") != INADMISSIBLE:
        return None
    return text(reserved.get("message"), MAX_MESSAGE)
