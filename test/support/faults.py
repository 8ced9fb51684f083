"""Fault injection for the RayCluster controllers, and snapshots that compare the state that two runs end in.

A :func:`snapshot` leaves out random and time-dependent values: two runs that end in the same state have equal
snapshots, regardless of the steps in between.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio

from cfo.api.raycluster.certificates import RENEWAL_ANNOTATION
from cfo.api.raycluster.names import FIELD_MANAGER, RAY_CLUSTER
from cfo.config.kuberay import KubeRayConfiguration
from cfo.controllers import raycluster
from cfo.runtime.client.errors import AlreadyExists, APIError, TransportError
from cfo.runtime.client.transport import APIRequest, Response, Transport
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.objects.unstructured import Object, name_of, uid_of
from cfo.runtime.process.clock import Clock, SystemClock
from test.support.planes import local_config
from test.support.raycluster_environment import Environment, eventually

__all__ = [
    "FastClock",
    "FaultyTransport",
    "WatchGate",
    "new_manager",
    "repeat_until_accepted",
    "run_manager_until_crash",
    "run_manager_with_faulty_transport",
    "run_until_crash",
    "run_with_faulty_transport",
    "snapshot",
    "wait_for_snapshot",
]

_RANDOM_DATA = "(random)"


def _mask_namespaces(value: Any, namespace: str) -> Any:
    """Replace the namespace's name in all strings of ``value``."""
    if isinstance(value, dict):
        return {key: _mask_namespaces(item, namespace) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask_namespaces(item, namespace) for item in value]
    return _mask_namespace(value, namespace) if isinstance(value, str) else value


def _mask_namespace(text: str, namespace: str) -> str:
    return re.sub(rf"(?<![a-z0-9]){re.escape(namespace)}(?![a-z0-9])", "<namespace>", text)


def _mask_times(annotations: dict[str, str] | None) -> dict[str, str] | None:
    """Replace the time at which a CA is due for renewal."""
    masked = {
        key: "(time)" if key == RENEWAL_ANNOTATION else value
        for key, value in (annotations or {}).items()
    }
    return masked or None


async def snapshot(env: Environment, namespace: str, *, openshift: bool = False) -> dict[str, Any]:
    """Return the RayClusters and their children in a namespace, comparable between namespaces and runs.

    Left out or masked are uids, resource versions, times, the content of Secrets, assigned IP addresses and the name of
    the namespace.
    """
    clusters = await env.client.list(RAY_CLUSTER, namespace=namespace)
    children = await env.children(namespace, openshift=openshift)
    return _comparable(clusters, children, namespace)


