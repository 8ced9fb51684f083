"""One of several replicas leads: it holds a Lease, and renews it for as long as it works.

The protocol is that of client-go's ``tools/leaderelection``, so that replicas of both kinds respect each other, and
`Lease v1`_ shows who leads. A replica that does not lead reads the Lease every ``retry_period`` (and up to 1.2 times as
much again, by chance). It takes the Lease when nobody holds it, or when it has not *seen* it change for the
duration that stands in it. Nobody's clock but its own counts: the times in a Lease are for people.

The leader renews every ``retry_period``. ``renew_deadline`` after the last renewal began it leads no more: by then
no other can have taken the Lease, which takes ``lease_duration`` from a moment that is later. From that instant
:meth:`LeaderElector.check`, the :mod:`gate <cfo.runtime.client.write_gate>` of all that only the leader may do, lets
no write pass, and the process ends. This is measured with a clock that goes on while the machine is suspended, and the
gate does not wait for any timer: a process that was stopped for a minute and goes on writes nothing.

What this cannot prevent is a write that left in time and is worked on late, by a server that hangs: what must not
happen at all then needs a precondition (a resourceVersion).

.. _Lease v1: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from random import random as default_random
from typing import Any, Final, Protocol

import anyio
import orjson
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.client.api_request import APIRequest
from cfo.runtime.client.errors import AlreadyExists, APIError, Conflict, NotFound, TransportError
from cfo.runtime.client.transport import Transport
from cfo.runtime.client.write_gate import WriteRefused
from cfo.runtime.clock import Clock, SystemClock, micro_time, sleep_unless
from cfo.runtime.events import EventRecorder
from cfo.runtime.kinds import LEASE
from cfo.runtime.lifecycle import StopAtOnce
from cfo.runtime.metrics import Metrics
from cfo.runtime.objects import NamespacedName, Object
from cfo.runtime.reconcile import Rule

__all__ = [
    "LeaderElectionOptions",
    "LeaderElector",
    "LeadershipLost",
    "LeaseLock",
    "Lock",
    "leader_election_rules",
]

_log = structlog.get_logger("cfo.runtime.leaderelection")


_JITTER: Final = 1.2
_RELEASED_SECONDS: Final = 1


def leader_election_rules(name: str, namespace: str) -> tuple[Rule, ...]:
    """The rights that an election on the Lease ``name`` in ``namespace`` needs."""
    return (
        Rule(LEASE.group, "leases", "create", namespace=namespace),
        Rule(LEASE.group, "leases", ("get", "update"), (name,), namespace=namespace),
    )


def _identity() -> str:
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionOptions:
    """Which Lease is held, and how.

    ``name`` and ``namespace`` are those of the Lease; ``identity`` is who this process is in it, unique among
    all replicas (the host's name and a random number by default). In seconds: others wait for
    ``lease_duration`` before they take a Lease that is not renewed (a whole number, as it stands in the
    Lease), the leader gives up after ``renew_deadline`` without a renewal, and each tries every ``retry_period``. With
    ``release_on_cancel`` a graceful stop gives the Lease up, for the next one not to wait. Raises
    :class:`ValueError` for what client-go refuses.
    """

    name: str
    namespace: str
    identity: str = field(default_factory=_identity)
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_cancel: bool = True

    def __post_init__(self) -> None:
        if not self.name or not self.namespace or not self.identity:
            raise ValueError("leader election needs the name and the namespace of a Lease, and an identity")
        if self.lease_duration < 1:
            raise ValueError(f"lease_duration ({self.lease_duration:g} s) must be at least 1 s")
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(
                f"lease_duration ({self.lease_duration:g} s) must be greater than "
                f"renew_deadline ({self.renew_deadline:g} s)"
            )
        if self.retry_period <= 0 or self.renew_deadline <= _JITTER * self.retry_period:
            raise ValueError(
                f"renew_deadline ({self.renew_deadline:g} s) must be greater than {_JITTER} times "
                f"retry_period ({self.retry_period:g} s), which must be more than 0"
            )


class LeadershipLost(StopAtOnce):
    """This process was the leader and is it no more: whatever it still does must end at once."""


class Lock(Protocol):
    """Where the Lease is kept; each method gives up after ``timeout`` seconds.

    All raise :class:`~cfo.runtime.client.errors.APIError` and :class:`~cfo.runtime.client.errors.TransportError`.
    """

    async def get(self, *, timeout: float) -> Object | None:
        """The Lease, or ``None`` where there is none."""
        ...

    async def create(self, lease: Object, *, timeout: float) -> Object:
        """Makes the Lease; returns it as persisted."""
        ...

    async def update(self, lease: Object, *, timeout: float) -> Object:
        """Replaces the Lease, whose resourceVersion must still be that of ``lease``; returns it as persisted."""
        ...


class LeaseLock(Lock):
    """A Lease on an API server.

    ``transport`` should be one of its own, that no limit of requests applies to: who waits for other requests
    may renew too late. Nothing is asked of discovery.
    """

    def __init__(self, transport: Transport, key: NamespacedName) -> None:
        self._transport = transport
        self._path = f"/apis/{LEASE.group}/{LEASE.version}/namespaces/{key.namespace}/leases"
        self._name = key.name

    async def get(self, *, timeout: float) -> Object | None:
        """The Lease, or ``None`` where there is none."""
        try:
            return await self._ask("GET", "get", f"{self._path}/{self._name}", timeout)
        except NotFound:
            return None

    async def create(self, lease: Object, *, timeout: float) -> Object:
        """Makes the Lease; returns it as persisted."""
        return await self._ask("POST", "create", self._path, timeout, lease)

    async def update(self, lease: Object, *, timeout: float) -> Object:
        """Replaces the Lease; returns it as persisted."""
        return await self._ask("PUT", "update", f"{self._path}/{self._name}", timeout, lease)

    async def _ask(self, method: str, verb: str, path: str, timeout: float, body: Object | None = None) -> Object:
        answer = await self._transport.request(
            APIRequest(
                method,
                path,
                body=orjson.dumps(body) if body is not None else None,
                timeout=timeout,
                verb=verb,
                resource=f"leases.{LEASE.group} {self._name}",
            )
        )
        lease: Object = orjson.loads(answer.body)
        return lease


class LeaderElector:
    """Waits until this process leads, and sees to it that it stays so; a runnable, and the leader's write gate.

    It has started when it leads; it raises :class:`LeadershipLost` when that is over. ``events`` records who
    leads on the Lease, ``metrics`` show it; ``random`` returns numbers in [0, 1).
    """

    name = "leader-election"
    needs_leader = False

    def __init__(
        self,
        lock: Lock,
        options: LeaderElectionOptions,
        *,
        clock: Clock | None = None,
        events: EventRecorder | None = None,
        metrics: Metrics | None = None,
        random: Callable[[], float] = default_random,
    ) -> None:
        self.options = options
        self._lock = lock
        self._clock = clock or SystemClock()
        self._events = events
        self._metrics = (metrics or Metrics()).leader_election(options.name)
        self._random = random
        self._stopping = asyncio.Event()
        self._leading = False
        self._renewed_at = 0.0
        self._lease: Object = {}
        self._seen_at = 0.0
        self._reported = ""

    @property
    def is_leader(self) -> bool:
        """Whether this process leads, at this moment."""
        return self._leading and self._remaining() > 0

    @property
    def leader(self) -> str:
        """The identity of who leads, as far as this process has seen; empty where nobody does."""
        return str(self._spec.get("holderIdentity") or "")

    def check(self) -> None:
        """Raises :class:`~cfo.runtime.client.write_gate.WriteRefused` unless this process leads, at this moment."""
        if not self._leading:
            raise WriteRefused("not written: this process is not the leader")
        over = -self._remaining()
        if over >= 0:
            raise WriteRefused(
                f"not written: leadership ended {over:.1f} s ago, {self.options.renew_deadline:g} s after the "
                f"last renewal of Lease {self.options.namespace}/{self.options.name}"
            )

    def stop(self) -> None:
        """Gives the Lease up, if this process holds it; :meth:`run` returns then."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Acquires the Lease, says that it has started, and renews until :meth:`stop`.

        Raises :class:`LeadershipLost` when the Lease could not be renewed in time, or another took it.
        """
        _log.info("waiting to lead", lease=self._lease_name, identity=self.options.identity)
        if not await self._acquire():
            return
        self._metrics.leading.set(1)
        _log.info("leading", lease=self._lease_name, identity=self.options.identity)
        self._record("became leader")
        task_status.started()
        try:
            while not await self._pause(self.options.retry_period):
                await self._renew()
            if self.options.release_on_cancel:
                await self._release()
        except LeadershipLost as error:
            _log.error("leadership lost", lease=self._lease_name, cause=str(error))
            raise
        finally:
            self._leading = False
            self._metrics.leading.set(0)
            self._record("stopped leading")

    @property
    def _lease_name(self) -> str:
        return f"{self.options.namespace}/{self.options.name}"

    @property
    def _spec(self) -> dict[str, Any]:
        return self._lease.get("spec") or {}

    def _remaining(self) -> float:
        return self._renewed_at + self.options.renew_deadline - self._clock.boottime()

    async def _acquire(self) -> bool:
        """Whether the Lease was acquired; false when it is to stop before that."""
        while not self._stopping.is_set():
            if await self._attempt(self.options.renew_deadline / 2):
                return True
            if await self._pause(self.options.retry_period * (1.0 + _JITTER * self._random())):
                break
        return False

    async def _renew(self) -> None:
        """Renews, as often as it takes; returns without when it is to stop."""
        deadline = self.options.renew_deadline
        while not self._stopping.is_set():
            remaining = self._remaining()
            if remaining <= 0:
                raise LeadershipLost(f"Lease {self._lease_name} was not renewed for {deadline - remaining:.1f} s")
            if await self._attempt(min(remaining, deadline / 2)) and self._remaining() > 0:
                return
            if self.leader not in ("", self.options.identity):
                raise LeadershipLost(f"Lease {self._lease_name} was taken by {self.leader}")
            period = self.options.retry_period
            await self._pause(min(period, max(self._remaining() / 2, period / 10)))

    async def _attempt(self, timeout: float) -> bool:
        """Tries once to take or renew the Lease; never raises for what the API server says, or does not say."""
        try:
            if self._leading:
                try:
                    await self._write(self._lease, timeout)
                except (Conflict, NotFound) as error:
                    self._metrics.slow_path.inc()
                    _log.info("the Lease has changed, reading it", lease=self._lease_name, cause=str(error))
                else:
                    return True
            return await self._look_and_take(timeout)
        except (AlreadyExists, Conflict) as error:
            _log.debug("another was faster", lease=self._lease_name, cause=str(error))
        except (APIError, TransportError) as error:
            doing = "renew" if self._leading else "acquire"
            _log.warning(f"cannot {doing} the Lease", lease=self._lease_name, cause=str(error))
        except orjson.JSONDecodeError as error:
            _log.warning("the Lease cannot be read", lease=self._lease_name, cause=str(error))
        return False

    async def _look_and_take(self, timeout: float) -> bool:
        lease = await self._lock.get(timeout=timeout)
        if lease is None:
            self._observe({})
            await self._write({}, timeout)
            return True
        self._observe(lease)
        if self.leader not in ("", self.options.identity) and self._is_held():
            _log.debug("another leads", lease=self._lease_name, leader=self.leader)
            return False
        await self._write(lease, timeout)
        return True

    def _observe(self, lease: Object) -> None:
        if self._spec != (lease.get("spec") or {}):
            self._seen_at = self._clock.boottime()
        self._lease = lease
        if self.leader != self._reported:
            self._reported = self.leader
            _log.info("a leader", lease=self._lease_name, leader=self.leader or "nobody")

    def _is_held(self) -> bool:
        seconds = self._spec.get("leaseDurationSeconds")
        held = float(seconds) if isinstance(seconds, int) else 0.0
        return self._seen_at + held > self._clock.boottime()

    async def _write(self, lease: Object, timeout: float) -> None:
        """Writes the Lease as ours, over what it is now (nothing: it is made)."""
        began = self._clock.boottime()
        written = _held(lease, self.options, self._clock.now())
        persisted = await (self._lock.update if lease else self._lock.create)(written, timeout=timeout)
        self._observe(persisted)
        # Others count from when they see it, which is later than when we began.
        self._renewed_at = began
        self._leading = True

    async def _release(self) -> None:
        """Gives the Lease up; what goes wrong costs the next leader some patience, no more."""
        self._leading = False
        now = micro_time(self._clock.now())
        spec = {
            **self._spec,
            "holderIdentity": "",
            "leaseDurationSeconds": _RELEASED_SECONDS,
            "renewTime": now,
            "acquireTime": now,
        }
        try:
            await self._lock.update({**self._lease, "spec": spec}, timeout=self.options.renew_deadline / 2)
            _log.info("gave the Lease up", lease=self._lease_name)
        except (APIError, TransportError) as error:
            _log.warning("cannot give the Lease up", lease=self._lease_name, cause=str(error))

    async def _pause(self, seconds: float) -> bool:
        """Sleeps; whether it is to stop, which ends the sleep."""
        return await sleep_unless(self._clock, seconds, self._stopping)

    def _record(self, what: str) -> None:
        if self._events is not None:
            reference = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {
                    "namespace": self.options.namespace,
                    "name": self.options.name,
                    "uid": (self._lease.get("metadata") or {}).get("uid", ""),
                },
            }
            self._events.event(reference, "Normal", "LeaderElection", f"{self.options.identity} {what}")


def _held(lease: Object, options: LeaderElectionOptions, now: datetime) -> Object:
    """The Lease as it is when this process holds it from now on, or still."""
    old = lease.get("spec") or {}
    stamp = micro_time(now)
    ours = old.get("holderIdentity") == options.identity
    transitions = old.get("leaseTransitions")
    count = transitions if isinstance(transitions, int) else 0
    spec = {
        **old,
        "holderIdentity": options.identity,
        "leaseDurationSeconds": ceil(options.lease_duration),
        "acquireTime": (old.get("acquireTime") if ours else None) or stamp,
        "renewTime": stamp,
        "leaseTransitions": count if ours or not lease else count + 1,
    }
    if lease:
        return {**lease, "spec": spec}
    metadata = {"namespace": options.namespace, "name": options.name}
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}
