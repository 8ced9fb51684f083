"""Which member of a ring should own each shard: balanced, and with as few moves as possible.

The result depends only on its arguments, so that all members compute the same from the same record. Each of ``R``
members gets ``S // R`` or ``S // R + 1`` of ``S`` shards. A member with more gives away the surplus, a member with
fewer gets it, and all other shards stay where they are. Highest-random-weight hashing (rendezvous hashing) decides
which shards of a member move, and to whom, so that the moves do not favour one member or one end of the hashes.

Shard 0 never moves from a member of the ring, because its owner also runs what must run only once in all replicas.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from typing import Final

__all__ = ["FREE", "LEADER_SHARD", "target_owners"]

FREE: Final = ""
"""The owner of a shard that no member owns."""

LEADER_SHARD: Final = 0
"""The shard whose owner is the leader."""


@lru_cache(maxsize=256)
def target_owners(members: frozenset[str], owners: tuple[str, ...]) -> tuple[str, ...]:
    """Return the member that should own each shard, given the current ``owners`` (:data:`FREE`: no member).

    Owners that are not among ``members`` count as free. Without members all shards are free.
    """
    if not members:
        return (FREE,) * len(owners)
    missing = _quotas(members, owners)
    target = [FREE] * len(owners)
    for shard in sorted(range(len(owners)), key=lambda shard: _keeping_order(owners[shard], shard)):
        owner = owners[shard]
        if missing.get(owner):
            target[shard] = owner
            missing[owner] -= 1
    for shard, owner in enumerate(target):
        if owner == FREE:
            receivers = (member for member, count in missing.items() if count)
            target[shard] = max(receivers, key=lambda member: (_weight(member, shard), member))
            missing[target[shard]] -= 1
    return tuple(target)


def _quotas(members: frozenset[str], owners: tuple[str, ...]) -> dict[str, int]:
    """Return the number of shards for each member; those that own the most get the remainder of the division."""
    base, remainder = divmod(len(owners), len(members))
    owned = Counter(owners)
    ordered = sorted(members, key=lambda member: (-owned[member], member))
    return {member: base + (rank < remainder) for rank, member in enumerate(ordered)}


def _keeping_order(owner: str, shard: int) -> tuple[bool, int]:
    return shard != LEADER_SHARD, -_weight(owner, shard)


@lru_cache(maxsize=16_384)
def _weight(member: str, shard: int) -> int:
    return int.from_bytes(blake2b(f"{member}/{shard}".encode(), digest_size=8).digest(), "big")
