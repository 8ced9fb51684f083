"""Everything at once, by chance: a soak. ``make soak`` runs it for minutes, the ordinary tests for some seconds.

The seed is printed and in the error's text; ``CFO_SOAK_SEED`` repeats what was done (if not when: the network and the
event loop have a say in that), ``CFO_SOAK_SECONDS`` says for how long.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
import yaml

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.kinds import NETWORK_POLICY
from cfo.runtime.lifecycle import RunnableFailed
from cfo.runtime.manager import Manager
from cfo.runtime.objects import NamespacedName, Object
from envtest.embedded import EmbeddedControlPlane
from envtest.faults import Fault
from test.support.faults import (
    FastClock,
    FaultyTransport,
    new_manager,
    run_with_faulty_transport,
    snapshot,
    wait_for_snapshot,
)
from test.support.faulty_proxy import FaultyProxy, start_faulty_proxy
from test.support.operator_process import PLAIN as PLAIN_PROCESS
from test.support.operator_process import configure, operator
from test.support.raycluster_environment import (
    OAUTH_SETTINGS,
    OPENSHIFT_CRDS,
    PLAIN_SETTINGS,
    VANILLA_CRDS,
    Environment,
    eventually,
    kuberay_config,
    ray_cluster,
    start_environment,
)

SECONDS = float(os.environ.get("CFO_SOAK_SECONDS", "3"))
SEED = int(os.environ.get("CFO_SOAK_SEED", "0")) or secrets.randbelow(10**9)
CLUSTERS = 12
WRITES = ("create", "update", "patch", "delete")
GROWTH_MB = 60.0


class Replica:
    """The operator as one process after the other: it ends, gracefully or not, and another one comes."""

    def __init__(self, here: Environment, proxy: FaultyProxy, settings: dict[str, Any], chance: random.Random) -> None:
        self._here = here
        self._proxy = proxy
        self._settings = settings
        self._chance = chance
        self._over = asyncio.Event()
        self._end = asyncio.Event()
        self._graceful = False
        self.starts = 0
        self.manager: Manager | None = None
        self.transport: FaultyTransport | None = None

    def end(self, *, graceful: bool) -> None:
        """Ends the process that runs now."""
        self._graceful = graceful
        self._end.set()

    def stop(self) -> None:
        """No other process follows."""
        self._over.set()
        self.end(graceful=True)

    async def run(self) -> None:
        """Runs processes until :meth:`stop`."""
        while not self._over.is_set():
            self.starts += 1
            self._end.clear()
            repeats = self._chance.choice([0.0, 0.0, 0.5])
            async with FaultyTransport(
                self._proxy.config, repeat_probability=repeats, clock=FastClock()
            ) as self.transport:
                self.manager = self._here.manager = new_manager(
                    self.transport, kuberay_config(**self._settings), clock=FastClock()
                )
                await self._until_end(self.manager)

    async def _until_end(self, manager: Manager) -> None:
        try:
            async with anyio.create_task_group() as tasks:

                async def stop() -> None:
                    await self._end.wait()
                    if self._graceful:
                        manager.stop()
                    else:
                        tasks.cancel_scope.cancel()

                tasks.start_soon(stop)
                await manager.run()
                tasks.cancel_scope.cancel()
        except* RunnableFailed as failed:
            raise AssertionError(f"the operator crashed: {failed.exceptions}") from failed


class Soak:
    """What may happen, and what should have become of it."""

    def __init__(self, here: Environment, proxy: FaultyProxy, replica: Replica, chance: random.Random) -> None:
        self.here = here
        self.proxy = proxy
        self.replica = replica
        self.chance = chance
        self.exists: dict[str, Object] = {}
        self.deeds: list[str] = []

    async def do(self) -> None:
        """Something, by chance."""
        deeds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self._create),
            (4, self._delete),
            (4, self._edit),
            (4, self._lose_children),
            (3, self._drift),
            (4, self._fail),
            (2, self._cut),
            (1, self._silence),
            (2, self._kill),
            (1, self._restart),
            (2, self._hold),
        ]
        deed = self.chance.choices([each for _, each in deeds], [weight for weight, _ in deeds])[0]
        self.deeds.append(deed.__name__)
        await deed()

    async def _create(self) -> None:
        free = [name for name in self._namespaces() if name not in self.exists]
        if free:
            namespace = self.chance.choice(free)
            if await self.here.find(RAY_CLUSTER, "rc", namespace) is None:
                self.exists[namespace] = await self.here.create(ray_cluster(namespace=namespace))

    async def _delete(self) -> None:
        if self.exists:
            namespace = self.chance.choice(sorted(self.exists))
            await self.here.delete(self.exists.pop(namespace))

    async def _edit(self) -> None:
        if self.exists:
            cluster = self.exists[self.chance.choice(sorted(self.exists))]
            for suspend in (True, False):
                await self.here.patch(cluster, {"spec": {"suspend": suspend}})

    async def _lose_children(self) -> None:
        for child in await self._children():
            await self.here.delete(child)

    async def _drift(self) -> None:
        for child in await self._children():
            if child["kind"] == NETWORK_POLICY.kind:
                await self.here.patch(child, {"spec": {"podSelector": {"matchLabels": {"drifted": "yes"}}}})

    async def _children(self) -> list[Object]:
        if not self.exists:
            return []
        children = await self.here.children(self.chance.choice(sorted(self.exists)))
        mine = [child for child in children.values() if child["metadata"].get("namespace")]
        return self.chance.sample(mine, min(len(mine), 2))

    async def _fail(self) -> None:
        assert isinstance(self.here.plane, EmbeddedControlPlane)
        seconds = self.chance.uniform(0.05, 0.4)
        faults: list[dict[str, Any]] = [
            {"code": 500},
            {"code": 503, "retry_after": 1},
            {"code": 429, "retry_after": 1},
            {"code": 409, "reason": "Conflict", "verbs": ("patch", "update")},
            {"code": 403, "verbs": WRITES},
            {"reset": True},
            {"reset": True, "verbs": WRITES},
            {"expired": True, "verbs": ("list", "watch")},
            {"latency": 0.2},
            {"cut_after": 1, "torn": True, "verbs": ("watch",)},
        ]
        self.here.plane.faults.add(Fault(**self.chance.choice(faults), seconds=seconds))
        if self.chance.random() < 0.5:
            self.here.plane.store.close_watchers()
        await asyncio.sleep(seconds)
        self.here.plane.faults.clear()

    async def _cut(self) -> None:
        self.proxy.cut()

    async def _silence(self) -> None:
        self.proxy.silence()
        await asyncio.sleep(0.1)
        self.proxy.cut()  # the soak cannot wait for the minute after which it would be noticed

    async def _kill(self) -> None:
        self.replica.end(graceful=False)

    async def _restart(self) -> None:
        self.replica.end(graceful=True)

    async def _hold(self) -> None:
        if self.replica.transport is not None:
            gate = self.replica.transport.watch_gate
            gate.hold()
            for deed in (self._lose_children, self._delete, self._create):
                await deed()
            await asyncio.sleep(self.chance.uniform(0, 0.1))
            gate.release()

    @staticmethod
    def _namespaces() -> list[str]:
        return [f"soak-{number}" for number in range(CLUSTERS)]

    async def judge(self, expected: dict[str, Any], *, openshift: bool) -> None:
        """Waits for the end: what exists has all that it should have, and nothing else is left."""
        for namespace in self._namespaces():
            wanted = expected if namespace in self.exists else {}
            await wait_for_snapshot(
                self.here, namespace, wanted, openshift=openshift, description=f"{namespace}, seed {SEED}"
            )

    async def empty(self) -> None:
        """Deletes everything."""
        for namespace in list(self.exists):
            await self.here.delete(self.exists.pop(namespace))


@pytest.fixture
def quiet() -> Iterator[None]:
    """No logs: in minutes of failures they would be more than what is looked for, the memory they take included."""
    was_configured, former = structlog.is_configured(), structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    if was_configured:
        structlog.configure(**former)
    else:
        structlog.reset_defaults()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_soak(openshift: bool) -> None:
    chance = random.Random(SEED)
    print(f"\nseed {SEED}, {SECONDS:g} s")
    settings = OAUTH_SETTINGS if openshift else PLAIN_SETTINGS
    async with start_environment(*(OPENSHIFT_CRDS if openshift else VANILLA_CRDS)) as here:
        if not isinstance(here.plane, EmbeddedControlPlane):
            pytest.skip("only the embedded control plane fails on demand")
        namespace = await here.create_namespace("undisturbed")
        await here.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(here, kuberay_config(**settings)):
            expected = await snapshot(here, namespace, openshift=openshift)
        for name in Soak._namespaces():
            await here.create_namespace(name)
        tasks_before = asyncio.all_tasks()
        memory_before = _memory_mb()
        async with start_faulty_proxy(here.plane, seed=SEED) as proxy, anyio.create_task_group() as tasks:
            replica = Replica(here, proxy, settings, chance)
            tasks.start_soon(replica.run)
            soak = Soak(here, proxy, replica, chance)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                try:
                    await soak.do()
                except (APIError, TransportError):
                    await _look_again(soak)  # our own request was struck: it did, or did not, happen
                await asyncio.sleep(chance.uniform(0, 0.05))
            here.plane.faults.clear()
            await _look_again(soak)
            print(f"{len(soak.deeds)} deeds, {replica.starts} starts, {proxy.cuts} cuts")
            await soak.judge(expected, openshift=openshift)
            await soak.empty()
            await soak.judge(expected, openshift=openshift)
            assert replica.manager is not None
            await _nothing_is_kept(replica.manager)
            replica.stop()
        here.manager = None
        await eventually(lambda: _ended(tasks_before), "no task is left")
        gc.collect()
        assert _memory_mb() - memory_before < GROWTH_MB


async def _look_again(soak: Soak) -> None:
    """Finds out what exists."""

    async def look() -> bool:
        try:
            found = await soak.here.client.list(RAY_CLUSTER)
        except (APIError, TransportError):
            return False
        there = {item["metadata"]["namespace"]: item for item in found if not _is_going(item)}
        soak.exists = {name: obj for name, obj in there.items() if name.startswith("soak-")}
        return True

    await eventually(look, "what exists")


def _is_going(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


async def _nothing_is_kept(manager: Manager) -> None:
    """Queues, backoffs, informers and doubts hold nothing of clusters that are gone."""
    keys = [NamespacedName(name, "rc") for name in Soak._namespaces()]

    async def look() -> bool:
        for controller in manager.controllers:
            assert len(controller.queue) == 0
            assert controller.queue.processing == 0
            assert [key for key in keys if controller.queue.num_requeues(key)] == []
        for informer in manager.cache.informers:
            left = [entry.key for entry in informer.reader.entries() if entry.key.namespace.startswith("soak-")]
            assert informer.gvk.kind in ("ConfigMap", "ServiceAccount") or left == [], informer.gvk
            for feed in informer._store.feeds.values():
                assert len(feed._tombstones) < 500
        return True

    await eventually(look, "nothing is kept")


async def _ended(before: set[asyncio.Task[Any]]) -> bool:
    """Whether no task is there that was not there before, but for those of the control plane's connections."""
    left = [repr(task.get_coro()) for task in asyncio.all_tasks() - before]
    mine = [name for name in left if "RequestHandler" not in name]
    assert not mine, mine
    return True


