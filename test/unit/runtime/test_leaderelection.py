"""Leader election: who leads, for how long, and what he may write. Time is the test's."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.runtime.client.api_request import APIRequest
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import AlreadyExists, Conflict, ServiceUnavailable, TransportError
from cfo.runtime.client.transport import Transport
from cfo.runtime.client.write_gate import WriteRefused, write_gate
from cfo.runtime.clock import FakeClock
from cfo.runtime.leaderelection import (
    LeaderElectionOptions,
    LeaderElector,
    LeadershipLost,
    LeaseLock,
    leader_election_rules,
)
from cfo.runtime.lifecycle import Phase, RunnableFailed
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.metrics import Metrics
from cfo.runtime.objects import NamespacedName, Object
from test.support.api_server import ApiServer, json, status
from test.support.scheduling import settled


class Lock:
    """A Lease in memory, with optimistic concurrency; ``errors`` are raised first, ``gate`` holds answers back."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.errors: list[Exception] = []
        self.down = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.updates = 0

    async def _answer(self) -> None:
        await self.gate.wait()
        if self.down:
            raise TransportError("no answer", outcome_unknown=True)
        if self.errors:
            raise self.errors.pop(0)

    async def get(self, *, timeout: float) -> Object | None:
        assert timeout > 0
        await self._answer()
        return copy.deepcopy(self.lease)

    async def create(self, lease: Object, *, timeout: float) -> Object:
        assert timeout > 0
        await self._answer()
        if self.lease is not None:
            raise AlreadyExists(409)
        return self._store(lease)

    async def update(self, lease: Object, *, timeout: float) -> Object:
        assert timeout > 0
        await self._answer()
        if self.lease is None or self.lease["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            raise Conflict(409)
        return self._store(lease)

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
    def __init__(self) -> None:
        self.notes: list[str] = []

    def event(self, obj: Object, type: str, reason: str, message: str) -> None:  # noqa: A002
        assert (obj["kind"], type, reason) == ("Lease", "Normal", "LeaderElection")
        self.notes.append(message)


class Replica:
    """An elector, its run, and its own clock."""

    def __init__(self, lock: Lock, identity: str, clock: FakeClock, **options: Any) -> None:
        self.clock = clock
        self.events = Events()
        self.metrics = Metrics()
        self.elector = LeaderElector(
            lock,
            LeaderElectionOptions(name="lock", namespace="ns", identity=identity, **options),
            clock=clock,
            events=self.events,  # type: ignore[arg-type]
            metrics=self.metrics,
            random=lambda: 0.0,
        )
        self.error: LeadershipLost | None = None
        self.ended = False

    async def run(self) -> None:
        try:
            await self.elector.run()
        except LeadershipLost as error:
            self.error = error
        self.ended = True

    def leads(self) -> bool:
        return self.elector.is_leader

    def may_write(self) -> bool:
        try:
            self.elector.check()
        except WriteRefused:
            return False
        return True

    async def passes(self, seconds: float, step: float = 0.5) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            await settled()


@asynccontextmanager
async def replicas(*all_: Replica) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        for replica in all_:
            tasks.start_soon(replica.run)
            await settled()
        yield
        tasks.cancel_scope.cancel()


def sample(replica: Replica, name: str) -> float | None:
    return replica.metrics.registry.get_sample_value(name, {"name": "lock"})


async def test_the_first_leads_and_the_lease_says_so() -> None:
    lock, clock = Lock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with replicas(one):
        assert one.leads()
        assert lock.lease is not None
        assert (lock.lease["metadata"]["namespace"], lock.lease["metadata"]["name"]) == ("ns", "lock")
        assert lock.spec == {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        }
        assert one.events.notes == ["one became leader"]
        assert sample(one, "leader_election_master_status") == 1
        await one.passes(4)
        assert lock.spec["renewTime"] == "2026-01-01T00:00:04.000000Z"
        assert lock.spec["acquireTime"] == "2026-01-01T00:00:00.000000Z"
        assert lock.updates == 3


async def test_another_waits_until_it_has_not_seen_a_renewal_for_the_lease_duration() -> None:
    lock, clock = Lock(), FakeClock()
    one, two = Replica(lock, "one", clock), Replica(lock, "two", clock)
    async with anyio.create_task_group() as tasks:
        async with replicas(one):
            tasks.start_soon(two.run)
            await one.passes(30)
            assert (one.leads(), two.leads()) == (True, False)
            assert not two.may_write()
        await two.passes(11)  # the last renewal was up to 2 s ago, and seen up to 2 s later
        assert not two.leads()
        await two.passes(8)
        assert two.leads()
        assert lock.spec["leaseTransitions"] == 1
        assert lock.spec["acquireTime"] != "2026-01-01T00:00:00.000000Z"
        tasks.cancel_scope.cancel()


async def test_nobody_elses_clock_is_believed() -> None:
    lock, behind = Lock(), FakeClock()
    lock._store(_lease("other", renewed="2001-01-01T00:00:00.000000Z"))
    one = Replica(lock, "one", behind)
    async with replicas(one):
        await one.passes(14)
        assert not one.leads()  # however old the renewal says that it is
        await one.passes(3)
        assert one.leads()


def _lease(holder: str, *, renewed: str = "", seconds: int = 15, version: str = "1") -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "ns", "name": "lock", "resourceVersion": version, "labels": {"kept": "yes"}},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "renewTime": renewed,
            "leaseTransitions": 4,
            "strategy": "kept too",
        },
    }


