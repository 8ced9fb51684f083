"""Partitions of the objects of a cluster by a hash of their namespace.

The key of a namespaced object is its namespace, because an object, its owner and everything that belongs to it are in
one namespace, and therefore in one shard. The key of a cluster-scoped object is its name. Shard ``i`` of ``S`` contains
the keys whose 64-bit hash is in ``[i * 2**64 / S, (i + 1) * 2**64 / S)``.

There are two hashes:

* ``mixed`` (default): FNV-1a, then the 64-bit finalizer of MurmurHash3. FNV-1a alone hardly changes its upper bits with
  the last two characters of a key: it puts ``team-00`` to ``team-39`` into one of 64 ranges. With the finalizer each
  bit of the key changes each bit of the hash.
* ``fnv1a``: FNV-1a alone, which the API server computes with `KEP-5866`_ (alpha in Kubernetes 1.36, feature gate
  ``ShardedListAndWatch``). Then a partition is a ``shardSelector``, and the API server sends only objects of the
  partition. Use it if the namespaces have names that differ early, such as UUIDs.

.. _KEP-5866: https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5866-server-side-sharded-list-and-watch
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["MAX_SHARDS", "HashRange", "KeyHash", "Partition", "fnv1a_64", "mixed_64", "shard_of_key"]

KeyHash: TypeAlias = Literal["mixed", "fnv1a"]
"""The hash of keys: ``mixed`` or ``fnv1a``."""

MAX_SHARDS: Final = 256

_SPACE: Final = 2**64
_MASK: Final = _SPACE - 1
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_MIX_FACTORS: Final = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
_MIX_SHIFT: Final = 33
_CACHED_KEYS: Final = 16_384


def fnv1a_64(key: str) -> int:
    """Return the 64-bit FNV-1a hash of the UTF-8 bytes of ``key``, as Go's ``hash/fnv.New64a``."""
    value = _FNV_OFFSET
    for byte in key.encode():
        value = (value ^ byte) * _FNV_PRIME & _MASK
    return value


def mixed_64(key: str) -> int:
    """Return :func:`fnv1a_64` of ``key`` after the 64-bit finalizer of MurmurHash3."""
    value = fnv1a_64(key)
    for factor in _MIX_FACTORS:
        value = (value ^ value >> _MIX_SHIFT) * factor & _MASK
    return value ^ value >> _MIX_SHIFT


@lru_cache(maxsize=_CACHED_KEYS)
def shard_of_key(key: str, shards: int, key_hash: KeyHash = "mixed") -> int:
    """Return the shard of ``key``, from 0 to ``shards`` - 1."""
    value = fnv1a_64(key) if key_hash == "fnv1a" else mixed_64(key)
    return value * shards >> 64


class HashRange(NamedTuple):
    """The hashes from ``start`` up to, but without, ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Partition:
    """The objects in the shards ``owned`` of ``shards``.

    Raises :class:`ValueError` if ``shards`` is not between 1 and 256, or an owned shard does not exist.
    """

    shards: int
    owned: frozenset[int]
    key_hash: KeyHash = "mixed"

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= MAX_SHARDS:
            raise ValueError(f"shards: {self.shards}: must be between 1 and {MAX_SHARDS}")
        if self.key_hash not in ("mixed", "fnv1a"):
            raise ValueError(f"key_hash: {self.key_hash!r}: must be 'mixed' or 'fnv1a'")
        unknown = sorted(shard for shard in self.owned if not 0 <= shard < self.shards)
        if unknown:
            raise ValueError(f"owned: {unknown}: must be between 0 and {self.shards - 1}")

    def shard_of(self, namespace: str, name: str) -> int:
        """Return the shard of the object ``name`` in ``namespace`` (empty: a cluster-scoped object)."""
        return shard_of_key(namespace or name, self.shards, self.key_hash)

    def covers(self, namespace: str, name: str) -> bool:
        """Return whether the object ``name`` in ``namespace`` (empty: a cluster-scoped object) is in the partition."""
        return shard_of_key(namespace or name, self.shards, self.key_hash) in self.owned

    @property
    def is_empty(self) -> bool:
        """Whether the partition covers no object."""
        return not self.owned

    @property
    def is_complete(self) -> bool:
        """Whether the partition covers every object."""
        return len(self.owned) == self.shards

    def ranges(self) -> tuple[HashRange, ...]:
        """Return the covered ranges of hashes in ascending order; adjacent shards are one range."""
        merged: list[HashRange] = []
        for shard in sorted(self.owned):
            start, end = _bound(shard, self.shards), _bound(shard + 1, self.shards)
            if merged and merged[-1].end == start:
                merged[-1] = HashRange(merged[-1].start, end)
            else:
                merged.append(HashRange(start, end))
        return tuple(merged)

    @property
    def shard_selector(self) -> str:
        """The ``shardSelector`` of a list or watch that selects exactly the namespaced objects of the partition.

        Empty if a selector cannot or need not select: with the hash ``mixed``, and for an empty or complete partition.
        """
        if self.key_hash != "fnv1a" or self.is_empty or self.is_complete:
            return ""
        return " || ".join(
            f"shardRange(object.metadata.namespace, '0x{start:016x}', '0x{end:016x}')" for start, end in self.ranges()
        )


def _bound(shard: int, shards: int) -> int:
    """Return the smallest hash of ``shard``: the smallest ``h`` with ``h * shards >> 64 == shard``."""
    return -(-shard * _SPACE // shards)
