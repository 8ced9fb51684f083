"""Health and readiness: named checks behind ``/healthz`` and ``/readyz``.

Paths and answers are those of controller-runtime's ``pkg/healthz`` (from apiserver): ``ok``, or 500 with one
line for each check; ``?verbose`` lists them also when all is well, ``?exclude=NAME`` leaves one out, and
``/readyz/NAME`` asks one alone. Unlike there, a check that fails says why.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import structlog
from aiohttp import web

from cfo.runtime.endpoint import Endpoint

__all__ = ["Check", "Health", "ping"]

_log = structlog.get_logger("cfo.runtime.health")

Check: TypeAlias = Callable[[], Awaitable[None] | None]
"""Returns when all is well; raises an exception that says what is not (in words fit for anybody to read)."""


def ping() -> None:
    """The check that never fails: the process answers."""


class Health:
    """The liveness and readiness checks of one process."""

    def __init__(self) -> None:
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}

    def add_health_check(self, name: str, check: Check) -> None:
        """Adds a liveness check; raises :class:`ValueError` when there is one of this name."""
        _add(self._live, name, check)

    def add_ready_check(self, name: str, check: Check) -> None:
        """Adds a readiness check; raises :class:`ValueError` when there is one of this name."""
        _add(self._ready, name, check)

    async def failures(self, *, ready: bool = True) -> dict[str, str]:
        """The readiness (or liveness) checks that fail now, and why."""
        found = {name: await _outcome(check) for name, check in (self._ready if ready else self._live).items()}
        return {name: reason for name, reason in found.items() if reason is not None}

    def endpoint(self, bind_address: str) -> Endpoint:
        """A server of ``/healthz`` and ``/readyz``."""
        routes: list[web.RouteDef] = []
        for path, checks in (("/healthz", self._live), ("/readyz", self._ready)):
            routes += [
                web.get(path, _all(path.strip("/"), checks)),
                web.get(path + "/", _all(path.strip("/"), checks)),
                web.get(path + "/{name}", _one(path.strip("/"), checks)),
            ]
        return Endpoint("health", bind_address, routes)


def _add(checks: dict[str, Check], name: str, check: Check) -> None:
    if not name or "/" in name:
        raise ValueError(f"{name!r} is no name for a check: it becomes part of a path")
    if name in checks:
        raise ValueError(f"there is a check called {name!r} already")
    checks[name] = check


async def _outcome(check: Check) -> str | None:
    try:
        waiting = check()
        if inspect.isawaitable(waiting):
            await waiting
    except Exception as error:  # noqa: BLE001
        return str(error) or type(error).__name__
    return None


def _all(title: str, checks: dict[str, Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        excluded = set(request.query.getall("exclude", []))
        lines, failed = [], []
        for name, check in (checks or {"ping": ping}).items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            reason = await _outcome(check)
            lines.append(f"[+]{name} ok" if reason is None else f"[-]{name} failed: {reason}")
            if reason is not None:
                failed.append(name)
        lines += [
            f"warn: some health checks cannot be excluded: no matches for {name!r}"
            for name in sorted(excluded - checks.keys())
        ]
        if failed:
            _log.debug("checks fail", endpoint=title, failed=failed)
            return web.Response(status=500, text="\n".join([*lines, "healthz check failed", ""]))
        if "verbose" in request.query:
            return web.Response(text="\n".join([*lines, "healthz check passed", ""]))
        return web.Response(text="ok")

    return answer


def _one(title: str, checks: dict[str, Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        check = (checks or {"ping": ping}).get(request.match_info["name"])
        if check is None:
            return web.Response(status=404, text=f"{title}: there is no check {request.match_info['name']!r}\n")
        reason = await _outcome(check)
        if reason is not None:
            return web.Response(status=500, text=f"internal server error: {reason}\n")
        return web.Response(text="ok")

    return answer
