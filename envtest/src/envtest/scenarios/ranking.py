"""The nodes for pods with the same requirements, the best first, without trying every node for every pod."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace

from envtest.scenarios.fit import Demand, NodeInfo, Usage, refusal_of, score

__all__ = ["Ranking"]

_Rank = tuple[tuple[int, float, int, str], int, NodeInfo]


class Ranking:
    """Ranks ``nodes`` for ``demand``. It is valid while the nodes stay the same and their usage only grows.

    The rank of a node only becomes worse as its usage grows, so that only the best one needs to be checked again.
    """

    def __init__(self, demand: Demand, nodes: Mapping[str, NodeInfo], usage: Mapping[str, Usage]) -> None:
        self._demand = demand
        self._usage = usage
        ranks = (self._rank(node) for node in nodes.values())
        self._heap = [rank for rank in ranks if rank is not None]
        heapify(self._heap)

    def _rank(self, node: NodeInfo) -> _Rank | None:
        usage = self._usage.get(node.name) or Usage()
        if refusal_of(self._demand, node, usage) is not None:
            return None
        return score(self._demand, node, usage), usage.version, node

    def best(self) -> NodeInfo | None:
        """Return the best node; ``None`` if a pod fits on none."""
        while self._heap:
            _, version, node = self._heap[0]
            usage = self._usage.get(node.name)
            if version == (usage.version if usage is not None else 0):
                return node
            rank = self._rank(node)
            if rank is None:
                heappop(self._heap)
            else:
                heapreplace(self._heap, rank)
        return None
