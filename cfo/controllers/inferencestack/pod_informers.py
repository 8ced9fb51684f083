"""The informers of the pods of stacks.

The pods of most stacks have the name of the original chart in the label ``app.kubernetes.io/name``, so one informer
caches them. ``spec.nameOverride`` replaces that name, and nothing else distinguishes the pods from those of other
charts: for each such name, there is another informer while a stack uses it. Each of them is a watch, so their number is
limited; :data:`MAX_NAMES` and :data:`MAX_NAMES_IN_NAMESPACE` bound what users can cause.
"""

from __future__ import annotations

from collections import Counter as Count
from typing import Final, NamedTuple

import anyio
import structlog

from cfo.api.inferencestack.names import CHART_NAME, COMPONENT_LABEL, INSTANCE_LABEL, NAME_LABEL, names_of
from cfo.controllers.inferencestack.pods import add_index, failure_has_changed, stack_of
from cfo.runtime import GVK, POD, Channel, Event, Informer, Manager, Object, Reader, Request, key_of

__all__ = ["MAX_NAMES", "MAX_NAMES_IN_NAMESPACE", "POD_SELECTOR", "PodInformers"]

MAX_NAMES: Final = 20
"""The maximum number of names other than that of the chart whose pods are cached."""
MAX_NAMES_IN_NAMESPACE: Final = 3
"""How many of them stacks of one namespace can be the first to use."""

_SYNC_TIMEOUT: Final = 2.0
"""Seconds that a reconcile waits for the first list of a new informer; its events cause another reconcile."""

_log = structlog.get_logger("cfo.controllers.inferencestack.pod_informers")


def _selector(name_label: str) -> str:
    return f"{NAME_LABEL}={name_label},{COMPONENT_LABEL},{INSTANCE_LABEL}"


POD_SELECTOR: Final = _selector(CHART_NAME)
"""Selects the pods of stacks without ``nameOverride``."""


class _Watcher(NamedTuple):
    """The stacks of a controller, and the channel through which it gets requests."""

    stacks: Informer
    channel: Channel


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
        self._chart = manager.cache.informer(POD, label_selector=POD_SELECTOR)
        add_index(self._chart)
        self._named: dict[str, _NamedPods] = {}
        self._names: dict[tuple[GVK, Request], str] = {}
        self._watchers: list[_Watcher] = []

    def attach(self, stacks: Informer, channel: Channel) -> None:
        """Enqueue the ``stacks`` with other names through ``channel`` when the failure of a pod changes."""
        self._watchers.append(_Watcher(stacks, channel))

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
                _log.warning("Too many values of nameOverride, failures of pods are not reported", stack=str(user[1]))
                return None
            named = self._named[name] = _NamedPods(self._create(name), user[1].namespace)
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
        informer = self._manager.cache.informer(POD, label_selector=_selector(name))
        add_index(informer)
        informer.add_handler(self._enqueue)
        return informer

    def _enqueue(self, event: Event) -> None:
        pod = event.new or event.old
        if pod is None or not failure_has_changed(event):
            return
        request = stack_of(pod)
        for watcher in self._watchers:
            if watcher.stacks.reader.contains(request):
                watcher.channel.enqueue((request,))
