"""Indexes: what functions of handlers return for each object, by key.

An index is updated when the watch reports an event, before any handler is called for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Store(Collection[V], Generic[V]):
    """The values of one key, in no particular order; one for each object."""

    def __init__(self) -> None:
        self._values: dict[str, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._values.values()))

    def __contains__(self, value: object) -> bool:
        return any(value == known for known in self._values.values())

    def __repr__(self) -> str:
        return repr(list(self))


class Index(Mapping[K, Store[V]], Generic[K, V]):
    """The values of an index by key. Handlers in threads may read it while it changes."""

    def __init__(self) -> None:
        self._stores: dict[K, Store[V]] = {}
        self._keys: dict[str, tuple[K, ...]] = {}

    def __getitem__(self, key: K) -> Store[V]:
        return self._stores[key]

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._stores))

    def __len__(self) -> int:
        return len(self._stores)

    def __contains__(self, key: object) -> bool:
        return key in self._stores

    def __repr__(self) -> str:
        return repr(dict(self))

    def put(self, identity: str, result: Any) -> None:
        """Replace the values of an object: a mapping of keys to values, or one value under the key ``None``."""
        values: Mapping[Any, Any] = result if isinstance(result, Mapping) else {None: result}
        self._discard(identity, (key for key in self._keys.get(identity, ()) if key not in values))
        for key, value in values.items():
            store = self._stores.get(key)
            if store is None:
                store = self._stores[key] = Store()
            store._values[identity] = value
        self._keys[identity] = tuple(values)
        if not values:
            del self._keys[identity]

    def discard(self, identity: str) -> None:
        """Remove the values of an object."""
        self._discard(identity, self._keys.pop(identity, ()))

    def _discard(self, identity: str, keys: Iterable[K]) -> None:
        for key in keys:
            store = self._stores[key]
            store._values.pop(identity, None)
            if not store:
                del self._stores[key]
