"""Which requests the controllers of this replica may reconcile, and the end of the running ones of a shard.

A shard is *active* while its requests are accepted. When it has to be given away it is *draining*: no request is
started, and once the running ones of all controllers have finished, the shard is idle. All of this is synchronous.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import anyio

from cfo.runtime.client.write_gate import WriteGate
from cfo.runtime.controller.reconcile import Request
from cfo.runtime.sharding.ranges import Partition

__all__ = ["ShardedRequests"]


class ShardedRequests:
    """Admits the requests of all sharded controllers of a manager.

    ``gate`` returns the write gate of a shard, ``may_work_on`` whether this replica owns it at this moment, and
    ``on_idle`` is called when a draining shard has no running request.
    """

    def __init__(
        self,
        nothing: Partition,
        *,
        gate: Callable[[int], WriteGate],
        may_work_on: Callable[[int], bool],
        on_idle: Callable[[int], None],
    ) -> None:
        self._partition = nothing
        self._gates = [gate(shard) for shard in range(nothing.shards)]
        self._may_work_on = may_work_on
        self._on_idle = on_idle
        self._running: Counter[int] = Counter()
        self._scopes: defaultdict[int, set[anyio.CancelScope]] = defaultdict(set)
        self.is_cached = True
        """Whether the cache holds all objects of the active shards."""
        self.draining: frozenset[int] = frozenset()
        """The shards that are idle once their running requests have finished."""

    @property
    def active(self) -> frozenset[int]:
        """The shards whose requests are accepted."""
        return self._partition.owned

    @property
    def running(self) -> int:
        """The number of requests that are being reconciled."""
        return self._running.total()

    def accepts(self, request: Request) -> bool:
        """Return whether to enqueue ``request``."""
        return self._partition.covers(request.namespace, request.name)

    def begin(self, request: Request) -> WriteGate | None:
        """Return the write gate for the reconcile of ``request``; ``None`` if it must not be reconciled here.

        The caller calls :meth:`end` afterwards.
        """
        shard = self._partition.shard_of(request.namespace, request.name)
        if shard not in self._partition.owned or not self._may_work_on(shard):
            return None
        self._running[shard] += 1
        return self._gates[shard]

    def end(self, request: Request) -> None:
        """Take note of the end of the reconcile of ``request``."""
        shard = self._partition.shard_of(request.namespace, request.name)
        self._running[shard] -= 1
        if shard in self.draining:
            self._end_if_idle(shard)

    @contextmanager
    def cancellable(self, request: Request) -> Iterator[None]:
        """Let :meth:`cancel` cancel the reconcile of ``request``, which runs in the block."""
        scopes = self._scopes[self._partition.shard_of(request.namespace, request.name)]
        with anyio.CancelScope() as scope:
            scopes.add(scope)
            try:
                yield
            finally:
                scopes.discard(scope)

    def cancel(self, shards: Iterable[int]) -> None:
        """Cancel the running reconciles of draining ``shards``."""
        for shard in self.draining.intersection(shards):
            for scope in tuple(self._scopes[shard]):
                scope.cancel()

    def activate(self, shards: Iterable[int]) -> None:
        """Accept requests of ``shards``."""
        self._accept(self.active.union(shards))
        self.draining = self.draining.difference(shards)

    def drain(self, shards: Iterable[int]) -> None:
        """Accept no more requests of ``shards``; ``on_idle`` is called for each, at once if nothing is running."""
        ending = frozenset(shards)
        self._accept(self.active - ending)
        self.draining |= ending
        for shard in sorted(ending):
            self._end_if_idle(shard)

    def _accept(self, shards: frozenset[int]) -> None:
        self._partition = Partition(self._partition.shards, shards, self._partition.key_hash)

    def _end_if_idle(self, shard: int) -> None:
        if not self._running[shard]:
            self.draining -= {shard}
            self._on_idle(shard)
