"""The bytes that the informers of a process hold for each namespace, and how many they may hold.

Limits of the size and the number of objects do not limit memory: 350 objects of 1.3 MB are few, and not one of them is
too large. So all informers of a cache share one budget for each namespace. A user who fills it affects only objects of
the same namespace.

Cluster-scoped objects have no namespace and are not limited, because administrators create them. Those that pods create
count in the namespace of their creator (:attr:`.Selection.budget_of`).
"""

from __future__ import annotations

from typing import Final

import anyio

NAMESPACE_BYTES: Final = 64 << 20
"""The default budget of a namespace: more than 10,000 objects of 5 kB."""

_IDENTITY_SHARE: Final = 8
"""Which part of the budget the identities of left-out objects may use in addition."""

_MAX_REPORTED: Final = 1000
"""How many namespaces are remembered as reported."""


class ByteBudget:
    """Counts the bytes that stores and lists hold, by namespace.

    ``max_bytes`` is the budget of one namespace. A list with large pages holds ``large_lists``, so that only one at a
    time has them in memory.
    """

    def __init__(self, max_bytes: int = NAMESPACE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.large_lists = anyio.Lock()
        self._held: dict[str, int] = {}
        self._reported: dict[str, None] = {}

    def held(self, namespace: str) -> int:
        """Return how many bytes are held for a namespace."""
        return self._held.get(namespace, 0)

    def allows(self, namespace: str, growth: int, *, identity: bool = False) -> bool:
        """Return whether ``growth`` more bytes may be held for a namespace.

        ``identity``: for the identity of an object that is left out, for which a namespace has an eighth more.
        """
        if growth <= 0 or not namespace:
            return True
        maximum = self.max_bytes
        if identity:
            maximum += self.max_bytes // _IDENTITY_SHARE
        return self._held.get(namespace, 0) + growth <= maximum

    def charge(self, namespace: str, growth: int) -> None:
        """Count ``growth`` more bytes, or fewer if it is negative."""
        if not growth or not namespace:
            return
        held = self._held.get(namespace, 0) + growth
        if held:
            self._held[namespace] = held
        else:
            del self._held[namespace]

    def is_first_report(self, namespace: str) -> bool:
        """Return whether no earlier call had this namespace, of which the last 1,000 are remembered."""
        if namespace in self._reported:
            return False
        if len(self._reported) >= _MAX_REPORTED:
            oldest = next(iter(self._reported))
            del self._reported[oldest]
        self._reported[namespace] = None
        return True
