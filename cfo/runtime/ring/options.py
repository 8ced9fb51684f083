"""Options of sharding."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from cfo.runtime.objects.unstructured import ObjectKind
from cfo.runtime.sharding.ranges import MAX_SHARDS, KeyHash

__all__ = ["ShardingOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingOptions:
    """Divides the objects into ``shards``, which all replicas share.

    Use several times as many shards as replicas; all replicas must have the same number. ``key_hash`` is the hash of
    namespaces (:mod:`cfo.runtime.sharding.ranges`).

    Each replica caches only its part of the kinds that sharded controllers reconcile or own, and of ``divided_kinds``,
    but all objects of ``whole_kinds``, of the kinds that other controllers use, and of kinds whose events are mapped to
    requests. These can be in other namespaces; list such a kind in ``divided_kinds`` if they never are. Add a kind to
    ``whole_kinds`` if a reconciler reads objects of it, from an informer, in other namespaces than its own.

    Raises :class:`ValueError` if ``shards`` is not between 2 and 256.
    """

    shards: int
    key_hash: KeyHash = "mixed"
    divided_kinds: Collection[ObjectKind[Any]] = ()
    whole_kinds: Collection[ObjectKind[Any]] = ()

    def __post_init__(self) -> None:
        if not 2 <= self.shards <= MAX_SHARDS:
            raise ValueError(f"shards: {self.shards}: must be between 2 and {MAX_SHARDS}")
