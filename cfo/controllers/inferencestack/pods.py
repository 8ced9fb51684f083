"""The pods of stacks: their informers, and what a user must know about them, read from their status.

A user must know why a pod fails, whether it waits for quota, and why Kueue has evicted one.

The pods of most stacks have the name of the original chart in the label ``app.kubernetes.io/name``, so one informer
caches them. ``spec.nameOverride`` replaces that name, and nothing else distinguishes the pods from those of other
charts: for each such name, there is another informer while a stack uses it. Each of them is a watch, so their number is
limited; :data:`MAX_NAMES` and :data:`MAX_NAMES_IN_NAMESPACE` bound what users can cause.
"""

from __future__ import annotations

import re
from collections import Counter as Count
from collections.abc import Collection, Iterable
from typing import Final

import anyio
import msgspec
import structlog

from cfo.api.inferencestack.names import (
    CHART_NAME,
    COMPONENT_LABEL,
    INSTANCE_LABEL,
    NAME_LABEL,
    names_of,
)
from cfo.api.kueue import (
    ADMISSION_GATE,
    EVICTION_PREFIX,
    QUEUE_NAME_LABEL,
    TERMINATION_TARGET,
)
from cfo.controllers.cached_fields import field_reader
from cfo.controllers.pod_status import (
    MAX_WHOLE_MESSAGE,
    PodFailure,
    PodStatus,
    failure_of,
    shortened,
    status_of_pod,
)
from cfo.runtime import (
    GVK,
    POD,
    Channel,
    Entry,
    Event,
    Informer,
    Manager,
    Object,
    Reader,
    Request,
    key_of,
)
from cfo.runtime.manager import SelectionKeywords

_INDEX: Final = "inferencestack-component"

MAX_NAMES: Final = 20
"""The maximum number of names other than that of the chart whose pods are cached."""
MAX_NAMES_IN_NAMESPACE: Final = 3
"""How many of them stacks of one namespace can be the first to use."""

_SYNC_TIMEOUT: Final = 2.0
"""Seconds that a reconcile waits for the first list of a new informer; its events cause another reconcile."""

_log = structlog.get_logger(__name__)


class _Gate(msgspec.Struct, gc=False):
    """A scheduling gate of a pod."""

    name: str = ""


_gates_of = field_reader("spec", "schedulingGates", kind=tuple[_Gate, ...], default=())


def _components(pod: Entry) -> Iterable[str]:
    return (f"{_stack_of(pod)}/{pod.meta.labels.get(COMPONENT_LABEL, '')}",)


def _stack_of(pod: Entry) -> Request:
    """Return the name of the stack that a pod's labels name."""
    return Request(pod.key.namespace, pod.meta.labels.get(INSTANCE_LABEL, ""))


def stacks_of(pod: Entry, stacks: Reader) -> Collection[Request]:
    """Return the stack that a pod's labels name, unless it is certain that ``stacks`` does not select it."""
    request = _stack_of(pod)
    if not request.name or not stacks.may_exist(request):
        return ()
    return (request,)


class Eviction(msgspec.Struct, frozen=True):
    """Why Kueue has evicted a pod: the reason in CamelCase, such as ``Preempted``, and a sentence about it."""

    reason: str
    message: str


class PodReport(msgspec.Struct, frozen=True):
    """What a user must know about one pod. ``queue`` is the queue of Kueue in which it waits; empty if it does not."""

    failure: PodFailure | None = None
    queue: str = ""
    eviction: Eviction | None = None


class ComponentPods(msgspec.Struct, frozen=True):
    """What a user must know about the pods of a component.

    ``failure`` and ``eviction`` come from the newest pods that have one. ``waiting`` pods wait for quota, one in
    ``queue``; ``queued`` pods have a queue, and wait or run. ``are_known``: the pods are cached.
    """

    failure: PodFailure | None = None
    eviction: Eviction | None = None
    waiting: int = 0
    queued: int = 0
    queue: str = ""
    are_known: bool = True


NO_PODS: Final = ComponentPods()
"""A component without pods."""

UNKNOWN_PODS: Final = ComponentPods(are_known=False)
"""The pods of a stack whose pods are not cached."""

_REASON_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,79}")


def report_of(pod: Entry | None) -> PodReport:
    """Return what a user must know about ``pod``, which may not exist."""
    if pod is None:
        return PodReport()
    status = status_of_pod(pod)
    queue = pod.meta.labels.get(QUEUE_NAME_LABEL, "")
    eviction = None
    if queue:
        eviction = _eviction(status)  # Kueue reports it before it deletes the pod
    if pod.meta.is_deleting:
        return PodReport(eviction=eviction)
    if queue and _awaits_admission(pod):
        return PodReport(queue=queue)
    return PodReport(failure=failure_of(status, MAX_WHOLE_MESSAGE), eviction=eviction)


def _awaits_admission(pod: Entry) -> bool:
    """Return whether a pod has the gate that Kueue removes when it admits the pod.

    The condition ``PodScheduled`` says so as well, but only until a scheduler has looked at the pod again.
    """
    return any(gate.name == ADMISSION_GATE for gate in _gates_of(pod))


