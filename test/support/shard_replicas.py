"""Replicas that share ConfigMaps by sharding, with a record of all their reconciles.

Each ConfigMap is reconciled again and again, so that the longest time without a reconcile shows a gap between two
owners. A reconcile that starts while another replica is reconciling the same object is a violation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.abc

from cfo.runtime.client.client import Client
from cfo.runtime.client.discovery import RESTMapper
from cfo.runtime.client.transport import Transport
from cfo.runtime.controller.lifecycle import RunnableFailed
from cfo.runtime.controller.reconcile import Request, Result
from cfo.runtime.manager.builder import Builder
from cfo.runtime.manager.leaderelection import LeaderElectionOptions, Lock
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.kinds import CONFIG_MAP, LEASE
from cfo.runtime.objects.unstructured import NamespacedName, Object
from cfo.runtime.process.clock import first_of
from cfo.runtime.ring.options import ShardingOptions
from envtest import ControlPlane
from test.support.faulty_proxy import FaultyProxy, start_faulty_proxy
from test.support.raycluster_environment import eventually

__all__ = ["LEASE_SECONDS", "RETRY_SECONDS", "Replica", "ReplicaGroup", "new_client", "released_lease", "run_group"]

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 3.0, 2.2, 0.3
_PERIOD = 0.25
_TICK = 0.05
_LABEL = "sharding.example.com/group"


@dataclass
class ReconcileLog:
    """Who reconciled which object when; ``violations`` lists what must not happen."""

    running: dict[Request, set[str]] = field(default_factory=dict)
    last: dict[Request, tuple[str, float]] = field(default_factory=dict)
    longest_gap: float = 0.0
    stalled: float = 0.0
    violations: list[str] = field(default_factory=list)

    async def watch_machine(self) -> None:
        """Add up the time by which the machine delays this process in :attr:`stalled`, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(_TICK)
            self.stalled += loop.time() - began - _TICK

    def check(self, limit: float) -> None:
        """Assert that there is no violation, and no gap above ``limit`` seconds on a machine that is not busy."""
        assert not self.violations
        assert self.longest_gap < limit + self.stalled, f"{self.longest_gap:.1f} s, stalled {self.stalled:.1f} s"

    def start(self, request: Request, replica: str) -> None:
        """Record the start of a reconcile."""
        others = self.running.setdefault(request, set())
        if others:
            self.violations.append(f"{replica} and {', '.join(others)} reconciled {request} at the same time")
        others.add(replica)
        now = asyncio.get_running_loop().time()
        if request in self.last:
            self.longest_gap = max(self.longest_gap, now - self.last[request][1])
        self.last[request] = (replica, now)

    def end(self, request: Request, replica: str) -> None:
        """Record the end of a reconcile."""
        self.running[request].discard(replica)


class Replica:
    """One manager, with a connection that a test can interrupt, and a Lease whose writes it can intercept."""

    def __init__(self, name: str, manager: Manager, proxy: FaultyProxy, log: ReconcileLog) -> None:
        self.name = name
        self.manager = manager
        self.proxy = proxy
        self.client = manager.client
        self.error: BaseException | None = None
        self.ended = asyncio.Event()
        self.crashed = asyncio.Event()
        self._log = log
        assert manager.sharding is not None
        self.sharding = manager.sharding

    @property
    def owned(self) -> frozenset[int]:
        """The shards that the replica works on; empty after its end."""
        return self.sharding.requests.active if not self.ended.is_set() else frozenset()

    async def reconcile(self, request: Request) -> Result:
        """Write the name of the replica into a copy of the ConfigMap, and do so again after a while."""
        self._log.start(request, self.name)
        try:
            source = await self.client.get(CONFIG_MAP, request)
            await asyncio.sleep(0.01)
            if source is None:
                return Result()
            await self.client.apply(_config_map(request.namespace, f"{request.name}-copy", writer=self.name))
        finally:
            self._log.end(request, self.name)
        return Result(requeue_after=_PERIOD)

    async def run(self) -> None:
        """Run until a stop, the loss of the membership, or :meth:`crash`."""
        try:
            await first_of(self.manager.run, self.crashed.wait)
        except* RunnableFailed as group:
            self.error = group.exceptions[0]
        finally:
            self.ended.set()

    def crash(self) -> None:
        """End all tasks wherever they are."""
        self.crashed.set()

    def disconnect(self) -> None:
        """Let all connections go silent, and refuse new ones."""
        self.proxy.refuses_connections = True
        self.proxy.silence()

    def intercept(self, action: Callable[[int], Awaitable[None]]) -> None:
        """Call ``action`` with the number of each write of the Lease, after it was stored and before its answer."""
        self.sharding.elector._lock = _InterceptedLock(self.sharding.elector._lock, action)


