"""Faults on demand: what a test wants to go wrong, for which requests, how often and how long.

A :class:`Fault` is matched before anything else happens to a request. Rules are tried in the order in which they were
added; the first that matches strikes. :class:`Faults` holds them, and what concerns the whole server: a pause, and
a watch cache that stays behind. Other programs reach the same by ``/envtest/faults`` (see :func:`faults_page`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from envtest.auth.attributes import Attributes
from envtest.errors import StatusError, bad_request, error_of_code, expired, method_not_allowed_here
from envtest.http import Call, Page, Reply, json_reply, status_reply

__all__ = ["FAULTS_PATH", "Fault", "Faults", "faults_page"]

FAULTS_PATH = "/envtest/faults"


@dataclass(slots=True)
class Fault:
    """One rule.

    It matches requests by ``verbs``, ``resources`` (plurals, ``pods/status`` for a subresource) and ``namespaces``;
    empty means any. ``count`` bounds how often it strikes, ``seconds`` for how long from now on.

    It waits ``latency`` seconds, then cuts the connection (``reset``), or answers with ``code`` (and ``reason``,
    ``message``, ``retry_after`` in seconds), or says that the resourceVersion is too old (``expired``: as status of a
    list, as an ERROR event of a watch). A watch with ``cut_after`` loses its connection after that many events,
    in the middle of the next line when ``torn``. With none of these the request goes on.
    """

    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    count: int | None = None
    seconds: float | None = None
    latency: float = 0.0
    code: int = 0
    reason: str = ""
    message: str = ""
    retry_after: int | None = None
    reset: bool = False
    expired: bool = False
    cut_after: int | None = None
    torn: bool = False
    struck: int = 0
    since: float = field(default_factory=time.monotonic)

    def matches(self, attributes: Attributes, now: float) -> bool:
        """Whether the rule is still good and the request is one of its."""
        if self.count is not None and self.struck >= self.count:
            return False
        if self.seconds is not None and now - self.since > self.seconds:
            return False
        if self.verbs and attributes.verb not in self.verbs:
            return False
        if self.resources and attributes.combined_resource not in self.resources:
            return False
        return not self.namespaces or attributes.namespace in self.namespaces

    async def strike(self, call: Call, attributes: Attributes) -> Reply | None:
        """Does what the rule says; ``None`` lets the request go on."""
        self.struck += 1
        if self.latency:
            await asyncio.sleep(self.latency)
        if self.reset:
            transport = call.raw.transport
            if transport is not None:
                transport.abort()
            raise ConnectionResetError("a fault was asked for")
        if self.code:
            return status_reply(self._refusal())
        if self.expired and attributes.verb != "watch":
            return status_reply(expired(self.message or "too old resource version: 1 (2)"))
        return None

    def _refusal(self) -> StatusError:
        error = error_of_code(self.code, self.message or f"a fault was asked for: {self.code}")
        if self.reason:
            error.reason = self.reason
        if self.retry_after is not None:
            error.details = {"retryAfterSeconds": self.retry_after}
            error.headers["Retry-After"] = str(self.retry_after)
        return error


class Faults:
    """The rules in force. Reads from the cache (resourceVersion 0) stay at ``stale_revision`` while it is set."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules: list[Fault] = []
        self.stale_revision: int | None = None
        self._clock = clock
        self._running = asyncio.Event()
        self._running.set()

    def add(self, fault: Fault) -> Fault:
        """Puts a rule in force."""
        self.rules.append(fault)
        return fault

    def clear(self) -> None:
        """Takes all rules away, resumes, and lets the cache catch up."""
        self.rules.clear()
        self.stale_revision = None
        self.resume()

    def pause(self) -> None:
        """Requests and watches wait until :meth:`resume`: the server hangs, with its connections open."""
        self._running.clear()

    def resume(self) -> None:
        """Ends a pause."""
        self._running.set()

    async def pass_gate(self) -> None:
        """Waits while the server is paused."""
        if not self._running.is_set():
            await self._running.wait()

    def match(self, attributes: Attributes) -> Fault | None:
        """The rule that strikes this request."""
        if not self.rules:
            return None
        now = self._clock()
        return next((rule for rule in self.rules if rule.matches(attributes, now)), None)


_FIELDS = {each.name for each in fields(Fault)} - {"struck", "since"}


def _rule(document: Any) -> Fault:
    if not isinstance(document, dict):
        raise bad_request("a fault is a JSON object")
    unknown = sorted(document.keys() - _FIELDS)
    if unknown:
        raise bad_request(f"unknown field {unknown[0]!r}: a fault has {', '.join(sorted(_FIELDS))}")
    lists = {name: tuple(document[name]) for name in ("verbs", "resources", "namespaces") if name in document}
    return Fault(**{**document, **lists})


def faults_page(faults: Faults) -> Page:
    """Serves ``/envtest/faults``: GET lists the rules, POST adds one (or pauses, ``?paused=true``), DELETE clears them.

    It answers while the server is paused, so that a pause can be ended from outside.
    """

    async def page(call: Call) -> Reply | None:
        from envtest.body import JSONError, load_json

        if call.path != FAULTS_PATH:
            return None
        if call.method == "DELETE":
            faults.clear()
        elif call.method == "POST" and call.flag("paused"):
            faults.pause()
        elif call.method == "POST":
            try:
                faults.add(_rule(load_json(await call.body())))
            except (JSONError, TypeError) as error:
                raise bad_request(str(error)) from None
        elif call.method != "GET":
            raise method_not_allowed_here()
        return json_reply({"faults": [asdict(rule) for rule in faults.rules]})

    return page