def _eviction(status: PodStatus) -> Eviction | None:
    for condition in status.conditions or ():
        if condition.type == TERMINATION_TARGET and condition.reason.startswith(EVICTION_PREFIX):
            reason = condition.reason.removeprefix(f"{EVICTION_PREFIX}DueTo")
            if not _REASON_PATTERN.fullmatch(reason):
                reason = EVICTION_PREFIX
            return Eviction(reason, shortened(condition.message))
    return None


def report_has_changed(event: Event) -> bool:
    """Return whether something that a user must know about a pod began, changed or ended."""
    return report_of(event.old) != report_of(event.new)


def component_pods(pods: Reader, stack: Request, component: str) -> ComponentPods:
    """Return what a user must know about the pods of a component."""
    found = pods.entries(index=(_INDEX, f"{stack}/{component}"))
    newest_first = sorted(
        found, key=lambda pod: (pod.meta.creation_timestamp, pod.key.name), reverse=True
    )
    failure = None
    eviction = None
    waiting = 0
    queued = 0
    queue = ""
    for pod in newest_first:
        is_queued = QUEUE_NAME_LABEL in pod.meta.labels
        if failure is not None and not is_queued:
            continue  # nothing else can be known about it
        report = report_of(pod)
        failure = failure or report.failure
        eviction = eviction or report.eviction
        queue = queue or report.queue
        waiting += bool(report.queue)
        queued += is_queued and not pod.meta.is_deleting
    return ComponentPods(failure, eviction, waiting, queued, queue)


_MAX_POD_BYTES: Final = 256 << 10
"""The maximum size of a cached pod; why a larger one fails or waits is not reported."""


def _selection(name_label: str) -> SelectionKeywords:
    selector = f"{NAME_LABEL}={name_label},{COMPONENT_LABEL},{INSTANCE_LABEL}"
    return {"label_selector": selector, "max_bytes": _MAX_POD_BYTES}


POD_SELECTION: Final = _selection(CHART_NAME)
"""Selects the pods of stacks without ``nameOverride``."""


class _NamedPods:
    """The informer of the pods with one name, and the stacks that use it; ``namespace`` is that of the first one."""

    def __init__(self, informer: Informer, namespace: str) -> None:
        self.informer = informer
        self.namespace = namespace
        self.users: set[tuple[GVK, Request]] = set()


class PodInformers:
    """Caches the pods of the stacks of all controllers."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._chart = self._create(CHART_NAME)
        self._named: dict[str, _NamedPods] = {}
        self._names: dict[tuple[GVK, Request], str] = {}
        self._watchers: list[tuple[Informer, Channel]] = []
        """The stacks of each controller, and the channel through which it gets requests."""

    def attach(self, stacks: Informer, channel: Channel) -> None:
        """Enqueue the ``stacks`` with other names through ``channel`` when the report of a pod changes."""
        self._watchers.append((stacks, channel))

    async def reader(self, gvk: GVK, stack: Object) -> Reader | None:
        """Return the pods with the name of ``stack``; ``None`` if they are not cached.

        Waits up to 2 s for the first list of an informer.
        """
        name = names_of(stack).name_label
        user = (gvk, key_of(stack))
        if self._names.get(user, CHART_NAME) != name:
            self.release(*user)
        if name == CHART_NAME:
            return self._chart.reader
        named = self._named.get(name)
        if named is None:
            if self._is_full(user[1].namespace):
                _log.warning(
                    "Too many values of nameOverride, failures of pods are not reported",
                    stack=str(user[1]),
                )
                return None
            named = _NamedPods(self._create(name), user[1].namespace)
            named.informer.add_handler(self._enqueue)
            self._named[name] = named
        named.users.add(user)
        self._names[user] = name
        with anyio.move_on_after(_SYNC_TIMEOUT):
            await named.informer.wait_for_sync()
        return named.informer.reader if named.informer.has_synced else None

    def release(self, gvk: GVK, request: Request) -> None:
        """Forget a stack; the informer that only it used is stopped."""
        name = self._names.pop((gvk, request), None)
        if name is None:
            return
        named = self._named[name]
        named.users.discard((gvk, request))
        if not named.users:
            del self._named[name]
            self._manager.cache.remove(named.informer)

    def _is_full(self, namespace: str) -> bool:
        first_used = Count(named.namespace for named in self._named.values())
        return len(self._named) >= MAX_NAMES or first_used[namespace] >= MAX_NAMES_IN_NAMESPACE

    def _create(self, name: str) -> Informer:
        return self._manager.cache.informer(POD, **_selection(name)).add_index(_INDEX, _components)

    def _enqueue(self, event: Event) -> None:
        pod = event.new or event.old
        if pod is None or not report_has_changed(event):
            return
        for stacks, channel in self._watchers:
            channel.enqueue(stacks_of(pod, stacks.reader))
