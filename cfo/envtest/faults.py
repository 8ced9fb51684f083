"""Faults on demand: what a test wants to go wrong, for which requests, and how often.

A :class:`Fault` is matched before anything else happens to a request. Rules are tried in the order in which
they were added; the first that matches strikes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cfo.envtest.auth.attributes import Attributes
from cfo.envtest.errors import error_of_code
from cfo.envtest.http import Call, Reply, status_reply

__all__ = ["Fault", "Faults"]


@dataclass(slots=True)
class Fault:
    """One rule.

    It matches requests by ``verbs``, ``resources`` (plurals, ``pods/status`` for a subresource) and ``namespaces``;
    empty means any. ``count`` bounds how often it strikes, ``seconds`` for how long from now on.
    It waits ``latency`` seconds, then answers with ``code`` (``retry_after`` in seconds), or cuts the connection
    (``reset``); with neither the request goes on.
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
    struck: int = 0
    _since: float = field(default_factory=time.monotonic)

    def matches(self, attributes: Attributes, now: float) -> bool:
        """Whether the rule is still good and the request is one of its."""
        if self.count is not None and self.struck >= self.count:
            return False
        if self.seconds is not None and now - self._since > self.seconds:
            return False
        if self.verbs and attributes.verb not in self.verbs:
            return False
        if self.resources and attributes.combined_resource not in self.resources:
            return False
        return not self.namespaces or attributes.namespace in self.namespaces

    async def strike(self, call: Call) -> Reply | None:
        """Does what the rule says; ``None`` lets the request go on."""
        self.struck += 1
        if self.latency:
            await asyncio.sleep(self.latency)
        if self.reset:
            transport = call.raw.transport
            if transport is not None:
                transport.abort()
            raise ConnectionResetError("a fault was asked for")
        if not self.code:
            return None
        error = error_of_code(self.code, self.message or f"a fault was asked for: {self.code}")
        if self.reason:
            error.reason = self.reason
        if self.retry_after is not None:
            error.details = {"retryAfterSeconds": self.retry_after}
            error.headers["Retry-After"] = str(self.retry_after)
        return status_reply(error)


class Faults:
    """The rules in force."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules: list[Fault] = []
        self._clock = clock

    def add(self, fault: Fault) -> Fault:
        """Puts a rule in force."""
        self.rules.append(fault)
        return fault

    def clear(self) -> None:
        """Takes all rules away."""
        self.rules.clear()

    def match(self, attributes: Attributes) -> Fault | None:
        """The rule that strikes this request."""
        if not self.rules:
            return None
        now = self._clock()
        return next((rule for rule in self.rules if rule.matches(attributes, now)), None)
