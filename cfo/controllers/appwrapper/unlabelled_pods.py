"""Reads the active pods of a namespace that have lost the label by which the pods of AppWrappers are cached.

Users can remove the label from a running pod. So before quota is released, these pods are read from the API server, in
pages of metadata, of which only names and controllers are decoded. If the cache has no room for all pods of the
namespace, those with the label are read as well; then also while an AppWrapper of a queue runs, because a user who
fills the cache could otherwise hide pods that its queue has not admitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.pod_lists import PodMeta, list_pods_that_can_run
from cfo.runtime import Client, Clock, NamespacedName, Reader

_PAUSE_SHARE: Final = 9.0
"""After a list, the next one of the namespace waits this multiple of its duration."""
_CROWDED_PAUSE: Final = 30.0
"""The least seconds between two lists of a namespace with more pods than the cache has room for."""
_RUNNING_SECONDS: Final = 0.1
"""How long to wait at least for a list that another reconcile has begun."""
_MAX_IDLE_NAMESPACES: Final = 256


class _Question(msgspec.Struct, frozen=True):
    """``uid``: which AppWrapper asked; ``asked_at``: the number of the last list that began before."""

    uid: str
    asked_at: int


class _Namespace(msgspec.Struct):
    """The lists of one namespace.

    ``begun`` and ``listed`` are the numbers of the last list that began, and that ended with ``pods``. ``next_at`` is
    when the next one may begin. ``waiting`` has the questions by the names of the AppWrappers.
    """

    begun: int = 0
    listed: int = 0
    is_running: bool = False
    next_at: float = 0.0
    pods: list[PodMeta] = []
    waiting: dict[str, _Question] = {}


class UnlabelledPods:
    """Lists active pods that ``labelled``, the cached pods, lacks.

    All AppWrappers of a namespace that wait at the same time share one list. Users can let many AppWrappers end in a
    namespace with many pods, so its lists take at most a tenth of the time.
    """

    def __init__(self, client: Client, clock: Clock, labelled: Reader) -> None:
        self._client = client
        self._labelled = labelled
        self._clock = clock
        self._namespaces: dict[str, _Namespace] = {}

    async def read(self, wrapper: NamespacedName, uid: str) -> list[PodMeta] | None:
        """Return the pods of a list that began after ``wrapper`` asked first; ``None``: ask again later.

        An AppWrapper with the same name and another ``uid`` has not asked yet. Raises the errors of API requests.
        """
        state = self._namespaces.setdefault(wrapper.namespace, _Namespace())
        question = state.waiting.get(wrapper.name)
        if question is None or question.uid != uid:
            question = _Question(uid, state.begun)
            state.waiting[wrapper.name] = question
        if state.listed <= question.asked_at:
            if state.is_running or self._clock.monotonic() < state.next_at:
                return None
            await self._list(wrapper.namespace, state)
        pods = state.pods
        self.forget(wrapper)
        return pods

    def retry_after(self, namespace: str) -> float:
        """Return the seconds after which to ask again."""
        state = self._namespaces.get(namespace)
        next_at = state.next_at if state is not None else 0.0
        return max(next_at - self._clock.monotonic(), _RUNNING_SECONDS)

    def forget(self, wrapper: NamespacedName) -> None:
        """Forget that ``wrapper`` asked; the pods are dropped when no AppWrapper of its namespace waits."""
        state = self._namespaces.get(wrapper.namespace)
        if state is None:
            return
        state.waiting.pop(wrapper.name, None)
        if state.waiting:
            return
        state.pods = []
        if len(self._namespaces) > _MAX_IDLE_NAMESPACES:
            self._forget_idle()

    def _forget_idle(self) -> None:
        now = self._clock.monotonic()
        self._namespaces = {
            name: state
            for name, state in self._namespaces.items()
            if state.waiting or state.is_running or now < state.next_at
        }

    async def _list(self, namespace: str, state: _Namespace) -> None:
        began = self._clock.monotonic()
        pause = 0.0
        state.begun += 1
        state.is_running = True
        try:
            selector = f"!{APPWRAPPER_LABEL}"
            if not self._labelled.is_complete(namespace):
                selector = ""
                pause = _CROWDED_PAUSE
            state.pods = await list_pods_that_can_run(self._client, namespace, labels=selector)
            state.listed = state.begun
        finally:
            state.is_running = False
            ended = self._clock.monotonic()
            state.next_at = ended + max(_PAUSE_SHARE * (ended - began), pause)


def descendants(
    pods: Iterable[PodMeta], namespace: str, ancestors: Mapping[str, str]
) -> list[WrapperPod]:
    """Return those of ``pods`` that are, or whose controller is, in ``ancestors``.

    ``ancestors`` maps the uids of pods and controllers to that of the component or AppWrapper from which they descend.
    """
    found = []
    for pod in pods:
        controller = pod.controller
        owner = controller.uid if controller is not None else ""
        ancestor = ancestors.get(pod.uid) or ancestors.get(owner, "")
        if ancestor:
            found.append(active_pod(namespace, pod, ancestor))
    return found


def active_pod(namespace: str, metadata: PodMeta, ancestor: str) -> WrapperPod:
    """Return a pod that counts as waiting, with a node: its metadata has neither its phase nor its node.

    ``ancestor`` is the uid of the component or AppWrapper from which it descends.
    """
    return WrapperPod(
        phase="Pending",
        has_node=True,
        has_controller=metadata.controller is not None,
        is_cached=False,
        created=metadata.creation_timestamp,
        deleting=metadata.deletion_timestamp is not None,
        forced=metadata.is_forced,
        key=NamespacedName(namespace, metadata.name),
        uid=metadata.uid,
        ancestor=ancestor,
    )
