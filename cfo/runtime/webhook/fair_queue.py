"""The reviews that wait for the thread of :mod:`.worker`, in an order in which no namespace waits for all of another.

The attack: a tenant's small reviews, followed by further ones without end, came before each larger review that other
tenants sent. So client addresses share the thread equally, in bytes of work. Each address divides its share among its
namespaces, because a pod can name any number. Within one namespace, the smallest review is next.

Each share counts the work that was done for it. The next review is that with which the count of its share becomes the
least, so a small one passes larger ones of other shares. A share in which nothing waits is forgotten, and begins again
at the latest count, so it saves nothing up. This is known from packets: S. J. Golestani, "A self-clocked fair queueing
scheme for broadband applications", 1994.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, eq=False)
class WaitingReview:
    """A review of ``weight`` bytes, sent from ``address`` for ``namespace``, which waits for ``turn``."""

    address: str
    namespace: str
    weight: int
    turn: asyncio.Future[None]


class FairQueue:
    """The reviews that wait. Finding the next takes time for each of them, so the caller limits their number."""

    def __init__(self) -> None:
        self._addresses = _Shares(_address_of, lambda: _Shares(_namespace_of, _Smallest))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, review: WaitingReview) -> None:
        """Add a review."""
        self._addresses.add(review)
        self._length += 1

    def discard(self, review: WaitingReview) -> None:
        """Remove a review that does not begin, if it waits."""
        if self._addresses.contains(review):
            self._remove(review)

    def pop(self) -> WaitingReview:
        """Remove the next review, which begins; the queue must not be empty."""
        review = self._addresses.next()
        self._addresses.count(review)
        self._remove(review)
        return review

    def _remove(self, review: WaitingReview) -> None:
        self._addresses.remove(review)
        self._length -= 1


class _Smallest:
    """The reviews of one namespace; the smallest is next, and of equal ones the first."""

    def __init__(self) -> None:
        self._reviews: list[WaitingReview] = []

    @property
    def is_empty(self) -> bool:
        return not self._reviews

    def contains(self, review: WaitingReview) -> bool:
        return review in self._reviews

    def add(self, review: WaitingReview) -> None:
        self._reviews.append(review)

    def remove(self, review: WaitingReview) -> None:
        self._reviews.remove(review)

    def next(self) -> WaitingReview:
        return min(self._reviews, key=_weight_of)

    def count(self, review: WaitingReview) -> None:
        """Count nothing: a namespace does not share its turns."""


class _Shares:
    """Reviews in equal shares, one for each key that ``key_of`` returns; ``build`` returns the queue within a share."""

    def __init__(self, key_of: Callable[[WaitingReview], str], build: Callable[[], _Part]) -> None:
        self._key_of = key_of
        self._build = build
        self._parts: dict[str, _Part] = {}
        self._counts: dict[str, int] = {}
        """The work that was done for each share in which something waits."""
        self._latest = 0
        """The count of the share whose review began last."""

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def contains(self, review: WaitingReview) -> bool:
        part = self._parts.get(self._key_of(review))
        return part is not None and part.contains(review)

    def add(self, review: WaitingReview) -> None:
        key = self._key_of(review)
        if key not in self._parts:
            self._parts[key] = self._build()
            self._counts[key] = self._latest
        self._parts[key].add(review)

    def remove(self, review: WaitingReview) -> None:
        key = self._key_of(review)
        part = self._parts[key]
        part.remove(review)
        if part.is_empty:
            del self._parts[key]
            del self._counts[key]

    def next(self) -> WaitingReview:
        return min((part.next() for part in self._parts.values()), key=self._count_with)

    def count(self, review: WaitingReview) -> None:
        """Count the work of a review that begins."""
        key = self._key_of(review)
        counted = self._count_with(review)
        self._counts[key] = counted
        self._latest = max(self._latest, counted)
        self._parts[key].count(review)

    def _count_with(self, review: WaitingReview) -> int:
        return self._counts[self._key_of(review)] + review.weight


_Part: TypeAlias = _Shares | _Smallest


def _address_of(review: WaitingReview) -> str:
    return review.address


def _namespace_of(review: WaitingReview) -> str:
    return review.namespace


def _weight_of(review: WaitingReview) -> int:
    return review.weight