class _InterceptedLock(Lock):
    def __init__(self, lock: Lock, action: Callable[[int], Awaitable[None]]) -> None:
        self._lock = lock
        self._action = action
        self._writes = 0

    async def get(self, *, timeout: float) -> Object | None:
        return await self._lock.get(timeout=timeout)

    async def create(self, lease: Object, *, timeout: float) -> Object:
        return await self._after(await self._lock.create(lease, timeout=timeout))

    async def update(self, lease: Object, *, timeout: float) -> Object:
        return await self._after(await self._lock.update(lease, timeout=timeout))

    async def _after(self, lease: Object) -> Object:
        self._writes += 1
        await self._action(self._writes)
        return lease


class ReplicaGroup:
    """The replicas of one operator, which share the ConfigMaps of the group ``name``."""

    def __init__(self, plane: ControlPlane, tasks: anyio.abc.TaskGroup, name: str, shards: int) -> None:
        self.log = ReconcileLog()
        self.replicas: list[Replica] = []
        self.name = name
        self.client: Client
        self._plane = plane
        self._tasks = tasks
        self._shards = shards

    @property
    def lease_key(self) -> NamespacedName:
        """The Lease with the ring."""
        return NamespacedName("default", f"ring-{self.name}")

    async def start(self) -> Replica:
        """Start another replica; return at once."""
        started: asyncio.Future[Replica] = asyncio.get_running_loop().create_future()
        self._tasks.start_soon(self._run, f"{self.name}-{len(self.replicas)}", started)
        return await started

    async def _run(self, name: str, started: asyncio.Future[Replica]) -> None:
        async with start_faulty_proxy(self._plane) as proxy, Transport(proxy.config) as transport:
            manager = Manager(
                transport,
                ManagerOptions(
                    field_manager="replica",
                    graceful_shutdown_timeout=5.0,
                    sharding=ShardingOptions(shards=self._shards),
                    leader_election=LeaderElectionOptions(
                        name=self.lease_key.name,
                        namespace="default",
                        identity=name,
                        lease_duration=LEASE_SECONDS,
                        renew_deadline=RENEW_SECONDS,
                        retry_period=RETRY_SECONDS,
                    ),
                ),
            )
            replica = Replica(name, manager, proxy, self.log)
            Builder(manager, "copies").for_(CONFIG_MAP, label_selector=f"{_LABEL}={self.name}").complete(replica)
            self.replicas.append(replica)
            started.set_result(replica)
            await replica.run()

    async def create_objects(self, count: int) -> list[Request]:
        """Create one ConfigMap in each of ``count`` new namespaces."""
        created = []
        for number in range(count):
            namespace = f"{self.name}-{number}"
            await self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            await self.client.create(_config_map(namespace, "source", **{_LABEL: self.name}))
            created.append(Request(namespace, "source"))
        return created

    def is_divided_among(self, *replicas: Replica) -> bool:
        """Return whether these replicas work on all shards, each on its share."""
        counts = [len(replica.owned) for replica in replicas]
        owned = frozenset().union(*(replica.owned for replica in replicas))
        return len(owned) == sum(counts) == self._shards and max(counts) - min(counts) <= 1

    async def wait_until_divided_among(self, *replicas: Replica) -> float:
        """Wait for :meth:`is_divided_among`; return the seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def is_divided() -> bool:
            return self.is_divided_among(*replicas)

        await eventually(is_divided, "the shards are divided")
        return loop.time() - began

    async def wait_for_reconciles(self, requests: list[Request]) -> None:
        """Wait until each request is reconciled again by the replica that owns its shard."""
        now = asyncio.get_running_loop().time()

        async def are_reconciled() -> bool:
            return all(self.log.last.get(request, ("", 0.0))[1] > now for request in requests)

        await eventually(are_reconciled, "all objects are reconciled again")


@asynccontextmanager
async def run_group(plane: ControlPlane, client: Client, name: str, *, shards: int = 6) -> AsyncIterator[ReplicaGroup]:
    """Run a group without replicas; those that are running at the end of the block crash.

    Its Lease exists and was released, so that the first replica does not wait for a lease duration.
    """
    async with anyio.create_task_group() as tasks:
        group = ReplicaGroup(plane, tasks, name, shards)
        group.client = client
        tasks.start_soon(group.log.watch_machine)
        await client.create(released_lease(group.lease_key))
        try:
            yield group
        finally:
            for replica in group.replicas:
                replica.crash()
            for replica in group.replicas:
                await replica.ended.wait()
            tasks.cancel_scope.cancel()


def released_lease(key: NamespacedName) -> Object:
    """Return a Lease that was released: the first replica need not wait until others cannot write any more."""
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {"namespace": key.namespace, "name": key.name},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
    }


def new_client(transport: Transport) -> Client:
    """Return a client for the test itself."""
    return Client(transport, RESTMapper(transport), field_manager="tester")


def _config_map(namespace: str, name: str, *, writer: str = "", **labels: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "data": {"writer": writer},
    }
