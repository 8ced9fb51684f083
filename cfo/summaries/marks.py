"""The objects whose summaries may have changed: namespaces take turns, so none waits for all objects of another."""

from __future__ import annotations

from collections.abc import Iterator

from cfo.summaries.changes import Identity


class Marks:
    """A set of objects, in the order in which they are taken."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[Identity, None]] = {}
        """The first namespace is next."""

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))

    def __iter__(self) -> Iterator[Identity]:
        for marked in self._by_namespace.values():
            yield from marked

    def add(self, identity: Identity) -> None:
        """Add an object, behind all others of its namespace."""
        self._by_namespace.setdefault(identity[1].namespace, {})[identity] = None

    def discard(self, identity: Identity) -> None:
        """Remove an object, if it is in the set."""
        namespace = identity[1].namespace
        marked = self._by_namespace.get(namespace, {})
        marked.pop(identity, None)
        if not marked:
            self._by_namespace.pop(namespace, None)

    def take(self) -> Identity | None:
        """Remove the next object, and return it; ``None`` if there is none. Its namespace is behind all others then."""
        namespace = next(iter(self._by_namespace), None)
        if namespace is None:
            return None
        marked = self._by_namespace.pop(namespace)
        identity = next(iter(marked))
        del marked[identity]
        if marked:
            self._by_namespace[namespace] = marked
        return identity

    def clear(self) -> None:
        """Remove all objects."""
        self._by_namespace.clear()