def _memory_mb() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def test_processes_that_are_ended_at_random_points(tmp_path: Path) -> None:
    """SIGTERM and SIGKILL, whatever the operator is doing; the next one finishes what was begun."""
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    clusters = 30
    async with start_environment(*VANILLA_CRDS) as here:
        await configure(here, {"config.yaml": yaml.safe_dump(PLAIN_PROCESS)})
        for number in range(clusters):
            await here.create_namespace(f"team-{number}")

        async def create() -> None:
            for number in range(clusters):
                await here.create(ray_cluster(namespace=f"team-{number}"))
                await asyncio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            for turn in range(4):
                async with operator(here, tmp_path) as process:
                    if turn:
                        await process.ready()
                    await asyncio.sleep(chance.uniform(0, 0.4))
                    ending = chance.choice([signal.SIGTERM, signal.SIGKILL])
                    process.process.send_signal(ending)
                    assert await process.exit_code() in (0, -ending), process.output
        async with operator(here, tmp_path):
            first = None
            for number in range(clusters):
                if first is None:
                    await eventually(lambda: _has_all(here, "team-0"), "the first has all")
                    first = await snapshot(here, "team-0")
                await wait_for_snapshot(here, f"team-{number}", first, description=f"team-{number}, seed {SEED}")


async def _has_all(here: Environment, namespace: str) -> bool:
    kinds = sorted(kind for kind, _ in await here.children(namespace))
    return kinds == ["Ingress", "Ingress", "NetworkPolicy", "NetworkPolicy", "Secret"]
