"""Leader election: one of several replicas holds a Lease and renews it while it works.

The protocol is the same as in client-go's ``tools/leaderelection``, so that Go and Python replicas can share a Lease,
and `Lease v1`_ shows the current leader. A replica that is not the leader reads the Lease every ``retry_period`` plus a
random delay of up to 1.2 times that period. It acquires the Lease if the Lease has no holder, or if this replica has
not *observed* a change of the Lease for the duration in the Lease. Only the local clock is used; the timestamps in the
Lease are informational.

The leader renews the Lease every ``retry_period``. Its leadership ends ``renew_deadline`` after the start of the last
successful renewal. No other replica can hold the Lease by then, because it must wait for the longer ``lease_duration``,
counted from a later point in time. From then on :meth:`LeaderElector.check`, the :mod:`write gate
<cfo.runtime.client.write_gate>` of everything that runs only on the leader, rejects every write, and the process stops.
The deadline is measured with a clock that includes the time of machine suspends, and the gate depends on no timer: a
process that was paused for a minute writes nothing when it resumes.

After the deadline, the process tries to renew the Lease once more, in client-go's manner, because a process that was
paused has not tried before. The gate stays closed meanwhile. The attempt only succeeds if the Lease still has the
resourceVersion of the last renewal, or of a later read that found no other holder. So no other replica is the leader,
and the gate opens again; another one may have acquired and released the Lease before such a read.

A renewal without an answer may have been stored, which an overloaded API server does. So the Lease is read next: if it
is as it was sent, that renewal counts, because no other replica has held the Lease since.

Limit: a write that was sent in time may be processed late by an API server that hangs. If a late write would be
harmful, use a precondition (a resourceVersion).

.. _Lease v1: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from random import random as default_random
from typing import Any, Final

import anyio
import orjson
import structlog
from anyio.abc import TaskStatus

from cfo.runtime.client.errors import AlreadyExists, APIError, Conflict, NotFound, TransportError
from cfo.runtime.client.transport import APIRequest, Transport
from cfo.runtime.client.write_gate import WriteRejected
from cfo.runtime.controller.lifecycle import StopImmediately
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.manager.events import EventRecorder
from cfo.runtime.objects.kinds import LEASE
from cfo.runtime.objects.rbac import Rule
from cfo.runtime.objects.unstructured import NamespacedName, Object, new_object
from cfo.runtime.process.arguments import require_type
from cfo.runtime.process.clock import Clock, SystemClock, micro_time, sleep_unless
from cfo.runtime.process.strings import require_namespace_name, require_object_name

_log = structlog.get_logger(__name__)

_JITTER: Final = 1.2
"""The maximum random delay of an attempt to acquire the Lease, as a multiple of ``retry_period``."""

_MAX_PROBLEM: Final = 300
"""How many characters of a failure, or of the holder's identity, are shown."""

_RELEASED_SECONDS: Final = 1
"""The duration in a released Lease in seconds, because the API requires one."""


def leader_election_rules(name: str, namespace: str) -> tuple[Rule, ...]:
    """Return the permissions that leader election with the Lease ``name`` in ``namespace`` requires."""
    return (
        Rule(LEASE.group, "leases", "create", namespace=namespace),
        Rule(LEASE.group, "leases", ("get", "update"), (name,), namespace=namespace),
    )


