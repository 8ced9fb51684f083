"""The manager: order of start and stop, crashes, and the grace period; no API server is contacted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import aiohttp
import anyio
import pytest
from anyio.abc import TaskStatus

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.controller import lifecycle
from cfo.runtime.controller.controller import ControllerOptions
from cfo.runtime.controller.handler import EnqueueRequestForObject
from cfo.runtime.controller.lifecycle import GracePeriodExceeded, RunnableFailed, StartPhase
from cfo.runtime.controller.predicate import GenerationChanged
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.controller.source import Channel
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.unstructured import GVK
from test.support.clocks import FakeClock
from test.support.scheduling import run_until_idle

UNREACHABLE_SERVER = ClientConfig(server="https://127.0.0.1:1")


@pytest.fixture(autouse=True)
def _unhurried() -> Iterator[None]:
    """Signals in this process must not end it, however busy the machine is."""
    with mock.patch.object(lifecycle, "MARGIN_SECONDS", 3600.0):
        yield


def create_manager(**options: Any) -> Manager:
    return Manager(UNREACHABLE_SERVER, ManagerOptions(**options), clock=FakeClock())


def clock_of(manager: Manager) -> FakeClock:
    assert isinstance(manager.clock, FakeClock)
    return manager.clock


class RecordingRunnable:
    """A runnable that records in ``journal`` when it starts and ends; it reports its start once ``ready`` is set."""

    def __init__(
        self, name: str, journal: list[str], *, ready: asyncio.Event | None = None
    ) -> None:
        self.name = name
        self.journal = journal
        self.ready = ready

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        self.journal.append(f"+{self.name}")
        try:
            if self.ready:
                await self.ready.wait()
            task_status.started()
            await anyio.sleep_forever()
        finally:
            self.journal.append(f"-{self.name}")


class StoppableRunnable(RecordingRunnable):
    """A runnable that ends after ``stop`` was called and ``finished`` is set."""

    def __init__(self, name: str, journal: list[str]) -> None:
        super().__init__(name, journal)
        self.stop_requested = asyncio.Event()
        self.finished = asyncio.Event()

    def stop(self) -> None:
        self.journal.append(f"?{self.name}")
        self.stop_requested.set()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        try:
            await self.stop_requested.wait()
            await self.finished.wait()
        finally:
            self.journal.append(f"-{self.name}")


class GatedReconciler:
    """A reconciler that waits for ``gate``, and records the requests that it started and finished."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.started: list[Request] = []
        self.finished: list[Request] = []

    async def reconcile(self, request: Request) -> Result:
        self.started.append(request)
        await self.gate.wait()
        self.finished.append(request)
        return Result()


async def test_phases_start_in_order_and_stop_in_reverse() -> None:
    journal: list[str] = []
    ready = asyncio.Event()
    async with create_manager() as manager:
        manager.add(RecordingRunnable("controller", journal))
        manager.add(RecordingRunnable("all-replicas", journal), phase=StartPhase.ALL_REPLICAS)
        manager.add(RecordingRunnable("server", journal, ready=ready), phase=StartPhase.SERVERS)
        await run_until_idle()
        assert journal == ["+server"]
        ready.set()
        await manager.started()
        assert journal == ["+server", "+all-replicas", "+controller"]
    assert journal[3:] == ["-controller", "-all-replicas", "-server"]


async def test_runnable_added_after_start_starts_immediately() -> None:
    journal: list[str] = []
    async with create_manager() as manager:
        await manager.started()
        manager.add(RecordingRunnable("late", journal))
        await run_until_idle()
        assert journal == ["+late"]
    assert journal == ["+late", "-late"]


async def test_function_can_be_a_runnable_and_may_return() -> None:
    called = asyncio.Event()

    async def task() -> None:
        called.set()

    async with create_manager() as manager:
        manager.add(task)
        await manager.started()
        await called.wait()


