"""What fault tests share: a connection that does what a test wants to it, and a picture of what became of a cluster.

A picture (:func:`picture`) leaves out what is random or a matter of time: two runs that come to the same end have the
same picture, whatever happened on the way.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio

from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.config import KubeRayConfiguration
from cfo.controllers import raycluster
from cfo.runtime.client.api_request import APIRequest
from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.transport import Response, Transport
from cfo.runtime.clock import Clock, SystemClock
from cfo.runtime.leaderelection import LeaderElectionOptions
from cfo.runtime.manager import Manager, ManagerOptions
from cfo.runtime.objects import name_of
from test.support.raycluster_environment import World, eventually

__all__ = ["Flow", "Hasty", "Unruly", "crashed", "new_manager", "picture", "running", "same_end", "settled"]

_RANDOM_DATA = "(random)"


def _plain(value: Any, namespace: str) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, namespace) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, namespace) for item in value]
    return _anywhere(value, namespace) if isinstance(value, str) else value


def _anywhere(text: str, namespace: str) -> str:
    return re.sub(rf"(?<![a-z0-9]){re.escape(namespace)}(?![a-z0-9])", "<namespace>", text)


async def picture(world: World, namespace: str, *, openshift: bool = False) -> dict[str, Any]:
    """All clusters and their children in a namespace, without uids, versions, times, and what is random."""
    found: dict[str, Any] = {}
    for cluster in await world.client.list(RAY_CLUSTER, namespace=namespace):
        found[f"RayCluster {name_of(cluster)}"] = sorted(cluster["metadata"].get("finalizers") or ())
    for (kind, name), obj in (await world.children(namespace, openshift=openshift)).items():
        metadata = obj["metadata"]
        rest = {key: value for key, value in obj.items() if key not in ("metadata", "apiVersion", "kind", "status")}
        if kind == "Secret":
            rest["data"] = dict.fromkeys(rest.get("data") or {}, _RANDOM_DATA)
        if kind == "Service":
            rest["spec"] = {key: value for key, value in rest["spec"].items() if not key.startswith("clusterIP")}
        if kind == "ServiceAccount":  # what a cluster adds to it is not ours
            rest = {}
        owners = [
            {key: value for key, value in owner.items() if key != "uid"}
            for owner in metadata.get("ownerReferences") or ()
        ]
        if kind == "ClusterRoleBinding":  # there is a hash of the namespace in it
            name = name.rpartition("-")[0]
        found[_anywhere(f"{kind} {name}", namespace)] = _plain(
            {
                "labels": metadata.get("labels"),
                "annotations": metadata.get("annotations"),
                "owners": owners,
                "managers": sorted({entry["manager"] for entry in metadata.get("managedFields") or ()} - {"tester"}),
                **rest,
            },
            namespace,
        )
    return found


async def owners_exist(world: World, namespace: str, *, openshift: bool = False) -> bool:
    """Whether every owner of a child is a cluster that is there: nothing is an orphan."""
    clusters = {item["metadata"]["uid"] for item in await world.client.list(RAY_CLUSTER, namespace=namespace)}
    children = await world.children(namespace, openshift=openshift)
    owners = {owner["uid"] for obj in children.values() for owner in obj["metadata"].get("ownerReferences") or ()}
    return owners <= clusters


async def same_end(
    world: World, namespace: str, expected: dict[str, Any], *, openshift: bool = False, why: str = ""
) -> None:
    """Waits until the namespace looks as expected, and nothing in it is an orphan."""

    async def look() -> bool:
        found = await picture(world, namespace, openshift=openshift)
        missing, extra = expected.keys() - found.keys(), found.keys() - expected.keys()
        assert not missing, f"missing: {sorted(missing)}"
        assert not extra, f"too much: {sorted(extra)}"
        for key, value in expected.items():
            assert found[key] == value, f"{key}: {found[key]}\nshould be {value}"
        return await owners_exist(world, namespace, openshift=openshift)

    await eventually(look, why)


class Hasty(SystemClock):
    """A clock whose sleeps are a fiftieth as long: backoffs that a test need not sit through."""

    async def sleep(self, seconds: float) -> None:
        """Returns after ``seconds / 50``."""
        await asyncio.sleep(seconds / 50)


class Flow:
    """Lets watches through, or holds them: what they say while they are held is heard afterwards."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    def hold(self) -> None:
        """From now on nothing more is heard."""
        self.open.clear()

    def release(self) -> None:
        """All that was held is heard."""
        self.open.set()