async def test_what_others_put_into_the_lease_stays() -> None:
    lock = Lock()
    lock._store(_lease(""))
    one = Replica(lock, "one", FakeClock())
    async with replicas(one):
        assert one.leads()
        assert lock.lease is not None
        assert lock.lease["metadata"]["labels"] == {"kept": "yes"}
        assert lock.spec["strategy"] == "kept too"
        assert lock.spec["leaseTransitions"] == 5


async def test_a_lease_without_a_spec_is_free() -> None:
    lock = Lock()
    lock._store({**_lease("x"), "spec": {}})
    one = Replica(lock, "one", FakeClock())
    async with replicas(one):
        assert one.leads()


async def test_a_graceful_stop_gives_the_lease_up_at_once() -> None:
    lock, clock = Lock(), FakeClock()
    one, two = Replica(lock, "one", clock), Replica(lock, "two", clock)
    async with replicas(one, two):
        one.elector.stop()
        await settled()
        assert (one.ended, one.error, one.may_write()) == (True, None, False)
        assert lock.spec["holderIdentity"] == ""
        assert lock.spec["leaseDurationSeconds"] == 1
        assert one.events.notes == ["one became leader", "one stopped leading"]
        await two.passes(2)
        assert two.leads()


async def test_it_may_be_told_to_keep_the_lease_on_stop() -> None:
    lock = Lock()
    one = Replica(lock, "one", FakeClock(), release_on_cancel=False)
    async with replicas(one):
        one.elector.stop()
        await settled()
        assert one.ended
        assert lock.spec["holderIdentity"] == "one"


async def test_a_standby_that_stops_leaves_the_lease_alone() -> None:
    lock, clock = Lock(), FakeClock()
    one, two = Replica(lock, "one", clock), Replica(lock, "two", clock)
    async with replicas(one, two):
        two.elector.stop()
        await settled()
        assert two.ended
        assert lock.spec["holderIdentity"] == "one"
        assert two.events.notes == []


async def test_a_leader_that_cannot_renew_gives_up_at_its_deadline() -> None:
    lock, clock = Lock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with replicas(one):
        await one.passes(4)
        lock.down = True
        await one.passes(9.5)
        assert one.may_write()
        assert not one.ended
        await one.passes(0.5)
        assert not one.may_write()
        assert one.error is not None
        assert "not renewed for 10.0 s" in str(one.error)
        assert sample(one, "leader_election_master_status") == 0


async def test_a_leader_survives_a_server_that_is_away_for_less() -> None:
    lock, clock = Lock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with replicas(one):
        lock.down = True
        await one.passes(9)
        lock.down = False
        await one.passes(20)
        assert one.leads()
        assert one.error is None


async def test_renewals_count_from_when_they_were_sent() -> None:
    lock, clock = Lock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with replicas(one):
        lock.gate.clear()
        await one.passes(6)  # sent at 2, answered at 6
        lock.gate.set()
        await settled()
        clock.suspend(5.9)
        assert one.may_write()
        clock.suspend(0.2)
        assert not one.may_write()


