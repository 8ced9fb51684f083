"""Controllers of a manager with sharding: which requests they reconcile, with which gate, and what is divided."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import anyio
import pytest

from cfo.runtime import (
    CONFIG_MAP,
    POD,
    SERVICE,
    Builder,
    ClientConfig,
    Controller,
    ControllerOptions,
    EnqueueRequestsFromMapFunc,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    Request,
    Result,
    ShardingOptions,
    TerminalError,
)
from cfo.runtime.client.write_gate import WriteGate, write_gate
from cfo.runtime.controller.source import Kind
from cfo.runtime.controller.workqueue import WorkQueue
from cfo.runtime.process.clock import FakeClock
from cfo.runtime.ring.requests import ShardedRequests
from cfo.runtime.sharding.ranges import Partition
from test.support.scheduling import run_until_idle


class Admission:
    """Admits requests of some namespaces; the namespace is also the gate."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = {*namespaces}
        self.is_renewed = True
        self.is_cached = True
        self.log: list[str] = []

    def accepts(self, request: Request) -> bool:
        return request.namespace in self.namespaces

    def begin(self, request: Request) -> WriteGate | None:
        if request.namespace not in self.namespaces or not self.is_renewed:
            return None
        self.log.append(f"begin {request.namespace}")
        return Gate(request.namespace)

    def end(self, request: Request) -> None:
        self.log.append(f"end {request.namespace}")

    def cancellable(self, request: Request) -> AbstractContextManager[None]:
        return nullcontext()


class Gate:
    def __init__(self, name: str) -> None:
        self.name = name

    def check(self) -> None:
        """Allow everything."""


class StuckKind(Kind):
    """A kind whose informer holds only objects of the namespaces ``held``."""

    def __init__(self, held: set[str], *, optional: bool) -> None:
        self.informer = cast("Any", self)
        self.optional = optional
        self._held = held

    def holds(self, namespace: str, _name: str) -> bool:
        return namespace in self._held

    def acquire(self) -> None:
        """Do nothing."""

    async def start(self, controller: str, queue: WorkQueue[Request]) -> None:
        """Do nothing."""

    async def wait_for_sync(self) -> None:
        """Return immediately."""

    def stop(self) -> None:
        """Do nothing."""


class Reconciler:
    def __init__(self) -> None:
        self.gates: list[tuple[str, str]] = []
        self.resume = anyio.Event()

    async def reconcile(self, request: Request) -> Result:
        gate = write_gate.get()
        assert isinstance(gate, Gate)
        self.gates.append((request.namespace, gate.name))
        if request.name == "failing":
            raise TerminalError("failing")
        await self.resume.wait()
        return Result()


class Hanging:
    """A reconciler that never returns."""

    def __init__(self) -> None:
        self.began: list[Request] = []

    async def reconcile(self, request: Request) -> Result:
        self.began.append(request)
        await anyio.sleep_forever()
        raise AssertionError


async def test_reconcile_has_the_gate_of_its_request_and_ends_when_it_fails() -> None:
    admission, reconciler = Admission("one", "two"), Reconciler()
    controller = Controller("test", reconciler, options=ControllerOptions(max_concurrent_reconciles=1))
    controller.admit(admission)
    reconciler.resume.set()
    for request in (Request("one", "x"), Request("two", "failing"), Request("three", "x"), Request("one", "y")):
        controller.queue.add(request)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        await run_until_idle()
        assert reconciler.gates == [("one", "one"), ("two", "two"), ("one", "one")]
        assert admission.log == ["begin one", "end one", "begin two", "end two", "begin one", "end one"]
        tasks.cancel_scope.cancel()


async def test_request_waits_for_the_kinds_of_its_controller_and_not_for_optional_ones() -> None:
    """A list fails while a shard is gained: an object that is not cached must not look like one that does not exist."""
    held: set[str] = set()
    admission, reconciler = Admission("one"), Reconciler()
    admission.is_cached = False
    controller = Controller("test", reconciler, clock=(clock := FakeClock()))
    controller.admit(admission)
    controller.watch(StuckKind(held, optional=False))
    controller.watch(StuckKind(set(), optional=True))
    reconciler.resume.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        await run_until_idle()
        controller.queue.add(Request("one", "x"))
        await run_until_idle()
        assert (reconciler.gates, controller.queue.waiting, admission.log[-1]) == ([], 1, "end one")
        held.add("one")
        clock.advance(5.0)
        await run_until_idle()
        assert reconciler.gates == [("one", "one")]
        tasks.cancel_scope.cancel()


async def test_cancelled_reconcile_ends_without_a_retry_and_its_worker_continues() -> None:
    idle: list[int] = []
    nothing = Partition(8, frozenset())
    one, other = Request("one", "x"), Request("two", "x")
    shard, other_shard = (nothing.shard_of(request.namespace, "") for request in (one, other))
    assert shard != other_shard
    requests = ShardedRequests(
        nothing, gate=lambda shard: Gate(str(shard)), may_work_on=lambda _: True, on_idle=idle.append
    )
    requests.activate({shard, other_shard})
    reconciler = Hanging()
    controller = Controller("test", reconciler, options=ControllerOptions(max_concurrent_reconciles=1))
    controller.admit(requests)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        controller.queue.add(one)
        await run_until_idle()
        controller.queue.add(other)

        requests.drain({shard})
        assert idle == []
        requests.cancel({shard})
        await run_until_idle()

        assert idle == [shard]
        assert reconciler.began == [one, other]
        assert controller.queue.waiting == 0
        tasks.cancel_scope.cancel()


