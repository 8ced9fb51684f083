"""A dashboard on the loopback interface for tests, and a reader of its stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import anyio
import orjson

from cfo.dashboard.feed import PageFeed
from cfo.dashboard.site import LoopbackServer
from cfo.runtime import Clock, SystemClock
from test.support.dashboards import FakeOverview

__all__ = ["Dashboard", "running_dashboard"]


class Dashboard:
    """A running server, and an HTTP client for it that knows the token."""

    def __init__(
        self,
        feed: PageFeed,
        server: LoopbackServer,
        session: aiohttp.ClientSession,
        task: asyncio.Task[None],
    ) -> None:
        self._task = task
        self.feed = feed
        self.server = server
        self.url = server.url
        self.address, _, self.token = server.url.partition("/#token=")
        self._session = session

    async def stop(self) -> None:
        """Stop the server."""
        await _stop(self._task)

    def request(self, path: str, method: str = "GET", **options: Any) -> Any:
        """Return the request of a page that knows the token; ``headers`` replace its headers."""
        headers = options.pop("headers", {"Authorization": f"Bearer {self.token}"})
        return self._session.request(method, self.address + path, headers=headers, **options)

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[Reader]:
        """Open a stream, and yield its reader."""
        async with self.request("/stream") as response:
            assert response.status == 200, await response.text()
            yield Reader(response)


class Reader:
    """Reads the events of a stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return the name and the data of the next event."""
        name = ""
        with anyio.fail_after(120):
            while line := await self.response.content.readline():
                if line.startswith(b"event: "):
                    name = line[7:].decode().strip()
                elif line.startswith(b"data: "):
                    return name, orjson.loads(line[6:])
        raise EOFError("the stream has ended")

    async def read_to_end(self) -> None:
        """Read all events, until :meth:`next` raises an exception."""
        while True:
            await self.next()


@asynccontextmanager
async def running_dashboard(
    overview: FakeOverview,
    *,
    clock: Clock | None = None,
    controllers: Callable[[], Sequence[Mapping[str, Any]]] | None = None,
    port: int = 0,
    token: str = "",
) -> AsyncIterator[Dashboard]:
    """Serve ``overview`` in the block."""
    scope = {"server": "api.example.test:6443", "namespace": "", "version": "0.0.0"}
    feed = PageFeed(overview.source, clock or SystemClock(), scope, controllers)
    server = LoopbackServer(feed, port)
    if token:
        server._token = token  # as if the server had been reachable all the time
    ready = _Status()
    task = asyncio.create_task(
        server.run(task_status=ready)
    )  # a fixture ends in another task than it begins in
    try:
        with anyio.fail_after(120):
            await ready.started_event.wait()
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 22) as session:
            yield Dashboard(feed, server, session, task)
    finally:
        await _stop(task)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class _Status:
    def __init__(self) -> None:
        self.started_event = asyncio.Event()

    def started(self, value: object = None) -> None:
        self.started_event.set()
