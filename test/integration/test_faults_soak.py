"""Soak tests: random changes and faults of all kinds. ``make soak`` runs them for minutes, ``make test`` for seconds.

The seed is printed and part of the error message. ``CFO_SOAK_SEED`` repeats the same actions; their timing still
depends on the network and the event loop. ``CFO_SOAK_SECONDS`` sets the duration.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
import yaml

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime.client.errors import APIError, TransportError
from cfo.runtime.controller.lifecycle import RunnableFailed
from cfo.runtime.manager.manager import Manager
from cfo.runtime.objects.kinds import NETWORK_POLICY
from cfo.runtime.objects.unstructured import NamespacedName, Object
from envtest import EmbeddedControlPlane
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
from test.support.operator_process import PLAIN_CONFIG as PLAIN_PROCESS
from test.support.operator_process import create_config_map, run_operator
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

SECONDS = float(os.environ.get("CFO_SOAK_SECONDS", "1"))
IS_LONG = "CFO_SOAK_SECONDS" in os.environ
SEED = int(os.environ.get("CFO_SOAK_SEED", "0")) or secrets.randbelow(10**9)
CLUSTERS = 12
WRITES = ("create", "update", "patch", "delete")
MAX_GROWTH_BYTES = 4 << 20
"""How many bytes of data a long soak may leave in the test process, however long it is."""
_DATA = (str, bytes, bytearray, tuple, list, dict, set)


class Replica:
    """A sequence of operator instances: one ends, gracefully or not, and another one starts."""

    def __init__(
        self, env: Environment, proxy: FaultyProxy, settings: dict[str, Any], rng: random.Random
    ) -> None:
        self._env = env
        self._proxy = proxy
        self._settings = settings
        self._rng = rng
        self._stopped = asyncio.Event()
        self._ending = asyncio.Event()
        self._graceful = False
        self.starts = 0
        self.manager: Manager | None = None
        self.transport: FaultyTransport | None = None

    def end(self, *, graceful: bool) -> None:
        """End the current instance."""
        self._graceful = graceful
        self._ending.set()

    def stop(self) -> None:
        """End the current instance, and start no other one."""
        self._stopped.set()
        self.end(graceful=True)

    async def run(self) -> None:
        """Run instances until :meth:`stop`."""
        while not self._stopped.is_set():
            self.starts += 1
            self._ending.clear()
            repeat_probability = self._rng.choice([0.0, 0.0, 0.5])
            async with FaultyTransport(
                self._proxy.config, repeat_probability=repeat_probability, clock=FastClock()
            ) as self.transport:
                self.manager = self._env.manager = new_manager(
                    self.transport, kuberay_config(**self._settings), clock=FastClock()
                )
                await self._until_end(self.manager)

    async def _until_end(self, manager: Manager) -> None:
        try:
            async with anyio.create_task_group() as tasks:

                async def stop() -> None:
                    await self._ending.wait()
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
    """The random actions, and the clusters that should exist after them."""

    def __init__(
        self, env: Environment, proxy: FaultyProxy, replica: Replica, rng: random.Random
    ) -> None:
        self.env = env
        self.proxy = proxy
        self.replica = replica
        self.rng = rng
        self.clusters: dict[str, Object] = {}
        self.actions: list[str] = []

    async def perform_random_action(self) -> None:
        """Perform a random action."""
        actions: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self._create_cluster),
            (4, self._delete_cluster),
            (4, self._suspend_and_resume),
            (4, self._delete_children),
            (3, self._change_policies),
            (4, self._inject_fault),
            (2, self._cut_connections),
            (1, self._silence_connections),
            (2, self._kill),
            (1, self._restart),
            (2, self._hold_watches),
        ]
        action = self.rng.choices(
            [candidate for _, candidate in actions], [weight for weight, _ in actions]
        )[0]
        self.actions.append(action.__name__)
        await action()

    async def _create_cluster(self) -> None:
        free = [name for name in self._namespaces() if name not in self.clusters]
        if free:
            namespace = self.rng.choice(free)
            if await self.env.find(RAY_CLUSTER, "rc", namespace) is None:
                self.clusters[namespace] = await self.env.create(ray_cluster(namespace=namespace))

    async def _delete_cluster(self) -> None:
        if self.clusters:
            namespace = self.rng.choice(sorted(self.clusters))
            await self.env.delete(self.clusters.pop(namespace))

    async def _suspend_and_resume(self) -> None:
        if self.clusters:
            cluster = self.clusters[self.rng.choice(sorted(self.clusters))]
            for suspend in (True, False):
                await self.env.patch(cluster, {"spec": {"suspend": suspend}})

    async def _delete_children(self) -> None:
        for child in await self._random_children():
            await self.env.delete(child)

    async def _change_policies(self) -> None:
        for child in await self._random_children():
            if child["kind"] == NETWORK_POLICY.kind:
                await self.env.patch(
                    child, {"spec": {"podSelector": {"matchLabels": {"drifted": "yes"}}}}
                )

    async def _random_children(self) -> list[Object]:
        """Return up to two namespaced children of a random cluster."""
        if not self.clusters:
            return []
        children = await self.env.children(self.rng.choice(sorted(self.clusters)))
        namespaced = [child for child in children.values() if child["metadata"].get("namespace")]
        return self.rng.sample(namespaced, min(len(namespaced), 2))

    async def _inject_fault(self) -> None:
        assert isinstance(self.env.plane, EmbeddedControlPlane)
        seconds = self.rng.uniform(0.05, 0.4)
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
        self.env.plane.faults.add(Fault(**self.rng.choice(faults), seconds=seconds))
        if self.rng.random() < 0.5:
            self.env.plane.store.close_watchers()
        await asyncio.sleep(seconds)
        self.env.plane.faults.clear()

    async def _cut_connections(self) -> None:
        self.proxy.cut()

    async def _silence_connections(self) -> None:
        self.proxy.silence()
        await asyncio.sleep(0.1)
        self.proxy.cut()  # the soak cannot wait until the silence is noticed, about a minute later

    async def _kill(self) -> None:
        self.replica.end(graceful=False)

    async def _restart(self) -> None:
        self.replica.end(graceful=True)

    async def _hold_watches(self) -> None:
        if self.replica.transport is not None:
            gate = self.replica.transport.watch_gate
            gate.hold()
            for action in (self._delete_children, self._delete_cluster, self._create_cluster):
                await action()
            await asyncio.sleep(self.rng.uniform(0, 0.1))
            gate.release()

    @staticmethod
    def _namespaces() -> list[str]:
        return [f"soak-{number}" for number in range(CLUSTERS)]

    async def wait_for_clusters(self, expected: dict[str, Any], *, openshift: bool) -> None:
        """Wait until each existing cluster has all its children, and nothing else is left."""
        for namespace in self._namespaces():
            expected_snapshot = expected if namespace in self.clusters else {}
            await wait_for_snapshot(
                self.env,
                namespace,
                expected_snapshot,
                openshift=openshift,
                description=f"{namespace}, seed {SEED}",
            )

    async def delete_all(self) -> None:
        """Delete all clusters."""
        for namespace in list(self.clusters):
            await self.env.delete(self.clusters.pop(namespace))


@pytest.fixture
def without_logs() -> Iterator[None]:
    """Disable logs: minutes of failures would log a lot, which also takes memory that the soak measures."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.embedded(reason="it injects faults")