async def test_crash_of_a_runnable_stops_manager_with_its_error() -> None:
    journal: list[str] = []

    class Broken:
        name = "certificates"

        async def run(self, *, task_status: TaskStatus[None]) -> None:
            task_status.started()
            raise ValueError("no such key")

    manager = create_manager()
    manager.add(RecordingRunnable("other", journal))
    manager.add(Broken())
    with pytest.raises(
        RunnableFailed, match="Broken certificates failed: ValueError: no such key"
    ) as failed:
        await manager.run()
    assert isinstance(failed.value.__cause__, ValueError)
    assert journal == ["+other", "-other"]


async def test_started_raises_the_error_of_a_crash_during_start() -> None:
    async def broken() -> None:
        raise ValueError("boom")

    manager = create_manager()
    manager.add(broken, phase=StartPhase.SERVERS)
    manager.add(RecordingRunnable("stuck", [], ready=asyncio.Event()), phase=StartPhase.SERVERS)
    run = asyncio.create_task(manager.run())
    with pytest.raises(RunnableFailed, match="ValueError: boom"):
        await manager.started()
    with pytest.raises(RunnableFailed):
        await run


async def test_manager_context_raises_the_error_of_a_crash() -> None:
    async def broken() -> None:
        raise ValueError("boom")

    async def use_manager() -> None:
        async with create_manager() as manager:
            manager.add(broken)
            await anyio.sleep_forever()

    with pytest.raises(RunnableFailed, match="boom"):
        await use_manager()


async def test_error_in_manager_context_stops_manager_and_propagates() -> None:
    journal: list[str] = []

    async def use_manager() -> None:
        async with create_manager() as manager:
            manager.add(RecordingRunnable("other", journal))
            await manager.started()
            raise KeyError("test")

    with pytest.raises(KeyError):
        await use_manager()
    assert journal == ["+other", "-other"]


async def test_port_in_use_is_an_error_that_names_the_endpoint() -> None:
    first = create_manager(health_bind_address="127.0.0.1:0")
    async with first:
        await first.started()
        second = create_manager(health_bind_address=f"127.0.0.1:{first.health_port}")
        with pytest.raises(
            RunnableFailed, match=r"Endpoint health failed: AddressUnavailable.*in use"
        ):
            await second.run()


async def test_stop_lets_running_reconciles_finish_and_starts_no_new_ones() -> None:
    manager, reconciler, channel = create_manager(), GatedReconciler(), Channel()
    Builder(manager, "gated").watches_source(channel).with_options(
        ControllerOptions(max_concurrent_reconciles=1)
    ).complete(reconciler)
    run = asyncio.create_task(manager.run())
    await manager.started()
    channel.enqueue([Request("ns", "a"), Request("ns", "b")])
    await run_until_idle()
    manager.stop()
    await run_until_idle()
    assert not run.done()
    reconciler.gate.set()
    await run
    assert reconciler.started == reconciler.finished == [Request("ns", "a")]


async def test_running_reconciles_are_cancelled_after_grace_period() -> None:
    manager, reconciler, channel = (
        create_manager(graceful_shutdown_timeout=5),
        GatedReconciler(),
        Channel(),
    )
    Builder(manager, "gated").watches_source(channel).complete(reconciler)
    run = asyncio.create_task(manager.run())
    await manager.started()
    channel.enqueue([Request("ns", "a")])
    await run_until_idle()
    manager.stop()
    await run_until_idle()
    clock_of(manager).advance(4.9)
    await run_until_idle()
    assert not run.done()
    clock_of(manager).advance(0.1)
    with pytest.raises(GracePeriodExceeded, match="Controller gated"):
        await run
    assert reconciler.finished == []


async def test_endpoints_respond_while_controllers_finish() -> None:
    manager = create_manager(health_bind_address="127.0.0.1:0")
    journal: list[str] = []
    slow = StoppableRunnable("slow", journal)
    manager.add(slow)
    run = asyncio.create_task(manager.run())
    await manager.started()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{manager.health_port}") as session:
        async with session.get("/readyz") as response:
            assert response.status == 200
        manager.stop()
        await run_until_idle()
        assert journal == ["?slow"]
        async with session.get("/readyz") as response:
            assert (response.status, await response.text()) == (
                500,
                "[-]controllers failed: stopping\nhealthz check failed\n",
            )
        async with session.get("/healthz") as response:
            assert response.status == 200
    slow.finished.set()
    await run


