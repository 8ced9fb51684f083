"""Remembers on which other objects summaries depend, to find the summaries that an event can change."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Generic, TypeVar

from cfo.summaries.changes import Identity

K = TypeVar("K", bound=Hashable)


class Dependents(Generic[K]):
    """The objects whose summaries depend on something, such as a queue, and the reverse."""

    def __init__(self) -> None:
        self._keys: dict[Identity, Sequence[K]] = {}
        self._dependents: dict[K, dict[Identity, None]] = {}
        """The reverse: an ordered set of objects."""

    def keys_of(self, identity: Identity) -> Sequence[K]:
        """Return what the summary of an object depends on."""
        return self._keys.get(identity, ())

    def dependents_of(self, key: K) -> Collection[Identity]:
        """Return the objects whose summaries depend on ``key``."""
        return self._dependents.get(key, {})

    def remember(self, identity: Identity, keys: Sequence[K]) -> None:
        """Replace what the summary of an object depends on."""
        before = self.keys_of(identity)
        if keys == before:
            return
        for key in before:
            self._dependents[key].pop(identity, None)
            if not self._dependents[key]:
                del self._dependents[key]
        for key in keys:
            self._dependents.setdefault(key, {})[identity] = None
        self._keys[identity] = keys
        if not keys:
            del self._keys[identity]
