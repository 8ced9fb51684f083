"""Leader election: who holds the Lease, for how long, and when writes are allowed; tested with a fake clock."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import orjson
import pytest
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import AlreadyExists, Conflict, ServiceUnavailable, TransportError
from cfo.runtime.client.transport import APIRequest, Transport
from cfo.runtime.client.write_gate import WriteRejected, write_gates
from cfo.runtime.controller.lifecycle import RunnableFailed, StartPhase
from cfo.runtime.controller.metrics import Metrics
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.leaderelection import (
    LeaderElectionOptions,
    LeaderElector,
    LeadershipLost,
    LeaseLock,
    leader_election_rules,
)
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import CONFIG_MAP
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.api_server import ApiServer, json, status
from test.support.clocks import FakeClock
from test.support.scheduling import run_until_idle


class FakeLock(LeaseLock):
    """A Lease in memory, with optimistic concurrency.

    Requests wait for ``gate``; then they fail while ``down`` is set, or raise the next of ``errors``. The next
    ``lost_answers`` of updates are lost after the Lease was stored.
    """

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.errors: list[Exception] = []
        self.down = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.lost_answers = 0
        self.updates = 0

    async def _respond(self) -> None:
        await self.gate.wait()
        if self.down:
            raise TransportError("no answer", outcome_unknown=True)
        if self.errors:
            raise self.errors.pop(0)

    async def get(self, *, timeout: float) -> Object | None:
        assert timeout > 0
        await self._respond()
        return copy.deepcopy(self.lease)

    async def create(self, lease: Object, *, timeout: float) -> Object:
        assert timeout > 0
        await self._respond()
        if self.lease is not None:
            raise AlreadyExists(409)
        return self._store(lease)

    async def update(self, lease: Object, *, timeout: float) -> Object:
        assert timeout > 0
        await self._respond()
        if (
            self.lease is None
            or self.lease["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]
        ):
            raise Conflict(409)
        stored = self._store(lease)
        if self.lost_answers:
            self.lost_answers -= 1
            raise TransportError("no answer", outcome_unknown=True)
        return stored

    def _store(self, lease: Object) -> Object:
        self.updates += 1
        self.lease = copy.deepcopy(lease)
        self.lease["metadata"].update(resourceVersion=str(self.updates), uid="u-1")
        return copy.deepcopy(self.lease)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


class Events:
    """An event recorder that keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def event(self, obj: Object, type: str, reason: str, message: str) -> None:  # noqa: A002
        assert (obj["kind"], type, reason) == ("Lease", "Normal", "LeaderElection")
        self.messages.append(message)


class Replica:
    """A leader elector with its own clock, events and metrics."""

    def __init__(self, lock: FakeLock, identity: str, clock: FakeClock, **options: Any) -> None:
        self.clock = clock
        self.events = Events()
        self.metrics = Metrics()
        self.rivals: list[str] = []
        self.elector = LeaderElector(
            lock,
            LeaderElectionOptions(name="lock", namespace="ns", identity=identity, **options),
            clock=clock,
            events=self.events,  # type: ignore[arg-type]
            metrics=self.metrics,
            random=lambda: 0.0,
            on_rival=self.rivals.append,
        )
        self.error: LeadershipLost | None = None
        self.ended = False

    async def run(self) -> None:
        try:
            await self.elector.run()
        except LeadershipLost as error:
            self.error = error
        self.ended = True

    def is_leader(self) -> bool:
        return self.elector.is_leader

    def can_write(self) -> bool:
        try:
            self.elector.check()
        except WriteRejected:
            return False
        return True

    async def advance(self, seconds: float, step: float = 0.5) -> None:
        """Advance the clock in steps, and let all tasks run after each step."""
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            await run_until_idle()


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        for replica in replicas:
            tasks.start_soon(replica.run)
            await run_until_idle()
        yield
        tasks.cancel_scope.cancel()


def metric_value(replica: Replica, name: str) -> float | None:
    return replica.metrics.registry.get_sample_value(name, {"name": "lock"})


async def test_first_replica_becomes_leader_and_is_recorded_in_lease() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        assert one.is_leader()
        assert lock.lease is not None
        assert (lock.lease["metadata"]["namespace"], lock.lease["metadata"]["name"]) == (
            "ns",
            "lock",
        )
        assert lock.spec == {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        }
        assert one.events.messages == ["one became leader"]
        assert metric_value(one, "leader_election_master_status") == 1
        await one.advance(4)
        assert lock.spec["renewTime"] == "2026-01-01T00:00:04.000000Z"
        assert lock.spec["acquireTime"] == "2026-01-01T00:00:00.000000Z"
        assert lock.updates == 3


