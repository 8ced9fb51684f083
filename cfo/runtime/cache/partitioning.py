"""Restricts informers to a partition of the objects of their kind.

With several active replicas, each replica reconciles the objects of its partition
(:class:`~cfo.runtime.sharding.ranges.Partition`) and caches only these. An object outside is dropped before it is
decoded: of list items and watch events only the key and the version are read. If the API server selects objects by the
same hash (``shardSelector``, KEP-5866), it does not send the others. The objects that it sends are checked
nevertheless, because another API server of the cluster may ignore the selector.

While a partition grows, the store holds only the part of it that it held before. Reads of the rest go to the API server
until a list of the new partition is complete.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from cfo.runtime.sharding.ranges import Partition

__all__ = ["Head", "head_of", "intersection_of", "is_within"]


class Head(NamedTuple):
    """The part of an object that decides whether it is in a partition."""

    namespace: str
    name: str
    resource_version: str


class _HeadMeta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str | None = None
    resource_version: str = ""


class _HeadObject(msgspec.Struct, gc=False):
    metadata: _HeadMeta


_head: Final = msgspec.json.Decoder(_HeadObject)


def head_of(raw: bytes | msgspec.Raw) -> Head:
    """Return the key and the version of an encoded object; raises :class:`msgspec.DecodeError`."""
    metadata = _head.decode(raw).metadata
    return Head(metadata.namespace or "", metadata.name, metadata.resource_version)


def is_within(inner: Partition | None, outer: Partition | None) -> bool:
    """Return whether ``outer`` covers every object that ``inner`` covers; ``None`` covers all objects.

    False if that is not known, because the partitions have different shards or hashes.
    """
    if outer is None or outer.is_complete:
        return True
    if inner is None or inner.is_complete:
        return False
    return inner.is_empty or (_has_same_shards(inner, outer) and inner.owned <= outer.owned)


def intersection_of(one: Partition | None, other: Partition | None) -> Partition | None:
    """Return a partition that covers only objects that both cover: all of them if both have the same shards."""
    if one is None or other is None:
        return one if other is None else other
    owned = one.owned & other.owned if _has_same_shards(one, other) else frozenset[int]()
    return replace(other, owned=owned)


def _has_same_shards(one: Partition, other: Partition) -> bool:
    return (one.shards, one.key_hash) == (other.shards, other.key_hash)
