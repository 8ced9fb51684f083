"""Liveness and readiness: named checks behind ``/healthz`` and ``/readyz``.

Paths and responses match controller-runtime's ``pkg/healthz`` (from apiserver): ``ok``, or 500 with one line for each
check; ``?verbose`` also lists the checks on success, ``?exclude=NAME`` skips a check, and ``/readyz/NAME`` runs only
one. Unlike in controller-runtime, the response contains the reasons for failures, and with ``?verbose`` the information
of successful checks.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import structlog
from aiohttp import web

from cfo.runtime.process.endpoint import Endpoint

_log = structlog.get_logger(__name__)

Check: TypeAlias = Callable[[], Awaitable[str | None] | str | None]
"""A check returns if healthy, and otherwise raises an exception whose message is the reason.

A string that it returns is information, which ``?verbose`` shows. Both are visible to any client.
"""


def ping() -> None:
    """Always succeed: a response proves that the process is alive."""


_DEFAULT: Mapping[str, Check] = {"ping": ping}
"""The checks of a process that has added none."""


class Health:
    """The liveness and readiness checks of one process."""

    def __init__(self) -> None:
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}

    def add_health_check(self, name: str, check: Check) -> None:
        """Add a liveness check. Raises :class:`ValueError` for a duplicate or invalid name."""
        _add(self._live, name, check)

    def add_ready_check(self, name: str, check: Check) -> None:
        """Add a readiness check. Raises :class:`ValueError` for a duplicate or invalid name."""
        _add(self._ready, name, check)

    async def failures(self) -> dict[str, str]:
        """Run the readiness checks; return the reasons for failures by check name."""
        found = {name: await _run(check) for name, check in self._ready.items()}
        return {name: result.failure for name, result in found.items() if result.failure}

    def endpoint(self, bind_address: str) -> Endpoint:
        """Return an HTTP server for ``/healthz`` and ``/readyz``."""
        routes: list[web.RouteDef] = []
        for title, checks in (("healthz", self._live), ("readyz", self._ready)):
            run_all = _run_all(title, checks)
            routes += [
                web.get(f"/{title}", run_all),
                web.get(f"/{title}/", run_all),
                web.get(f"/{title}/{{name}}", _run_one(title, checks)),
            ]
        return Endpoint("health", bind_address, routes)


def _add(checks: dict[str, Check], name: str, check: Check) -> None:
    if not name or "/" in name:
        raise ValueError(
            f"health check {name!r}: name must be a non-empty path segment without '/'"
        )
    if name in checks:
        raise ValueError(f"health check {name!r} already exists")
    if not callable(check):
        raise TypeError(
            f"health check {name!r}: {check!r:.200}: must be a function that raises an exception if unhealthy"
        )
    checks[name] = check


class _Result(NamedTuple):
    """The result of a check: why it failed (empty: it succeeded), and its information."""

    failure: str = ""
    information: str = ""


async def _run(check: Check) -> _Result:
    try:
        returned = check()
        if inspect.isawaitable(returned):
            returned = await returned
    except Exception as error:  # noqa: BLE001
        return _Result(failure=str(error) or type(error).__name__)
    return _Result(information=returned if isinstance(returned, str) else "")


def _run_all(
    title: str, checks: dict[str, Check]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(request: web.Request) -> web.Response:
        excluded = set(request.query.getall("exclude", []))
        lines: list[str] = []
        failed: list[str] = []
        for name, check in (checks or _DEFAULT).items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            result = await _run(check)
            if result.failure:
                lines.append(f"[-]{name} failed: {result.failure}")
                failed.append(name)
            elif result.information:
                lines.append(f"[+]{name} ok: {result.information}")
            else:
                lines.append(f"[+]{name} ok")
        unknown = sorted(excluded - checks.keys())
        lines += [
            f"warn: some health checks cannot be excluded: no matches for {name!r}"
            for name in unknown
        ]
        if failed:
            _log.debug("Health checks failed", endpoint=title, failed=failed)
            return web.Response(status=500, text="\n".join([*lines, "healthz check failed", ""]))
        if "verbose" in request.query:
            return web.Response(text="\n".join([*lines, "healthz check passed", ""]))
        return web.Response(text="ok")

    return respond


def _run_one(
    title: str, checks: dict[str, Check]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        check = (checks or _DEFAULT).get(name)
        if check is None:
            return web.Response(status=404, text=f"{title}: no check named {name!r}\n")
        result = await _run(check)
        if result.failure:
            return web.Response(status=500, text=f"internal server error: {result.failure}\n")
        return web.Response(text="ok")

    return respond
