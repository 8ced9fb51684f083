"""The part of the node lifecycle controller that taints nodes according to their conditions and their cordon.

In a scenario, ``nodes.Nodes`` does this, and also removes the pods of nodes that are not ready.
"""

from __future__ import annotations

from typing import Final

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.controllers.controller import Controller
from envtest.simulation.node_state import desired_taints
from envtest.storage import Change

__all__ = ["NODES", "NodeTaints", "taint_node"]

NODES: Final = GroupResource("", "nodes")


def taint_node(node: Object, now: str, *, evict: bool) -> bool:
    """Set the taints of a node, in place; return whether they changed."""
    spec = node.setdefault("spec", {})
    taints = desired_taints(node, now, evict=evict)
    if taints == (spec.get("taints") or []):
        return False
    if taints:
        spec["taints"] = taints
    else:
        spec.pop("taints", None)
    return True


class NodeTaints(Controller[str]):
    """Reconciles nodes; keys are their names."""

    account = "node-controller"

    def enqueue_all(self) -> None:
        """Enqueue all nodes."""
        for record in self.client.records(NODES):
            self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue a node that changed."""
        if resource == NODES and change.type != "DELETED":
            self.queue.add(change.record.name)

    async def reconcile(self, key: str) -> None:
        """Write the taints of a node unless it has them."""
        now = self.client.now()
        await self.client.modify(NODES, "", key, lambda node: taint_node(node, now, evict=False))
