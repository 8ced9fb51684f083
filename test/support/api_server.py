"""A small HTTP server for tests of the client: it answers what it was told, and records what it was asked."""

from __future__ import annotations

import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

from cfo.runtime.clock import SystemClock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asked(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any


class ApiServer:
    """Answers each path with what was queued for it, the last one again and again; 404 where nothing was."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._answers: dict[tuple[str, str], deque[Handler]] = defaultdict(deque)
        self.url = ""

    def answer(self, method: str, path: str, *answers: Handler | Mapping[str, Any]) -> None:
        handlers = [_as_handler(answer) for answer in answers]
        self._answers[method, path].extend(handlers)

    def requests(self, method: str = "") -> list[Asked]:
        """What was asked, discovery left out."""
        return [
            asked
            for asked in self.asked
            if asked.path not in {"/api", "/apis"} and (not method or asked.method == method)
        ]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        form = request.content_type == "application/x-www-form-urlencoded"
        body = raw.decode() if form else orjson.loads(raw) if raw else None
        self.asked.append(Asked(request.method, request.path, dict(request.query), request.headers.copy(), body))
        answers = self._answers[request.method, request.path]
        if not answers:
            return web.Response(status=404, text="404 page not found\n")
        return await (answers.popleft() if len(answers) > 1 else answers[0])(request)

    @asynccontextmanager
    async def run(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._serve)
        server = TestServer(app, scheme="https" if tls else "http")
        await server.start_server(ssl=tls)
        self.url = f"{server.scheme}://{server.host}:{server.port}"
        try:
            yield self
        finally:
            await server.close()


def _as_handler(answer: Handler | Mapping[str, Any]) -> Handler:
    if isinstance(answer, Mapping):
        return json(answer)
    return answer


def json(body: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(
            status=code, body=orjson.dumps(body), content_type="application/json", headers=dict(headers or {})
        )

    return handle


def text(
    body: str, code: int = 200, content_type: str = "text/plain", headers: Mapping[str, str] | None = None
) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=code, text=body, content_type=content_type, headers=dict(headers or {}))

    return handle


def refusal(
    code: int, reason: str, message: str = "no", headers: Mapping[str, str] | None = None, **details: Any
) -> Handler:
    return json(status(code, reason, message, **details), code, headers)


def status(code: int, reason: str, message: str = "no", **details: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "details": details,
        "code": code,
    }


async def cut(request: web.Request) -> web.StreamResponse:
    """Breaks the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class ImpatientClock(SystemClock):
    """A clock that sleeps in no time, and remembers for how long."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.elapsed = 0.0
        self.start = datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.elapsed

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.elapsed)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.elapsed += seconds


def discovery(*groups: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": list(groups),
    }


def group(name: str, *resources: Mapping[str, Any], version: str = "v1", freshness: str = "Current") -> dict[str, Any]:
    versions = [{"version": version, "resources": list(resources), "freshness": freshness}]
    return {"metadata": {"name": name} if name else {}, "versions": versions}


def resource(plural: str, kind: str, *, namespaced: bool = True, subresources: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": "Namespaced" if namespaced else "Cluster",
        "singularResource": kind.lower(),
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        "subresources": [{"subresource": name, "verbs": ["get"]} for name in subresources],
    }


CORE = discovery(
    group(
        "",
        resource("configmaps", "ConfigMap"),
        resource("secrets", "Secret"),
        resource("serviceaccounts", "ServiceAccount", subresources=("token",)),
        resource("pods", "Pod", subresources=("status", "eviction")),
        resource("namespaces", "Namespace", namespaced=False),
    )
)
APIS = discovery(group("apps", resource("deployments", "Deployment", subresources=("status", "scale"))))