async def test_a_machine_that_was_suspended_past_the_deadline_writes_nothing_and_ends() -> None:
    lock, clock = Lock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with replicas(one):
        await one.passes(2)
        clock.suspend(600)
        assert not one.may_write()  # before any timer has noticed
        with pytest.raises(WriteRefused, match=r"leadership ended 590\.0 s ago"):
            one.elector.check()
        await one.passes(2)
        assert one.error is not None
        assert lock.spec["renewTime"] == "2026-01-01T00:00:02.000000Z"


async def test_a_leader_that_was_deposed_ends_at_once() -> None:
    lock, clock = Lock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with replicas(one):
        lock._store(_lease("usurper"))
        await one.passes(2)
        assert one.error is not None
        assert "acquired by usurper" in str(one.error)
        assert lock.spec["holderIdentity"] == "usurper"
        assert sample(one, "leader_election_slowpath_total") == 1


async def test_an_edit_by_somebody_does_not_depose() -> None:
    lock, clock = Lock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with replicas(one):
        assert lock.lease is not None
        lock._store({**lock.lease, "metadata": {**lock.lease["metadata"], "labels": {"touched": ""}}})
        await one.passes(2)
        assert one.leads()
        assert lock.lease["metadata"]["labels"] == {"touched": ""}
        assert lock.spec["leaseTransitions"] == 0


async def test_a_deleted_lease_is_made_anew() -> None:
    lock, clock = Lock(), FakeClock()
    one = Replica(lock, "one", clock)
    async with replicas(one):
        lock.lease = None
        await one.passes(2)
        assert one.leads()
        assert lock.spec["holderIdentity"] == "one"


