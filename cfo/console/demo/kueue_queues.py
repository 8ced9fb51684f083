"""A fake Kueue for the embedded control plane.

It implements the part of Kueue that InferenceStacks depend on: it admits pods with the label of a queue by removing
their scheduling gate, the oldest first, as long as at most :data:`QUOTA` pods of the queue run. Each name is a queue.
It creates no Workloads, and does not preempt.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cfo.api.kueue import ADMISSION_GATE, QUEUE_NAME_LABEL
from cfo.api.reading import path
from cfo.runtime import (
    POD,
    Builder,
    Client,
    EnqueueRequestsFromMapFunc,
    Entry,
    Informer,
    Manager,
    NotFound,
    Object,
    Request,
    Result,
    is_deleting,
    key_of,
    labels_of,
    name_of,
)

QUOTA: Final = 3
"""The number of pods that each queue admits."""

_ENDED: Final = ("Succeeded", "Failed")


def setup(manager: Manager) -> None:
    """Add the fake Kueue to ``manager``."""
    pods = manager.cache.informer(POD, label_selector=QUEUE_NAME_LABEL)
    reconciler = _QueueReconciler(manager.client.with_field_manager("cfo-demo"), pods)
    handler = EnqueueRequestsFromMapFunc(_queue_of)
    Builder(manager, "fake-kueue").watches(POD, handler, label_selector=QUEUE_NAME_LABEL).complete(
        reconciler
    )


def _queue_of(pod: Entry) -> Iterable[Request]:
    return (Request(pod.key.namespace, pod.meta.labels[QUEUE_NAME_LABEL]),)


class _QueueReconciler:
    """Fills one queue; its request is the namespace and the name of the queue."""

    def __init__(self, client: Client, pods: Informer) -> None:
        self._client = client
        self._pods = pods

    async def reconcile(self, request: Request) -> Result:
        pods = self._pods.reader.list(namespace=request.namespace)
        queued = [pod for pod in pods if labels_of(pod)[QUEUE_NAME_LABEL] == request.name]
        for pod in admissible(queued):
            gates = [each for each in pod["spec"]["schedulingGates"] if not _is_admission(each)]
            try:
                await self._client.patch(POD, key_of(pod), {"spec": {"schedulingGates": gates}})
            except NotFound:
                continue  # its deletion causes the next reconcile
        return Result()


def admissible(pods: Iterable[Object]) -> list[Object]:
    """Return the pods of a queue that wait and fit into its quota, the oldest first."""
    active = [pod for pod in pods if path(pod, "status", "phase") not in _ENDED]
    waiting = [pod for pod in active if _is_gated(pod) and not is_deleting(pod)]
    running = sum(not _is_gated(pod) for pod in active)
    waiting.sort(key=lambda pod: (path(pod, "metadata", "creationTimestamp"), name_of(pod)))
    return waiting[: max(0, QUOTA - running)]


def _is_gated(pod: Object) -> bool:
    return any(_is_admission(each) for each in pod["spec"].get("schedulingGates") or ())


def _is_admission(gate: Object) -> bool:
    return bool(gate.get("name") == ADMISSION_GATE)
