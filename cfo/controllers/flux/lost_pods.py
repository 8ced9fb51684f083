"""Reads the pods that have left the cache while they held quota, because the label that selects them can be removed.

A watch reports both as a deletion. Kubelets report the end of a pod before they delete it, so few pods are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cfo.api.flux.names import FIELD_MANAGER
from cfo.controllers.flux.queue.ledger import Ledger
from cfo.runtime import POD, READ, Builder, Channel, Client, Manager, Request, Result, Rule

_MIN_PAUSE: Final = 30.0
"""The least seconds between two reads of a lost pod."""
_SECONDS_FOR_EACH: Final = 1.0
"""How much later each lost pod of a namespace lets the others be read again: at most one is read in a second."""


@dataclass(frozen=True, eq=False)
class LostPodReconciler:
    """Reads a lost pod until it has ended or is deleted, and enqueues the FluxSetups of whose quota it held a part."""

    rules = (Rule("", "pods", READ),)

    client: Client
    ledger: Ledger
    setups: Channel

    async def reconcile(self, request: Request) -> Result:
        """Read one pod."""
        uid = self.ledger.uid_of_lost(request)
        if not uid:
            return Result()
        pod = await self.client.get(POD, request, live=True)
        self.setups.enqueue(self.ledger.settle_pod(request, uid, pod))
        if not self.ledger.uid_of_lost(request):
            return Result()
        number = self.ledger.count_lost(request.namespace)
        return Result(requeue_after=max(_MIN_PAUSE, number * _SECONDS_FOR_EACH))


def setup(manager: Manager, ledger: Ledger, lost: Channel, setups: Channel) -> None:
    """Add the controller to ``manager``; ``lost`` has the pods to read, ``setups`` gets FluxSetups."""
    client = manager.client.with_field_manager(FIELD_MANAGER)
    reconciler = LostPodReconciler(client, ledger, setups)
    Builder(manager, "flux-lost-pod").watches_source(lost).complete(reconciler)
