"""Lists the pods of namespaces in which pods have left the cache while they held quota.

The label that selects them can be removed, and a watch reports both as a deletion. One list settles all lost pods of a
namespace, so quota is not held longer because a tenant creates and deletes many pods. Kubelets report the end of a pod
before they delete it, so there are few lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cfo.api.flux.names import FIELD_MANAGER
from cfo.controllers.flux.queue.ledger import Ledger, LostPods
from cfo.controllers.pod_lists import RUNNING, list_pods
from cfo.runtime import READ, Builder, Channel, Client, Clock, Manager, Request, Result, Rule

_FIRST_PAUSE: Final = 1.0
"""After how many seconds a namespace is listed first: pods that are deleted together are settled together."""
_SHORT_PAUSE: Final = 5.0
"""The least seconds between two lists of a namespace, the first of which has found no active lost pod."""
_PAUSE: Final = 30.0
"""The least seconds between two lists of a namespace otherwise."""
_PAUSE_SHARE: Final = 9.0
"""After a list, the next one of the namespace waits at least this multiple of its duration."""


@dataclass(frozen=True, eq=False)
class LostPodsReconciler:
    """Settles the lost pods of each namespace, and enqueues the FluxSetups of whose quota they held a part."""

    rules = (Rule("", "pods", READ),)

    client: Client
    clock: Clock
    ledger: Ledger
    setups: Channel
    _next_list: dict[str, float] = field(default_factory=dict, init=False)
    """When a namespace may be listed again, while it has lost pods or was listed a short time ago."""

    async def reconcile(self, request: Request) -> Result:
        """List the pods of one namespace."""
        namespace = request.name
        now = self.clock.monotonic()
        lost = self.ledger.lost_pods(namespace)
        if lost is not None:
            self._next_list.setdefault(namespace, now + _FIRST_PAUSE)
        remaining = self._next_list.get(namespace, now) - now
        if remaining > 0:
            return Result(requeue_after=remaining)
        if lost is None:
            self._next_list.pop(namespace, None)
            return Result()
        pause = _PAUSE
        try:
            if not await self._settle(namespace, lost):
                pause = _SHORT_PAUSE
        finally:
            ended = self.clock.monotonic()
            pause = max(pause, (ended - now) * _PAUSE_SHARE)
            self._next_list[namespace] = ended + pause
        return Result(requeue_after=pause)

    async def _settle(self, namespace: str, lost: LostPods) -> bool:
        """List the pods of a namespace, and return whether some of the ``lost`` ones are active."""
        active = await list_pods(self.client, namespace)
        self.setups.enqueue(self.ledger.settle_lost(namespace, lost, active))
        if self.ledger.needs_running_pods(namespace):
            running = await list_pods(self.client, namespace, fields=RUNNING)
            self.setups.enqueue(self.ledger.settle_running(namespace, lost, running))
        remaining = self.ledger.lost_pods(namespace)
        if remaining is None:
            return False
        return bool(remaining.others.pods) or not lost.uids.keys().isdisjoint(remaining.uids)


def setup(manager: Manager, ledger: Ledger, lost: Channel, setups: Channel) -> None:
    """Add the controller to ``manager``; ``lost`` has the namespaces to list, ``setups`` gets FluxSetups."""
    client = manager.client.with_field_manager(FIELD_MANAGER)
    reconciler = LostPodsReconciler(client, manager.clock, ledger, setups)
    Builder(manager, "flux-lost-pod").watches_source(lost).complete(reconciler)
