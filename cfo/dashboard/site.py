"""The HTTP routes of the dashboard: the files of the page, the stream, and the details of an object.

Every response forbids the browser to load anything else, to frame the page, to guess types and to keep copies; scripts
cannot parse strings as HTML. Only GET and HEAD are allowed. There are no cookies: a page proves with a bearer token in
each request for data that it is allowed to read, so other sites cannot request data in the name of a user.

Every user and every program of the machine can connect to the server on the loopback interface, and so can each web
site that a browser shows. Therefore data is sent only to a page that has a token, which is part of the address that the
command prints, in the fragment, which browsers do not send; and the Host header must be that of the loopback interface,
because a site can point a name of its own to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Final

import anyio
import orjson
import structlog
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.dashboard.feed import PageFeed, Stream, StreamDropped, TooManyStreams
from cfo.runtime.process import USER, Endpoint

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers of every response of the dashboard."""

LIFETIME: Final = 300.0
"""Seconds after which a stream ends. The page opens another one, for which the permissions are checked again."""
HEARTBEAT: Final = 15.0
"""Seconds without a change after which a comment is sent, by which both sides notice a lost connection."""
WRITE_TIMEOUT: Final = 20.0
"""Seconds in which a reader must take what was sent."""

_CONTENT_TYPES: Final = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_MAX_IDENTITY: Final = 400
_SAME_ORIGIN: Final = ("same-origin", "none")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = structlog.get_logger(__name__)


class Site:
    """The routes below ``prefix`` (such as ``/dashboard``; empty: at the root), which show ``feed``."""

    def __init__(self, feed: PageFeed, prefix: str = "") -> None:
        self._feed = feed
        self._prefix = prefix
        self._files = _files()

    @property
    def public_paths(self) -> frozenset[str]:
        """The paths of the files, which contain no data: a page must be loaded before it can send a token."""
        return frozenset({f"{self._prefix}/", *(f"{self._prefix}/{name}" for name in self._files)})

    def routes(self) -> list[web.RouteDef]:
        """Return all routes; the caller authenticates requests for paths that are not public."""
        routes = [
            web.get(f"{self._prefix}/stream", _protected(self._stream), allow_head=False),
            web.get(f"{self._prefix}/object", _protected(self._object)),
            web.get(f"{self._prefix}/", self._file("index.html")),
            *(web.get(f"{self._prefix}/{name}", self._file(name)) for name in self._files),
        ]
        if self._prefix:
            routes.append(web.get(self._prefix, self._redirect))
        return routes

    async def _redirect(self, request: web.Request) -> web.Response:
        return web.Response(status=308, headers={**HEADERS, "Location": f"{self._prefix}/"})

    def _file(self, name: str) -> Handler:
        content, content_type = self._files[name]

        async def serve(request: web.Request) -> web.Response:
            return web.Response(
                body=content, content_type=content_type, charset="utf-8", headers=HEADERS
            )

        return serve

    async def _object(self, request: web.Request) -> web.Response:
        identity = request.query.get("id", "")
        found = self._feed.details(identity) if 0 < len(identity) <= _MAX_IDENTITY else None
        if found is None:
            return web.Response(status=404, text="no such object\n", headers=HEADERS)
        return web.Response(
            body=orjson.dumps(found), content_type="application/json", headers=HEADERS
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        try:
            async with self._feed.open(
                lambda: request.transport is None or request.transport.is_closing(),
                request.get(USER, ""),
            ) as opened:
                return await self._send(request, *opened)
        except StreamDropped:
            return web.Response(status=503, text="objects cannot be watched\n", headers=HEADERS)
        except TooManyStreams:
            headers = {**HEADERS, "Retry-After": "30"}
            return web.Response(status=503, text="too many pages are open\n", headers=headers)

    async def _send(
        self, request: web.Request, stream: Stream, snapshot: bytes
    ) -> web.StreamResponse:
        """Send the snapshot and all messages until the stream's lifetime ends, or the reader does not read."""
        response = web.StreamResponse(
            headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"}
        )
        response.enable_chunked_encoding()
        with suppress(ConnectionError):
            await response.prepare(request)
            try:
                with anyio.move_on_after(LIFETIME):
                    message = snapshot
                    while True:
                        with anyio.fail_after(WRITE_TIMEOUT):
                            await response.write(message)
                        message = b": \n\n"
                        with anyio.move_on_after(HEARTBEAT):
                            message = await stream.receive()
                await response.write_eof()
            except (StreamDropped, TimeoutError):
                _log.debug("Closing stream of a dashboard", remote=request.remote)
                if request.transport is not None:
                    request.transport.abort()
        return response


def _files() -> Mapping[str, tuple[bytes, str]]:
    """Return content and content type of each file of the page by its name."""
    return {
        item.name: (item.read_bytes(), _CONTENT_TYPES[suffix])
        for item in (files("cfo.dashboard") / "assets").iterdir()
        if (suffix := item.name.rpartition(".")[2]) in _CONTENT_TYPES
    }


def _protected(handler: Handler) -> Handler:
    """Refuse requests of other sites; browsers say in a header who sends a request."""

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Sec-Fetch-Site", "none") not in _SAME_ORIGIN:
            return web.Response(
                status=403, text="requests from other sites are not allowed\n", headers=HEADERS
            )
        return await handler(request)

    return serve


_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class LoopbackServer:
    """Serves ``feed`` on 127.0.0.1 at ``port`` (0: a free one); needs no leader."""

    name = "dashboard"
    needs_leader = False

    def __init__(self, feed: PageFeed, port: int = 0) -> None:
        self._feed = feed
        self._site = Site(feed)
        self._port = port
        self._token = secrets.token_urlsafe(24)
        self._endpoint = Endpoint(
            "dashboard", f"127.0.0.1:{port}", self._site.routes(), middlewares=[self._guard]
        )

    @property
    def url(self) -> str:
        """The address of the page, with the token; do not log it. If the port is 0, the server must be running."""
        return f"http://127.0.0.1:{self._endpoint.port or self._port}/#token={self._token}"

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises :class:`OSError` if the port is in use."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._endpoint.run)
            tasks.start_soon(self._feed.run)
            task_status.started()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.headers.get("Host", "").lower() not in {
            f"{host}:{self._endpoint.port}" for host in _HOSTS
        }:
            return web.Response(
                status=421, text="this server is for the loopback interface only\n", headers=HEADERS
            )
        if request.path not in self._site.public_paths and not self._has_token(request):
            text = "Open the address that the command has printed, or enter the token at its end."
            return web.Response(status=401, text=text, headers=HEADERS)
        try:
            return await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise

    def _has_token(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        return hmac.compare_digest(given, f"Bearer {self._token}".encode())
