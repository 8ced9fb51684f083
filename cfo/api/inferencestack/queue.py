"""The queue of Kueue in which the pods of a stack wait for quota.

The queue is a label, as for each kind that Kueue admits, and not a field: the spec contains the values of the original
chart, and clients that know only that chart write it. The label is passed on to the Deployments, where
Kueue's integration reads it, and to their pods.

Each pod is a Workload of its own. So a pod that an autoscaler or ``kubectl scale`` adds waits for quota as well, and
one that is removed releases it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.kueue import (
    ADMISSION_GATE,
    PLACEMENT_PREFIX,
    PREFIX,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
)
from cfo.api.reading import items
from cfo.api.reading import path as value_at
from cfo.runtime import FieldError, Object, find_condition, labels_of
from cfo.runtime.objects import is_dns_label
from cfo.runtime.objects.field import Path, forbidden, invalid

GATES: Final = ({"name": ADMISSION_GATE},)
"""The scheduling gates of pods in a queue.

Kueue's webhooks add this gate. It is in the pod template as well, so that pods wait, and do not run without quota, if
Kueue or its integration of Deployments is not installed.
"""

_LABELS: Final = Path("metadata", "labels")
_QUEUE: Final = _LABELS.key(QUEUE_NAME_LABEL)
_PRIORITY: Final = _LABELS.key(PRIORITY_CLASS_LABEL)

_IMMUTABLE: Final = "immutable while the stack is not suspended (spec.suspend)"
_NOT_REMOVABLE: Final = (
    "cannot be removed, because Kueue keeps it on Deployments; create the stack again"
)
_RESERVED: Final = f"Kueue decides about the pods by the label {QUEUE_NAME_LABEL} of the stack"


def queue_labels(stack: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of Kueue that ``stack`` passes on to its Deployments and pods; empty if it has no queue."""
    labels = labels_of(stack)
    if not labels.get(QUEUE_NAME_LABEL):
        return {}
    found = {label: labels.get(label) for label in (QUEUE_NAME_LABEL, PRIORITY_CLASS_LABEL)}
    return {label: value for label, value in found.items() if value and isinstance(value, str)}


def queue_of(stack: Mapping[str, Any]) -> str:
    """Return the name of the LocalQueue of ``stack``; empty if it has none."""
    return queue_labels(stack).get(QUEUE_NAME_LABEL, "")


def queue_name_errors(stack: Object) -> Iterator[FieldError]:
    """Yield an error if a label of Kueue cannot be an object's name."""
    for label, value in queue_labels(stack).items():
        if not all(is_dns_label(part) for part in value.split(".")):
            yield invalid(
                _LABELS.key(label), value, "must be the name of an object, such as team-a"
            )


def queue_change_errors(old: Object, new: Object) -> Iterator[FieldError]:
    """Yield an error for each label of Kueue that cannot change from ``old``, with its status, to ``new``.

    Kueue rejects the same changes of a Deployment that has ready pods. A stack without Deployments can change freely.
    """
    deployed = find_condition(items(value_at(old, "status", "conditions")), "Deployed")
    if deployed is None:
        return
    is_suspended = value_at(old, "spec", "suspend") is True
    before = queue_labels(old)
    after = queue_labels(new)
    old_queue = before.get(QUEUE_NAME_LABEL)
    new_queue = after.get(QUEUE_NAME_LABEL)
    if old_queue and not new_queue:
        yield forbidden(_QUEUE, _NOT_REMOVABLE)
        return
    if old_queue != new_queue and not is_suspended:
        yield forbidden(_QUEUE, _IMMUTABLE)
    old_priority = before.get(PRIORITY_CLASS_LABEL)
    new_priority = after.get(PRIORITY_CLASS_LABEL)
    if old_priority and not new_priority:
        yield forbidden(_PRIORITY, _NOT_REMOVABLE)
    elif new_priority and not old_priority and not is_suspended:
        yield forbidden(_PRIORITY, _IMMUTABLE)


def pod_metadata_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error for each label or annotation with which the pods of ``section`` would leave the stack's queue.

    Only for stacks with a queue. Annotations that place pods near each other are allowed.
    """
    for field in ("podLabels", "podAnnotations"):
        for key in section.get(field) or {}:
            is_placement = field == "podAnnotations" and key.startswith(PLACEMENT_PREFIX)
            if key.startswith(PREFIX) and not is_placement:
                yield forbidden(path.child(field).key(key), _RESERVED)


def embedded_queue_errors(stack: Object) -> Iterator[FieldError]:
    """Yield an error if a stack that another object contains has a queue: its pods would take their quota twice."""
    if queue_of(stack):
        yield forbidden(_QUEUE, "the AppWrapper has the queue of all that it contains")
