"""Decides which waiting jobs to admit: a pure function of the quota, the waiting jobs and what holds quota."""

from __future__ import annotations

from collections.abc import Collection

from cfo.api.flux import QueueingStrategy
from cfo.controllers.flux.queue.capacity import Amounts, Capacity, Reservation, add
from cfo.controllers.flux.queue.model import Blocked, Decision, Holding, Policy, WaitingJob
from cfo.controllers.flux.queue.order import by_rank, by_share
from cfo.controllers.flux.queue.preemption import Victims
from cfo.runtime import NamespacedName

__all__ = ["decide"]


def decide(policy: Policy, jobs: Collection[WaitingJob], usage: Collection[Holding], now: float) -> Decision:
    """Decide which of ``jobs`` to admit, and which holders of quota to evict for them.

    ``usage`` is everything that holds quota of ``policy``, including jobs whose admission was decided but is not
    visible yet; a job must not be in both collections. ``now`` is in seconds since the epoch.

    An admission never exceeds the quota. Deciding again after a decision was carried out admits and evicts nothing
    more, unless shares and preemption are combined: there an admission changes the order of the queue. A job that
    exceeds the quota as a whole does not block others. Costs O(n log n) for n jobs.
    """
    return _Queue(policy, usage, now).decide(jobs)


class _Queue:
    def __init__(self, policy: Policy, usage: Collection[Holding], now: float) -> None:
        self._policy = policy
        self._usage = usage
        self._now = now
        self._capacity = Capacity(policy, usage)
        self._victims = Victims(policy, self._capacity, usage)
        self._reservation: Reservation | None = None
        self._closed = False
        self._used: dict[str, Amounts] = {}
        self._shares: dict[str, float] = {}
        self._running = {
            holding.key: (holding.end, self._capacity.amounts(holding.demand))
            for holding in usage
            if not holding.releasing
        }
        self._admit: list[NamespacedName] = []
        self._preempt: list[NamespacedName] = []
        self._blocked: dict[NamespacedName, Blocked] = {}
        self._known: dict[Amounts, Blocked] = {}
        """Amounts that do not fit. Capacity only shrinks during a decision, unless a job is evicted."""

    def decide(self, jobs: Collection[WaitingJob]) -> Decision:
        for holding in self._usage:
            self._count(holding.key.namespace, self._capacity.amounts(holding.demand))
        order = by_share(jobs, self._shares) if self._policy.shares_by_namespace else by_rank(jobs)
        for job in order:
            amounts = self._capacity.amounts(job.demand)
            reason = self._blocking(job, amounts)
            if reason is None:
                self._take(job, amounts)
            else:
                self._blocked[job.key] = reason
        return Decision(tuple(self._admit), tuple(self._preempt), self._blocked)

    def _blocking(self, job: WaitingJob, amounts: Amounts) -> Blocked | None:
        """Return why the job must wait, or ``None`` if it can be admitted."""
        known = self._known.get(amounts)
        if known is None and self._capacity.is_too_large(amounts):
            known = self._known[amounts] = Blocked.TOO_LARGE
        if known is Blocked.TOO_LARGE:
            return known
        if self._closed:
            return Blocked.BEHIND
        fits = known is None and self._capacity.has(amounts)
        if not fits:
            self._known[amounts] = Blocked.QUOTA
        if self._reservation is not None:
            may_pass = fits and self._reservation.permits(amounts, self._now + job.duration)
            return None if may_pass else Blocked.BEHIND
        if fits:
            return None
        if known is not None and not self._policy.preempts:
            return known
        return self._wait(job, amounts)

    def _wait(self, job: WaitingJob, amounts: Amounts) -> Blocked:
        """Let ``job``, the first that does not fit, wait: evict others for it, or limit which jobs may pass it."""
        strategy = self._policy.strategy
        self._closed = strategy is QueueingStrategy.STRICT_FIFO
        if self._policy.preempts:
            if not self._capacity.will_have(amounts):
                for victim in self._victims.choose(job, amounts):
                    self._preempt.append(victim)
                    del self._running[victim]
                    self._known.clear()  # there is more capacity
            if self._capacity.will_have(amounts):
                self._capacity.keep(amounts)
                self._count(job.key.namespace, amounts)
                return Blocked.RELEASING
        if strategy is QueueingStrategy.BACKFILL:
            self._reservation = Reservation(self._capacity, amounts, self._running.values(), self._now)
        return Blocked.QUOTA

    def _take(self, job: WaitingJob, amounts: Amounts) -> None:
        end = self._now + job.duration
        self._capacity.take(amounts)
        if self._reservation is not None:
            self._reservation.take(amounts, end)
        self._running[job.key] = end, amounts
        self._count(job.key.namespace, amounts)
        self._admit.append(job.key)

    def _count(self, namespace: str, amounts: Amounts) -> None:
        if self._policy.shares_by_namespace:
            used = self._used.get(namespace)
            self._used[namespace] = used = amounts if used is None else add(used, amounts)
            self._shares[namespace] = self._capacity.share(used) / max(self._policy.weights.get(namespace, 1), 1)