async def test_standby_takes_over_after_lease_duration_without_renewal() -> None:
    lock, clock = FakeLock(), FakeClock()
    one, two = Replica(lock, "one", clock), Replica(lock, "two", clock)
    async with anyio.create_task_group() as tasks:
        async with running(one):
            tasks.start_soon(two.run)
            await one.advance(30)
            assert (one.is_leader(), two.is_leader()) == (True, False)
            assert not two.can_write()
        await two.advance(11)  # the last renewal is up to 2 s old and was observed up to 2 s later
        assert not two.is_leader()
        await two.advance(8)
        assert two.is_leader()
        assert lock.spec["leaseTransitions"] == 1
        assert lock.spec["acquireTime"] != "2026-01-01T00:00:00.000000Z"
        tasks.cancel_scope.cancel()


async def test_rival_is_reported_only_while_it_renews_the_lease() -> None:
    lock, clock = FakeLock(), FakeClock()
    one, two = Replica(lock, "one", clock), Replica(lock, "two", clock)
    async with anyio.create_task_group() as tasks:
        async with running(one):
            tasks.start_soon(two.run)
            await run_until_idle()
            assert two.rivals == [], "it may have ended before this replica observed it"
            await one.advance(10)
            assert set(two.rivals) == {"one"}
        await two.advance(3)  # the last renewal may not have been observed yet
        known = len(two.rivals)
        await two.advance(30)
        assert two.is_leader()
        assert (len(two.rivals), one.rivals) == (known, [])
        tasks.cancel_scope.cancel()


async def test_timestamps_in_lease_are_ignored() -> None:
    lock, clock = FakeLock(), FakeClock()
    lock._store(_lease("other", renewed="2001-01-01T00:00:00.000000Z"))
    one = Replica(lock, "one", clock)
    async with running(one):
        await one.advance(14)
        assert not one.is_leader()  # no matter how old renewTime is
        assert one.elector.problem == "Lease ns/lock is held by other"
        await one.advance(3)
        assert one.is_leader()


def _lease(holder: str, *, renewed: str = "", seconds: int = 15, version: str = "1") -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": "ns",
            "name": "lock",
            "resourceVersion": version,
            "labels": {"kept": "yes"},
        },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "renewTime": renewed,
            "leaseTransitions": 4,
            "strategy": "kept too",
        },
    }


async def test_labels_and_unknown_fields_of_lease_are_kept() -> None:
    lock = FakeLock()
    lock._store(_lease(""))
    one = Replica(lock, "one", FakeClock())
    async with running(one):
        assert one.is_leader()
        assert lock.lease is not None
        assert lock.lease["metadata"]["labels"] == {"kept": "yes"}
        assert lock.spec["strategy"] == "kept too"
        assert lock.spec["leaseTransitions"] == 5


async def test_lease_without_spec_can_be_acquired() -> None:
    lock = FakeLock()
    lock._store({**_lease("x"), "spec": {}})
    one = Replica(lock, "one", FakeClock())
    async with running(one):
        assert one.is_leader()


async def test_graceful_stop_releases_lease_immediately() -> None:
    lock, clock = FakeLock(), FakeClock()
    one, two = Replica(lock, "one", clock), Replica(lock, "two", clock)
    async with running(one, two):
        one.elector.stop()
        await run_until_idle()
        assert (one.ended, one.error, one.can_write()) == (True, None, False)
        assert lock.spec["holderIdentity"] == ""
        assert lock.spec["leaseDurationSeconds"] == 1
        assert one.events.messages == ["one became leader", "one stopped leading"]
        await two.advance(2)
        assert two.is_leader()


async def test_lease_is_kept_on_stop_without_release_on_cancel() -> None:
    lock = FakeLock()
    one = Replica(lock, "one", FakeClock(), release_on_cancel=False)
    async with running(one):
        one.elector.stop()
        await run_until_idle()
        assert one.ended
        assert lock.spec["holderIdentity"] == "one"


async def test_stopping_standby_does_not_change_lease() -> None:
    lock, clock = FakeLock(), FakeClock()
    one, two = Replica(lock, "one", clock), Replica(lock, "two", clock)
    async with running(one, two):
        two.elector.stop()
        await run_until_idle()
        assert two.ended
        assert lock.spec["holderIdentity"] == "one"
        assert two.events.messages == []


