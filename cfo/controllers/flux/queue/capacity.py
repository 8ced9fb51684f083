"""Free quota, now and after everything that is being released; and when a job that does not fit can start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cfo.controllers.flux.queue.model import FOREVER, Demand, Holding, Policy

Amounts = tuple[int, ...]
"""Pods, jobs, and the resources of the policy in the order of their names."""

_UNLIMITED: Final = 1 << 62


class Capacity:
    """What is left of the quota of ``policy``; amounts are negative if more is used than the quota allows.

    ``future`` is available when all holdings that are being released no longer exist, minus what is kept for jobs that
    wait for it. A job must fit in that and in what is free now, so that it takes nothing that is kept for another job.
    """

    def __init__(self, policy: Policy, usage: Iterable[Holding]) -> None:
        self._resources = tuple(sorted(policy.resources))
        self._amounts_of_pods: dict[int, Amounts] = {}
        jobs = _UNLIMITED if policy.jobs is None else policy.jobs
        self.total: Amounts = (policy.pods, jobs, *(policy.resources[name] for name in self._resources))
        used = released = (0,) * len(self.total)
        for holding in usage:
            amounts = self.amounts(holding.demand)
            used = add(used, amounts)
            if holding.releasing:
                released = add(released, amounts)
        self._free = subtract(self.total, used)
        self.future = add(self._free, released)
        self._available: Amounts = ()
        self._update()

    def amounts(self, demand: Demand) -> Amounts:
        """Return what one job with this demand takes."""
        if not self._resources:
            return self._amounts_of_pods.get(demand.pods) or self._amounts_of_pods.setdefault(
                demand.pods, (demand.pods, 1)
            )
        return demand.pods, 1, *(demand.resources.get(name, 0) for name in self._resources)

    def is_too_large(self, amounts: Amounts) -> bool:
        """Return whether the amounts exceed the quota as a whole."""
        return not fits(amounts, self.total)

    def has(self, amounts: Amounts) -> bool:
        """Return whether the amounts are available now, and not kept for another job."""
        return fits(amounts, self._available)

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
        self._available = tuple(map(min, self._free, self.future))

    def share(self, amounts: Amounts) -> float:
        """Return the share of the quota: the largest of the shares of pods and resources."""
        measured = zip(amounts, self.total, strict=True)
        return max(
            (amount / total if total > 0 else float(amount > 0)) for amount, total in measured if total < _UNLIMITED
        )


class Reservation:
    """The start time that Backfill gives to the first job that does not fit, and what other jobs may still take.

    ``amounts`` is what the job takes. ``running`` are the ends (seconds since the epoch) and amounts of what holds
    quota and is not being released. If the job would wait for something without a deadline, nothing may pass it.
    """

    def __init__(
        self, capacity: Capacity, amounts: Amounts, running: Iterable[tuple[float, Amounts]], now: float
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
