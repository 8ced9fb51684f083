"""Lists the pods of namespaces, for decisions that release or keep quota.

Users can change the label by which the pods of AppWrappers are cached, and remove it. So before quota is released, all
pods that can run are listed, and their owners are read. If the cache has no room for all pods of the namespace, those
that have succeeded are listed as well; then also while an AppWrapper has quota, because a user who fills the cache
could otherwise hide pods that its queue has not admitted, or that request next to nothing. All are listed, too, while
Workloads wait whose AppWrappers no longer exist.

Lists have only the metadata of pods. So owners of pods are read one by one, and of AppWrappers that ask, pods that the
cache lacks: in turns, a limited number for each list. Each namespace has the same limits, and one list at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from cfo.api.appwrapper.names import APPWRAPPER, APPWRAPPER_LABEL
from cfo.controllers.appwrapper.active_pods import (
    NO_OWNER,
    ActivePods,
    Lineage,
    LineageEnd,
)
from cfo.controllers.appwrapper.owners import (
    MAX_DEPTH,
    Owner,
    OwnerReads,
    OwnerState,
)
from cfo.controllers.appwrapper.pods import WrapperPod, compact, pod_of_object
from cfo.controllers.pod_lists import SUCCEEDED, PodMeta, list_pods, list_pods_that_can_run
from cfo.runtime import (
    POD,
    Client,
    Clock,
    NamespacedName,
    Reader,
    uid_of,
)

_PAUSE_SHARE: Final = 9.0
"""After a list, the next one of the namespace waits this multiple of its duration."""

_CROWDED_PAUSE: Final = 30.0
"""The least seconds between two lists of a namespace with more pods than the cache has room for."""

_WORKLOADS_INTERVAL: Final = 10.0
"""The least seconds between the begin of two lists of a namespace in which Workloads wait."""

_RUNNING_SECONDS: Final = 0.1
"""How long to wait at least for a list that another reconcile has begun."""

MAX_OWNERS: Final = 200
"""The owners of how many controllers of pods are read for one list; the others after the next list."""

MAX_PODS: Final = 200
"""How many pods that the cache lacks are read for one list."""

_MAX_KEPT: Final = 5000
"""How many pods of a namespace that were read are kept: 1.5 kB each."""

_MIN_KEPT: Final = 8
"""How many pods of each AppWrapper are kept nevertheless, because one can prove that the quota is requested."""

_MAX_IDLE_NAMESPACES: Final = 256


class _Question(msgspec.Struct, frozen=True):
    """``uid``: which AppWrapper asked; ``asked_at``: the number of the last list that began before.

    ``releases``: it gives back its quota if no pod is found.
    """

    uid: str
    asked_at: int
    releases: bool


class _ReadPod(msgspec.Struct, frozen=True):
    """A pod as it was read for the list with the number ``read_in``; ``None`` if it did not exist any more."""

    version: str
    read_in: int
    pod: WrapperPod | None


class _Namespace(msgspec.Struct):
    """The lists of one namespace.

    ``begun`` and ``listed`` are the numbers of the last list that began, and that ended with ``pods``. ``next_at`` is
    when the next one may begin. ``workloads`` is the number of Workloads that wait, and ``questions`` has those of
    AppWrappers by name. ``can_read`` is how many pods may still be read until the next list. ``lineages`` and
    ``read_pods`` are what is known of listed pods, by the controller, and by the uid of the pod.
    """

    begun: int = 0
    listed: int = 0
    is_running: bool = False
    next_at: float = 0.0
    pods: ActivePods = msgspec.field(default_factory=ActivePods)
    workloads: int = 0
    questions: dict[str, _Question] = {}
    can_read: int = 0
    lineages: dict[Owner, Lineage] = {}
    read_pods: dict[str, _ReadPod] = {}

    @property
    def is_awaited(self) -> bool:
        """Whether its pods are needed."""
        return self.workloads > 0 or bool(self.questions)

    @property
    def needs_all_owners(self) -> bool:
        """Whether the owners of pods without the label are needed, because quota may be released."""
        return self.workloads > 0 or any(each.releases for each in self.questions.values())


class NamespacePods:
    """Lists the pods of namespaces that ``labelled``, the cached pods, lacks, and reads their owners with ``owners``.

    All that wait in a namespace at the same time share one list. Users can let many AppWrappers end in a namespace with
    many pods, so its lists take at most a tenth of the time.
    """

    def __init__(self, client: Client, clock: Clock, labelled: Reader, owners: OwnerReads) -> None:
        self._client = client
        self._owners = owners
        self._labelled = labelled
        self._clock = clock
        self._namespaces: dict[str, _Namespace] = {}

    def add_workload(self, namespace: str) -> None:
        """Count one more Workload that waits in ``namespace``."""
        self._state_of(namespace).workloads += 1

    def remove_workload(self, namespace: str) -> None:
        """Count one Workload less."""
        state = self._namespaces[namespace]
        state.workloads -= 1
        self._forget_pods(state)

    def ask(self, namespace: str) -> int:
        """Return a number with which :meth:`read` returns a list that begins after this call."""
        return self._state_of(namespace).begun

    async def read(self, namespace: str, asked_at: int) -> ActivePods | None:
        """Return the pods of a list that began after :meth:`ask` returned ``asked_at``; ``None``: ask again later.

        Raises the errors of API requests.
        """
        state = self._namespaces[namespace]
        if state.listed <= asked_at:
            if state.is_running or self._clock.monotonic() < state.next_at:
                return None
            await self._list(namespace, state)
        return state.pods

    async def read_for(
        self, wrapper: NamespacedName, uid: str, *, releases: bool = False
    ) -> ActivePods | None:
        """Return the pods of a list that began after ``wrapper`` asked first; ``None``: ask again later.

        An AppWrapper with the same name and another ``uid`` has not asked yet. Before it ``releases`` quota, it asks
        again: its pods may have been created since it asked for another reason. Raises the errors of API requests.
        """
        state = self._state_of(wrapper.namespace)
        question = state.questions.get(wrapper.name)
        if question is None or question.uid != uid or question.releases < releases:
            question = _Question(uid, state.begun, releases)
            state.questions[wrapper.name] = question
        pods = await self.read(wrapper.namespace, question.asked_at)
        if pods is not None:
            self.forget(wrapper)
        return pods

    def retry_after(self, namespace: str, asked_at: int | None = None) -> float:
        """Return the seconds after which to ask again, with ``asked_at`` for a list that began after that."""
        state = self._state_of(namespace)
        if asked_at is not None and state.listed > asked_at:
            return _RUNNING_SECONDS
        return max(state.next_at - self._clock.monotonic(), _RUNNING_SECONDS)

    def forget(self, wrapper: NamespacedName) -> None:
        """Forget that ``wrapper`` asked; the pods are dropped when nothing waits in its namespace."""
        state = self._namespaces.get(wrapper.namespace)
        if state is None:
            return
        state.questions.pop(wrapper.name, None)
        self._forget_pods(state)

    async def read_pods(
        self, namespace: str, pods: Sequence[PodMeta]
    ) -> dict[str, WrapperPod | None]:
        """Return, by uid, those of the listed ``pods`` that are known as a whole; ``None``: it does not exist any more.

        Those that were never read come first, and then those that have changed since. AppWrappers that wait for the
        same list share what may be read. Raises the errors of API requests.
        """
        state = self._state_of(namespace)
        unread = [pod for pod in pods if pod.uid not in state.read_pods]
        known = [pod for pod in pods if pod.uid in state.read_pods]
        room = max(_MAX_KEPT - len(state.read_pods), _MIN_KEPT - len(known), 0)
        changed = [pod for pod in known if state.read_pods[pod.uid].version != pod.resource_version]
        changed.sort(key=lambda pod: state.read_pods[pod.uid].read_in)
        share = min(state.can_read, max(state.can_read // (len(state.questions) + 1), 1))
        for pod in [*unread[:room], *changed][:share]:
            state.can_read -= 1
            found = await self._read(NamespacedName(namespace, pod.name), pod.uid)
            state.read_pods[pod.uid] = _ReadPod(pod.resource_version, state.begun, found)
        # Users can change pods faster than they are read. So those count that were read before.
        listed = (pod.uid for pod in pods)
        return {uid: state.read_pods[uid].pod for uid in listed if uid in state.read_pods}

    async def _read(self, key: NamespacedName, uid: str) -> WrapperPod | None:
        obj = await self._client.get(POD, key, live=True)
        if obj is None or uid_of(obj) != uid:
            return None
        return compact(pod_of_object(obj))

    def _state_of(self, namespace: str) -> _Namespace:
        state = self._namespaces.get(namespace)
        if state is None:
            if len(self._namespaces) > _MAX_IDLE_NAMESPACES:
                self._forget_idle()
            state = _Namespace()
            self._namespaces[namespace] = state
        return state

    def _forget_pods(self, state: _Namespace) -> None:
        if not state.is_awaited:
            state.pods = ActivePods()

    def _forget_idle(self) -> None:
        """Forget namespaces that have not been listed for a while."""
        now = self._clock.monotonic()
        self._namespaces = {
            name: state
            for name, state in self._namespaces.items()
            if state.is_awaited or state.is_running or now < state.next_at + _CROWDED_PAUSE
        }

    async def _list(self, namespace: str, state: _Namespace) -> None:
        began = self._clock.monotonic()
        is_crowded = not self._labelled.is_complete(namespace)
        state.begun += 1
        state.is_running = True
        state.can_read = MAX_PODS
        try:
            state.pods = await self._pods_of(namespace, state, is_crowded=is_crowded)
            state.listed = state.begun
        finally:
            state.is_running = False
            ended = self._clock.monotonic()
            pause = _PAUSE_SHARE * (ended - began)
            if state.workloads:
                pause = max(pause, began + _WORKLOADS_INTERVAL - ended)
            elif is_crowded:
                pause = max(pause, _CROWDED_PAUSE)
            state.next_at = ended + pause

    async def _pods_of(self, namespace: str, state: _Namespace, *, is_crowded: bool) -> ActivePods:
        active = await list_pods_that_can_run(self._client, namespace)
        ended: list[PodMeta] = []
        if is_crowded:
            ended = await list_pods(
                self._client, namespace, labels=APPWRAPPER_LABEL, fields=SUCCEEDED
            )
        needs_all_owners = state.needs_all_owners
        resolved = [pod for pod in (*active, *ended) if needs_all_owners or pod.wrapper_label]
        state.lineages = await self._lineages_of(namespace, state, resolved)
        uids = {pod.uid for pod in (*active, *ended)}
        state.read_pods = {uid: read for uid, read in state.read_pods.items() if uid in uids}
        pods = ActivePods(lineages=state.lineages)
        has_succeeded = {pod.uid for pod in ended}
        needs_owners = {pod.uid for pod in resolved}
        for pod in active:
            lineage = _lineage_in(state.lineages, pod)
            if pod.uid not in needs_owners:
                lineage = lineage or NO_OWNER
            if pod.uid not in has_succeeded:
                pods.add(pod, lineage)
        for pod in ended:
            pods.add_succeeded(pod, _lineage_in(state.lineages, pod))
        pods.lost.sort(key=lambda pod: pod.created_at)
        return pods

    async def _lineages_of(
        self, namespace: str, state: _Namespace, pods: Iterable[PodMeta]
    ) -> dict[Owner, Lineage]:
        """Return the owners of ``pods`` by the controller, as far as they may be read for this list.

        Those of the oldest pods are read first: users cannot hide an own pod with others that they create later. What
        remains of the limit is for owners that have ended with other objects, because their owners can change. Without
        Workloads that wait, only pods with the label need that: all others of the namespace would be read forever.
        """
        controllers: dict[Owner, None] = {}
        changeable: set[Owner] = set()
        for pod in sorted(pods, key=lambda pod: pod.creation_timestamp):
            if pod.controller is None:
                continue
            owner = Owner.of(pod.controller)
            controllers[owner] = None
            if state.workloads or pod.wrapper_label:
                changeable.add(owner)
        known = {owner: state.lineages[owner] for owner in controllers if owner in state.lineages}
        unknown = [owner for owner in controllers if owner not in known]
        others = [
            owner
            for owner, lineage in known.items()
            if lineage.end is LineageEnd.OTHER and owner in changeable
        ]
        others.sort(key=lambda owner: known[owner].read_in)
        for controller in [*unknown, *others][:MAX_OWNERS]:
            lineage = await self._lineage_of(controller, namespace, state.begun)
            if lineage is not None:
                known[controller] = lineage
        return known

    async def _lineage_of(self, controller: Owner, namespace: str, read_in: int) -> Lineage | None:
        """Return the owners of a pod with this controller; ``None``: they cannot be read now."""
        owner = controller
        owners: list[Owner] = []
        end = LineageEnd.OTHER
        for _ in range(MAX_DEPTH):
            owners.append(owner)
            answer = await self._owners.read(namespace, owner)
            if answer.state is OwnerState.UNKNOWN:
                return None
            is_wrapper = owner.gvk.same_kind(APPWRAPPER)
            if answer.state is OwnerState.LOST:
                end = LineageEnd.LOST_WRAPPER if is_wrapper else LineageEnd.LOST
                break
            if answer.state is OwnerState.EXISTS and is_wrapper:
                end = LineageEnd.WRAPPER
                break
            if answer.controller is None:
                break
            owner = answer.controller
        return Lineage(end, tuple(owners), read_in)


def _lineage_in(lineages: Mapping[Owner, Lineage], pod: PodMeta) -> Lineage | None:
    """Return the owners of a pod; ``None`` if they are not known yet."""
    controller = pod.controller
    return lineages.get(Owner.of(controller)) if controller is not None else NO_OWNER


def listed_pod(
    namespace: str,
    metadata: PodMeta,
    ancestor: str,
    *,
    has_succeeded: bool = False,
    whole: WrapperPod | None = None,
) -> WrapperPod:
    """Return a pod of a list; ``whole`` is the pod as it was read, maybe for an earlier list.

    If only its metadata is known, it counts as waiting, with a node, unless it has succeeded. ``ancestor`` is the uid
    of the component or AppWrapper from which it descends.
    """
    unread = WrapperPod(
        phase="Pending",
        has_node=True,
        is_read=False,
        created=metadata.creation_timestamp,
        key=NamespacedName(namespace, metadata.name),
        uid=metadata.uid,
    )
    pod = whole or unread
    return replace(
        pod,
        phase="Succeeded" if has_succeeded else pod.phase,
        has_controller=metadata.controller is not None,
        deleting=pod.deleting or metadata.deletion_timestamp is not None,
        forced=pod.forced or metadata.is_forced,
        ancestor=ancestor,
    )