async def test_readiness_names_runnables_that_have_not_started() -> None:
    ready = asyncio.Event()
    async with create_manager() as manager:
        manager.add(RecordingRunnable("slow", [], ready=ready))
        await run_until_idle()
        assert await manager.health.failures() == {
            "controllers": "not started yet: RecordingRunnable slow"
        }
        ready.set()
        await manager.started()
        assert await manager.health.failures() == {}


async def test_manager_is_ready_when_all_readiness_checks_succeed() -> None:
    problems = ["the webhooks are not called yet"]

    def check() -> None:
        if problems:
            raise RuntimeError(problems[0])

    async with create_manager() as manager, asyncio.timeout(120):
        manager.health.add_ready_check("webhooks", check)
        await manager.started()
        waiting = asyncio.create_task(manager.ready())
        await run_until_idle()
        assert not waiting.done()
        problems.clear()
        await waiting


async def test_start_that_takes_too_long_is_an_error_with_what_it_waits_for() -> None:
    ready = asyncio.Event()
    async with create_manager() as manager, asyncio.timeout(120):
        manager.add(RecordingRunnable("slow", [], ready=ready))
        await run_until_idle()
        with pytest.raises(TimeoutError) as caught:
            await manager.started(timeout=0.01)
        assert str(caught.value) == (
            "the manager has not started after 0.01 s: not started yet: RecordingRunnable slow"
        )
        with pytest.raises(TimeoutError) as caught:
            await manager.ready(timeout=0.01)
        assert str(caught.value) == (
            "the manager is not ready after 0.01 s: controllers: not started yet: RecordingRunnable slow"
        )
        ready.set()
        await manager.started(timeout=None)  # the manager continued


@pytest.mark.parametrize("timeout", ["10s", True])
async def test_timeout_of_a_start_is_a_number(timeout: Any) -> None:
    manager = create_manager()
    for method in (manager.started, manager.ready):
        expected = f"{method.__name__}: timeout: {timeout!r}: must be a number of seconds, or None"
        with pytest.raises(TypeError, match=expected):
            await method(timeout=timeout)


async def test_first_signal_stops_gracefully_and_second_one_immediately() -> None:
    manager = create_manager(graceful_shutdown_timeout=None)
    journal: list[str] = []
    slow = StoppableRunnable("slow", journal)
    manager.add(slow)
    run = asyncio.create_task(manager.run(handle_signals=True))
    await manager.started()
    os.kill(os.getpid(), signal.SIGTERM)
    await slow.stop_requested.wait()
    assert not run.done()
    os.kill(os.getpid(), signal.SIGINT)
    await run  # no exception, which would be printed with a traceback
    assert journal == ["?slow", "-slow"]


async def test_hangup_stops_gracefully_unless_it_is_ignored() -> None:
    for ignored in (True, False):
        previous = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        try:
            journal: list[str] = []
            manager = create_manager()
            manager.add(RecordingRunnable("task", journal))
            run = asyncio.create_task(manager.run(handle_signals=True))
            await manager.started()
            if ignored:
                os.kill(os.getpid(), signal.SIGHUP)
                await run_until_idle()
                assert not run.done()
                manager.stop()
            elif signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:  # it would end the test run
                os.kill(os.getpid(), signal.SIGHUP)
            else:
                manager.stop()
                pytest.fail("SIGHUP is not handled")
            await asyncio.wait_for(run, 120)
        finally:
            signal.signal(signal.SIGHUP, previous)


@pytest.mark.parametrize("returned", [None, 5])
async def test_lambda_as_a_runnable_that_is_not_async_is_named(returned: Any) -> None:
    owner = lifecycle.Lifecycle(grace_period=0.1, clock=FakeClock())
    owner.add(lambda: returned, StartPhase.LEADER)
    with pytest.raises(
        RunnableFailed,
        match=r"<lambda> failed: TypeError: runnable: returned .*: must return a coroutine",
    ):
        await owner.run()


