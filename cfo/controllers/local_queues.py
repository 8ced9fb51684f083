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
from cfo.controllers.left_out import stored_or_live
from cfo.runtime import (
    GVK,
    READ,
    Builder,
    Channel,
    Client,
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
        objects.add_index(_INDEX, _index_of(waiting_queue), left_out=True)
        queues = manager.cache.informer(queue_kind, **_QUEUES)
        channel = Channel()

        def waiting_for(queue: Entry) -> Collection[Request]:
            return objects.reader.keys(_INDEX, str(queue.key))

        def enqueue_all() -> None:
            # The queues that are missing have no events once LocalQueues can be read.
            if queues.has_synced:
                waiting = (entry.key for entry in objects.reader.entries() if waiting_queue(entry))
                channel.enqueue(waiting)
                objects.report_left_out()

        queues.add_state_handler(enqueue_all)
        reconciler = MissingQueueReconciler(
            manager.client, objects, queues, waiting_queue, manager.events(name), owner
        )
        (
            Builder(manager, name)
            .for_(gvk, reconciler.has_changed, **selection)
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
        client: Client,
        objects: Informer,
        queues: Informer,
        waiting_queue: WaitingQueue,
        events: EventRecorder,
        owner: GVK | None,
    ) -> None:
        self._client = client
        self._objects = objects
        self._queues = queues
        self._waiting_queue = waiting_queue
        self._events = events
        self._owner = owner
        self._reported: dict[Request, tuple[str, str]] = {}
        """The uid of each object that was reported, and the queue for which it waits."""

    def has_changed(self, event: Event) -> bool:
        """Return whether the queue that an object waits for has changed, or may have.

        The earlier state of an object that the cache leaves out is known only if it was reported.
        """
        before = ""
        if event.old is not None and event.old is not event.left_out:
            before = self._waiting_queue(event.old)
        after = ""
        if event.current is not None:
            after = self._waiting_queue(event.current)
        if event.left_out is not None and event.key in self._reported:
            return True
        return before != after

    async def reconcile(self, request: Request) -> Result:
        """Report the object of ``request`` if its queue does not exist."""
        if not self._queues.has_synced:
            return Result()
        entry = await stored_or_live(self._client, self._objects, request)
        queue = self._waiting_queue(entry) if entry is not None else ""
        key = NamespacedName(request.namespace, queue)
        if entry is None or not queue or self._queues.reader.may_exist(key):
            self._reported.pop(request, None)
            return Result()
        report = (entry.meta.uid, queue)
        if self._reported.get(request) != report:
            self._reported[request] = report
            for regarding in self._regarding(entry.object()):
                self._events.event(regarding, "Warning", INADMISSIBLE, missing_queue_message(queue))
        return Result()

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
