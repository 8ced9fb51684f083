"""The order of the queue."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

from cfo.controllers.flux.queue.model import WaitingJob

__all__ = ["by_rank", "by_share"]


def by_rank(jobs: Iterable[WaitingJob]) -> Iterator[WaitingJob]:
    """Yield jobs by priority, creation time, namespace and name."""
    return iter(sorted(jobs, key=attrgetter("rank")))


def by_share(jobs: Iterable[WaitingJob], shares: Mapping[str, float]) -> Iterator[WaitingJob]:
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
        queues[namespace] = by_rank(group)
        push_next(namespace)
    while heap:
        _, _, job = heapq.heappop(heap)
        yield job
        push_next(job.key.namespace)