_STUCK = """
import asyncio, os, signal, time
from cfo.runtime.controller import lifecycle
from cfo.runtime.process.clock import SystemClock

lifecycle.MARGIN_SECONDS = 0.1

async def ignore():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def block():
    time.sleep(3600)

async def orphan():
    orphans.append(asyncio.create_task(ignore()))
    await asyncio.sleep(0)
    orphans[0].cancel()
    lifecycle.abandon(orphans[0])

async def fail():
    await orphan()
    raise lifecycle.StopImmediately("the Lease is lost")

async def kill():
    os.kill(os.getpid(), signal.SIGTERM)
    await {name}()

orphans = []
owner = lifecycle.Lifecycle(grace_period=0.1, clock=SystemClock())
owner.add({first}, lifecycle.StartPhase.LEADER)
asyncio.run(owner.run(handle_signals=True))
"""


@pytest.mark.parametrize("name", ["ignore", "block", "orphan", "fail"])
def test_code_that_does_not_end_cannot_keep_the_process_alive(name: str) -> None:
    program = _STUCK.replace("{name}", name).replace(
        "{first}", "fail" if name == "fail" else "kill"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert process.returncode == 1
    assert "Error: the process does not stop" in process.stderr
    assert name != "block" or "in block" in process.stderr


def test_process_ends_although_no_one_reads_its_errors() -> None:
    program = _STUCK.replace("{name}", "block").replace("{first}", "kill")
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-c", program], stdout=write, stderr=write, check=False, timeout=120
    )
    os.close(write)
    assert process.returncode == 1


async def test_signals_leave_no_timer_behind_when_all_has_ended() -> None:
    with (
        mock.patch.object(lifecycle, "_thread") as threads,
        mock.patch.object(lifecycle.os, "_exit") as ended,
    ):
        manager = create_manager()
        run = asyncio.create_task(manager.run(handle_signals=True))
        await manager.started()
        os.kill(os.getpid(), signal.SIGTERM)
        await run
        assert threads.start_new_thread.call_count >= 2
        for end_process, (token, _) in (
            call.args for call in threads.start_new_thread.call_args_list
        ):
            end_process(token, 0.0)
    assert not ended.called


async def test_stop_during_start_ends_the_run() -> None:
    journal: list[str] = []
    manager = create_manager()
    manager.add(
        RecordingRunnable("stuck", journal, ready=asyncio.Event()), phase=StartPhase.SERVERS
    )
    manager.add(RecordingRunnable("never", journal))
    run = asyncio.create_task(manager.run())
    await run_until_idle()
    manager.stop()
    await run
    assert journal == ["+stuck", "-stuck"]


def test_manager_can_be_created_before_event_loop_runs() -> None:
    manager = create_manager()
    Builder(manager, "early").watches_source(Channel()).complete(GatedReconciler())
    manager.stop()
    asyncio.run(manager.run())


async def test_readiness_names_kinds_that_have_not_synced() -> None:
    async with create_manager() as manager:
        Builder(manager).for_(MIRROR).reads(manager.cache.informer(CONFIG_MAP)).complete(
            GatedReconciler()
        )
        await run_until_idle()
        (reason,) = (await manager.health.failures()).values()
        assert (
            reason
            == "not started yet: Controller mirror; not synced: ConfigMap.v1, Mirror.v1.example.com"
        )


async def test_manager_can_run_only_once() -> None:
    manager = create_manager()
    manager.stop()
    await manager.run()
    with pytest.raises(RuntimeError, match="the manager runs, or has run"):
        await manager.run()
    with pytest.raises(RuntimeError, match="stopped before all phases had started"):
        await manager.started()


@pytest.mark.parametrize("error", [AssertionError("wrong"), pytest.fail.Exception("wrong")])
async def test_manager_stops_gracefully_after_an_error_in_its_block(error: BaseException) -> None:
    journal: list[str] = []

    class Releasing(StoppableRunnable):
        async def run(self, *, task_status: TaskStatus[None]) -> None:
            task_status.started()
            await self.stop_requested.wait()
            await anyio.lowlevel.checkpoint()  # a request, such as that which releases a Lease
            journal.append("released")

    async def fail() -> None:
        async with create_manager() as manager:
            manager.add(Releasing("task", journal))
            await manager.started()
            raise error

    with pytest.raises(type(error), match="wrong"):
        await fail()
    assert journal == ["?task", "released"]


