"""The manager: order, crashes, the grace period. It talks to no API server here."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import aiohttp
import anyio
import pytest
from anyio.abc import TaskStatus

from cfo.runtime.builder import Builder
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.clock import FakeClock
from cfo.runtime.lifecycle import GracePeriodExceeded, Phase, RunnableFailed
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import GVK
from cfo.runtime.reconcile import Request, Result
from cfo.runtime.source import Channel
from test.support.scheduling import settled

NOWHERE = ClientConfig(server="https://127.0.0.1:1")


def manager(**options: Any) -> Manager:
    return Manager(NOWHERE, ManagerOptions(**options), clock=FakeClock())


def clock_of(of: Manager) -> FakeClock:
    assert isinstance(of.clock, FakeClock)
    return of.clock


class Recorded:
    """A runnable that notes when it starts and ends; ``ready`` when it says that it has started."""

    def __init__(self, name: str, diary: list[str], *, ready: asyncio.Event | None = None) -> None:
        self.name = name
        self.diary = diary
        self.ready = ready

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        self.diary.append(f"+{self.name}")
        try:
            if self.ready:
                await self.ready.wait()
            task_status.started()
            await anyio.sleep_forever()
        finally:
            self.diary.append(f"-{self.name}")


class Stoppable(Recorded):
    """Ends when it is asked to, and when ``finished``."""

    def __init__(self, name: str, diary: list[str]) -> None:
        super().__init__(name, diary)
        self.asked = asyncio.Event()
        self.finished = asyncio.Event()

    def stop(self) -> None:
        self.diary.append(f"?{self.name}")
        self.asked.set()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        try:
            await self.asked.wait()
            await self.finished.wait()
        finally:
            self.diary.append(f"-{self.name}")


class Counting:
    """A reconciler that waits for ``gate``."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.began: list[Request] = []
        self.finished: list[Request] = []

    async def reconcile(self, request: Request) -> Result:
        self.began.append(request)
        await self.gate.wait()
        self.finished.append(request)
        return Result()


async def test_phases_start_in_order_and_stop_in_reverse() -> None:
    diary: list[str] = []
    ready = asyncio.Event()
    async with manager() as running:
        running.add(Recorded("controller", diary))
        running.add(Recorded("everywhere", diary), phase=Phase.ALL_REPLICAS)
        running.add(Recorded("server", diary, ready=ready), phase=Phase.SERVERS)
        await settled()
        assert diary == ["+server"]
        ready.set()
        await running.started()
        assert diary == ["+server", "+everywhere", "+controller"]
    assert diary[3:] == ["-controller", "-everywhere", "-server"]


async def test_what_is_added_later_starts_at_once() -> None:
    diary: list[str] = []
    async with manager() as running:
        await running.started()
        running.add(Recorded("late", diary))
        await settled()
        assert diary == ["+late"]
    assert diary == ["+late", "-late"]


async def test_a_function_is_a_runnable_and_one_that_returns_has_finished() -> None:
    called = asyncio.Event()

    async def once() -> None:
        called.set()

    async with manager() as running:
        running.add(once)
        await running.started()
        await called.wait()


async def test_a_crash_stops_everything_with_its_error() -> None:
    diary: list[str] = []

    class Broken:
        name = "certificates"

        async def run(self, *, task_status: TaskStatus[None]) -> None:
            task_status.started()
            raise ValueError("no such key")

    running = manager()
    running.add(Recorded("other", diary))
    running.add(Broken())
    with pytest.raises(RunnableFailed, match="Broken certificates failed: ValueError: no such key") as failed:
        await running.run()
    assert isinstance(failed.value.__cause__, ValueError)
    assert diary == ["+other", "-other"]


async def test_a_crash_before_the_start_is_told_to_those_who_wait_for_it() -> None:
    async def broken() -> None:
        raise ValueError("boom")

    running = manager()
    running.add(broken, phase=Phase.SERVERS)
    running.add(Recorded("stuck", [], ready=asyncio.Event()), phase=Phase.SERVERS)
    run = asyncio.create_task(running.run())
    with pytest.raises(RunnableFailed, match="ValueError: boom"):
        await running.started()
    with pytest.raises(RunnableFailed):
        await run


async def test_the_context_raises_the_crash_itself() -> None:
    async def broken() -> None:
        raise ValueError("boom")

    async def use() -> None:
        async with manager() as running:
            running.add(broken)
            await anyio.sleep_forever()

    with pytest.raises(RunnableFailed, match="boom"):
        await use()


async def test_an_error_in_the_block_stops_the_manager_and_comes_out() -> None:
    diary: list[str] = []

    async def use() -> None:
        async with manager() as running:
            running.add(Recorded("other", diary))
            await running.started()
            raise KeyError("test")

    with pytest.raises(KeyError):
        await use()
    assert diary == ["+other", "-other"]


async def test_a_taken_port_is_a_clear_error() -> None:
    first = manager(health_bind_address="127.0.0.1:0")
    async with first:
        await first.started()
        second = manager(health_bind_address=f"127.0.0.1:{first.health_port}")
        with pytest.raises(RunnableFailed, match=r"Endpoint health failed: OSError.*in use"):
            await second.run()


async def test_running_reconciles_finish_and_no_new_one_begins() -> None:
    running, reconciler, channel = manager(), Counting(), Channel()
    Builder(running, "counting").watches_source(channel).with_options(max_concurrent_reconciles=1).complete(reconciler)
    run = asyncio.create_task(running.run())
    await running.started()
    channel.enqueue([Request("ns", "a"), Request("ns", "b")])
    await settled()
    running.stop()
    await settled()
    assert not run.done()
    reconciler.gate.set()
    await run
    assert reconciler.began == reconciler.finished == [Request("ns", "a")]