async def test_leader_that_cannot_renew_ends_at_renew_deadline() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        await one.advance(4)
        lock.down = True
        await one.advance(9.5)
        assert one.can_write()
        assert not one.ended
        await one.advance(0.5)
        assert not one.can_write()
        assert one.error is not None
        assert "not renewed for 10.0 s; the event loop was up to 0." in str(one.error)
        assert metric_value(one, "leader_election_master_status") == 0


async def test_leader_survives_outage_shorter_than_renew_deadline() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        lock.down = True
        await one.advance(9)
        lock.down = False
        await one.advance(20)
        assert one.is_leader()
        assert one.error is None


async def test_renewal_counts_from_the_time_its_request_was_sent() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        lock.gate.clear()
        await one.advance(6)  # sent at 2 s, response at 6 s
        lock.gate.set()
        await run_until_idle()
        clock.suspend(5.9)
        assert one.can_write()
        clock.suspend(0.2)
        assert not one.can_write()


async def test_renewal_that_was_stored_without_an_answer_counts_from_its_start() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        lock.lost_answers = 1
        await one.advance(4)  # stored at 2 s, and read at 4 s
        assert lock.updates == 2
        assert metric_value(one, "leader_election_slowpath_total") == 0
        lock.down = True
        await one.advance(7.5)
        assert one.can_write()
        await one.advance(0.5)
        assert not one.can_write()


async def test_renewal_that_was_not_stored_is_repeated() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        lock.errors = [TransportError("no answer", outcome_unknown=True)]
        await one.advance(4)
        assert lock.spec["renewTime"] == "2026-01-01T00:00:04.000000Z"
        assert one.is_leader()


async def test_leader_that_is_suspended_after_a_lost_answer_remains_the_leader() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        lock.lost_answers = 1
        await one.advance(2)
        clock.suspend(600)
        await one.advance(2)
        assert one.can_write()
        assert one.error is None


async def test_leader_ends_if_another_replica_was_the_leader_after_a_lost_answer() -> None:
    for other in (_lease("rival"), _lease("")):
        lock, clock = FakeLock(), FakeClock()
        one = Replica(lock, "one", clock)
        async with running(one):
            lock.lost_answers = 1
            await one.advance(2)
            lock._store(other)
            clock.suspend(600)
            await one.advance(2)
            assert one.error is not None
            assert not one.can_write()


async def test_suspended_leader_remains_the_leader_if_no_other_replica_was() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        await one.advance(2)
        lock.gate.clear()
        clock.suspend(600)
        await one.advance(2)
        assert not one.can_write()  # until the API server has confirmed the renewal
        lock.gate.set()
        await run_until_idle()
        assert one.can_write()
        assert one.error is None
        assert lock.spec["leaseTransitions"] == 0
        await one.advance(8)
        assert one.is_leader()


async def test_suspended_leader_ends_if_another_replica_was_the_leader_meanwhile() -> None:
    """Also if that one has released the Lease, or deleted it: this process has not seen what it wrote."""
    for is_deleted in (False, True):
        lock, clock = FakeLock(), FakeClock()
        one = Replica(lock, "one", clock)
        async with running(one):
            await one.advance(2)
            lock._store(_lease(""))
            if is_deleted:
                lock.lease = None
            before = copy.deepcopy(lock.lease)
            clock.suspend(600)
            await one.advance(2)
            assert one.error is not None
            assert not one.can_write()
            assert lock.lease == before


async def test_late_renewal_that_takes_too_long_is_not_repeated() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        await one.advance(2)
        lock.gate.clear()
        clock.suspend(600)
        await one.advance(2)
        clock.suspend(600)
        lock.gate.set()
        await run_until_idle()
        assert one.error is not None
        assert not one.can_write()


async def test_leader_suspended_past_deadline_cannot_write_and_ends() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        await one.advance(2)
        lock.down = True
        clock.suspend(600)
        assert not one.can_write()  # before any timer fires
        with pytest.raises(WriteRejected, match=r"leadership ended 590\.0 s ago"):
            one.elector.check()
        await one.advance(2)
        assert one.error is not None
        assert str(one.error) == (
            "leader election lost: Lease ns/lock was not renewed for 602.0 s; the event loop was up to 600.0 s late"
        )
        assert lock.spec["renewTime"] == "2026-01-01T00:00:02.000000Z"


async def test_leader_ends_when_another_replica_holds_the_lease() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        lock._store(_lease("rival"))
        await one.advance(2)
        assert one.error is not None
        assert "acquired by rival" in str(one.error)
        assert lock.spec["holderIdentity"] == "rival"
        assert metric_value(one, "leader_election_slowpath_total") == 1