def default_identity() -> str:
    """Return an identity that is unique among all processes: the hostname and a random UUID."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionOptions:
    """Options of leader election.

    ``name`` and ``namespace`` identify the Lease; ``identity`` identifies this process in it and must be unique among
    all replicas (default: the hostname and a random UUID). In seconds: other replicas wait ``lease_duration`` (rounded
    up to whole seconds in the Lease) before they acquire a Lease that is not renewed, the leader gives up after
    ``renew_deadline`` without a successful renewal, and each replica retries every ``retry_period``. With
    ``release_on_cancel`` a graceful stop releases the Lease, so that the next leader does not have to wait. ``labels``
    are those of a Lease that is created. Raises :class:`ValueError` for values that client-go rejects, and
    :class:`TypeError` for those of another type.
    """

    name: str
    namespace: str
    identity: str = field(default_factory=default_identity)
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_cancel: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("name", "namespace", "identity"):
            require_type(f"leader election: {name}", getattr(self, name), str, "a string")
        for name in ("lease_duration", "renew_deadline", "retry_period"):
            require_type(name, getattr(self, name), int | float, "a number of seconds")
        if not self.name or not self.namespace or not self.identity:
            raise ValueError("leader election: name, namespace and identity must not be empty")
        require_object_name("leader election: name", self.name)
        require_namespace_name("leader election: namespace", self.namespace)
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


@dataclass(frozen=True, slots=True)
class _UnansweredWrite:
    """A write of the Lease whose outcome is not known: what was sent, and when, by the clock that includes suspends."""

    spec: Mapping[str, Any]
    began: float


class LeadershipLost(StopImmediately):
    """Raised when this process loses leadership; all leader-only work must stop immediately."""


class LeaseLock:
    """A Lease on an API server; each method times out after ``timeout`` seconds.

    All methods raise :class:`~cfo.runtime.client.errors.APIError` and
    :class:`~cfo.runtime.client.errors.TransportError`. Use a dedicated ``transport`` without a rate limit, because a
    renewal that waits for other requests may be too late. Discovery is not used.
    """

    def __init__(self, transport: Transport, key: NamespacedName) -> None:
        self._transport = transport
        self._path = f"/apis/{LEASE.group}/{LEASE.version}/namespaces/{key.namespace}/leases"
        self._name = key.name

    async def get(self, *, timeout: float) -> Object | None:
        """Return the Lease, or ``None`` if it does not exist."""
        try:
            return await self._request("GET", "get", f"{self._path}/{self._name}", timeout)
        except NotFound:
            return None

    async def create(self, lease: Object, *, timeout: float) -> Object:
        """Create the Lease; return it as persisted."""
        return await self._request("POST", "create", self._path, timeout, lease)

    async def update(self, lease: Object, *, timeout: float) -> Object:
        """Replace the Lease, which must still have the resourceVersion of ``lease``; return it as persisted."""
        return await self._request("PUT", "update", f"{self._path}/{self._name}", timeout, lease)

    async def _request(
        self, method: str, verb: str, path: str, timeout: float, body: Object | None = None
    ) -> Object:
        content = orjson.dumps(body) if body is not None else None
        request = APIRequest(
            method,
            path,
            body=content,
            timeout=timeout,
            verb=verb,
            resource=f"leases.{LEASE.group} {self._name}",
        )
        response = await self._transport.request(request)
        lease: Object = orjson.loads(response.body)
        return lease


class LeaderElector:
    """Acquires and renews the Lease; a runnable, and the leader's write gate.

    It reports that it has started once this process is the leader, and raises :class:`LeadershipLost` once it no longer
    is. ``events`` records changes of leadership on the Lease, ``metrics`` expose them; ``random`` returns numbers in
    [0, 1). ``attempt`` is the log message when it begins to acquire the Lease.
    """

    name = "leader-election"

    def __init__(
        self,
        lock: LeaseLock,
        options: LeaderElectionOptions,
        *,
        clock: Clock | None = None,
        events: EventRecorder | None = None,
        metrics: Metrics | None = None,
        random: Callable[[], float] = default_random,
        attempt: str = "Attempting to acquire leader lease",
        on_rival: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.options = options
        self._attempt = attempt
        self._on_rival = on_rival
        self._lock = lock
        self._clock = clock or SystemClock()
        self._events = events
        self._metrics = (metrics or Metrics()).leader_election(options.name)
        self._random = random
        self._stopping = anyio.Event()

        self._leading = False
        self._renewed_at = 0.0
        """When the last successful renewal started, by the clock that includes suspends."""
        self._lease: Object = {}
        self._unanswered: _UnansweredWrite | None = None
        """The last write, if it had no answer and the Lease was not read since."""
        self._observed_at = 0.0
        """When this process last observed a change of the Lease, by the same clock."""
        self._reported_leader = ""
        self._failure = ""
        """Why the last attempt to acquire or renew the Lease failed; empty if it did not."""
        self._longest_delay = 0.0
        """The seconds that this process was late when it wanted to continue, at most, since the last renewal."""

    @property
    def is_leader(self) -> bool:
        """Whether this process is the leader at this moment."""
        return self._leading and self._remaining() > 0

    @property
    def leader(self) -> str:
        """The identity of the last observed leader; empty if the Lease has no holder."""
        return str(self._spec.get("holderIdentity") or "")

    @property
    def problem(self) -> str:
        """Why this process is not the leader, for messages; empty if it is, or if nothing is known."""
        if self._leading:
            return ""
        if self._failure:
            return f"Lease {self._lease_name}: {self._failure:.{_MAX_PROBLEM}}"
        if self.leader not in ("", self.options.identity):
            return f"Lease {self._lease_name} is held by {self.leader:.{_MAX_PROBLEM}}"
        return ""

    @property
    def lease_seconds(self) -> float:
        """The seconds for which this process remains the leader without another renewal; 0 if it is not the leader."""
        if not self._leading:
            return 0.0
        return max(self._remaining(), 0.0)

    def check(self) -> None:
        """Raise :class:`~cfo.runtime.client.write_gate.WriteRejected` unless this process is the leader right now."""
        if not self._leading:
            raise WriteRejected("not written: this process is not the leader")
        # The deadline is before the end of the Lease, so that a request in flight also ends before the Lease does.
        expired_for = -self._remaining()
        if expired_for >= 0:
            raise WriteRejected(
                f"not written: leadership ended {expired_for:.1f} s ago, {self.options.renew_deadline:g} s after the "
                f"last renewal of Lease {self.options.namespace}/{self.options.name}"
            )

    def stop(self) -> None:
        """Release the Lease if this process holds it; :meth:`run` returns afterwards."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Acquire the Lease, report that the elector has started, and renew the Lease until :meth:`stop`.

        Raises :class:`LeadershipLost` when the Lease was not renewed in time or another replica acquired it.
        """
        _log.info(self._attempt, lease=self._lease_name, identity=self.options.identity)
        if not await self._acquire():
            return  # stopped while another replica was the leader: there is nothing to release
        self._metrics.is_leader.set(1)
        _log.info(
            "Successfully acquired lease", lease=self._lease_name, identity=self.options.identity
        )
        self._record("became leader")
        task_status.started()
        try:
            while not await self._pause(self.options.retry_period):
                await self._renew()
            if self.options.release_on_cancel:
                await self._release()
        finally:
            self._leading = False
            self._metrics.is_leader.set(0)
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
        """Acquire the Lease, with retries; return false if a stop was requested first."""
        while not self._stopping.is_set():
            if await self._try_acquire_or_renew(self.options.renew_deadline / 2):
                return True
            delay = self.options.retry_period * (1.0 + _JITTER * self._random())
            if await self._pause(delay):
                break
        return False

    async def _renew(self) -> None:
        """Renew the Lease, with retries until the deadline and one after it; return early if a stop was requested."""
        deadline = self.options.renew_deadline
        while not self._stopping.is_set():
            remaining = self._remaining()
            if remaining <= 0:
                if await self._renew_late():
                    return
                remaining = self._remaining()
                raise LeadershipLost(
                    f"leader election lost: Lease {self._lease_name} was not renewed for {deadline - remaining:.1f} s; "
                    f"the event loop was up to {self._longest_delay:.1f} s late"
                )
            renewed = await self._try_acquire_or_renew(min(remaining, deadline / 2))
            # A renewal counts from its start, so a slow one may have expired when its response arrives.
            if renewed and self._remaining() > 0:
                return
            if self.leader not in ("", self.options.identity):
                raise LeadershipLost(
                    f"leader election lost: Lease {self._lease_name} was acquired by {self.leader}"
                )
            period = self.options.retry_period
            delay = max(self._remaining() / 2, period / 10)
            await self._pause(min(delay, period))

    async def _renew_late(self) -> bool:
        """Try once to renew the Lease after the deadline; return whether this process is the leader again.

        If the Lease has a new resourceVersion, another replica may be the leader, unless this process wrote it.
        """
        options = self.options
        late = self._longest_delay
        timeout = min(options.retry_period, options.lease_duration - options.renew_deadline)
        try:
            await self._write(await self._written_last(timeout), timeout)
        except (APIError, TransportError, orjson.JSONDecodeError) as error:
            _log.warning("Failed to renew lease", lease=self._lease_name, error=str(error))
            return False
        if self._remaining() <= 0:
            return False
        _log.warning(
            "Renewed lease after the deadline; no other replica is the leader",
            lease=self._lease_name,
            delay=f"{late:.1f} s",
        )
        return True

    async def _written_last(self, timeout: float) -> Object:
        """Return the Lease as this process wrote it last."""
        unanswered = self._unanswered
        if unanswered is not None:
            stored = await self._lock.get(timeout=timeout)
            if stored is not None and stored.get("spec") == unanswered.spec:
                return stored
        return self._lease

    async def _try_acquire_or_renew(self, timeout: float) -> bool:
        """Try once to acquire or renew the Lease; log API, network and decoding errors and return false."""
        self._failure = ""
        try:
            if self._leading and self._unanswered is None:
                # The Lease is not read first, so that the renewal of an unchanged Lease is one request.
                try:
                    await self._write(self._lease, timeout)
                except (Conflict, NotFound) as error:
                    self._metrics.slow_path.inc()
                    _log.info("Lease changed, rereading", lease=self._lease_name, cause=str(error))
                else:
                    return True
            return await self._acquire_if_free(timeout)
        except (AlreadyExists, Conflict) as error:
            _log.debug(
                "Another replica updated the Lease first", lease=self._lease_name, cause=str(error)
            )
        except (APIError, TransportError) as error:
            event = "Failed to renew lease" if self._leading else "Failed to acquire lease"
            self._failure = str(error)
            _log.warning(event, lease=self._lease_name, error=self._failure)
        except orjson.JSONDecodeError as error:
            self._failure = str(error)
            _log.warning("Failed to decode lease", lease=self._lease_name, error=str(error))
        return False

    async def _acquire_if_free(self, timeout: float) -> bool:
        lease = await self._lock.get(timeout=timeout)
        if lease is None:  # deleted by hand, or never created
            self._observe({})
            await self._write({}, timeout)
            return True
        known = self._lease
        self._observe(lease)
        if self._was_renewed():
            return True
        # A released Lease has no holder. We hold it already if the container was restarted in the same pod.
        if self.leader not in ("", self.options.identity) and self._is_held():
            _log.debug(
                "Lease is held by another replica", lease=self._lease_name, leader=self.leader
            )
            if known and known.get("spec") != lease.get("spec"):
                self._on_rival(self.leader)
            return False
        await self._write(lease, timeout)
        return True

    def _was_renewed(self) -> bool:
        """Return whether the Lease that was just read is the renewal without an answer, and count it then."""
        unanswered = self._unanswered
        self._unanswered = None
        if unanswered is None or not self._leading or self._spec != unanswered.spec:
            return False
        self._renewed_at = unanswered.began
        self._longest_delay = 0.0
        return self._remaining() > 0

    def _observe(self, lease: Object) -> None:
        old_spec = self._spec
        self._lease = lease
        if self._spec != old_spec:
            # By our own clock, because the clocks of other nodes may differ.
            self._observed_at = self._clock.boottime()
        if self.leader != self._reported_leader:
            self._reported_leader = self.leader
            _log.info("New leader observed", lease=self._lease_name, leader=self.leader or "<none>")

    def _is_held(self) -> bool:
        """Return whether the holder may still be working: the spec changed within the duration of the Lease."""
        seconds = self._spec.get("leaseDurationSeconds")
        duration = float(seconds) if isinstance(seconds, int) else 0.0
        return self._observed_at + duration > self._clock.boottime()

    async def _write(self, lease: Object, timeout: float) -> None:
        """Write the Lease with this process as the holder; create it if ``lease`` is empty."""
        began = self._clock.boottime()
        written = _with_holder(lease, self.options, self._clock.now())
        try:
            if lease:
                persisted = await self._lock.update(written, timeout=timeout)
            else:
                persisted = await self._lock.create(written, timeout=timeout)
        except TransportError:
            self._unanswered = _UnansweredWrite(written["spec"], began)
            raise
        self._unanswered = None
        self._observe(persisted)
        # Other replicas count from their observation of this write, which is later than its start.
        self._renewed_at = began
        self._longest_delay = 0.0
        self._leading = True

    async def _release(self) -> None:
        """Release the Lease; if this fails, the next leader has to wait until it expires."""
        self._leading = False
        now = micro_time(self._clock.now())
        spec = {
            **self._spec,
            "holderIdentity": "",
            "leaseDurationSeconds": _RELEASED_SECONDS,
            "renewTime": now,
            "acquireTime": now,
        }
        released = {**self._lease, "spec": spec}
        try:
            await self._lock.update(released, timeout=self.options.renew_deadline / 2)
            _log.info("Released lease", lease=self._lease_name)
        except (APIError, TransportError) as error:
            _log.warning("Failed to release lease", lease=self._lease_name, error=str(error))

    async def _pause(self, seconds: float) -> bool:
        """Sleep until ``seconds`` have passed or a stop is requested; return whether one is requested."""
        began = self._clock.boottime()
        is_stopping = await sleep_unless(self._clock, seconds, self._stopping)
        delay = self._clock.boottime() - began - seconds
        self._longest_delay = max(self._longest_delay, delay)
        return is_stopping

    def _record(self, change: str) -> None:
        if self._events is None:
            return
        lease = self._lease
        if not lease:  # it was deleted, but an Event only names it
            lease = _with_holder({}, self.options, self._clock.now())
        message = f"{self.options.identity} {change}"
        self._events.event(lease, "Normal", "LeaderElection", message)


def _with_holder(lease: Object, options: LeaderElectionOptions, now: datetime) -> Object:
    """Return ``lease`` with this process as the holder and ``now`` as the renewal time."""
    old = lease.get("spec") or {}
    renewed_at = micro_time(now)
    acquired_at = renewed_at
    transitions = old.get("leaseTransitions")
    if not isinstance(transitions, int):
        transitions = 0
    if old.get("holderIdentity") == options.identity:
        acquired_at = old.get("acquireTime") or renewed_at
    elif lease:
        transitions += 1
    spec = {
        **old,
        "holderIdentity": options.identity,
        "leaseDurationSeconds": ceil(options.lease_duration),
        "acquireTime": acquired_at,
        "renewTime": renewed_at,
        "leaseTransitions": transitions,
    }
    if lease:
        return {**lease, "spec": spec}
    return new_object(LEASE, options.name, options.namespace, labels=options.labels, spec=spec)
