"""The member of a ring: one Lease, which all replicas renew, records its members and who owns which shard.

The protocol is in :mod:`cfo.runtime.sharding.membership`, the record in :mod:`cfo.runtime.sharding.record`. One Lease
instead of one for each shard: a change of several shards is atomic, a replica sends two requests for each renewal
regardless of the number of shards, and ``kubectl get lease -o yaml`` shows the ring.

To replicas without sharding the ring is one holder of the Lease, and they are other holders to the ring: each waits
until the other has released the Lease or has not renewed it for the lease duration (client-go's rule,
:mod:`cfo.runtime.manager.leaderelection`). The same applies to rings with another number of shards.

The owner of shard 0 is the leader. It remains the leader until it stops, because shard 0 never moves from a living
member.

A member that cannot renew before its deadline, or whose shards another member has taken, stops the process, like a
leader that loses its Lease. Its caches and running reconciles would have to be discarded anyway, and a process that
starts again joins as a new member.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from math import ceil
from random import random as default_random
from typing import Final

import anyio
import orjson
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.client.errors import AlreadyExists, APIError, Conflict, TransportError
from cfo.runtime.client.write_gate import WriteRejected
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.manager.events import EventRecorder
from cfo.runtime.manager.leaderelection import (
    LeaderElectionOptions,
    LeadershipLost,
    LeaseObservation,
    Lock,
    lease_reference,
    lease_with_spec,
)
from cfo.runtime.objects.unstructured import Object
from cfo.runtime.process.clock import Clock, SystemClock, micro_time, sleep_unless
from cfo.runtime.ring.options import ShardingOptions
from cfo.runtime.sharding.assignment import FREE, LEADER_SHARD
from cfo.runtime.sharding.membership import Membership, MembershipLost
from cfo.runtime.sharding.ranges import MAX_SHARDS
from cfo.runtime.sharding.record import ANNOTATION, UNKNOWN_MEMBER, InvalidRecord, RingRecord, ring_name

__all__ = ["ShardElector", "ShardGate"]

_log = structlog.get_logger(__name__)

_JITTER: Final = 1.2
_RELEASED_SECONDS: Final = 1
_CONFLICT_PAUSE: Final = 0.1
"""The longest pause after another member wrote first, in retry periods."""


class ShardGate:
    """The write gate of one shard."""

    def __init__(self, elector: ShardElector, shard: int) -> None:
        self._elector = elector
        self._shard = shard

    def check(self) -> None:
        """Raise :class:`~cfo.runtime.client.write_gate.WriteRejected` unless this process owns the shard right now."""
        if not self._elector.may_work_on(self._shard):
            raise WriteRejected(
                f"not written: this process does not own shard {self._shard} of {self._elector.ring} in Lease "
                f"{self._elector.options.namespace}/{self._elector.options.name}"
            )


class ShardElector:
    """Keeps this process a member of the ring; a runnable, and the leader's write gate.

    It reports that it has started once this process is a member, and raises
    :class:`~cfo.runtime.LeadershipLost` once it has lost its shards. ``random`` returns numbers in
    [0, 1).
    """

    name = "sharding"
    needs_leader = False

    def __init__(
        self,
        lock: Lock,
        options: LeaderElectionOptions,
        sharding: ShardingOptions,
        *,
        clock: Clock | None = None,
        events: EventRecorder | None = None,
        metrics: Metrics | None = None,
        random: Callable[[], float] = default_random,
    ) -> None:
        if options.identity == UNKNOWN_MEMBER:
            raise ValueError(f"identity: {UNKNOWN_MEMBER!r}: is reserved")
        self.options = options
        self.ring = ring_name(sharding.shards, sharding.key_hash)
        self.changed = anyio.Event()
        """Set, and replaced, after each renewal."""
        self._shards = sharding.shards
        self._lock = lock
        self._clock = clock or SystemClock()
        self._events = events
        self._metrics = (metrics or Metrics()).leader_election(options.name)
        self._random = random
        self._observation = LeaseObservation(self._clock)
        self._lease: Object = {}
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._reported: tuple[str, ...] = ()
        self.membership = Membership(
            options.identity,
            sharding.shards,
            lease_seconds=ceil(options.lease_duration),
            renew_deadline=options.renew_deadline,
        )

    @property
    def is_leader(self) -> bool:
        """Whether this process owns shard 0 at this moment."""
        return self.may_work_on(LEADER_SHARD)

    @property
    def leader(self) -> str:
        """The identity of the owner of shard 0; of the holder of the Lease while the ring does not hold it."""
        holder = str((self._lease.get("spec") or {}).get("holderIdentity") or "")
        return holder if holder not in ("", self.ring) else self.membership.record.owners[LEADER_SHARD]

    @property
    def lease_seconds(self) -> float:
        """The seconds for which this process remains a member without another renewal; 0 if it is not a member."""
        return max(self.membership.remaining(self._clock.boottime()), 0.0) if self.membership.is_member else 0.0

    def may_work_on(self, shard: int) -> bool:
        """Return whether this process owns ``shard`` at this moment."""
        return self.membership.may_work_on(shard, self._clock.boottime())

    def check(self) -> None:
        """Raise :class:`~cfo.runtime.client.write_gate.WriteRejected` unless this process owns shard 0 right now."""
        ShardGate(self, LEADER_SHARD).check()

    def release(self, shard: int) -> None:
        """Free ``shard``, on which nothing is running, by the next renewal, which is sent at once."""
        self.membership.release((shard,))
        self._woken.set()

    def stop(self) -> None:
        """Leave the ring; :meth:`run` returns afterwards."""
        self._stopping.set()
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Join the ring, report that the elector has started, and renew the membership until :meth:`stop`.

        Raises :class:`~cfo.runtime.LeadershipLost`.
        """
        _log.info("Attempting to join the ring", lease=self._lease_name, ring=self.ring, identity=self.options.identity)
        joined = False
        try:
            while not self._stopping.is_set():
                self._woken.clear()
                pause = await self._renew()
                if self.membership.is_member and not joined:
                    joined = True
                    _log.info("Joined the ring", lease=self._lease_name, ring=self.ring)
                    self._record(f"joined {self.ring}")
                    task_status.started()
                await sleep_unless(self._clock, pause, self._woken)
            if joined and self.options.release_on_cancel:
                await self._leave()
        except LeadershipLost as error:
            _log.error("Lost the membership of the ring", lease=self._lease_name, error=str(error))
            raise
        finally:
            self._metrics.is_leader.set(0)
            if joined:
                self._record(f"left {self.ring}")

    @property
    def _lease_name(self) -> str:
        return f"{self.options.namespace}/{self.options.name}"

    async def _renew(self) -> float:
        """Try once to join or renew; return the seconds until the next attempt."""
        owned = bool(self.membership.owned)
        remaining = self.membership.remaining(self._clock.boottime())
        deadline, period = self.options.renew_deadline, self.options.retry_period
        if owned and remaining <= 0:
            raise LeadershipLost(f"Lease {self._lease_name} was not renewed for {deadline - remaining:.1f} s")
        try:
            renewed = await self._read_and_write(min(remaining, deadline / 2) if owned else deadline / 2)
        except (AlreadyExists, Conflict) as error:
            _log.debug("Another replica updated the Lease first", lease=self._lease_name, cause=str(error))
            self._metrics.slow_path.inc()
            is_late = owned and remaining < deadline / 2
            return 0.0 if is_late else _CONFLICT_PAUSE * period * self._random()
        except MembershipLost as error:
            raise LeadershipLost(f"Lease {self._lease_name}: {error}") from error
        except (APIError, TransportError, orjson.JSONDecodeError) as error:
            _log.warning("Failed to renew the membership", lease=self._lease_name, error=str(error))
            renewed = False
        now = self._clock.boottime()
        if renewed:
            if self.membership.has_late_member(now):
                period = max(period, deadline / 2)  # let it write without conflicts
            return max(min(period, self.membership.expires_at() - now), self.options.retry_period / 10)
        if self.membership.owned:
            return min(period, max(self.membership.remaining(now) / 2, period / 10))
        return period * (1.0 + _JITTER * self._random())

    async def _read_and_write(self, timeout: float) -> bool:
        """Read the record, and write it with this member renewed; return false if the Lease is held by another."""
        lease = await self._lock.get(timeout=timeout)
        self._observation.observe(lease or {})
        self._lease = lease or {}
        record = self._record_of(lease)
        if record is None:
            if self.membership.owned:
                raise LeadershipLost(f"Lease {self._lease_name} was acquired by {self.leader}")
            return False
        now = self._clock.boottime()
        self.membership.observe(record, now)
        proposed = self.membership.propose(now)
        if proposed is None:
            _log.warning("The ring has no place for another member", lease=self._lease_name)
            return False
        written = self._with_record(proposed)
        self._lease = await (self._lock.update if lease else self._lock.create)(written, timeout=timeout)
        self._observation.observe(self._lease)
        self.membership.confirm(proposed, now)
        self._metrics.is_leader.set(self.is_leader)
        self._report(proposed)
        self.changed.set()
        self.changed = anyio.Event()
        return True

    def _record_of(self, lease: Object | None) -> RingRecord | None:
        """Return the record of ``lease``; ``None`` while another client holds it."""
        unknown = RingRecord.unknown(self._shards, ceil(self.options.lease_duration), secrets.randbits(53))
        if lease is None:
            return unknown
        holder = (lease.get("spec") or {}).get("holderIdentity")
        annotation = ((lease.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
        if holder == self.ring:
            try:
                return RingRecord.parse(annotation, self._shards)
            except InvalidRecord as error:
                _log.error("Invalid record of the ring, replacing it", lease=self._lease_name, error=str(error))
                return unknown
        if holder and self._observation.is_held:
            return None
        if not holder and annotation is not None and _has_members(annotation):
            _log.warning("Another client cleared the holder of the Lease", lease=self._lease_name)
            return unknown
        return RingRecord.free(self._shards)

    def _with_record(self, record: RingRecord) -> Object:
        """Return the Lease with ``record``, held by the ring, or by no one if the record has no members."""
        old = self._lease.get("spec") or {}
        stamp = micro_time(self._clock.now())
        holder = self.ring if record.members else ""
        same = old.get("holderIdentity") == self.ring
        transitions = old.get("leaseTransitions")
        count = transitions if isinstance(transitions, int) else 0
        spec = {
            **old,
            "holderIdentity": holder,
            "leaseDurationSeconds": record.lease_seconds or _RELEASED_SECONDS,
            "acquireTime": (old.get("acquireTime") if same and holder else None) or stamp,
            "renewTime": stamp,
            "leaseTransitions": count if same or not self._lease else count + 1,
        }
        lease = lease_with_spec(self._lease, self.options, spec)
        metadata = lease["metadata"]
        annotations = {**(metadata.get("annotations") or {}), ANNOTATION: record.dump()}
        return {**lease, "metadata": {**metadata, "annotations": annotations}}

    async def _leave(self) -> None:
        """Free all shards, on which nothing is running; if that fails, the others wait until the lease ends."""
        timeout = self.options.renew_deadline / 2
        remaining = self.membership.remaining
        while remaining(self._clock.boottime()) > 0:
            try:
                lease = await self._lock.get(timeout=timeout)
                self._lease = lease or {}
                record = self._record_of(lease)
                if lease is None or record is None:
                    return
                now = self._clock.boottime()
                self.membership.observe(record, now)
                await self._lock.update(self._with_record(self.membership.propose_leave(now)), timeout=timeout)
            except Conflict:
                await self._clock.sleep(_CONFLICT_PAUSE * self.options.retry_period * self._random())
                continue
            except (APIError, TransportError, MembershipLost, orjson.JSONDecodeError) as error:
                _log.warning("Failed to leave the ring", lease=self._lease_name, error=str(error))
            else:
                _log.info("Left the ring", lease=self._lease_name, ring=self.ring)
            return

    def _report(self, record: RingRecord) -> None:
        if record.owners != self._reported:
            self._reported = record.owners
            _log.info(
                "Shards changed",
                ring=self.ring,
                owned=sorted(self.membership.owned),
                members=len(record.members),
                free=record.owners.count(FREE),
            )

    def _record(self, change: str) -> None:
        if self._events is not None:
            reference = lease_reference(self.options, self._lease)
            self._events.event(reference, "Normal", "LeaderElection", f"{self.options.identity} {change}")


def _has_members(annotation: object) -> bool:
    """Return whether a record has members, or may have them; a ring releases its Lease without members."""
    try:
        return bool(RingRecord.parse(annotation, MAX_SHARDS).members)
    except InvalidRecord:
        return True