def _comparable(
    clusters: Iterable[Object], children: Mapping[tuple[str, str], Object], namespace: str
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for cluster in clusters:
        found[f"RayCluster {name_of(cluster)}"] = sorted(
            cluster["metadata"].get("finalizers") or ()
        )
    for (kind, name), obj in children.items():
        metadata = obj["metadata"]
        content = {
            key: value
            for key, value in obj.items()
            if key not in ("metadata", "apiVersion", "kind", "status")
        }
        if kind == "Secret":
            content["data"] = dict.fromkeys(content.get("data") or {}, _RANDOM_DATA)
        if kind == "Service":
            content["spec"] = {
                key: value
                for key, value in content["spec"].items()
                if not key.startswith("clusterIP")
            }
        if kind == "ServiceAccount":  # other controllers add the fields outside metadata
            content = {}
        owners = [
            {key: value for key, value in owner.items() if key != "uid"}
            for owner in metadata.get("ownerReferences") or ()
        ]
        if kind == "ClusterRoleBinding":  # its name ends in a hash of the namespace
            name = name.rpartition("-")[0]
        found[_mask_namespace(f"{kind} {name}", namespace)] = _mask_namespaces(
            {
                "labels": metadata.get("labels"),
                "annotations": _mask_times(metadata.get("annotations")),
                "owners": owners,
                "managers": sorted(
                    {entry["manager"] for entry in metadata.get("managedFields") or ()} - {"tester"}
                ),
                **content,
            },
            namespace,
        )
    return found


def _owners_exist(clusters: Iterable[Object], children: Iterable[Object]) -> bool:
    """Report whether every owner of a child is an existing RayCluster, so that no child is an orphan."""
    owners: set[str] = set()
    for child in children:
        references = child["metadata"].get("ownerReferences") or ()
        owners.update(reference["uid"] for reference in references)
    return owners <= {uid_of(cluster) for cluster in clusters}


async def wait_for_snapshot(
    env: Environment,
    namespace: str,
    expected: dict[str, Any],
    *,
    openshift: bool = False,
    description: str = "",
) -> None:
    """Wait until the snapshot of the namespace equals ``expected`` and no child in it is an orphan."""

    async def is_as_expected() -> bool:
        children = await env.children(namespace, openshift=openshift)
        clusters = await env.client.list(RAY_CLUSTER, namespace=namespace)
        found = _comparable(clusters, children, namespace)
        missing, unexpected = expected.keys() - found.keys(), found.keys() - expected.keys()
        assert not missing, f"missing: {sorted(missing)}"
        assert not unexpected, f"unexpected: {sorted(unexpected)}"
        for key, value in expected.items():
            assert found[key] == value, f"{key}: {found[key]}\nexpected: {value}"
        return _owners_exist(clusters, children.values())

    await eventually(is_as_expected, description)


async def repeat_until_accepted(send: Callable[[], Any]) -> None:
    """Repeat a request of this test until it succeeds, or the object already exists."""

    async def is_accepted() -> bool:
        try:
            await send()
        except AlreadyExists:
            return True
        except (APIError, TransportError) as error:
            await asyncio.sleep(0.05)
            raise AssertionError(str(error)) from None
        return True

    await eventually(is_accepted, "the request of this test succeeds")


class FastClock(SystemClock):
    """A clock that sleeps a fiftieth of the time, so that tests do not wait for back-offs."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds / 50``."""
        await asyncio.sleep(seconds / 50)


class WatchGate:
    """Holds back the data of watches, and delivers it when released."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    def hold(self) -> None:
        """Hold back all data of watches from now on."""
        self.open.clear()

    def release(self) -> None:
        """Deliver the data held back, and let further data pass."""
        self.open.set()


class _WatchBody:
    """The body of a watch response that passes the gate and may repeat earlier lines."""

    def __init__(self, body: aiohttp.StreamReader, transport: FaultyTransport) -> None:
        self._body = body
        self._transport = transport
        self._sent: list[bytes] = []
        self._rest = b""

    async def readany(self) -> bytes:
        """Return the next bytes, with repeated lines in between."""
        chunk = await self._body.readany()
        await self._transport.watch_gate.open.wait()
        if not chunk or not self._transport.repeat_probability:
            return chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        out = []
        for line in lines:
            out.append(line)
            if line.strip():
                self._sent.append(line)
            if self._transport.random.random() < self._transport.repeat_probability:
                out.append(self._transport.random.choice(self._sent[-20:]))
        return b"".join(line + b"\n" for line in out) or b"\n"


class FaultyTransport(Transport):
    """A transport whose faults a test controls.

    ``crash_after_writes``: after so many writes :attr:`crashed` is set, the response of the last one never arrives, and
    no further request is sent. Events do not count as writes.
    ``repeat_probability``: the probability with which a watch repeats one of its last 20 lines after each line.
    :attr:`watch_gate` holds back watches.
    """

    def __init__(
        self,
        *args: Any,
        crash_after_writes: int | None = None,
        repeat_probability: float = 0.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.watch_gate = WatchGate()
        self.crash_after_writes = crash_after_writes
        self.crashed = asyncio.Event()
        self.repeat_probability = repeat_probability
        self.random = random.Random(seed)
        self.writes = 0

    async def request(self, request: APIRequest) -> Response:
        """Send a request; never return after the crash."""
        if self.crashed.is_set():
            await anyio.sleep_forever()
        response = await super().request(request)
        if request.method != "GET" and "/events" not in request.path:
            self.writes += 1
            if self.crash_after_writes is not None and self.writes >= self.crash_after_writes:
                self.crashed.set()
                await anyio.sleep_forever()
        return response

    @asynccontextmanager
    async def stream(self, request: APIRequest) -> AsyncIterator[Any]:
        """Open a watch that passes the gate and may repeat lines."""
        async with super().stream(request) as body:
            yield _WatchBody(body, self)


def new_manager(
    transport: Transport,
    config: KubeRayConfiguration,
    *,
    election: LeaderElectionOptions | None = None,
    clock: Clock | None = None,
) -> Manager:
    """Return a manager with the RayCluster controllers, not started."""
    options = ManagerOptions(
        field_manager="codeflare-operator",
        field_managers=[FIELD_MANAGER],
        graceful_shutdown_timeout=5.0,
        leader_election=election,
    )
    manager = Manager(transport, options, clock=clock)
    raycluster.setup(manager, config)
    return manager


@asynccontextmanager
async def run_with_faulty_transport(
    env: Environment,
    config: KubeRayConfiguration,
    *,
    repeat_probability: float = 0.0,
    seed: int = 0,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[Manager, FaultyTransport]]:
    """Run the RayCluster controllers on a faulty transport until the end of the block.

    The block starts when they have nothing left to do.
    """
    async with run_manager_with_faulty_transport(
        env,
        lambda transport: new_manager(transport, config, clock=clock),
        repeat_probability=repeat_probability,
        seed=seed,
        clock=clock,
    ) as running:
        yield running


@asynccontextmanager
async def run_manager_with_faulty_transport(
    env: Environment,
    build: Callable[[Transport], Manager],
    *,
    repeat_probability: float = 0.0,
    seed: int = 0,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[Manager, FaultyTransport]]:
    """Run the manager that ``build`` returns on a faulty transport, as :func:`run_with_faulty_transport` does."""
    env.clear_requests()
    target = local_config(env.plane)
    async with FaultyTransport(
        target,
        observe=env.exchanges.append,
        repeat_probability=repeat_probability,
        seed=seed,
        clock=clock,
    ) as transport:
        manager = build(transport)
        env.manager = manager
        try:
            async with manager:
                await manager.started()
                await env.wait_until_idle()
                yield manager, transport
        finally:
            env.manager = None


async def run_until_crash(
    env: Environment, config: KubeRayConfiguration, *, after_writes: int
) -> bool:
    """Run the RayCluster controllers until they crash after so many writes, or have nothing left to do.

    Returns whether they crashed. A crash is not graceful: all tasks are cancelled wherever they are.
    """
    return await run_manager_until_crash(
        env, lambda transport: new_manager(transport, config), after_writes=after_writes
    )


async def run_manager_until_crash(
    env: Environment, build: Callable[[Transport], Manager], *, after_writes: int
) -> bool:
    """Run the manager that ``build`` returns until it crashes, as :func:`run_until_crash` does."""
    env.clear_requests()
    target = local_config(env.plane)
    async with FaultyTransport(
        target, observe=env.exchanges.append, crash_after_writes=after_writes
    ) as transport:
        manager = build(transport)
        env.manager = manager
        try:
            async with anyio.create_task_group() as tasks:

                async def cancel_on_crash() -> None:
                    await transport.crashed.wait()
                    tasks.cancel_scope.cancel()

                async def cancel_when_idle() -> None:
                    await manager.started()
                    await env.wait_until_idle()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(cancel_on_crash)
                tasks.start_soon(cancel_when_idle)
                tasks.start_soon(manager.run)
        finally:
            env.manager = None
    return transport.crashed.is_set()
