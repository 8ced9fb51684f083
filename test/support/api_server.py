"""HTTP server for client tests: it returns queued responses and records the requests that it receives."""

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

from cfo.runtime.process.clock import SystemClock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RecordedRequest(NamedTuple):
    """A request as the server received it, with its decoded body."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any


class ApiServer:
    """Returns the responses queued for a method and path in order, and repeats the last one; 404 for all others."""

    def __init__(self) -> None:
        self.all_requests: list[RecordedRequest] = []
        self._responses: dict[tuple[str, str], deque[Handler]] = defaultdict(deque)
        self.url = ""

    def answer(self, method: str, path: str, *responses: Handler | Mapping[str, Any]) -> None:
        """Queue responses for a method and path; a mapping becomes a JSON response with code 200."""
        handlers = [_as_handler(response) for response in responses]
        self._responses[method, path].extend(handlers)

    def requests(self, method: str = "") -> list[RecordedRequest]:
        """Return the recorded requests except discovery, optionally of one method."""
        return [
            request
            for request in self.all_requests
            if request.path not in {"/api", "/apis"} and (not method or request.method == method)
        ]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        form = request.content_type == "application/x-www-form-urlencoded"
        body = raw.decode() if form else orjson.loads(raw) if raw else None
        self.all_requests.append(
            RecordedRequest(
                request.method, request.path, dict(request.query), request.headers.copy(), body
            )
        )
        responses = self._responses[request.method, request.path]
        if not responses:
            return web.Response(status=404, text="404 page not found\n")
        return await (responses.popleft() if len(responses) > 1 else responses[0])(request)

    @asynccontextmanager
    async def run(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
        """Serve on a free local port, over TLS if a context is given; ``url`` is set while it runs."""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._serve)
        server = TestServer(app, scheme="https" if tls else "http")
        await server.start_server(ssl=tls)
        self.url = f"{server.scheme}://{server.host}:{server.port}"
        try:
            yield self
        finally:
            await server.close()


def _as_handler(response: Handler | Mapping[str, Any]) -> Handler:
    if isinstance(response, Mapping):
        return json(response)
    return response


def json(body: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Handler:
    """Return a handler that responds with JSON."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(
            status=code,
            body=orjson.dumps(body),
            content_type="application/json",
            headers=dict(headers or {}),
        )

    return handle


def text(
    body: str,
    code: int = 200,
    content_type: str = "text/plain",
    headers: Mapping[str, str] | None = None,
) -> Handler:
    """Return a handler that responds with a string."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(
            status=code, text=body, content_type=content_type, headers=dict(headers or {})
        )

    return handle


def error_response(
    code: int,
    reason: str,
    message: str = "no",
    headers: Mapping[str, str] | None = None,
    **details: Any,
) -> Handler:
    """Return a handler that responds with a Status object of a failure."""
    return json(status(code, reason, message, **details), code, headers)


def status(code: int, reason: str, message: str = "no", **details: Any) -> dict[str, Any]:
    """Return a Status object of a failure."""
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


async def abort_connection(request: web.Request) -> web.StreamResponse:
    """Abort the connection without a response."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class AutoAdvancingClock(SystemClock):
    """A clock whose ``sleep`` returns immediately and advances the time; ``sleeps`` records the requested seconds."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []
        self.elapsed = 0.0
        self.start = datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.elapsed

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.elapsed)

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.elapsed += seconds


def discovery(*groups: Mapping[str, Any]) -> dict[str, Any]:
    """Return an aggregated discovery document of these groups."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": list(groups),
    }


def group(
    name: str, *resources: Mapping[str, Any], version: str = "v1", freshness: str = "Current"
) -> dict[str, Any]:
    """Return an API group of a discovery document; an empty name is the core group."""
    versions = [{"version": version, "resources": list(resources), "freshness": freshness}]
    return {"metadata": {"name": name} if name else {}, "versions": versions}


def resource(
    plural: str, kind: str, *, namespaced: bool = True, subresources: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a resource of a discovery document."""
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
APIS = discovery(
    group("apps", resource("deployments", "Deployment", subresources=("status", "scale")))
)
