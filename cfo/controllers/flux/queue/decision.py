"""Decides which waiting jobs to admit, in which order, and which running jobs to evict for them: pure functions.

That depends on what is free now, what is being released, and when a job that does not fit can start.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Final

from cfo.api.flux.names import QueueingStrategy
from cfo.controllers.flux.queue.model import (
    FOREVER,
    Blocked,
    Demand,
    Holding,
    Policy,
    QueueDecision,
    WaitingJob,
)
from cfo.runtime import NamespacedName

MAX_PREEMPTORS: Final = 16
"""The number of jobs for which one decision evicts others; the evictions cause the next decision."""

Amounts = tuple[int, ...]
"""Pods, jobs, and the resources of the policy in the order of their names."""

_Order = Callable[[Iterable[WaitingJob]], Iterator[WaitingJob]]

_NONE: Final[Mapping[str, float]] = {}

_UNLIMITED: Final = 1 << 62


class Capacity:
    """What is left of the quota of ``policy``; amounts are negative if more is used than the quota allows.

    ``future`` is available when all holdings that are being released no longer exist, minus what is kept for jobs that
    wait for it. A job must fit in that and in what is free now (``available``), so that it takes nothing that is kept
    for another job.
    """

    def __init__(self, policy: Policy, usage: Iterable[Holding]) -> None:
        self._resources = tuple(sorted(policy.resources))
        self._amounts_of_pods: dict[int, Amounts] = {}
        jobs = _UNLIMITED if policy.jobs is None else policy.jobs
        limits = [policy.resources[name] for name in self._resources]
        self.total: Amounts = (policy.pods, jobs, *limits)
        used: Amounts = (0,) * len(self.total)
        released = used
        for holding in usage:
            amounts = self.amounts(holding.demand)
            used = add(used, amounts)
            if holding.releasing:
                released = add(released, amounts)
        self._free = subtract(self.total, used)
        self.future = add(self._free, released)
        self.available: Amounts = ()
        self._update()

    def amounts(self, demand: Demand) -> Amounts:
        """Return what one job with this demand takes."""
        if self._resources:
            requested = (demand.resources.get(name, 0) for name in self._resources)
            return (demand.pods, 1, *requested)
        amounts = self._amounts_of_pods.get(demand.pods)
        if amounts is None:
            amounts = (demand.pods, 1)
            self._amounts_of_pods[demand.pods] = amounts
        return amounts

    def is_too_large(self, amounts: Amounts) -> bool:
        """Return whether the amounts exceed the quota as a whole."""
        return not fits(amounts, self.total)

    def has(self, amounts: Amounts) -> bool:
        """Return whether the amounts are available now, and not kept for another job."""
        return fits(amounts, self.available)

    def will_have(self, amounts: Amounts) -> bool:
        """Return whether the amounts will be available without another eviction, and are not kept for another job."""
        return fits(amounts, self.future)

    def take(self, amounts: Amounts) -> None:
        """Give the amounts to a job that starts now."""
        self._free = subtract(self._free, amounts)
        self.keep(amounts)

    def keep(self, amounts: Amounts) -> None:
        """Keep the amounts, which will be released, for a job that starts then."""
        self.future = subtract(self.future, amounts)
        self._update()

    def release(self, amounts: Amounts) -> None:
        """Count on the amounts of a holding that is going to be evicted."""
        self.future = add(self.future, amounts)
        self._update()

    def _update(self) -> None:
        self.available = tuple(map(min, self._free, self.future))

    def share(self, amounts: Amounts) -> float:
        """Return the share of the quota: the largest of the shares of pods and resources."""
        measured = zip(amounts, self.total, strict=True)
        return max(_share(amount, total) for amount, total in measured if total < _UNLIMITED)


def _share(amount: int, total: int) -> float:
    """Return ``amount`` as a share of ``total``; anything is a share of 1 if the total is not positive."""
    if total > 0:
        return amount / total
    return 1.0 if amount > 0 else 0.0


class Reservation:
    """The start time that Backfill gives to the first job that does not fit, and what other jobs may still take.

    ``amounts`` is what the job takes. ``running`` are the ends (seconds since the epoch) and amounts of what holds
    quota and is not being released. If the job would wait for something without a deadline, nothing may pass it.
    """

    def __init__(
        self,
        capacity: Capacity,
        amounts: Amounts,
        running: Iterable[tuple[float, Amounts]],
        now: float,
    ) -> None:
        available = capacity.future
        self.start = now
        for end, released in sorted(running):
            if fits(amounts, available):
                break
            available = add(available, released)
            self.start = max(end, now)
        self._is_possible = fits(amounts, available) and self.start < FOREVER
        self._spare = subtract(available, amounts)

    def permits(self, amounts: Amounts, end: float) -> bool:
        """Return whether a job that starts now and ends at ``end`` does not delay the start of the first job."""
        return self._is_possible and (end <= self.start or fits(amounts, self._spare))

    def take(self, amounts: Amounts, end: float) -> None:
        """Record that a job was admitted that holds ``amounts`` until ``end``."""
        if end > self.start:
            self._spare = subtract(self._spare, amounts)


def add(one: Sequence[int], other: Sequence[int]) -> Amounts:
    """Return the sums."""
    return tuple(map(int.__add__, one, other))


def subtract(one: Sequence[int], other: Sequence[int]) -> Amounts:
    """Return the differences."""
    return tuple(map(int.__sub__, one, other))


def fits(amounts: Amounts, available: Amounts) -> bool:
    """Return whether each amount is available; nothing fits in what is overused, except amounts of zero."""
    for amount, limit in zip(amounts, available, strict=True):  # noqa: SIM110 - all() takes three times as long
        if amount > limit and amount:
            return False
    return True


def _by_rank(jobs: Iterable[WaitingJob]) -> Iterator[WaitingJob]:
    """Yield jobs by priority, creation time, namespace and name."""
    return iter(sorted(jobs, key=attrgetter("rank")))


def _with_last(
    jobs: Iterable[WaitingJob], last: Mapping[str, float], in_order: _Order
) -> Iterator[WaitingJob]:
    """Yield jobs ``in_order``, and then those of each namespace in ``last``, the one with the lowest value first."""
    usual: list[WaitingJob] = []
    others: dict[str, list[WaitingJob]] = {namespace: [] for namespace in last}
    for job in jobs:
        others.get(job.key.namespace, usual).append(job)
    yield from in_order(usual)
    for namespace in sorted(last, key=lambda name: (last[name], name)):
        yield from in_order(others[namespace])


def _by_share(jobs: Iterable[WaitingJob], shares: Mapping[str, float]) -> Iterator[WaitingJob]:
    """Yield jobs so that the next one is the first job of the namespace with the smallest share.

    ``shares`` are the current shares of the namespaces, 0 if missing. They are read again after each job, so that a job
    that was admitted counts before the next one is chosen. A priority moves a job only within its namespace: otherwise
    a namespace could take the share of others by raising the priorities of its jobs.
    """
    queues: dict[str, Iterator[WaitingJob]] = {}
    heap: list[tuple[float, tuple[object, ...], WaitingJob]] = []

    def push_next(namespace: str) -> None:
        job = next(queues[namespace], None)
        if job is not None:
            heapq.heappush(heap, (shares.get(namespace, 0.0), job.rank, job))

    grouped: dict[str, list[WaitingJob]] = {}
    for job in jobs:
        grouped.setdefault(job.key.namespace, []).append(job)
    for namespace, group in grouped.items():
        queues[namespace] = _by_rank(group)
        push_next(namespace)
    while heap:
        _, _, job = heapq.heappop(heap)
        yield job
        push_next(job.key.namespace)


class _Victims:
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

    def choose(self, job: WaitingJob, amounts: Amounts, available: Amounts) -> list[NamespacedName]:
        """Return the fewest jobs whose eviction makes room for ``job``, which takes ``amounts``; none if impossible.

        ``available`` is what it gets without them. The amounts of the chosen jobs are added to the future capacity.
        """
        group = self._groups.get(self._group_of(job.key))
        if group is None or job.priority <= group.lowest or self._preemptors >= MAX_PREEMPTORS:
            return []
        if not fits(amounts, add(available, group.releasable(job.priority))):
            return []
        chosen = group.choose(job.priority, _missing(amounts, available))
        for holding in chosen:
            self._capacity.release(self._capacity.amounts(holding.demand))
        self._preemptors += 1
        return [holding.key for holding in chosen]

    def _group_of(self, key: NamespacedName) -> str:
        return key.namespace if self._by_namespace else ""


def _missing(amounts: Amounts, available: Amounts) -> Amounts:
    """Return how much of each amount is not available; an amount of zero lacks nothing of what is overused."""
    return tuple(
        amount - limit if amount else 0 for amount, limit in zip(amounts, available, strict=True)
    )


class _Group:
    """The jobs among which one may be evicted for another, with the sums of what they hold."""

    def __init__(self, capacity: Capacity, holdings: Iterable[Holding]) -> None:
        self._capacity = capacity
        self._set(sorted(holdings, key=_holding_rank, reverse=True))

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
        chosen: list[Holding] = []
        held = self._sums[needed]
        for holding in reversed(self._holdings[:needed]):
            without = subtract(held, self._capacity.amounts(holding.demand))
            if _covers(missing, without):
                held = without
            else:
                chosen.append(holding)
        chosen.reverse()
        chosen_keys = {holding.key for holding in chosen}
        self._set([holding for holding in self._holdings if holding.key not in chosen_keys])
        return chosen


def _covers(missing: Amounts, amounts: Amounts) -> bool:
    """Return whether ``amounts`` cover everything that is missing; what is negative is not missing."""
    return all(
        needed <= amount or needed <= 0 for needed, amount in zip(missing, amounts, strict=True)
    )


def _holding_rank(holding: Holding) -> tuple[object, ...]:
    """Return the place in the queue that the job had, as :attr:`.WaitingJob.rank`."""
    return -holding.priority, holding.created, holding.key


def decide(
    policy: Policy,
    jobs: Collection[WaitingJob],
    usage: Collection[Holding],
    now: float,
    last: Mapping[str, float] = _NONE,
    no_evictions: Collection[str] = (),
    impatient: Collection[NamespacedName] = (),
) -> QueueDecision:
    """Decide which of ``jobs`` to admit, and which holders of quota to evict for them.

    ``usage`` is everything that holds quota of ``policy``, including jobs whose admission was decided but is not
    visible yet; a job must not be in both collections. ``now`` is in seconds since the epoch. ``last`` are namespaces
    with jobs that come after all others, the lowest value first; for jobs of ``no_evictions`` none is evicted. The
    ``impatient`` jobs have waited too long for what is being released: others are evicted as if nothing was.

    An admission never exceeds the quota. Deciding again after a decision was carried out admits and evicts nothing
    more, unless shares and preemption are combined: there an admission changes the order of the queue. A job that
    exceeds the quota as a whole does not block others. Costs O(n log n) for n jobs.
    """
    return _Queue(policy, usage, now, last, no_evictions, impatient).decide(jobs)


class _Queue:
    def __init__(
        self,
        policy: Policy,
        usage: Collection[Holding],
        now: float,
        last: Mapping[str, float],
        no_evictions: Collection[str],
        impatient: Collection[NamespacedName],
    ) -> None:
        self._policy = policy
        self._usage = usage
        self._now = now
        self._last = last
        self._no_evictions = no_evictions
        self._impatient = impatient
        self._capacity = Capacity(policy, usage)
        self._victims = _Victims(policy, self._capacity, usage)
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

    def decide(self, jobs: Collection[WaitingJob]) -> QueueDecision:
        for holding in self._usage:
            self._count(holding.key.namespace, self._capacity.amounts(holding.demand))
        for job in self._in_order(jobs):
            amounts = self._capacity.amounts(job.demand)
            reason = self._blocking(job, amounts)
            if reason is None:
                self._take(job, amounts)
            else:
                self._blocked[job.key] = reason
        return QueueDecision(tuple(self._admit), tuple(self._preempt), self._blocked)

    def _in_order(self, jobs: Iterable[WaitingJob]) -> Iterator[WaitingJob]:
        in_order: _Order = _by_rank
        if self._policy.shares_by_namespace:
            in_order = partial(_by_share, shares=self._shares)
        return _with_last(jobs, self._last, in_order) if self._last else in_order(jobs)

    def _blocking(self, job: WaitingJob, amounts: Amounts) -> Blocked | None:
        """Return why the job must wait, or ``None`` if it can be admitted."""
        known = self._known.get(amounts)
        if known is None and self._capacity.is_too_large(amounts):
            known = Blocked.TOO_LARGE
            self._known[amounts] = known
        if known is Blocked.TOO_LARGE:
            return known
        if self._closed:
            return Blocked.BEHIND
        fits = known is None and self._capacity.has(amounts)
        if not fits:
            self._known[amounts] = Blocked.QUOTA
        if self._reservation is not None:
            end = self._now + job.duration
            may_pass = fits and self._reservation.permits(amounts, end)
            return None if may_pass else Blocked.BEHIND
        if fits:
            return None
        may_evict = self._policy.preempts and job.key.namespace not in self._no_evictions
        if known is not None and not may_evict:
            return known
        return self._wait(job, amounts, may_evict=may_evict)

    def _wait(self, job: WaitingJob, amounts: Amounts, *, may_evict: bool) -> Blocked:
        """Let ``job``, the first that does not fit, wait: evict others for it, or limit which jobs may pass it."""
        strategy = self._policy.strategy
        self._closed = strategy is QueueingStrategy.STRICT_FIFO
        if may_evict:
            is_impatient = job.key in self._impatient
            if is_impatient or not self._capacity.will_have(amounts):
                available = self._capacity.available if is_impatient else self._capacity.future
                for victim in self._victims.choose(job, amounts, available):
                    self._preempt.append(victim)
                    del self._running[victim]
                    self._known.clear()  # there is more capacity
            if self._capacity.will_have(amounts):
                self._capacity.keep(amounts)
                self._count(job.key.namespace, amounts)
                return Blocked.RELEASING
        if strategy is QueueingStrategy.BACKFILL:
            self._reservation = Reservation(
                self._capacity, amounts, self._running.values(), self._now
            )
        return Blocked.QUOTA

    def _take(self, job: WaitingJob, amounts: Amounts) -> None:
        end = self._now + job.duration
        self._capacity.take(amounts)
        if self._reservation is not None:
            self._reservation.take(amounts, end)
        self._running[job.key] = (end, amounts)
        self._count(job.key.namespace, amounts)
        self._admit.append(job.key)

    def _count(self, namespace: str, amounts: Amounts) -> None:
        """Add the amounts to what the namespace uses, and compute its share again."""
        if not self._policy.shares_by_namespace:
            return
        before = self._used.get(namespace)
        used = amounts if before is None else add(before, amounts)
        self._used[namespace] = used
        weight = max(self._policy.weights.get(namespace, 1), 1)
        self._shares[namespace] = self._capacity.share(used) / weight