async def test_edit_of_lease_by_another_client_keeps_leadership() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        assert lock.lease is not None
        lock._store(
            {**lock.lease, "metadata": {**lock.lease["metadata"], "labels": {"touched": ""}}}
        )
        await one.advance(2)
        assert one.is_leader()
        assert lock.lease["metadata"]["labels"] == {"touched": ""}
        assert lock.spec["leaseTransitions"] == 0


async def test_deleted_lease_is_recreated() -> None:
    lock, clock = FakeLock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with running(one):
        lock.lease = None
        await one.advance(2)
        assert one.is_leader()
        assert lock.spec["holderIdentity"] == "one"


async def test_errors_while_acquiring_are_retried() -> None:
    lock, clock = FakeLock(), FakeClock()
    lock.errors = [
        ServiceUnavailable(503),
        TransportError("reset", outcome_unknown=False),
        AlreadyExists(409),
    ]
    one = Replica(lock, "one", clock)
    async with running(one):
        assert one.elector.problem == f"Lease ns/lock: {ServiceUnavailable(503)}"
        await one.advance(6.5)
        assert one.is_leader()
        assert one.elector.problem == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lease_duration": 10.0}, "lease_duration"),
        ({"retry_period": 9.0}, "renew_deadline"),
        ({"lease_duration": 0.5, "renew_deadline": 0.4, "retry_period": 0.1}, "at least 1 s"),
        ({"name": ""}, "name"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LeaderElectionOptions(**{"name": "n", "namespace": "ns", **options})


def test_default_identities_are_unique() -> None:
    one, two = (LeaderElectionOptions(name="n", namespace="ns") for _ in range(2))
    assert one.identity != two.identity
    assert "_" in one.identity


async def test_lease_duration_is_rounded_up_to_whole_seconds() -> None:
    lock = FakeLock()
    one = Replica(
        lock, "one", FakeClock(), lease_duration=1.5, renew_deadline=1.2, retry_period=0.5
    )
    async with running(one):
        assert lock.spec["leaseDurationSeconds"] == 2


def test_rbac_rules_are_limited_to_one_lease() -> None:
    create, rest = leader_election_rules("lock", "ns")
    assert (create.verbs, create.resource_names, create.namespace) == (("create",), (), "ns")
    assert (rest.verbs, rest.resource_names, rest.namespace) == (("get", "update"), ("lock",), "ns")


async def test_lease_lock_sends_its_timeout() -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    server = ApiServer()
    server.answer(
        "GET", f"{path}/lock", json(status(404, "NotFound", name="lock"), 404), json(_lease("a"))
    )
    server.answer("POST", path, json(_lease("b"), 201))
    server.answer("PUT", f"{path}/lock", json(_lease("c")))
    async with server.run(), Transport(ClientConfig(server=server.url)) as transport:
        lock = LeaseLock(transport, NamespacedName("ns", "lock"))
        assert await lock.get(timeout=5) is None
        assert (await lock.get(timeout=5) or {})["spec"]["holderIdentity"] == "a"
        assert (await lock.create(_lease("b"), timeout=5))["spec"]["holderIdentity"] == "b"
        assert (await lock.update(_lease("c"), timeout=5))["spec"]["holderIdentity"] == "c"
    assert {request.query["timeout"] for request in server.all_requests} == {"5s"}


class LimitedGate:
    """A write gate that allows ``remaining`` checks and rejects all later ones."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining

    def check(self) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise WriteRejected("not the leader")


async def test_transport_checks_write_gate_before_each_write_attempt_and_never_for_reads() -> None:
    server = ApiServer()
    busy = {"Retry-After": "1"}
    server.answer("PUT", "/thing", json(status(429, "TooManyRequests"), 429, busy))
    server.answer("GET", "/thing", json({}))
    clock = FakeClock()
    async with server.run(), Transport(ClientConfig(server=server.url), clock=clock) as transport:
        write_gates.set((LimitedGate(1),))
        write = asyncio.create_task(transport.request(APIRequest("PUT", "/thing", body=b"{}")))
        while not clock.timers:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        clock.advance(1)
        with pytest.raises(WriteRejected) as rejected:
            await write
        assert not rejected.value.outcome_unknown
        assert len(server.requests("PUT")) == 1
        assert (await transport.request(APIRequest("GET", "/thing"))).code == 200
        for method in ("POST", "PATCH", "DELETE"):
            with pytest.raises(WriteRejected):
                await transport.request(APIRequest(method, "/thing"))
        assert not server.requests("DELETE")
    write_gates.set(())


def is_leader(manager: Manager) -> bool:
    return manager.is_leader


async def test_only_leader_runnables_wait_for_leadership_and_have_a_write_gate() -> None:
    gated: dict[str, bool] = {}
    path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    server = ApiServer()
    lease_available = asyncio.Event()

    async def get_lease(request: web.Request) -> web.StreamResponse:
        await lease_available.wait()
        return web.json_response(_lease("", version="7"))

    async def update_lease(request: web.Request) -> web.StreamResponse:
        return web.json_response(orjson.loads(await request.read()))

    server.answer("GET", f"{path}/lock", get_lease)
    server.answer("PUT", f"{path}/lock", update_lease)

    async def record(name: str) -> None:
        gated[name] = bool(write_gates.get())
        async with anyio.create_task_group() as tasks:

            async def inner() -> None:
                gated[f"{name} inside"] = bool(write_gates.get())

            tasks.start_soon(inner)

    async def all_replicas() -> None:
        await record("all replicas")

    async def leader_only() -> None:
        await record("leader")

    async with server.run():
        election = LeaderElectionOptions(name="lock", namespace="ns")
        manager = Manager(ClientConfig(server=server.url), ManagerOptions(leader_election=election))
        manager.add(all_replicas, phase=StartPhase.ALL_REPLICAS)
        manager.add(leader_only)
        async with manager:
            while len(server.all_requests) == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert gated == {"all replicas": False, "all replicas inside": False}
            assert not is_leader(manager)
            assert await manager.health.failures() == {}  # a standby is ready
            lease_available.set()
            await manager.started()
            assert is_leader(manager)
    assert gated["leader"]
    assert gated["leader inside"]
    assert server.requests("PUT")[-1].body["spec"]["holderIdentity"] == ""


async def test_leader_without_data_of_a_kind_is_ready_and_names_it() -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    expected = "[+]controllers ok: not synced: ConfigMap.v1"
    server = ApiServer()
    lease_available = asyncio.Event()

    async def read_lease(request: web.Request) -> web.StreamResponse:
        await lease_available.wait()
        return web.json_response(_lease(""))

    async def update_lease(request: web.Request) -> web.StreamResponse:
        return web.json_response(orjson.loads(await request.read()))

    server.answer("GET", f"{path}/lock", read_lease)
    server.answer("PUT", f"{path}/lock", update_lease)

    async def controllers_line(manager: Manager) -> str:
        url = f"http://127.0.0.1:{manager.health_port}/readyz?verbose"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.status == 200
            return (await response.text()).splitlines()[0]

    class Idle:
        async def reconcile(self, request: Request) -> Result:
            return Result()

    async with server.run():
        options = ManagerOptions(
            leader_election=LeaderElectionOptions(name="lock", namespace="ns"),
            health_bind_address="127.0.0.1:0",
        )
        manager = Manager(ClientConfig(server=server.url), options)
        Builder(manager).for_(CONFIG_MAP).complete(Idle())
        async with manager, asyncio.timeout(120):
            while await manager.health.failures():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert not is_leader(manager)
            assert await controllers_line(manager) == expected
            lease_available.set()
            while not is_leader(manager):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert await controllers_line(manager) == expected


async def test_losing_the_lease_stops_manager_immediately_with_an_error() -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    server = ApiServer()
    server.answer("GET", f"{path}/lock", json(_lease("")), json(_lease("rival")))

    async def update_lease(request: web.Request) -> web.StreamResponse:
        return web.json_response(orjson.loads(await request.read()))

    server.answer("PUT", f"{path}/lock", update_lease, json(status(409, "Conflict"), 409))

    class Unstoppable:
        """Ignores ``stop`` and ends only when it is cancelled."""

        def stop(self) -> None:
            pass

        async def run(self, *, task_status: TaskStatus[None]) -> None:
            task_status.started()
            await anyio.sleep_forever()

    async with server.run():
        election = LeaderElectionOptions(name="lock", namespace="ns", retry_period=0.05)
        manager = Manager(
            ClientConfig(server=server.url),
            ManagerOptions(leader_election=election, graceful_shutdown_timeout=None),
        )
        manager.add(Unstoppable())
        with pytest.raises(
            RunnableFailed, match="leader election lost: Lease ns/lock was acquired by rival"
        ):
            await manager.run()
