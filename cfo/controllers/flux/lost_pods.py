"""Lists the pods of namespaces in which pods have left the cache while they occupied a node.

The label that selects them can be removed, and a watch reports both as a deletion. One list settles all lost pods of a
namespace, so quota is not held longer because a tenant creates and deletes many pods. Kubelets report the end of a pod
before they delete it, so there are few lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cfo.api.flux.names import FIELD_MANAGER
from cfo.controllers.flux.queue.ledger import Ledger
from cfo.controllers.pod_lists import list_pods
from cfo.runtime import READ, Builder, Channel, Client, Clock, Manager, Request, Result, Rule

_FIRST_PAUSE: Final = 1.0
"""After how many seconds a namespace is listed first: pods that are deleted together are settled together."""
_PAUSE: Final = 5.0
"""The least seconds between two lists of a namespace."""
_PERIOD: Final = 30.0
"""After how many seconds a namespace is listed again while lost pods are active, if no further pod is lost."""
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
        has_lost = self.ledger.has_lost_pods(namespace)
        if has_lost:
            self._next_list.setdefault(namespace, now + _FIRST_PAUSE)
        remaining = self._next_list.get(namespace, now) - now
        if remaining > 0:
            return Result(requeue_after=remaining)
        if not has_lost:
            self._next_list.pop(namespace, None)
            return Result()
        lost = self.ledger.lost_pods(namespace)
        try:
            active = await list_pods(self.client, namespace)
            self.setups.enqueue(self.ledger.settle_lost(namespace, lost, active))
        finally:
            ended = self.clock.monotonic()
            pause = max(_PAUSE, (ended - now) * _PAUSE_SHARE)
            self._next_list[namespace] = ended + pause
        if self.ledger.has_lost_pods(namespace):
            return Result(requeue_after=max(pause, _PERIOD))
        return Result(requeue_after=pause)


def setup(manager: Manager, ledger: Ledger, lost: Channel, setups: Channel) -> None:
    """Add the controller to ``manager``; ``lost`` has the namespaces to list, ``setups`` gets FluxSetups."""
    client = manager.client.with_field_manager(FIELD_MANAGER)
    reconciler = LostPodsReconciler(client, manager.clock, ledger, setups)
    Builder(manager, "flux-lost-pod").watches_source(lost).complete(reconciler)