async def test_run_inside_the_block_of_a_manager_is_rejected() -> None:
    async with create_manager() as manager:
        await manager.started()
        with pytest.raises(RuntimeError, match="use 'async with manager', which runs it"):
            await manager.run()


async def test_controller_names_must_be_unique() -> None:
    manager = create_manager()
    Builder(manager, "twice").watches_source(Channel()).complete(GatedReconciler())
    with pytest.raises(ValueError, match="'twice' already"):
        Builder(manager, "twice").watches_source(Channel()).complete(GatedReconciler())
    assert [controller.name for controller in manager.controllers] == ["twice"]


MIRROR, CONFIG_MAP = GVK("example.com", "v1", "Mirror"), GVK("", "v1", "ConfigMap")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda builder: builder, "no watches"),
        (lambda builder: builder.reads(create_manager().cache.informer(CONFIG_MAP)), "no watches"),
        (lambda builder: builder.owns(CONFIG_MAP), "call for_, too"),
        (lambda builder: builder.for_(MIRROR).for_(CONFIG_MAP), "called twice"),
        (lambda builder: builder.for_(MIRROR, label_selector="a in"), "a in"),
        (
            lambda builder: builder.for_(MIRROR).with_options(
                ControllerOptions(reconcile_timeout=-1)
            ),
            "reconcile_timeout: -1",
        ),
    ],
)
async def test_builder_rejects_invalid_configuration(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(Builder(create_manager(), "name")).complete(GatedReconciler())


@pytest.mark.parametrize("predicate", [GenerationChanged, "GenerationChanged"])
async def test_builder_rejects_a_predicate_that_is_not_a_function_or_an_instance(
    predicate: Any,
) -> None:
    builder = Builder(create_manager(), "name")
    for declare in (builder.for_, builder.owns):
        with pytest.raises(TypeError, match=r"must be a function or an instance, such as Gen"):
            declare(MIRROR, predicate)
    with pytest.raises(TypeError, match=r"predicate of .*Mirror.*: must be a function"):
        builder.watches(MIRROR, EnqueueRequestForObject(), predicate)


@pytest.mark.parametrize("name", ["namespaces", "field_managers"])
def test_option_that_is_one_string_instead_of_a_list_is_rejected(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}: 'none': must be a list of strings"):
        ManagerOptions(**{name: "none"})


def test_manager_of_no_namespace_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"namespaces: must not be empty; None is the whole"):
        ManagerOptions(namespaces=[])


@pytest.mark.parametrize(("name", "text"), [("forgotten", " 'forgotten'"), ("", "")])
async def test_manager_with_an_incomplete_builder_does_not_start(name: str, text: str) -> None:
    manager = create_manager()
    Builder(manager, name).for_(MIRROR)
    with pytest.raises(ValueError, match=rf"Builder{text} for .*: complete was not called"):
        await manager.run()


async def test_controller_is_named_after_its_kind_and_shares_informers() -> None:
    manager = create_manager()
    one = (
        Builder(manager)
        .for_(MIRROR)
        .owns(CONFIG_MAP, label_selector="a=b")
        .complete(GatedReconciler())
    )
    other = (
        Builder(manager, "other")
        .for_(MIRROR)
        .with_options(ControllerOptions(max_concurrent_reconciles=2, needs_leader=False))
    ).complete(GatedReconciler())
    assert one.name == "mirror"
    assert len(manager.cache.informers) == 2
    assert one.options.max_concurrent_reconciles == 8
    assert (other.options.max_concurrent_reconciles, other.needs_leader) == (2, False)
    with pytest.raises(ValueError, match="needs a name"):
        Builder(manager).watches_source(Channel()).complete(GatedReconciler())


async def test_runnable_added_just_before_stop_does_not_delay_it() -> None:
    journal: list[str] = []
    manager = create_manager()
    run = asyncio.create_task(manager.run())
    await manager.started()
    manager.add(RecordingRunnable("late", journal))
    manager.stop()
    await run
    assert journal in ([], ["+late", "-late"])
