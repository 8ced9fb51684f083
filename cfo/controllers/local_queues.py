"""Reports objects that wait for a LocalQueue of Kueue that does not exist, in an Event of each object.

Kueue says so only in the status of its Workload, which the user of an object has not created. The operator reads the
metadata of LocalQueues instead of Workloads: there are few of them, and those of stacks and MiniClusters would belong
to Pods and Jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Unpack

from cfo.api.kueue import INADMISSIBLE, LOCAL_QUEUES, QUEUE_NAME_LABEL, missing_queue_message
from cfo.controllers.availability import when_first_available
from cfo.controllers.cached_fields import field_reader
from cfo.controllers.cached_size import MAX_CACHED_BYTES
from cfo.runtime import (
    GVK,
    READ,
    Builder,
    Channel,
    EnqueueRequestsFromMapFunc,
    Entry,
    Event,
    EventRecorder,
    Informer,
    Manager,
    NamespacedName,
    Object,
    Request,
    Result,
    Rule,
    controller_of,
)
from cfo.runtime.manager import ElectedControllers, SelectionKeywords

RULES: Final = (Rule(LOCAL_QUEUES[0].group, "localqueues", READ),)
"""The RBAC rules of this controller."""

_QUEUES: Final[SelectionKeywords] = {"metadata_only": True, "max_bytes": MAX_CACHED_BYTES}
"""The selection of LocalQueues, which the page shares."""

WaitingQueue = Callable[[Entry], str]
"""Returns the LocalQueue that an object waits for; empty if it waits for none."""

_INDEX: Final = "waiting-queue"

_is_suspended = field_reader("spec", "suspend", kind=bool, default=False)


def queue_of_suspended(entry: Entry) -> str:
    """Return the LocalQueue in the label of an object if it is suspended, as Kueue keeps it until it is admitted."""
    queue = entry.meta.labels.get(QUEUE_NAME_LABEL, "")
    return queue if queue and _is_suspended(entry) else ""


def setup(
    manager: Manager,
    name: str,
    gvk: GVK,
    waiting_queue: WaitingQueue,
    *,
    owner: GVK | None = None,
    group: ElectedControllers | None = None,
    **selection: Unpack[SelectionKeywords],
) -> None:
    """Add a controller to ``manager`` once the API server serves ``gvk`` and LocalQueues.

    ``name`` is that of the controller. It reports objects of ``gvk`` with ``selection``, and each to its controlling
    ``owner`` of this kind. ``group``: the controller needs the Lease of this group.
    """

    def start(queue_kind: GVK) -> None:
        objects = manager.cache.informer(gvk, **selection)
        objects.add_index(_INDEX, _index_of(waiting_queue))
        queues = manager.cache.informer(queue_kind, **_QUEUES)
        channel = Channel()

        def waiting_for(queue: Entry) -> Collection[Request]:
            return objects.reader.keys(_INDEX, str(queue.key))

        def enqueue_all() -> None:
            # The queues that are missing have no events once LocalQueues can be read.
            if queues.has_synced:
                waiting = (entry.key for entry in objects.reader.entries() if waiting_queue(entry))
                channel.enqueue(waiting)

        queues.add_state_handler(enqueue_all)
        reconciler = MissingQueueReconciler(
            objects, queues, waiting_queue, manager.events(name), owner
        )
        (
            Builder(manager, name)
            .for_(gvk, _changes(waiting_queue), **selection)
            .watches(
                queue_kind,
                EnqueueRequestsFromMapFunc(waiting_for),
                optional=True,  # RBAC of an earlier release may forbid it
                **_QUEUES,
            )
            .watches_source(channel)
            .elected_by(group)
            .complete(reconciler)
        )

    # One within the other: whether Kueue is installed is read together with the other optional kinds.
    manager.when_available(gvk, lambda _: when_first_available(manager, LOCAL_QUEUES, start))


class MissingQueueReconciler:
    """Records an Event about each object that waits for a queue that does not exist, once for each queue."""

    def __init__(
        self,
        objects: Informer,
        queues: Informer,
        waiting_queue: WaitingQueue,
        events: EventRecorder,
        owner: GVK | None,
    ) -> None:
        self._objects = objects.reader
        self._queues = queues
        self._waiting_queue = waiting_queue
        self._events = events
        self._owner = owner
        self._reported: dict[Request, tuple[str, str]] = {}
        """The uid of each object that was reported, and the queue for which it waits."""

    async def reconcile(self, request: Request) -> Result:
        """Report the object of ``request`` if its queue does not exist."""
        if not self._queues.has_synced:
            return Result()
        entry = self._objects.entry(request)
        queue = self._waiting_queue(entry) if entry is not None else ""
        if entry is None or not queue or self._may_exist(NamespacedName(request.namespace, queue)):
            self._reported.pop(request, None)
            return Result()
        report = (entry.meta.uid, queue)
        if self._reported.get(request) != report:
            self._reported[request] = report
            for regarding in self._regarding(entry.object()):
                self._events.event(regarding, "Warning", INADMISSIBLE, missing_queue_message(queue))
        return Result()

    def _may_exist(self, queue: NamespacedName) -> bool:
        reader = self._queues.reader
        return reader.contains(queue) or not reader.is_complete(queue.namespace)

    def _regarding(self, obj: Object) -> Iterator[Mapping[str, Any]]:
        """Yield the objects that an Event is about: ``obj`` and its owner."""
        yield obj
        reference = controller_of(obj) or {}
        if self._owner is None or reference.get("kind") != self._owner.kind:
            return
        yield {
            "apiVersion": self._owner.api_version,
            "kind": self._owner.kind,
            "metadata": {
                "namespace": obj["metadata"]["namespace"],
                "name": reference["name"],
                "uid": reference["uid"],
            },
        }


def _index_of(waiting_queue: WaitingQueue) -> Callable[[Entry], Iterable[str]]:
    """Return the function of an index of objects by the queue that they wait for."""

    def queues(entry: Entry) -> Iterator[str]:
        queue = waiting_queue(entry)
        if queue:
            yield f"{entry.namespace}/{queue}"

    return queues


def _changes(waiting_queue: WaitingQueue) -> Callable[[Event], bool]:
    """Return a predicate: the queue that an object waits for has changed."""

    def has_changed(event: Event) -> bool:
        before = waiting_queue(event.old) if event.old is not None else ""
        after = waiting_queue(event.new) if event.new is not None else ""
        return before != after

    return has_changed