@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("openshift", [False, True], ids=["vanilla", "openshift"])
async def test_soak_converges_after_random_faults(openshift: bool) -> None:
    rng = random.Random(SEED)
    print(f"\nseed {SEED}, {SECONDS:g} s")
    settings = OAUTH_SETTINGS if openshift else PLAIN_SETTINGS
    async with start_environment(*(OPENSHIFT_CRDS if openshift else VANILLA_CRDS)) as env:
        assert isinstance(env.plane, EmbeddedControlPlane)
        namespace = await env.create_namespace("undisturbed")
        await env.create(ray_cluster(namespace=namespace))
        async with run_with_faulty_transport(env, kuberay_config(**settings)):
            expected = await snapshot(env, namespace, openshift=openshift)
        for name in Soak._namespaces():
            await env.create_namespace(name)
        tasks_before = asyncio.all_tasks()
        bytes_before = _bytes_of_data(env.plane) if IS_LONG else 0
        async with (
            start_faulty_proxy(env.plane, seed=SEED) as proxy,
            anyio.create_task_group() as tasks,
        ):
            replica = Replica(env, proxy, settings, rng)
            tasks.start_soon(replica.run)
            soak = Soak(env, proxy, replica, rng)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                try:
                    await soak.perform_random_action()
                except (APIError, TransportError):
                    await _read_clusters(soak)  # the failed request may have had an effect
                await asyncio.sleep(rng.uniform(0, 0.05))
            env.plane.faults.clear()
            await _read_clusters(soak)
            print(f"{len(soak.actions)} actions, {replica.starts} starts, {proxy.cuts} cuts")
            await soak.wait_for_clusters(expected, openshift=openshift)
            await soak.delete_all()
            await soak.wait_for_clusters(expected, openshift=openshift)
            assert replica.manager is not None
            await _wait_until_nothing_is_kept(replica.manager)
            replica.stop()
        env.manager = None
        await eventually(lambda: _has_ended(tasks_before), "all tasks have ended")
        assert not IS_LONG or _bytes_of_data(env.plane) - bytes_before < MAX_GROWTH_BYTES