async def test_queued_request_is_dropped_when_its_shard_was_given_away() -> None:
    admission, reconciler = Admission("one", "two"), Reconciler()
    controller = Controller("test", reconciler, options=ControllerOptions(max_concurrent_reconciles=1))
    controller.admit(admission)
    controller.queue.add(Request("one", "x"))
    controller.queue.add(Request("two", "x"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        await run_until_idle()
        admission.namespaces.remove("two")
        reconciler.resume.set()
        await run_until_idle()
        assert reconciler.gates == [("one", "one")]
        assert len(controller.queue) == controller.queue.processing == 0
        tasks.cancel_scope.cancel()


async def test_request_of_an_own_shard_is_postponed_while_the_renewal_of_the_lease_is_late() -> None:
    clock, admission, reconciler = FakeClock(), Admission("one"), Reconciler()
    controller = Controller("test", reconciler, clock=clock)
    controller.admit(admission)
    reconciler.resume.set()
    admission.is_renewed = False
    controller.queue.add(Request("one", "x"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        await run_until_idle()
        assert reconciler.gates == []
        admission.is_renewed = True
        clock.advance(1.0)
        await run_until_idle()
        assert reconciler.gates == [("one", "one")]
        assert len(controller.queue) == controller.queue.waiting == 0
        tasks.cancel_scope.cancel()


def test_failures_of_a_request_that_is_not_accepted_any_more_are_forgotten() -> None:
    admission, queue = Admission("one"), WorkQueue[Request]()
    queue.accepts = admission.accepts
    queue.backoff(Request("one", "x"))
    assert queue.num_requeues(Request("one", "x")) == 1

    admission.namespaces.clear()
    queue.add(Request("one", "x"))

    assert queue.num_requeues(Request("one", "x")) == 0
    assert len(queue) == queue.waiting == 0


def test_queue_accepts_all_requests_without_sharding() -> None:
    queue: WorkQueue[Request] = WorkQueue()

    queue.add(Request("one", "x"))

    assert queue.accepts is None
    assert len(queue) == 1


def _manager(**options: object) -> Manager:
    return Manager(
        ClientConfig(server="https://localhost"),
        ManagerOptions(
            leader_election=LeaderElectionOptions(name="lock", namespace="ns"),
            sharding=ShardingOptions(shards=4, **options),  # type: ignore[arg-type]
        ),
    )


async def _divided(manager: Manager) -> set[str]:
    assert manager.sharding is not None
    await manager.sharding.restrict_cache()
    return {informer.gvk.kind for informer in manager.cache.informers if informer.partition is not None}


async def test_reconciled_and_owned_kinds_are_divided() -> None:
    manager = _manager()
    Builder(manager, "one").for_(CONFIG_MAP).owns(SERVICE).complete(Reconciler())
    manager.cache.informer(POD)

    assert await _divided(manager) == {"ConfigMap", "Service"}


async def test_kind_with_mapped_events_is_divided_only_if_it_is_listed() -> None:
    """An event can be mapped to a request of another namespace, whose replica must see it."""
    mapped = EnqueueRequestsFromMapFunc(lambda _: [Request("other", "x")])
    for divided_kinds, expected in (([], {"ConfigMap"}), ([SERVICE], {"ConfigMap", "Service"})):
        manager = _manager(divided_kinds=divided_kinds)
        Builder(manager, "one").for_(CONFIG_MAP).owns(SERVICE).watches(SERVICE, mapped).complete(Reconciler())
        assert await _divided(manager) == expected


async def test_events_of_a_kind_that_is_divided_already_cannot_be_mapped() -> None:
    manager = _manager()
    Builder(manager, "one").for_(CONFIG_MAP).complete(Reconciler())
    await _divided(manager)

    mapped = EnqueueRequestsFromMapFunc(lambda _: [Request("other", "x")])
    with pytest.raises(RuntimeError, match=r"ConfigMap.v1: is divided already: list it in"):
        Builder(manager, "two").for_(POD).watches(CONFIG_MAP, mapped).complete(Reconciler())


async def test_kinds_of_a_controller_that_is_not_sharded_are_kept_whole() -> None:
    manager = _manager(divided_kinds=[POD])
    Builder(manager, "one").for_(CONFIG_MAP).owns(SERVICE).owns(POD).complete(Reconciler())
    Builder(manager, "two").for_(CONFIG_MAP).with_options(sharded=False).complete(Reconciler())
    Builder(manager, "three").for_(SERVICE).with_options(needs_leader=False).complete(Reconciler())

    assert await _divided(manager) == {"Pod"}


async def test_kind_that_is_divided_already_cannot_become_whole() -> None:
    manager = _manager()
    Builder(manager, "one").for_(CONFIG_MAP).complete(Reconciler())
    await _divided(manager)

    with pytest.raises(RuntimeError, match=r"ConfigMap.v1: is divided already: list it in"):
        Builder(manager, "two").for_(CONFIG_MAP).with_options(sharded=False).complete(Reconciler())


async def test_kind_that_is_cached_already_stays_whole_when_a_later_controller_reconciles_it() -> None:
    manager = _manager()
    manager.cache.informer(CONFIG_MAP)
    await _divided(manager)

    Builder(manager, "one").for_(CONFIG_MAP).complete(Reconciler())

    assert all(informer.partition is None for informer in manager.cache.informers)


def test_sharding_requires_leader_election() -> None:
    with pytest.raises(ValueError, match="sharding: requires leader_election"):
        ManagerOptions(sharding=ShardingOptions(shards=4))
