"""The server of ``cfo dashboard`` and ``cfo run --embedded``, on the loopback interface.

Every user and every program of the machine can connect to it, and so can each web site that a browser shows. Therefore
data is sent only to a page that has a token, which is part of the address that the command prints, in the fragment,
which browsers do not send; and the Host header must be that of the loopback interface, because a site can point a name
of its own to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import hmac
import secrets

import anyio
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.console.dashboard.feed import Feed
from cfo.console.dashboard.site import HEADERS, Handler, Site
from cfo.runtime.process import Endpoint

_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class LoopbackServer:
    """Serves ``feed`` on 127.0.0.1 at ``port`` (0: a free one); needs no leader."""

    name = "dashboard"
    needs_leader = False

    def __init__(self, feed: Feed, port: int = 0) -> None:
        self._feed = feed
        self._site = Site(feed)
        self._port = port
        self._token = secrets.token_urlsafe(24)
        self._endpoint = Endpoint("dashboard", f"127.0.0.1:{port}", self._site.routes(), middlewares=[self._guard])

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
        if request.headers.get("Host", "").lower() not in {f"{host}:{self._endpoint.port}" for host in _HOSTS}:
            return web.Response(status=421, text="this server is for the loopback interface only\n", headers=HEADERS)
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
