"""What an operator remembers of an object while the object exists."""

from __future__ import annotations

import copy
from typing import Any

from cfo.runtime.handlers.bodies import Body
from cfo.runtime.handlers.daemons import Daemon
from cfo.runtime.objects.unstructured import NamespacedName, Object, key_of, uid_of

__all__ = ["Memories", "Memory"]


class Memory:
    """The memo, the daemons, and the current state of an object with daemons."""

    __slots__ = ("body", "daemons", "ended", "memo", "uid")

    def __init__(self, obj: Object, memo: Any) -> None:
        self.uid = uid_of(obj)
        self.memo = memo
        self.body: Body | None = None
        self.daemons: dict[str, Daemon] = {}
        self.ended: set[str] = set()
        """The daemons that ended by themselves, and are not started again."""


class Memories:
    """The memories of the objects of one resource. ``memo``: what the memo of each object is copied from."""

    def __init__(self, memo: Any) -> None:
        self._memo = memo
        self._by_key: dict[NamespacedName, Memory] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: NamespacedName) -> Memory | None:
        """Return the memory of an object, or ``None``."""
        return self._by_key.get(key)

    def recall(self, obj: Object) -> tuple[Memory, Memory | None]:
        """Return the memory of an object, and that of the deleted namesake that it replaces."""
        key = key_of(obj)
        known = self._by_key.get(key)
        if known is not None and known.uid == uid_of(obj):
            return known, None
        memory = self._by_key[key] = Memory(obj, copy.copy(self._memo))
        return memory, known

    def forget(self, key: NamespacedName) -> Memory | None:
        """Forget an object; return its memory."""
        return self._by_key.pop(key, None)
