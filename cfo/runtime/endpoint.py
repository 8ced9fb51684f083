"""A small HTTP server for metrics and health: bound where the configuration says, or off."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from typing import Any

import anyio
import structlog
from aiohttp import web
from anyio.abc import TaskStatus

__all__ = ["Endpoint", "parse_bind_address"]

_log = structlog.get_logger("cfo.runtime.endpoint")


def parse_bind_address(text: str) -> tuple[str | None, int] | None:
    """Host (``None``: all addresses) and port of an address as Go programs write it.

    ``:8080``, ``127.0.0.1:8080``, ``[::1]:8080``; port 0 takes a free one. The empty string and ``0``
    mean off: ``None``. Raises :class:`ValueError` for anything else.
    """
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is no address to listen on: must be host:port, :port, or 0 for none")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is no address to listen on: an IPv6 address stands in brackets")
    return host or None, int(port)


class Endpoint:
    """Serves ``routes`` on ``bind_address`` for as long as it runs; ``name`` stands in logs and errors.

    With ``tls`` over HTTPS; every request goes through the ``middlewares`` first.
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
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that it listens on; 0 while it does not run or is off."""
        addresses: list[Any] = self._runner.addresses if self._runner else []
        return int(addresses[0][1]) if addresses else 0

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled. Raises :class:`OSError` when the address cannot be bound."""
        if self._address is None:
            task_status.started()
            return
        application = web.Application(client_max_size=64 * 1024, middlewares=self._middlewares)
        application.add_routes(self._routes)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._address, ssl_context=self._context).start()
            self._runner = runner
            _log.info("serving", endpoint=self.name, address=self.bind_address, port=self.port)
            task_status.started()
            await anyio.sleep_forever()
        finally:
            self._runner = None
            with anyio.CancelScope(shield=True):
                await runner.cleanup()
