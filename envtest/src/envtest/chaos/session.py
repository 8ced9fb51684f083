"""One run: a copy of the prepared control plane, the operator that works on it, and the observation of both."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from envtest.apimachinery.errors import GroupResource
from envtest.chaos.activity import Sent
from envtest.chaos.injection import Injector, is_ignored, qualified
from envtest.chaos.names import Names
from envtest.chaos.normal_form import Live, Snapshot
from envtest.chaos.operators import Connection, Instance, Operator, StartError
from envtest.chaos.points import FaultPoint, Target
from envtest.chaos.readiness import Readiness
from envtest.chaos.run_clock import LoopUsers, RunClock
from envtest.controllers.loopback_client import LoopbackClient
from envtest.planes.embedded import EmbeddedServer
from envtest.planes.trace import TracedRequest
from envtest.storage import Store

__all__ = ["OperatorExited", "Session"]

MAX_EXITS: Final = 5
"""How often the operator may exit on its own in one run; it is restarted like a container."""
_BACKOFF: Final = 0.025
_LEASES: Final = GroupResource("coordination.k8s.io", "leases")


class OperatorExited(RuntimeError):
    """Raised when the operator does not keep running; the message says how it ended and what it printed."""


class Session:
    """Runs ``operator`` on ``plane``, a copy that has not been started, in an ``async with`` block.

    ``base`` is the prepared state, whose unchanged objects are no part of the result. ``folder`` must be empty. The
    operator must be ready after ``startup`` seconds of ``clock``; ``users`` counts the sessions on the event loop.
    """

    def __init__(
        self,
        plane: EmbeddedServer,
        operator: Operator,
        folder: Path,
        *,
        base: Store,
        ignored: Collection[str],
        readiness: Readiness,
        names: Names | None = None,
        point: FaultPoint | None = None,
        startup: float = 60.0,
        users: LoopUsers | None = None,
    ) -> None:
        self.plane = plane
        self._operator = operator
        self._folder = folder
        self._base = base
        self._ignored = ignored
        self._readiness = readiness
        self._names = names or Names()
        self._point = point
        self._startup = startup
        self._users = users
        self._instance: Instance | None = None
        self._ready = asyncio.Event()
        self._killed = False
        self._rewind_to: int | None = None
        self._failure: BaseException | None = None
        self.exits: list[str] = []
        self.crashes = 0

    async def __aenter__(self) -> Self:
        await self.plane.start()
        self.clock = RunClock(self._users, self._processes)
        self.trace = self.plane.trace()
        self.injector = Injector(
            self.plane, self.clock, self._names, self._point, self._ignored, self._kill
        )
        kubeconfig = self._folder / "kubeconfig"
        self.plane.kubeconfig(kubeconfig)
        plane = self.plane
        self._connection = Connection(
            kubeconfig, plane.url, plane.ca_pem, plane.token, self._folder
        )
        self._supervisor = asyncio.create_task(self._supervise())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.injector.down = True
        self._supervisor.cancel()
        with suppress(asyncio.CancelledError):
            await self._supervisor
        self.injector.close()
        self.trace.stop()
        self.clock.close()
        await self.plane.stop()

    def _processes(self) -> Iterable[int]:
        return self._instance.processes() if self._instance is not None else ()

    async def _supervise(self) -> None:
        """Start the operator, and restart it when it ends."""
        try:
            while True:
                await self._run_instance()
        except (StartError, OperatorExited) as error:
            self._failure = error
            self._ready.set()
            self.injector.touch()

    async def _run_instance(self) -> None:
        instance = await self._operator.start(self._connection)
        self._instance = instance
        if self._rewind_to is not None:
            self.plane.faults.stale_revision = self._rewind_to
        self.injector.down = False
        self.injector.requests = 0
        self.injector.watches = 0
        self.injector.touch()
        waiting = asyncio.create_task(self._wait_ready())
        try:
            ended = await instance.wait()
        finally:
            self.injector.down = True
            waiting.cancel()
            instance.kill()
            await instance.wait()
        self._ready.clear()
        if self._killed:
            self._killed = False
            self.crashes += 1
        else:
            self.exits.append(ended)
            if len(self.exits) > MAX_EXITS:
                message = f"the operator ended {len(self.exits)} times: {ended}"
                printed = instance.own_output().rstrip()  # those before printed the same
                raise OperatorExited(f"{message}\n{printed}" if printed else message)
            await asyncio.sleep(_BACKOFF * 2 ** len(self.exits))
        await self._release_leases()

    async def _wait_ready(self) -> None:
        deadline = self.clock.now() + self._startup
        injector = self.injector
        if await self._readiness.wait(
            lambda: injector.requests,
            lambda: injector.watches,
            lambda: injector.last_request,
            self.clock,
            deadline,
        ):
            injector.touch()
            self._ready.set()

    async def _release_leases(self) -> None:
        """Delete the leases of the operator, which would expire if the next instance waited long enough."""
        client = LoopbackClient(self.plane.api_server.core, "envtest", manager="envtest-chaos")
        for record in list(self.plane.store.list(_LEASES)):
            if self._base.get(_LEASES, *record.key) is not record:
                await client.delete(_LEASES, *record.key)

    def _kill(self) -> None:
        self._killed = True
        self._ready.clear()
        if self._instance is not None:
            self._instance.kill()

    def crash(self, *, rewind_to: int | None = None) -> None:
        """Kill the operator; the next instance reads a cache of revision ``rewind_to``, if it reads a cache."""
        self._rewind_to = rewind_to
        self.injector.down = True
        self._kill()

    def catch_up(self) -> None:
        """Let the cache that the operator reads show the present again."""
        self._rewind_to = None
        self.plane.faults.stale_revision = None
        self.plane.faults.release_watches()
        self.injector.touch()

    async def wait_ready(self) -> bool:
        """Wait until the operator is ready; return false after ``startup`` seconds.

        Raises OperatorExited, StartError.
        """
        deadline = self.clock.now() + self._startup
        ready = await self.clock.wait_for(self._ready, deadline)
        self.check()
        return ready

    def not_ready(self) -> OperatorExited:
        """Return the error of an operator that was not ready in time, with the end of what it printed."""
        return OperatorExited(
            f"the operator was not ready after {self._startup:g} s: {self._readiness.unmet()}\n{self.output()}"
        )

    @property
    def is_ready(self) -> bool:
        """Whether the operator runs and is ready."""
        return self._ready.is_set()

    def check(self) -> None:
        """Raise OperatorExited or StartError if the operator does not keep running."""
        if self._failure is not None:
            raise self._failure

    def output(self) -> str:
        """Return the end of what the operator has printed."""
        return self._instance.output() if self._instance is not None else ""

    def snapshot(self) -> Snapshot:
        """Return the objects that differ from the prepared state."""
        found: list[Live] = []
        uids: set[str] = set()
        store = self.plane.store
        base = self._base
        for resource in {*store.resources(), *base.resources()}:
            records = store.list(resource)
            uids.update(record.uid for record in records)
            if is_ignored(str(resource), self._ignored):
                continue
            found += [
                Live((str(resource), *record.key), record.obj())
                for record in records
                if base.get(resource, *record.key) is not record
            ]
            found += [
                Live((str(resource), *record.key), None)
                for record in base.list(resource)
                if store.get(resource, *record.key) is None
            ]
        return Snapshot(found, frozenset(uids))

    def sent(self, since: int = 0) -> list[Sent]:
        """Return the requests that the operator has finished, without the first ``since`` of them."""
        return [self._sent(request) for request in self.requests(since)]

    def requests(self, since: int = 0) -> list[TracedRequest]:
        """Return the traced requests for resources that are not ignored, in the order in which they finished."""
        found = [request for request in self.trace.requests if request.resource]
        return [each for each in found if not is_ignored(_whole(each), self._ignored)][since:]

    def target(self, request: TracedRequest) -> Target:
        """Return what a traced request addresses, with canonical names; a create names no object."""
        resource = _whole(request)
        name = "" if request.verb == "create" and "/" not in request.resource else request.name
        name = name and self._names.canonical((resource.partition("/")[0], request.namespace, name))
        return Target(request.verb, resource, request.namespace, name)

    def _sent(self, request: TracedRequest) -> Sent:
        target = self.target(request)
        return Sent(
            request.finished,
            target,
            request.code,
            bool(request.changes),
            is_write=request.is_write,
            uri=request.uri,
        )


def _whole(request: TracedRequest) -> str:
    plural, _, subresource = request.resource.partition("/")
    return qualified(request.group, plural, subresource)
