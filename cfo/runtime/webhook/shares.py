"""Divides what the reviews in flight may take together among client addresses and namespaces.

The attack: the reviews of a tenant wait for the API server, and take all places of a webhook. A limit for each
namespace is no defence: a tenant with two namespaces has twice as much. And any pod that reaches the port can name the
namespace of another tenant.

An address may take as much as is still free. If ``n`` addresses want more than there is, each has one of ``n + 1``
equal shares, and the last share is free for another one. A namespace may take as much as its address may still take, so
the namespaces that one address names divide the share of the address in the same way. API servers have few addresses,
and a pod has another one.

What was taken is not taken back: if the shares become smaller, no more is given to a share until some of its reviews
have ended. This rule is known from the buffers of switches: A. K. Choudhury and E. L. Hahne, "Dynamic queue length
thresholds for shared-memory packet switches", 1998.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from cfo.runtime.webhook.worker import TooManyReviews

_Key = TypeVar("_Key", bound=Hashable)


class Shares:
    """A capacity that reviews share; ``name`` describes it in messages. Used by one event loop."""

    def __init__(self, capacity: int, name: str) -> None:
        self._name = name
        self._capacity = capacity
        self.free = capacity
        """What no review has taken."""
        self._of_address: Counter[str] = Counter()
        self._of_namespace: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def of_address(self, address: str, amount: int = 1) -> Iterator[None]:
        """Take ``amount`` for a review from ``address``. Raises :class:`TooManyReviews` if that exceeds its share."""
        taken = self._of_address[address]
        if amount > self.free:
            raise TooManyReviews(f"{self._capacity} {self._name}")
        if not _has_room(taken, amount, self.free):
            raise TooManyReviews(f"{taken} {self._name} of one client, while others need the rest")
        self.free -= amount
        try:
            with _counted(self._of_address, address, amount):
                yield
        finally:
            self.free += amount

    @contextmanager
    def of_namespace(self, address: str, namespace: str, amount: int = 1) -> Iterator[None]:
        """Count a review for a namespace that has taken ``amount`` of its address.

        Raises :class:`TooManyReviews` if that exceeds the share of the namespace.
        """
        key = (address, namespace)
        taken = self._of_namespace[key]
        free_before = self.free + amount
        taken_before = self._of_address[address] - amount
        if not _has_room(taken, amount, free_before - taken_before):
            raise TooManyReviews(
                f"{taken} {self._name} of one namespace, while others need the rest"
            )
        with _counted(self._of_namespace, key, amount):
            yield


@contextmanager
def _counted(counts: Counter[_Key], key: _Key, amount: int) -> Iterator[None]:
    """Count ``amount`` for ``key``; keys without any are removed, because clients name any namespaces."""
    counts[key] += amount
    try:
        yield
    finally:
        counts[key] -= amount
        if not counts[key]:
            del counts[key]


def _has_room(taken: int, amount: int, free: int) -> bool:
    """Return whether a share that has ``taken`` may take more, where ``free`` is not taken: at most as much as is free.

    One without anything can always take the first amount.
    """
    return taken == 0 or taken + amount <= free