async def test_errors_while_waiting_are_tried_again() -> None:
    lock, clock = Lock(), FakeClock()
    lock.errors = [ServiceUnavailable(503), TransportError("reset", outcome_unknown=False), AlreadyExists(409)]
    one = Replica(lock, "one", clock)
    async with replicas(one):
        await one.passes(6.5)
        assert one.leads()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lease_duration": 10.0}, "lease_duration"),
        ({"retry_period": 9.0}, "renew_deadline"),
        ({"lease_duration": 0.5, "renew_deadline": 0.4, "retry_period": 0.1}, "at least 1 s"),
        ({"name": ""}, "name"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LeaderElectionOptions(**{"name": "n", "namespace": "ns", **options})


def test_identities_are_unique_and_the_duration_is_rounded_up() -> None:
    one, two = (LeaderElectionOptions(name="n", namespace="ns") for _ in range(2))
    assert one.identity != two.identity
    assert "_" in one.identity


async def test_others_never_wait_for_less_than_was_asked_for() -> None:
    lock = Lock()
    one = Replica(lock, "one", FakeClock(), lease_duration=1.5, renew_deadline=1.2, retry_period=0.5)
    async with replicas(one):
        assert lock.spec["leaseDurationSeconds"] == 2


def test_the_rights_are_for_one_lease() -> None:
    create, rest = leader_election_rules("lock", "ns")
    assert (create.verbs, create.resource_names, create.namespace) == (("create",), (), "ns")
    assert (rest.verbs, rest.resource_names, rest.namespace) == (("get", "update"), ("lock",), "ns")


async def test_the_lease_lock_asks_with_the_time_it_has() -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    server = ApiServer()
    server.answer("GET", f"{path}/lock", json(status(404, "NotFound", name="lock"), 404), json(_lease("a")))
    server.answer("POST", path, json(_lease("b"), 201))
    server.answer("PUT", f"{path}/lock", json(_lease("c")))
    async with server.run(), Transport(ClientConfig(server=server.url)) as transport:
        lock = LeaseLock(transport, NamespacedName("ns", "lock"))
        assert await lock.get(timeout=5) is None
        assert (await lock.get(timeout=5) or {})["spec"]["holderIdentity"] == "a"
        assert (await lock.create(_lease("b"), timeout=5))["spec"]["holderIdentity"] == "b"
        assert (await lock.update(_lease("c"), timeout=5))["spec"]["holderIdentity"] == "c"
    assert {asked.query["timeout"] for asked in server.asked} == {"5s"}


class Shut:
    """A gate that closes after so many questions."""

    def __init__(self, passes: int) -> None:
        self.passes = passes

    def check(self) -> None:
        self.passes -= 1
        if self.passes < 0:
            raise WriteRefused("not the leader")


async def test_the_transport_asks_the_gate_before_each_attempt_at_a_write_and_never_for_reads() -> None:
    server = ApiServer()
    busy = {"Retry-After": "1"}
    server.answer("PUT", "/thing", json(status(429, "TooManyRequests"), 429, busy))
    server.answer("GET", "/thing", json({}))
    clock = FakeClock()
    async with server.run(), Transport(ClientConfig(server=server.url), clock=clock) as transport:
        write_gate.set(Shut(1))
        write = asyncio.create_task(transport.request(APIRequest("PUT", "/thing", body=b"{}")))
        while not clock.timers:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        clock.advance(1)
        with pytest.raises(WriteRefused) as refused:
            await write
        assert not refused.value.outcome_unknown
        assert len(server.requests("PUT")) == 1
        assert (await transport.request(APIRequest("GET", "/thing"))).code == 200
        for method in ("POST", "PATCH", "DELETE"):
            with pytest.raises(WriteRefused):
                await transport.request(APIRequest(method, "/thing"))
        assert not server.requests("DELETE")
    write_gate.set(None)


def leads(manager: Manager) -> bool:
    return manager.is_leader


async def test_only_what_needs_the_leader_waits_for_it_and_goes_through_the_gate() -> None:
    seen: dict[str, bool] = {}
    path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    server = ApiServer()
    held = asyncio.Event()

    async def lease(request: web.Request) -> web.StreamResponse:
        await held.wait()
        return web.json_response(_lease("", version="7"))

    async def taken(request: web.Request) -> web.StreamResponse:
        return web.json_response(orjson.loads(await request.read()))

    server.answer("GET", f"{path}/lock", lease)
    server.answer("PUT", f"{path}/lock", taken)

    async def note(name: str) -> None:
        seen[name] = write_gate.get() is not None
        async with anyio.create_task_group() as tasks:

            async def inner() -> None:
                seen[f"{name} inside"] = write_gate.get() is not None

            tasks.start_soon(inner)

    async def everywhere() -> None:
        await note("everywhere")

    async def leader() -> None:
        await note("leader")

    async with server.run():
        election = LeaderElectionOptions(name="lock", namespace="ns")
        running = Manager(ClientConfig(server=server.url), ManagerOptions(leader_election=election))
        running.add(everywhere, phase=Phase.ALL_REPLICAS)
        running.add(leader)
        async with running:
            while len(server.asked) == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert seen == {"everywhere": False, "everywhere inside": False}
            assert not leads(running)
            assert await running.health.failures() == {}  # a standby is ready
            held.set()
            await running.started()
            assert leads(running)
    assert seen["leader"]
    assert seen["leader inside"]
    assert server.requests("PUT")[-1].body["spec"]["holderIdentity"] == ""


async def test_losing_the_lease_ends_a_manager_at_once_with_an_error() -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    server = ApiServer()
    server.answer("GET", f"{path}/lock", json(_lease("")), json(_lease("usurper")))

    async def first_time(request: web.Request) -> web.StreamResponse:
        return web.json_response(orjson.loads(await request.read()))

    server.answer("PUT", f"{path}/lock", first_time, json(status(409, "Conflict"), 409))

    class Stubborn:
        """Does not end when it is asked to, only when it is cancelled."""

        def stop(self) -> None:
            pass

        async def run(self, *, task_status: TaskStatus[None]) -> None:
            task_status.started()
            await anyio.sleep_forever()

    async with server.run():
        election = LeaderElectionOptions(name="lock", namespace="ns", retry_period=0.05)
        running = Manager(
            ClientConfig(server=server.url), ManagerOptions(leader_election=election, graceful_shutdown_timeout=None)
        )
        running.add(Stubborn())
        with pytest.raises(RunnableFailed, match="LeadershipLost: Lease ns/lock was acquired by usurper"):
            await running.run()
