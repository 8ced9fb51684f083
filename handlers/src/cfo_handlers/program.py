"""Runs handlers as a whole operator, without a program of its own."""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
import os
import threading
from collections.abc import Callable, Collection
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import anyio
import orjson
import structlog
from aiohttp import web

from cfo.runtime.controller import StartPhase
from cfo.runtime.manager import LeaderElectionOptions, Manager, ManagerOptions
from cfo.runtime.objects import is_dns_label
from cfo.runtime.process import Endpoint, ThreadPool, logs
from cfo_handlers.activities import log_in, run_activity
from cfo_handlers.declarations import (
    Activity,
    OperatorRegistry,
    WebhookHandler,
    require_keywords,
)
from cfo_handlers.environment import Environment
from cfo_handlers.errors import InvalidParameter
from cfo_handlers.patching import plain
from cfo_handlers.running import Handlers
from cfo_handlers.settings import OperatorSettings
from cfo_handlers.signatures import require_signatures

_log = structlog.get_logger(__name__)

_IGNORED: Final = ("_command", "identity", "indexers", "insights", "memories", "vault")
"""The parameters of kopf's ``operator`` that are ignored."""

_PROBE_SECONDS: Final = 10.0
"""Seconds for which the results of the probes are kept."""


class LogFormat(enum.Enum):
    """The formats of logs; ``PLAIN`` and ``FULL`` are the same."""

    PLAIN = enum.auto()
    FULL = enum.auto()
    JSON = enum.auto()


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

    Raises :class:`TypeError` for a parameter that kopf does not have,
    :class:`~cfo_handlers.errors.InvalidParameter`, and the errors of startup handlers, logins and the manager.
    """
    require_keywords("operator", ignored, [*_keywords_of(operator), *_IGNORED])
    if isinstance(namespaces, str):
        raise InvalidParameter(f"namespaces: {namespaces!r}: must be a list of strings")
    selected = tuple(namespaces)
    if not selected and namespace:
        selected = (namespace,)
    if clusterwide and selected:
        raise InvalidParameter("either clusterwide or namespaces can be given, not both")
    for name in selected:
        if not is_dns_label(name):
            raise InvalidParameter(
                f"namespace {name!r}: must be a name; patterns are not supported"
            )
    liveness = None
    if liveness_endpoint:
        liveness = _parse_liveness_url(liveness_endpoint)
    for name in sorted(ignored):
        if ignored[name] is not None:
            _log.warning("Parameter is ignored", parameter=name)
    environment = Environment(registry, settings, memo, lifecycle=lifecycle)
    require_signatures(environment.registry)
    peering = environment.settings.peering
    if peering_name is not None:
        peering.name = peering_name
        peering.mandatory = True
    await run_activity(environment, Activity.STARTUP)
    config = await log_in(environment)
    home = os.environ.get("POD_NAMESPACE") or config.namespace
    election = None
    if peering.mandatory and not (standalone or peering.standalone):
        election = LeaderElectionOptions(name=peering.name, namespace=home)
    webhook = None
    if environment.registry.of_type(WebhookHandler):
        from cfo_handlers.webhook_servers import webhook_options  # loads cryptography

        admission = environment.settings.admission
        webhook = webhook_options(admission.server, admission.managed, home)
    options = ManagerOptions(
        field_manager="kopf",
        namespaces=selected or None,
        leader_election=election,
        webhook=webhook,
    )
    manager = Manager(config, options)
    Handlers(manager, environment, started_up=True)
    if liveness is not None:
        manager.add(_liveness_server(environment, liveness), phase=StartPhase.SERVERS)
    try:
        async with anyio.create_task_group() as tasks:
            if ready_flag is not None:
                tasks.start_soon(_set_when_started, manager, ready_flag)
            if stop_flag is not None:
                tasks.start_soon(_stop_with, manager, stop_flag)
            await manager.run(handle_signals=handle_signals)
            tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        (error,) = group.exceptions
        raise error from error.__cause__


def _keywords_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of the keyword parameters of a function."""
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]


async def _set_when_started(manager: Manager, flag: Any) -> None:
    try:
        await manager.started(timeout=None)
    except Exception:  # noqa: BLE001 - run() raises the same error
        return
    if not isinstance(flag, asyncio.Future):
        flag.set()
    elif not flag.done():
        flag.set_result(None)


async def _stop_with(manager: Manager, flag: Any) -> None:
    if isinstance(flag, threading.Event):
        await ThreadPool("stop-flag", 1).run(flag.wait)
    elif isinstance(flag, asyncio.Event):
        await flag.wait()
    else:
        await flag
    manager.stop()


def _parse_liveness_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port != 0
    except ValueError:  # such as of a port that is not a number
        raise _invalid_liveness_url(url) from None
    if parts.scheme != "http" or not port_is_valid:
        raise _invalid_liveness_url(url)
    return parts


def _invalid_liveness_url(url: str) -> InvalidParameter:
    return InvalidParameter(f"liveness endpoint {url!r}: must be http://HOST:PORT/PATH")


def _liveness_server(environment: Environment, url: SplitResult) -> Endpoint:
    """Return a server whose response contains the results of the probes, which are called every 10 seconds at most."""
    lock = asyncio.Lock()
    responded_at: float | None = None
    content = b""

    async def respond(_: web.Request) -> web.Response:
        nonlocal responded_at, content
        async with lock:
            now = environment.clock.monotonic()
            if responded_at is None or now - responded_at >= _PROBE_SECONDS:
                results = await run_activity(environment, Activity.PROBE)
                content = orjson.dumps({key: plain(value) for key, value in results.items()})
                responded_at = now
        return web.Response(body=content, content_type="application/json")

    host = url.hostname or "localhost"
    if ":" in host:
        host = f"[{host}]"
    address = f"{host}:{url.port or 80}"
    return Endpoint("liveness", address, [web.get(url.path or "/", respond)])


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
    **ignored: Any,
) -> None:
    """Configure logging: at info level, or debug with ``debug`` or ``verbose``, or warning with ``quiet``.

    ``log_prefix`` and ``log_refkey`` of kopf are ignored. Raises :class:`TypeError` for other parameters.
    """
    require_keywords("configure", ignored, [*_keywords_of(configure), "log_prefix", "log_refkey"])
    level = "info"
    if debug or verbose:
        level = "debug"
    elif quiet:
        level = "warning"
    name = str(getattr(log_format, "name", log_format))
    if name.lower() == "json":
        logs.configure("json", level)
    else:
        logs.configure("console", level)
    logging.getLogger("kopf").setLevel(level.upper())
