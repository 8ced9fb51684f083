"""Runs handlers as a whole operator, without a program of its own."""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import threading
from collections.abc import Callable, Collection
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import orjson
import structlog
from aiohttp import web

from cfo.runtime.controller.lifecycle import Phase
from cfo.runtime.controller.threads import ThreadPool
from cfo.runtime.handlers.activities import log_in, run_activity
from cfo.runtime.handlers.declarations import Activity, WebhookHandler
from cfo.runtime.handlers.environment import Environment
from cfo.runtime.handlers.errors import ErrorsMode
from cfo.runtime.handlers.patching import plain
from cfo.runtime.handlers.registry import OperatorRegistry
from cfo.runtime.handlers.running import Handlers
from cfo.runtime.handlers.settings import OperatorSettings
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.process.endpoint import Endpoint

__all__ = ["LogFormat", "configure", "operator", "run"]

_log = structlog.get_logger(__name__)

FIELD_MANAGER: Final = "kopf"


class LogFormat(enum.Enum):
    """The formats of logs; ``PLAIN`` and ``FULL`` are the same."""

    PLAIN = enum.auto()
    FULL = enum.auto()
    JSON = enum.auto()


async def _wait_for(flag: Any) -> None:
    if isinstance(flag, threading.Event):
        await ThreadPool("stop-flag", 1).run(flag.wait)
    elif isinstance(flag, asyncio.Event):
        await flag.wait()
    elif flag is not None:
        await flag
    else:
        await anyio.sleep_forever()


def _raise(flag: Any) -> None:
    if isinstance(flag, asyncio.Future):
        if not flag.done():
            flag.set_result(None)
    elif flag is not None:
        flag.set()


async def operator(
    *,
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    memo: Any = None,
    lifecycle: Callable[..., Any] | None = None,
    clusterwide: bool = False,
    namespaces: Collection[str] = (),
    namespace: str | None = None,
    standalone: bool | None = None,
    peering_name: str | None = None,
    priority: int | None = None,
    liveness_endpoint: str | None = None,
    stop_flag: Any = None,
    ready_flag: Any = None,
    handle_signals: bool = False,
    **ignored: Any,
) -> None:
    """Run an operator until ``stop_flag`` is set, or forever; ``ready_flag`` is set when it has started.

    ``namespaces`` limit it (empty or ``clusterwide``: all namespaces). With ``peering_name``, unless ``standalone``, it
    takes part in leader election with a Lease of this name. ``liveness_endpoint``: a URL such as
    ``http://0.0.0.0:8080/healthz`` that responds with the results of the probes. ``handle_signals`` (main thread only):
    SIGTERM and SIGINT stop it. Other parameters of kopf are ignored.

    Raises :class:`ValueError` for invalid parameters, and the errors of startup handlers, logins and the manager.
    """
    selected = tuple(namespaces) or ((namespace,) if namespace else ())
    if clusterwide and selected:
        raise ValueError("either clusterwide or namespaces can be given, not both")
    for name in selected:
        if not all(character.isalnum() or character == "-" for character in name):
            raise ValueError(f"namespace {name!r}: must be a name; patterns are not supported")
    for name in sorted(name for name, value in ignored.items() if value is not None):
        _log.warning("Parameter is ignored", parameter=name)
    environment = Environment(registry, settings, memo, lifecycle=lifecycle)
    peering = environment.settings.peering
    if peering_name is not None:
        peering.name, peering.mandatory = peering_name, True
    await run_activity(environment, Activity.STARTUP)
    config = await log_in(environment)
    home = os.environ.get("POD_NAMESPACE") or config.namespace
    election = None
    if peering.mandatory and not (standalone or peering.standalone):
        election = LeaderElectionOptions(name=peering.name, namespace=home)
    webhook = None
    if environment.registry.of_type(WebhookHandler):
        from cfo.runtime.handlers.webhook_servers import webhook_options  # lazily: loads cryptography

        admission = environment.settings.admission
        webhook = webhook_options(admission.server, admission.managed, home)
    options = ManagerOptions(
        field_manager=FIELD_MANAGER, namespaces=selected or None, leader_election=election, webhook=webhook
    )
    manager = Manager(config, options)
    Handlers(manager, environment, started_up=True)
    if liveness_endpoint:
        manager.add(_liveness(environment, liveness_endpoint), phase=Phase.SERVERS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_set_when_started, manager, ready_flag)
        tasks.start_soon(_stop_with, manager, stop_flag)
        try:
            await manager.run(handle_signals=handle_signals)
        finally:
            tasks.cancel_scope.cancel()


async def _set_when_started(manager: Manager, ready_flag: Any) -> None:
    try:
        await manager.started()
    except Exception:  # noqa: BLE001 - run() raises the same error
        return
    _raise(ready_flag)


async def _stop_with(manager: Manager, stop_flag: Any) -> None:
    await _wait_for(stop_flag)
    manager.stop()


def _liveness(environment: Environment, url: str) -> Endpoint:
    """Return a server whose response contains the results of the probes."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise ValueError(f"liveness endpoint {url!r}: must be http://HOST:PORT/PATH")
    lock = asyncio.Lock()
    cached: list[tuple[float, bytes]] = []

    async def respond(_: web.Request) -> web.Response:
        async with lock:
            now = environment.clock.monotonic()
            if not cached or now - cached[0][0] >= 10.0:
                results = await run_activity(
                    environment, Activity.PROBE, default_errors=ErrorsMode.IGNORED, retry=False
                )
                cached[:] = [(now, orjson.dumps({key: plain(value) for key, value in results.items()}))]
        return web.Response(body=cached[0][1], content_type="application/json")

    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or "localhost"
    return Endpoint("liveness", f"{host}:{parts.port or 80}", [web.get(parts.path or "/", respond)])


def run(**options: Any) -> None:
    """Run :func:`operator` with its parameters in an event loop of its own; SIGTERM and SIGINT stop it."""
    options.pop("loop", None)
    in_main_thread = threading.current_thread() is threading.main_thread()
    asyncio.run(operator(handle_signals=in_main_thread, **options))


def configure(
    *,
    debug: bool | None = None,
    verbose: bool | None = None,
    quiet: bool | None = None,
    log_format: Any = None,
    **_: Any,
) -> None:
    """Configure logging: at info level, or debug with ``debug`` or ``verbose``, or warning with ``quiet``."""
    from cfo.runtime import logs

    level = "debug" if debug or verbose else "warning" if quiet else "info"
    logs.configure("json" if str(getattr(log_format, "name", log_format)).lower() == "json" else "console", level)
    logging.getLogger("kopf").setLevel(level.upper())
