"""The record of a ring in the annotations of its Lease: its members, and who owns which shard.

``holderIdentity`` of the Lease is the name of the ring, such as ``ring:16``. A replica without sharding, or of a ring
with another number of shards, therefore sees a Lease that another holder renews, and waits. The record is in the
annotation :data:`ANNOTATION`::

    {"members": {"pod-1_4f1e": {"renewals": 120, "leaseSeconds": 15, "shards": [0, 1, 5]}}}

A shard that no member lists is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from cfo.runtime.sharding.assignment import FREE
from cfo.runtime.sharding.ranges import KeyHash

__all__ = ["ANNOTATION", "MAX_MEMBERS", "UNKNOWN_MEMBER", "InvalidRecord", "Member", "RingRecord", "ring_name"]

ANNOTATION: Final = "sharding.cfo.dev/ring"

MAX_MEMBERS: Final = 64
"""The members that a record can have; further replicas wait like replicas without the Lease."""

UNKNOWN_MEMBER: Final = "unknown"
"""The owner of all shards in the first record of a Lease: replicas of a deleted Lease that may still be writing."""

_MAX_BYTES: Final = 64 * 1024
_MAX_IDENTITY: Final = 316
_MAX_LEASE_SECONDS: Final = 24 * 60 * 60


class InvalidRecord(ValueError):
    """Raised for an annotation that is not a record of the ring."""


class Member(NamedTuple):
    """A member: how often it has renewed its membership, and after how many seconds without a renewal it is removed."""

    renewals: int
    lease_seconds: int


@dataclass(frozen=True, slots=True)
class RingRecord:
    """The members of a ring and the owner of each shard (:data:`~cfo.runtime.sharding.assignment.FREE`: no member)."""

    owners: tuple[str, ...]
    members: Mapping[str, Member] = field(default_factory=dict)

    @classmethod
    def free(cls, shards: int) -> RingRecord:
        """Return a ring without members."""
        return cls((FREE,) * shards)

    @classmethod
    def unknown(cls, shards: int, lease_seconds: int, nonce: int) -> RingRecord:
        """Return a ring whose shards become free after ``lease_seconds``.

        It is the record of a Lease that was deleted or overwritten, whose members may still be writing. ``nonce``
        distinguishes it from such records of earlier Leases, so that the time begins again.
        """
        return cls((UNKNOWN_MEMBER,) * shards, {UNKNOWN_MEMBER: Member(nonce, lease_seconds)})

    @classmethod
    def parse(cls, annotation: object, shards: int) -> RingRecord:
        """Return the record in an annotation; raises :class:`InvalidRecord`."""
        if not isinstance(annotation, str) or len(annotation) > _MAX_BYTES:
            raise InvalidRecord(f"{ANNOTATION}: must be a string of at most {_MAX_BYTES} characters")
        try:
            return _record(orjson.loads(annotation)["members"], shards)
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
            raise InvalidRecord(f"{ANNOTATION}: {type(error).__name__}: {error}") from None

    def dump(self) -> str:
        """Return the annotation."""
        members: dict[str, dict[str, Any]] = {
            identity: {"renewals": member.renewals, "leaseSeconds": member.lease_seconds, "shards": []}
            for identity, member in sorted(self.members.items())
        }
        for shard, owner in enumerate(self.owners):
            if owner != FREE:
                members[owner]["shards"].append(shard)
        return orjson.dumps({"members": members}).decode()

    @property
    def lease_seconds(self) -> int:
        """The seconds after which all members are removed; 0 without members."""
        return max((member.lease_seconds for member in self.members.values()), default=0)

    def owned_by(self, identity: str) -> frozenset[int]:
        """Return the shards that ``identity`` owns."""
        return frozenset(shard for shard, owner in enumerate(self.owners) if owner == identity)


def ring_name(shards: int, key_hash: KeyHash = "mixed") -> str:
    """Return the holder of the Lease: replicas with another number of shards or another hash wait for its end."""
    return f"ring:{shards}" if key_hash == "mixed" else f"ring:{shards}:{key_hash}"


def _record(members: Any, shards: int) -> RingRecord:
    if len(members) > MAX_MEMBERS:
        raise InvalidRecord(f"{ANNOTATION}: {len(members)} members: must be at most {MAX_MEMBERS}")
    owners = [FREE] * shards
    parsed: dict[str, Member] = {}
    for identity, member in members.items():
        if not 0 < len(identity) <= _MAX_IDENTITY:
            raise InvalidRecord(f"{ANNOTATION}: member with {len(identity)} characters")
        parsed[identity] = Member(
            _integer(member["renewals"], 0, 2**53), _integer(member["leaseSeconds"], 1, _MAX_LEASE_SECONDS)
        )
        for shard in member["shards"]:
            if owners[_integer(shard, 0, shards - 1)] != FREE:
                raise InvalidRecord(f"{ANNOTATION}: shard {shard} has two owners")
            owners[shard] = identity
    return RingRecord(tuple(owners), parsed)


def _integer(value: object, minimum: int, maximum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise InvalidRecord(f"{ANNOTATION}: {value!r}: must be an integer from {minimum} to {maximum}")
    return value