async def test_the_grace_period_ends() -> None:
    running, reconciler, channel = manager(graceful_shutdown_timeout=5), Counting(), Channel()
    Builder(running, "counting").watches_source(channel).complete(reconciler)
    run = asyncio.create_task(running.run())
    await running.started()
    channel.enqueue([Request("ns", "a")])
    await settled()
    running.stop()
    await settled()
    clock_of(running).advance(4.9)
    await settled()
    assert not run.done()
    clock_of(running).advance(0.1)
    with pytest.raises(GracePeriodExceeded, match="Controller counting"):
        await run
    assert reconciler.finished == []


async def test_servers_answer_while_controllers_finish() -> None:
    running = manager(health_bind_address="127.0.0.1:0")
    diary: list[str] = []
    slow = Stoppable("slow", diary)
    running.add(slow)
    run = asyncio.create_task(running.run())
    await running.started()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{running.health_port}") as session:
        async with session.get("/readyz") as answer:
            assert answer.status == 200
        running.stop()
        await settled()
        assert diary == ["?slow"]
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (
                500,
                "[-]controllers failed: stopping\nhealthz check failed\n",
            )
        async with session.get("/healthz") as answer:
            assert answer.status == 200
    slow.finished.set()
    await run


async def test_readiness_names_what_is_waited_for() -> None:
    ready = asyncio.Event()
    async with manager() as running:
        running.add(Recorded("slow", [], ready=ready))
        await settled()
        assert await running.health.failures() == {"controllers": "not started yet: Recorded slow"}
        ready.set()
        await running.started()
        assert await running.health.failures() == {}


async def test_a_signal_stops_gracefully_and_a_second_one_at_once() -> None:
    running = manager(graceful_shutdown_timeout=None)
    diary: list[str] = []
    slow = Stoppable("slow", diary)
    running.add(slow)
    run = asyncio.create_task(running.run(handle_signals=True))
    await running.started()
    os.kill(os.getpid(), signal.SIGTERM)
    await slow.asked.wait()
    assert not run.done()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(GracePeriodExceeded, match="Stoppable slow"):
        await run
    assert diary == ["?slow", "-slow"]


async def test_a_stop_during_the_start_is_heeded() -> None:
    diary: list[str] = []
    running = manager()
    running.add(Recorded("stuck", diary, ready=asyncio.Event()), phase=Phase.SERVERS)
    running.add(Recorded("never", diary))
    run = asyncio.create_task(running.run())
    await settled()
    running.stop()
    await run
    assert diary == ["+stuck", "-stuck"]


def test_a_manager_may_be_made_before_the_event_loop_runs() -> None:
    running = manager()
    Builder(running, "early").watches_source(Channel()).complete(Counting())
    running.stop()
    asyncio.run(running.run())


async def test_readiness_names_the_kinds_that_have_not_synced() -> None:
    async with manager() as running:
        Builder(running).for_(MIRROR).reads(running.cache.informer(CONFIG_MAP)).complete(Counting())
        await settled()
        (reason,) = (await running.health.failures()).values()
        assert reason == "not started yet: Controller mirror; not synced: ConfigMap.v1, Mirror.v1.example.com"


async def test_a_manager_runs_once() -> None:
    running = manager()
    running.stop()
    await running.run()
    with pytest.raises(RuntimeError, match="can run only once"):
        await running.run()
    with pytest.raises(RuntimeError, match="stopped before all phases had started"):
        await running.started()


async def test_two_controllers_cannot_share_a_name() -> None:
    running = manager()
    Builder(running, "twice").watches_source(Channel()).complete(Counting())
    with pytest.raises(ValueError, match="'twice' already"):
        Builder(running, "twice").watches_source(Channel()).complete(Counting())
    assert [controller.name for controller in running.controllers] == ["twice"]


MIRROR, CONFIG_MAP = GVK("example.com", "v1", "Mirror"), GVK("", "v1", "ConfigMap")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda builder: builder, "needs something to watch"),
        (lambda builder: builder.reads(manager().cache.informer(CONFIG_MAP)), "needs something to watch"),
        (lambda builder: builder.owns(CONFIG_MAP), "call for_ too"),
        (lambda builder: builder.for_(MIRROR).for_(CONFIG_MAP), "called twice"),
        (lambda builder: builder.for_(MIRROR, label_selector="a in"), "a in"),
        (lambda builder: builder.for_(MIRROR).with_options(reconcile_timeout=-1), "reconcile_timeout: -1"),
    ],
)
async def test_a_builder_refuses_what_cannot_work(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(Builder(manager(), "name")).complete(Counting())


async def test_a_controller_is_named_after_its_kind_and_shares_informers() -> None:
    running = manager()
    one = Builder(running).for_(MIRROR).owns(CONFIG_MAP, label_selector="a=b").complete(Counting())
    other = (
        Builder(running, "other").for_(MIRROR).with_options(max_concurrent_reconciles=2, needs_leader=False)
    ).complete(Counting())
    assert one.name == "mirror"
    assert len(running.cache.informers) == 2
    assert one.options.max_concurrent_reconciles == 8
    assert (other.options.max_concurrent_reconciles, other.needs_leader) == (2, False)
    with pytest.raises(ValueError, match="needs a name"):
        Builder(running).watches_source(Channel()).complete(Counting())


async def test_what_was_added_in_the_moment_of_the_stop_does_not_hold_it_up() -> None:
    diary: list[str] = []
    running = manager()
    run = asyncio.create_task(running.run())
    await running.started()
    running.add(Recorded("late", diary))
    running.stop()
    await run
    assert diary in ([], ["+late", "-late"])
