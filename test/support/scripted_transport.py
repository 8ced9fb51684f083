"""An API server that follows a script, for behavior that a correct API server never shows.

Each request waits for the next response of the script, in order, and is recorded. The version probe of a reflector
(a list with ``limit=1``) is not part of the script: it returns a version far ahead, unless a test sets
``probe_response``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.discovery import Resource
from cfo.runtime.client.errors import UnknownKind
from cfo.runtime.client.transport import Transport
from cfo.runtime.objects.unstructured import GVK

TIMEOUT_SECONDS = 120.0
"""Seconds after which a wait of a test fails."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until ``condition`` is true, for conditions without an event to wait for."""

    async def poll() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    await asyncio.wait_for(poll(), TIMEOUT_SECONDS)


def ray_cluster(name: str, version: object, **rest: Any) -> dict[str, Any]:
    """Return a RayCluster with this resource version; ``metadata`` in ``rest`` is merged into its metadata."""
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata | rest.pop("metadata", {}),
        **rest,
    }


def list_response(version: object, *items: Mapping[str, Any], token: str = "") -> Handler:
    """Return a handler that responds with one page of a list; ``token`` is its continue token."""

    async def handle(_: web.Request) -> web.Response:
        body = {
            "kind": "RayClusterList",
            "apiVersion": "ray.io/v1",
            "metadata": {"resourceVersion": str(version), "continue": token},
            "items": list(items),
        }
        response = web.Response(body=orjson.dumps(body), content_type="application/json")
        response.enable_compression()
        return response

    return handle


def error_response(code: int, reason: str, message: str = "no", **rest: Any) -> Handler:
    """Return a handler that responds with a Status object of a failure."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=code, body=orjson.dumps(status(code, reason, message, **rest)))

    return handle


def status(code: int, reason: str, message: str = "no", **rest: Any) -> dict[str, Any]:
    """Return a Status object of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
        **rest,
    }


def raw_response(body: bytes) -> Handler:
    """Return a handler that responds with these bytes."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=body)

    return handle


class ScriptedWatch:
    """A watch whose events the test sends."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.ended = asyncio.Event()
        self._response: web.StreamResponse
        self._request: web.Request
        self._end = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self._request = request
        self._response = web.StreamResponse()
        await self._response.prepare(request)
        self.opened.set()
        try:
            await self._end.wait()
        finally:
            self.ended.set()
        return self._response

    async def send_raw(self, body: bytes) -> None:
        """Send these bytes."""
        await asyncio.wait_for(self.opened.wait(), TIMEOUT_SECONDS)
        await self._response.write(body)

    async def send(self, kind: str, obj: Mapping[str, Any]) -> None:
        """Send a watch event."""
        await self.send_raw(watch_line(kind, obj))

    async def bookmark(self, version: object) -> None:
        """Send a bookmark."""
        await self.send(
            "BOOKMARK", {"kind": "RayCluster", "metadata": {"resourceVersion": str(version)}}
        )

    async def close(self) -> None:
        """End the watch as a server does after its timeout."""
        await asyncio.wait_for(self.opened.wait(), TIMEOUT_SECONDS)
        self._end.set()

    async def abort(self) -> None:
        """Abort the connection."""
        await asyncio.wait_for(self.opened.wait(), TIMEOUT_SECONDS)
        assert self._request.transport is not None
        self._request.transport.abort()
        self._end.set()


def watch_line(kind: str, obj: Mapping[str, Any]) -> bytes:
    """Return a watch event as one line of JSON."""
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


class ScriptedServer:
    """Responds to each request with the next handler of its script, and records the requests."""

    def __init__(self) -> None:
        self.queries: list[dict[str, str]] = []
        """The query parameters of each request of the script, and its path under ``path``."""
        self.requests: list[web.Request] = []
        self.url = ""
        self.probe_response: Handler | None = list_response(10**9)
        """The response to a version probe; with ``None``, a probe takes the next response of the script."""
        self.probes = 0
        self._script: asyncio.Queue[Handler] = asyncio.Queue()
        self._changed = asyncio.Event()

    def respond_with(self, *responses: Handler) -> None:
        """Append responses to the script."""
        for response in responses:
            self._script.put_nowait(response)

    def respond_with_watch(self) -> ScriptedWatch:
        """Append a watch to the script, and return it."""
        watch = ScriptedWatch()
        self.respond_with(watch)
        return watch

    async def wait_for_requests(self, count: int) -> None:
        """Wait until ``count`` requests of the script have been received."""

        async def received() -> None:
            while len(self.queries) < count:
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(received(), TIMEOUT_SECONDS)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("limit") == "1" and self.probe_response is not None:
            self.probes += 1
            return await self.probe_response(request)
        self.queries.append({"path": request.path, **request.query})
        self.requests.append(request)
        self._changed.set()
        return await (await self._script.get())(request)


@asynccontextmanager
async def scripted_server() -> AsyncIterator[tuple[ScriptedServer, Transport]]:
    """Run a scripted server, and yield it with a transport to it."""
    server = ScriptedServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with Transport(ClientConfig(server=server.url)) as transport:
            yield server, transport
    finally:
        await runner.cleanup()


class ScriptedMapper:
    """A RESTMapper that serves the given resources; while ``failure`` is set, lookups raise it."""

    def __init__(self, *resources: Resource) -> None:
        self.resources = {resource.gvk: resource for resource in resources}
        self.failure: Exception | None = None
        self.invalidations = 0
        self.lookups = 0

    async def resource(self, gvk: GVK) -> Resource:
        self.lookups += 1
        if self.failure is not None:
            raise self.failure
        if gvk not in self.resources:
            raise UnknownKind(f"no matches for {gvk}")
        return self.resources[gvk]

    def invalidate(self) -> None:
        self.invalidations += 1


__all__ = [
    "TIMEOUT_SECONDS",
    "ScriptedMapper",
    "ScriptedServer",
    "ScriptedWatch",
    "error_response",
    "list_response",
    "raw_response",
    "ray_cluster",
    "scripted_server",
    "status",
    "wait_until",
    "watch_line",
]
