"""Runs handlers as a whole operator, without a program of its own, and ``cfo handlers run FILE...``."""

from __future__ import annotations

import asyncio
import enum
import importlib
import importlib.util
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import click
import orjson
import structlog
from aiohttp import web

from cfo.runtime.controller.lifecycle import Phase
from cfo.runtime.controller.threads import ThreadPool
from cfo.runtime.handlers.activities import log_in, run_activity
from cfo.runtime.handlers.declarations import Activity, OperatorRegistry, WebhookHandler
from cfo.runtime.handlers.environment import Environment
from cfo.runtime.handlers.patching import plain
from cfo.runtime.handlers.running import Handlers
from cfo.runtime.handlers.settings import OperatorSettings
from cfo.runtime.manager.leaderelection import LeaderElectionOptions
from cfo.runtime.manager.manager import Manager, ManagerOptions
from cfo.runtime.process.endpoint import Endpoint

_log = structlog.get_logger(__name__)


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
        from cfo.runtime.handlers.webhook_servers import (
            webhook_options,
        )  # lazily: loads cryptography

        admission = environment.settings.admission
        webhook = webhook_options(admission.server, admission.managed, home)
    options = ManagerOptions(
        field_manager="kopf", namespaces=selected or None, leader_election=election, webhook=webhook
    )
    manager = Manager(config, options)
    Handlers(manager, environment, started_up=True)
    if liveness_endpoint:
        manager.add(_liveness(environment, liveness_endpoint), phase=Phase.SERVERS)
    async with anyio.create_task_group() as tasks:
        if ready_flag is not None:
            tasks.start_soon(_set_when_started, manager, ready_flag)
        if stop_flag is not None:
            tasks.start_soon(_stop_with, manager, stop_flag)
        try:
            await manager.run(handle_signals=handle_signals)
        finally:
            tasks.cancel_scope.cancel()


async def _set_when_started(manager: Manager, flag: Any) -> None:
    try:
        await manager.started()
    except Exception:  # noqa: BLE001 - run() raises the same error
        return
    if not isinstance(flag, asyncio.Future):
        flag.set()
    elif not flag.done():
        flag.set_result(None)


async def _stop_with(manager: Manager, flag: Any) -> None:
    if isinstance(flag, threading.Event):
        await ThreadPool("stop-flag", 1).run(flag.wait)
    else:
        await (flag.wait() if isinstance(flag, asyncio.Event) else flag)
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
                results = await run_activity(environment, Activity.PROBE)
                cached[:] = [
                    (now, orjson.dumps({key: plain(value) for key, value in results.items()}))
                ]
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
    logs.configure(
        "json" if str(getattr(log_format, "name", log_format)).lower() == "json" else "console",
        level,
    )
    logging.getLogger("kopf").setLevel(level.upper())


@click.group(
    "handlers",
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "KOPF"},
)
def command() -> None:
    """Run operators written with kopf's decorators."""


@command.command("run")
@click.option("-v", "--verbose", is_flag=True, help="Log debug messages.")
@click.option("-d", "--debug", is_flag=True, help="Log debug messages.")
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
@click.option(
    "--log-format", type=click.Choice(["full", "plain", "json"]), default="full", help="Log format."
)
@click.option(
    "-A", "--all-namespaces", "clusterwide", is_flag=True, help="Handle objects in all namespaces."
)
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, metavar="NAME", help="Handle objects in NAME."
)
@click.option(
    "--standalone", "--dev", "standalone", is_flag=True, help="Do not take part in leader election."
)
@click.option(
    "-L",
    "--liveness",
    "liveness_endpoint",
    metavar="URL",
    help="Serve probes at URL, as http://0.0.0.0:8080/healthz.",
)
@click.option(
    "-P",
    "--peering",
    "peering_name",
    metavar="NAME",
    help="Take part in leader election: Lease NAME.",
)
@click.option(
    "-p", "--priority", type=int, help="Ignored: the replica that holds the Lease is the leader."
)
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Import MODULE.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def run_command(
    paths: tuple[Path, ...],
    modules: tuple[str, ...],
    verbose: bool,
    debug: bool,
    quiet: bool,
    log_format: str,
    priority: int | None,
    **options: Any,
) -> None:
    """Run the handlers that are declared in the files PATHS and in modules."""
    configure(verbose=verbose, debug=debug, quiet=quiet, log_format=log_format)
    try:
        load(paths, modules)
    except Exception as error:  # noqa: BLE001 - shown without the frames of this command
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename.startswith(
            (__file__, "<frozen", importlib.__file__)
        ):
            frames = frames.tb_next
        traceback.print_exception(error.with_traceback(frames))
        raise SystemExit(1) from None
    run(**options)


def load(paths: Iterable[Path], modules: Iterable[str] = ()) -> None:
    """Import files and modules, whose decorators declare handlers."""
    for number, path in enumerate(paths):
        folder = str(path.resolve().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        name = f"__cfo_handlers_{number}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise click.BadParameter(f"{path}: must be a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    for name in modules:
        importlib.import_module(name)
