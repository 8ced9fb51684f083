"""Chooses which running jobs are evicted for a waiting job of higher priority."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from cfo.controllers.flux.queue.capacity import Amounts, Capacity, add, fits, subtract
from cfo.controllers.flux.queue.model import FOREVER, Holding, Policy, WaitingJob
from cfo.runtime import NamespacedName

__all__ = ["MAX_PREEMPTORS", "Victims"]

MAX_PREEMPTORS: Final = 16
"""The number of jobs for which one decision evicts others; the evictions cause the next decision."""


class Victims:
    """The jobs that may be evicted, each at most once: lowest priority first, among equals the newest first."""

    def __init__(self, policy: Policy, capacity: Capacity, usage: Iterable[Holding]) -> None:
        self._capacity = capacity
        self._by_namespace = policy.shares_by_namespace
        self._preemptors = 0
        self._groups: dict[str, _Group] = {}
        if not policy.preempts:
            return
        grouped: dict[str, list[Holding]] = {}
        for holding in usage:
            if holding.preemptible and not holding.releasing:
                grouped.setdefault(self._group_of(holding.key), []).append(holding)
        self._groups = {name: _Group(capacity, holdings) for name, holdings in grouped.items()}

    def choose(self, job: WaitingJob, amounts: Amounts) -> list[NamespacedName]:
        """Return the fewest jobs whose eviction makes room for ``job``, which takes ``amounts``; none if impossible.

        The amounts of the chosen jobs are added to the future capacity.
        """
        group = self._groups.get(self._group_of(job.key))
        if group is None or job.priority <= group.lowest or self._preemptors >= MAX_PREEMPTORS:
            return []
        available = self._capacity.future
        if not fits(amounts, add(available, group.releasable(job.priority))):
            return []
        missing = tuple(amount and amount - limit for amount, limit in zip(amounts, available, strict=True))
        chosen = group.choose(job.priority, missing)
        for holding in chosen:
            self._capacity.release(self._capacity.amounts(holding.demand))
        self._preemptors += 1
        return [holding.key for holding in chosen]

    def _group_of(self, key: NamespacedName) -> str:
        return key.namespace if self._by_namespace else ""


class _Group:
    def __init__(self, capacity: Capacity, holdings: Iterable[Holding]) -> None:
        self._capacity = capacity
        self._set(sorted(holdings, key=_rank, reverse=True))

    def _set(self, holdings: list[Holding]) -> None:
        self._holdings = holdings
        self._priorities = [holding.priority for holding in holdings]
        nothing = (0,) * len(self._capacity.total)
        amounts = (self._capacity.amounts(holding.demand) for holding in holdings)
        self._sums = list(accumulate(amounts, add, initial=nothing))

    @property
    def lowest(self) -> float:
        """The lowest priority."""
        return self._priorities[0] if self._priorities else FOREVER

    def releasable(self, priority: int) -> Amounts:
        """Return what all holdings of lower priority hold."""
        return self._sums[bisect_left(self._priorities, priority)]

    def choose(self, priority: int, missing: Amounts) -> list[Holding]:
        """Remove and return holdings of lower priority that hold what is ``missing``; all of them are needed."""
        count = bisect_left(self._priorities, priority)
        needed = next(number for number in range(count + 1) if _covers(missing, self._sums[number]))
        chosen, held = [], self._sums[needed]
        for holding in reversed(self._holdings[:needed]):
            without = subtract(held, self._capacity.amounts(holding.demand))
            if _covers(missing, without):
                held = without
            else:
                chosen.append(holding)
        chosen_keys = {holding.key for holding in chosen}
        self._set([holding for holding in self._holdings if holding.key not in chosen_keys])
        return chosen[::-1]


def _covers(missing: Amounts, amounts: Amounts) -> bool:
    """Return whether ``amounts`` cover everything that is missing; what is negative is not missing."""
    return all(needed <= amount or needed <= 0 for needed, amount in zip(missing, amounts, strict=True))


def _rank(holding: Holding) -> tuple[object, ...]:
    """Return the place in the queue that the job had, as :attr:`.WaitingJob.rank`."""
    return -holding.priority, holding.created, holding.key
