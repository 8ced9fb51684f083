"""An API server that does exactly what a test tells it: for what a good one never does.

Each request waits for the next line of the script, in order; what was asked is recorded. A reflector that asks where
the server is (a list of one object) is told that it is far ahead, unless a test sets ``where``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from cfo.runtime.client.config import ClientConfig
from cfo.runtime.client.errors import UnknownKind
from cfo.runtime.client.transport import Transport
from cfo.runtime.discovery import Resource
from cfo.runtime.objects import GVK

PATIENCE = 10.0
"""Seconds after which a test has waited in vain."""

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def eventually(condition: Callable[[], bool]) -> None:
    """Returns when ``condition`` is true, for conditions that nothing tells of."""

    async def met() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    await asyncio.wait_for(met(), PATIENCE)


def make(name: str, version: object, **rest: Any) -> dict[str, Any]:
    """A RayCluster in a version."""
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata | rest.pop("metadata", {}),
        **rest,
    }


def a_list(version: object, *items: Mapping[str, Any], token: str = "") -> Answer:
    """A page of a list."""

    async def answer(_: web.Request) -> web.Response:
        body = {
            "kind": "RayClusterList",
            "apiVersion": "ray.io/v1",
            "metadata": {"resourceVersion": str(version), "continue": token},
            "items": list(items),
        }
        response = web.Response(body=orjson.dumps(body), content_type="application/json")
        response.enable_compression()
        return response

    return answer


def a_status(code: int, reason: str, message: str = "no", **rest: Any) -> Answer:
    """A refusal."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=code, body=orjson.dumps(status(code, reason, message, **rest)))

    return answer


def status(code: int, reason: str, message: str = "no", **rest: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
        **rest,
    }


def text(body: bytes) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body)

    return answer


class Watch:
    """A watch that the test feeds."""

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

    async def raw(self, body: bytes) -> None:
        await asyncio.wait_for(self.opened.wait(), PATIENCE)
        await self._response.write(body)

    async def send(self, kind: str, obj: Mapping[str, Any]) -> None:
        await self.raw(line(kind, obj))

    async def bookmark(self, version: object) -> None:
        await self.send("BOOKMARK", {"kind": "RayCluster", "metadata": {"resourceVersion": str(version)}})

    async def close(self) -> None:
        """The server ends the watch as it should."""
        await asyncio.wait_for(self.opened.wait(), PATIENCE)
        self._end.set()

    async def cut(self) -> None:
        """The connection breaks."""
        await asyncio.wait_for(self.opened.wait(), PATIENCE)
        assert self._request.transport is not None
        self._request.transport.abort()
        self._end.set()


def line(kind: str, obj: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


class ScriptedServer:
    """The server; ``will`` adds to its script, ``asked`` says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.requests: list[web.Request] = []
        self.url = ""
        self.where: Answer | None = a_list(10**9)
        """What is answered to those who ask where the server is; ``None``: the next line of the script."""
        self.asked_where = 0
        self._script: asyncio.Queue[Answer] = asyncio.Queue()
        self._changed = asyncio.Event()

    def will(self, *answers: Answer) -> None:
        for answer in answers:
            self._script.put_nowait(answer)

    def will_watch(self) -> Watch:
        watch = Watch()
        self.will(watch)
        return watch

    async def asked_times(self, count: int) -> None:
        """Returns when ``count`` requests have come."""

        async def enough() -> None:
            while len(self.asked) < count:
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(enough(), PATIENCE)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("limit") == "1" and self.where is not None:
            self.asked_where += 1
            return await self.where(request)
        self.asked.append({"path": request.path, **request.query})
        self.requests.append(request)
        self._changed.set()
        return await (await self._script.get())(request)


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[ScriptedServer, Transport]]:
    """The server, and a transport to it."""
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
    """Discovery as a test wants it: kinds by GVK; ``failure`` is raised instead."""

    def __init__(self, *resources: Resource) -> None:
        self.resources = {resource.gvk: resource for resource in resources}
        self.failure: Exception | None = None
        self.invalidated = 0
        self.asked = 0

    async def resource(self, gvk: GVK) -> Resource:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        if gvk not in self.resources:
            raise UnknownKind(f"{gvk} is not served")
        return self.resources[gvk]

    def invalidate(self) -> None:
        self.invalidated += 1


__all__ = [
    "PATIENCE",
    "ScriptedMapper",
    "ScriptedServer",
    "Watch",
    "a_list",
    "a_status",
    "eventually",
    "line",
    "make",
    "scripted",
    "status",
    "text",
]