class _Body:
    """The body of a watch, which goes with the flow, and may say things again."""

    def __init__(self, body: aiohttp.StreamReader, unruly: Unruly) -> None:
        self._body = body
        self._unruly = unruly
        self._said: list[bytes] = []
        self._rest = b""

    async def readany(self) -> bytes:
        """The next bytes."""
        chunk = await self._body.readany()
        await self._unruly.flow.open.wait()
        if not chunk or not self._unruly.repeats:
            return chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        out = []
        for line in lines:
            out.append(line)
            if line.strip():
                self._said.append(line)
            if self._unruly.random.random() < self._unruly.repeats:
                out.append(self._unruly.random.choice(self._said[-20:]))
        return b"".join(line + b"\n" for line in out) or b"\n"


class Unruly(Transport):
    """A transport that obeys a test.

    ``crash_after``: when so many writes have been answered, :attr:`crashed` is set and the answer never arrives.
    ``repeats``: how likely a watch says something again that it has said before, in any order. ``flow`` holds watches.
    """

    def __init__(
        self,
        *args: Any,
        crash_after: int | None = None,
        repeats: float = 0.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.flow = Flow()
        self.crash_after = crash_after
        self.crashed = asyncio.Event()
        self.repeats = repeats
        self.random = random.Random(seed)
        self.writes = 0

    async def request(self, request: APIRequest) -> Response:
        """Asks, unless the process is dead."""
        if self.crashed.is_set():
            await anyio.sleep_forever()
        answer = await super().request(request)
        if request.method != "GET" and "/events" not in request.path:
            self.writes += 1
            if self.crash_after is not None and self.writes >= self.crash_after:
                self.crashed.set()
                await anyio.sleep_forever()
        return answer

    @asynccontextmanager
    async def stream(self, request: APIRequest, *, read_timeout: float | None = None) -> AsyncIterator[Any]:
        """A watch that goes with the flow."""
        async with super().stream(request, read_timeout=read_timeout) as body:
            yield _Body(body, self)


def new_manager(
    transport: Transport,
    config: KubeRayConfiguration,
    *,
    election: LeaderElectionOptions | None = None,
    clock: Clock | None = None,
) -> Manager:
    """A manager with the RayCluster controllers."""
    options = ManagerOptions(
        field_manager="codeflare-operator",
        field_managers=[raycluster.FIELD_MANAGER],
        graceful_shutdown_timeout=5.0,
        leader_election=election,
    )
    manager = Manager(transport, options, clock=clock)
    raycluster.setup(manager, config)
    return manager


@asynccontextmanager
async def running(
    world: World,
    config: KubeRayConfiguration,
    *,
    repeats: float = 0.0,
    seed: int = 0,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[Manager, Unruly]]:
    """The RayCluster controllers at work, on an unruly transport, until the end of the block."""
    world.forget_requests()
    target = ClientConfig.for_control_plane(world.plane)
    async with Unruly(target, observe=world.exchanges.append, repeats=repeats, seed=seed, clock=clock) as transport:
        manager = new_manager(transport, config, clock=clock)
        world.manager = manager
        try:
            async with manager:
                await manager.started()
                await settled(world)
                yield manager, transport
        finally:
            world.manager = None


async def crashed(world: World, config: KubeRayConfiguration, *, after: int) -> bool:
    """Runs the controllers until they crash after so many writes; false when there was no more to write before that.

    After a crash nothing is stopped gracefully: whatever ran is cancelled where it was.
    """
    world.forget_requests()
    target = ClientConfig.for_control_plane(world.plane)
    async with Unruly(target, observe=world.exchanges.append, crash_after=after) as transport:
        manager = new_manager(transport, config)
        world.manager = manager
        try:
            async with anyio.create_task_group() as tasks:

                async def die() -> None:
                    await transport.crashed.wait()
                    tasks.cancel_scope.cancel()

                async def calm_down() -> None:
                    await manager.started()
                    await settled(world)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(die)
                tasks.start_soon(calm_down)
                tasks.start_soon(manager.run)
        finally:
            world.manager = None
    return transport.crashed.is_set()


async def settled(world: World) -> None:
    """Returns when the controllers have nothing more to do."""
    await world.quiet()