async def _read_clusters(soak: Soak) -> None:
    """Read from the API server which clusters exist."""

    async def read() -> bool:
        try:
            found = await soak.env.client.list(RAY_CLUSTER)
        except (APIError, TransportError):
            return False
        clusters = {item["metadata"]["namespace"]: item for item in found if not _is_deleting(item)}
        soak.clusters = {name: obj for name, obj in clusters.items() if name.startswith("soak-")}
        return True

    await eventually(read, "the existing clusters are read")


def _is_deleting(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


async def _wait_until_nothing_is_kept(manager: Manager) -> None:
    """Wait until queues, back-offs and informers contain nothing of deleted clusters, and few tombstones."""
    keys = [NamespacedName(name, "rc") for name in Soak._namespaces()]

    async def is_empty() -> bool:
        for controller in manager.controllers:
            assert len(controller.queue) == 0
            assert controller.queue.processing == 0
            assert [key for key in keys if controller.queue.num_requeues(key)] == []
        for informer in manager.cache.informers:
            remaining = [
                entry.key
                for entry in informer.reader.entries()
                if entry.key.namespace.startswith("soak-")
            ]
            assert informer.gvk.kind in ("ConfigMap", "ServiceAccount") or remaining == [], (
                informer.gvk
            )
            for feed in informer._feeds.values():
                assert len(feed._tombstones) < 500
        return True

    await eventually(is_empty, "nothing of deleted clusters is kept")


async def _has_ended(before: set[asyncio.Task[Any]]) -> bool:
    """Report whether all tasks started since have ended, except those of the control plane's connections."""
    running = [repr(task.get_coro()) for task in asyncio.all_tasks() - before]
    unexpected = [name for name in running if "Connection._serve" not in name]
    assert not unexpected, unexpected
    return True


def _bytes_of_data(plane: EmbeddedControlPlane) -> int:
    """Return the size of all strings, bytes and containers in use, without the history of the plane.

    The resident memory also contains what the allocator keeps, which grows with the actions of the soak. This takes
    seconds in a process that has run other tests.
    """
    plane.store.compact()
    plane.audit.clear()
    gc.collect()
    sizes: dict[int, int] = {}
    for tracked in gc.get_objects():
        for each in (tracked, *gc.get_referents(tracked)):  # strings and bytes are not tracked
            if isinstance(each, _DATA):
                sizes[id(each)] = sys.getsizeof(each)
    return sum(sizes.values())


async def test_successor_completes_work_of_processes_ended_at_random_points(tmp_path: Path) -> None:
    """Processes end by SIGTERM or SIGKILL at any point; the next process completes the work."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    clusters = 12
    async with start_environment(*VANILLA_CRDS) as env:
        await create_config_map(env, {"config.yaml": yaml.safe_dump(PLAIN_PROCESS)})
        for number in range(clusters):
            await env.create_namespace(f"team-{number}")

        async def create() -> None:
            for number in range(clusters):
                await env.create(ray_cluster(namespace=f"team-{number}"))
                await asyncio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            for start in range(4):
                async with run_operator(env, tmp_path) as process:
                    if start:
                        await process.ready()
                    await asyncio.sleep(rng.uniform(0, 0.4))
                    ending = rng.choice([signal.SIGTERM, signal.SIGKILL])
                    process.process.send_signal(ending)
                    assert await process.exit_code() in (0, -ending), process.output
        async with run_operator(env, tmp_path):
            first = None
            for number in range(clusters):
                if first is None:
                    await eventually(
                        lambda: _has_all(env, "team-0"), "the first cluster has all children"
                    )
                    first = await snapshot(env, "team-0")
                await wait_for_snapshot(
                    env, f"team-{number}", first, description=f"team-{number}, seed {SEED}"
                )


async def _has_all(env: Environment, namespace: str) -> bool:
    """Report whether the cluster in the namespace has all children."""
    kinds = sorted(kind for kind, _ in await env.children(namespace))
    return kinds == ["Ingress", "Ingress", "NetworkPolicy", "NetworkPolicy", "Secret"]
