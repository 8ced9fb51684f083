"""When to check again whether a name that another owner's object has is free.

Most of these objects are in no cache, because informers select by labels, so their deletion causes no event. A user
often deletes such an object soon after reading that it has the name. So the first checks come soon, and each later one
after as long as the name has been taken already.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from cfo.runtime.objects.unstructured import GVK, NamespacedName
from cfo.runtime.process.clock import Clock, SystemClock

FIRST_NAME_CHECK_SECONDS: Final = 5.0
"""How long to wait before the first check of a name that another owner's object has."""

NAME_CONFLICT_RETRY_SECONDS: Final = 300.0
"""The longest time between two checks of such a name."""

_FORGOTTEN_AFTER_SECONDS: Final = 2 * NAME_CONFLICT_RETRY_SECONDS
"""How long after its last check a name is forgotten: it is free, or its owner was deleted."""


class WantedName(NamedTuple):
    """A name that an owner needs for a child."""

    owner_uid: str
    gvk: GVK
    key: NamespacedName


class NameChecks:
    """Remembers since when names are taken. It remembers at most ``size``; any others get the longest delay."""

    def __init__(self, size: int = 4096, clock: Clock | None = None) -> None:
        self._size = size
        self._clock = clock or SystemClock()
        self._names: OrderedDict[WantedName, tuple[float, float]] = OrderedDict()
        """When each name was first found taken, and when last; the last check that is longest ago is the first."""

    def __len__(self) -> int:
        return len(self._names)

    def is_new(self, name: WantedName) -> bool:
        """Return whether ``name`` was not found taken before; false also if no more names can be remembered."""
        return name not in self._names and len(self._names) < self._size

    def next_delay(self, name: WantedName) -> float:
        """Record that ``name`` was found taken; return in how many seconds to check it again."""
        now = self._clock.monotonic()
        self._forget_old(now)
        if name not in self._names and len(self._names) >= self._size:
            return NAME_CONFLICT_RETRY_SECONDS
        first, _ = self._names.get(name, (now, now))
        self._names[name] = (first, now)
        self._names.move_to_end(name)
        return min(max(now - first, FIRST_NAME_CHECK_SECONDS), NAME_CONFLICT_RETRY_SECONDS)

    def _forget_old(self, now: float) -> None:
        while self._names:
            name, (_, last) = next(iter(self._names.items()))
            if now - last <= _FORGOTTEN_AFTER_SECONDS:
                return
            del self._names[name]
