"""A small HTTP server for metrics and health checks, which can be disabled. The number of connections is limited."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import anyio
import structlog
from aiohttp import web
from anyio.abc import TaskStatus

from cfo.runtime.process.listener import Listener, bind_socket, server_options

MAX_CONNECTIONS: Final = 32
"""The maximum number of connections of one endpoint."""

USER: Final = web.RequestKey("user", str)
"""Where a handler finds the name of the user in a request, if the endpoint authenticates users."""

_log = structlog.get_logger(__name__)


def parse_bind_address(text: str) -> tuple[str | None, int] | None:
    """Parse a bind address in Go's notation into a host (``None``: all addresses) and a port.

    ``:8080``, ``127.0.0.1:8080`` and ``[::1]:8080`` are valid; port 0 selects a free port. The empty string and ``0``
    disable the server: the result is ``None``. Raises :class:`ValueError` for anything else.
    """
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r}: must be HOST:PORT, :PORT, or 0 to disable")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: IPv6 addresses must be in brackets, as in [::1]:8080")
    return host or None, int(port)


async def _remove_server_header(_: web.BaseRequest, response: web.StreamResponse) -> None:
    """Remove the header with the versions of Python and aiohttp; Go's servers send none either."""
    response.headers.pop("Server", None)


def _index(paths: Iterable[str]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a handler for ``/`` that links to ``paths``."""
    linked = [path for path in dict.fromkeys(paths) if not path.endswith("/")]
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in linked)
    page = f'<!doctype html><html lang="en"><title>Paths</title><ul>{links}</ul></html>\n'

    async def respond(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    return respond


class Endpoint:
    """Serves ``routes`` on ``bind_address`` while it runs; ``name`` identifies it in logs.

    ``tls`` enables HTTPS; every request passes through ``middlewares`` first. Raises :class:`ValueError` for a
    malformed ``bind_address``.
    """

    def __init__(
        self,
        name: str,
        bind_address: str,
        routes: Iterable[web.RouteDef],
        *,
        tls: ssl.SSLContext | None = None,
        middlewares: Sequence[Any] = (),
    ) -> None:
        self.name = name
        self.bind_address = bind_address
        self._address = parse_bind_address(bind_address)
        self._routes = list(routes)
        self._context = tls
        self._middlewares = tuple(middlewares)
        self.port = 0
        """The port it listens on; 0 while it is not running or disabled."""

    def add_routes(self, routes: Iterable[web.RouteDef]) -> None:
        """Serve more routes. Raises :class:`RuntimeError` if the server is running."""
        if self.port:
            raise RuntimeError(f"endpoint {self.name} is running: add routes before it starts")
        self._routes += routes

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises :class:`AddressUnavailable` if the address cannot be bound."""
        if self._address is None:
            task_status.started()
            return
        application = web.Application(client_max_size=64 * 1024, middlewares=self._middlewares)
        application.on_response_prepare.append(_remove_server_header)
        application.add_routes(self._routes)
        paths = [route.path for route in self._routes]
        if "/" not in paths:
            index = _index(path for path in paths if "{" not in path)
            application.router.add_get("/", index)
        runner = web.AppRunner(application, shutdown_timeout=1.0, **server_options())
        await runner.setup()
        assert runner.server is not None
        try:
            sock = bind_socket(self._address, server=self.name)
            self.port = sock.getsockname()[1]
            listener = Listener(
                self.name, runner.server, sock, limit=MAX_CONNECTIONS, tls=self._context
            )
            _log.info("Serving", endpoint=self.name, address=self.bind_address, port=self.port)
            task_status.started()
            await listener.run()
        finally:
            self.port = 0
            with anyio.CancelScope(shield=True):
                await runner.cleanup()
