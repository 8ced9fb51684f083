"""The bytes that the informers of a process hold for each namespace, and how many they may hold.

Limits of the size and the number of objects do not limit memory: 350 objects of 1.3 MB are few, and not one of them is
too large. So all informers of a cache share one budget for each namespace. A user who fills it affects only objects of
the same namespace.

A user can have many namespaces, so there is also a budget for all of them, which they share by a dynamic threshold, as
the ports of a switch share its buffer: the less is free, the less may one namespace hold. If ``free`` bytes would
remain in a budget of ``total``, a namespace may hold ``free * free / total``. Then ``n`` namespaces leave at least
``total / (n + 1)`` free, in any order and however they grow and shrink, so that another one may hold at least
``total / (n + 2) ** 2``. If they could hold as much as is free, each would take half of it, and ten would leave
nothing: objects stay until they are deleted, whereas the buffer of a switch drains.

Cluster-scoped objects have no namespace and are not limited, because administrators create them. Those that pods create
count in the namespace of their creator (:attr:`.Selection.budget_of`).
"""

from __future__ import annotations

from typing import Final

import anyio

from cfo.runtime.process.memory import memory_limit

NAMESPACE_BYTES: Final = 64 << 20
"""The default budget of a namespace: more than 10,000 objects of 5 kB."""

TOTAL_BYTES: Final = 256 << 20
"""The budget of all namespaces together in a process without a memory limit."""

_TOTAL_SHARE: Final = 5
"""Which part of the memory limit the cache holds for all namespaces.

Each byte of the budget takes one of the process, which takes 80 MiB without any. Identities of left-out objects take an
eighth more. So with a limit of 512 MiB the process takes at most 200 MiB, and the rest is for lists that are read, and
objects that are being decoded.
"""

_IDENTITY_SHARE: Final = 8
"""Which part of each budget the identities of left-out objects may use in addition."""

_MAX_REPORTED: Final = 1000
"""How many namespaces are remembered as reported."""


def default_total_bytes() -> int:
    """Return the default budget of all namespaces: a fifth of the memory limit of the container, if it has one."""
    limit = memory_limit()
    if limit is None:
        return TOTAL_BYTES
    return max(1, limit // _TOTAL_SHARE)


class ByteBudget:
    """Counts the bytes that stores and lists hold, by namespace.

    ``max_bytes`` is the budget of one namespace, ``total_bytes`` that of all together. A list with large pages holds
    ``large_lists``, so that only one at a time has them in memory.
    """

    def __init__(self, max_bytes: int = NAMESPACE_BYTES, total_bytes: int = TOTAL_BYTES) -> None:
        self.max_bytes = max_bytes
        self.total_bytes = total_bytes
        self.large_lists = anyio.Lock()
        self._objects = _Account()
        self._identities = _Account()
        self._reported: dict[str, None] = {}

    @property
    def total(self) -> int:
        """How many bytes are held for all namespaces."""
        return self._objects.total + self._identities.total

    def held(self, namespace: str) -> int:
        """Return how many bytes are held for a namespace."""
        return self._objects.held(namespace) + self._identities.held(namespace)

    def allows(self, namespace: str, growth: int) -> bool:
        """Return whether ``growth`` more bytes of objects may be held for a namespace."""
        if growth <= 0 or not namespace:
            return True
        held = self._objects.held(namespace) + growth
        free = self.total_bytes - self._objects.total - growth
        if held > self.max_bytes or free < 0:
            return False
        return held * self.total_bytes <= free * free

    def allows_identity(self, namespace: str, growth: int) -> bool:
        """Return whether ``growth`` more bytes of the identities of left-out objects may be held for a namespace.

        For them, a namespace has an eighth more than for objects, and so have all together. They take nothing of what
        others may hold of objects.
        """
        if growth <= 0 or not namespace:
            return True
        maximum = self.max_bytes + self.max_bytes // _IDENTITY_SHARE
        if self.held(namespace) + growth > maximum:
            return False
        return self._identities.total + growth <= self.total_bytes // _IDENTITY_SHARE

    def charge(self, namespace: str, growth: int) -> None:
        """Count ``growth`` more bytes of objects, or fewer if it is negative."""
        self._objects.charge(namespace, growth)

    def charge_identity(self, namespace: str, growth: int) -> None:
        """Count ``growth`` more bytes of the identities of left-out objects, or fewer if it is negative."""
        self._identities.charge(namespace, growth)

    def limit_of(self, namespace: str, growth: int) -> str:
        """Return which limit ``growth`` more bytes of objects of a namespace exceed, for a message."""
        if self._objects.held(namespace) + growth > self.max_bytes:
            return (
                f"the cached objects of namespace {namespace} have more than "
                f"{self.max_bytes >> 20} MiB together"
            )
        return (
            f"the cached objects of namespace {namespace} have more than its share of the "
            f"{self.total_bytes >> 20} MiB for all namespaces, of which others use most"
        )

    def is_first_report(self, namespace: str) -> bool:
        """Return whether no earlier call had this namespace, of which the last 1,000 are remembered."""
        if namespace in self._reported:
            return False
        if len(self._reported) >= _MAX_REPORTED:
            oldest = next(iter(self._reported))
            del self._reported[oldest]
        self._reported[namespace] = None
        return True


class _Account:
    """The bytes that are held, by namespace and in total; objects without a namespace do not count."""

    def __init__(self) -> None:
        self.total = 0
        self._held: dict[str, int] = {}

    def held(self, namespace: str) -> int:
        return self._held.get(namespace, 0)

    def charge(self, namespace: str, growth: int) -> None:
        if not growth or not namespace:
            return
        self.total += growth
        held = self._held.get(namespace, 0) + growth
        if held:
            self._held[namespace] = held
        else:
            del self._held[namespace]
