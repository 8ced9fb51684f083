"""Faults that tests inject into the API server: the requests that fail, and how, how often and how long they fail.

A :class:`Fault` is matched before the server does anything else with a request. Rules are tried in the order in which
they were added; the first that matches is injected. :class:`Faults` holds the rules and two settings of the whole
server: whether it is paused, and a stale revision of the watch cache. ``fault_injection`` executes the faults and
serves them to other programs at ``/envtest/faults``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from envtest.auth.attributes import Attributes

__all__ = ["Choose", "Fault", "Faults"]


@dataclass(slots=True)
class Fault:
    """One rule.

    It matches requests by ``verbs``, ``resources`` (plurals, ``pods/status`` for a subresource) and ``namespaces``;
    an empty tuple matches any. ``count`` limits how often it is injected, ``seconds`` for how long after it was added
    (by the clock of the plane).

    The server waits ``latency`` seconds, then resets the connection (``reset``), or responds with ``code`` (and
    ``reason``, ``message``, ``retry_after`` in seconds), or reports that the resourceVersion is too old (``expired``:
    as the status of a list, as an ERROR event of a watch). A watch with ``cut_after`` loses its connection after that
    many events, in the middle of the next line if ``torn``. With none of these the request is processed normally.

    With ``after`` the request is processed first, and the rule is injected only if it succeeds: the client gets an
    error, or no response, although its write took effect.

    ``injected`` counts how often the rule was injected.
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
    after: bool = False
    injected: int = 0
    since: float = 0.0

    def matches(self, attributes: Attributes, now: float) -> bool:
        """Return whether the rule is still active and matches the request."""
        if self.count is not None and self.injected >= self.count:
            return False
        if self.seconds is not None and now - self.since > self.seconds:
            return False
        if self.verbs and attributes.verb not in self.verbs:
            return False
        if self.resources and attributes.combined_resource not in self.resources:
            return False
        return not self.namespaces or attributes.namespace in self.namespaces


Choose = Callable[[Attributes], Fault | None]
"""A function that is called with each request, and may return a fault for it."""


class Faults:
    """The active rules. While ``stale_revision`` is set, reads from the cache (resourceVersion 0) return that state.

    ``choose`` is called with each request before the rules; the fault that it returns is injected instead of them.
    ``listeners`` are called when a fault is injected, before the client can notice it.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.rules: list[Fault] = []
        self.choose: Choose | None = None
        self.listeners: list[Callable[[Fault], None]] = []
        self.stale_revision: int | None = None
        self._clock = clock
        self._running = asyncio.Event()
        self._running.set()
        self._paused = False
        self._held: tuple[str, ...] | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    def add(self, fault: Fault) -> Fault:
        """Activate a rule."""
        fault.since = self._clock()
        self.rules.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all rules, end a pause, release watches and let the watch cache catch up."""
        self.rules.clear()
        self.choose = None
        self.stale_revision = None
        self.release_watches()
        self.resume()

    def pause(self) -> None:
        """Hold all requests and watches until :meth:`resume`: the server hangs, with its connections open."""
        self._paused = True
        self._running.clear()

    def resume(self) -> None:
        """End a pause."""
        self._paused = False
        self._running.set()

    async def wait_while_paused(self) -> None:
        """Wait until the server is not paused."""
        if not self._running.is_set():
            await self._running.wait()

    def hold_watches(self, *resources: str) -> None:
        """Hold back the events of all watches of ``resources`` (plurals; any by default), until they are released.

        Nothing is lost: clients that read only these watches do not see newer changes for a while.
        """
        self._held = resources
        self._flowing.clear()

    def release_watches(self) -> None:
        """Deliver all events that were held back."""
        self._held = None
        self._flowing.set()

    async def wait_while_held(self, resource: str) -> None:
        """Wait until the watches of ``resource`` are not held back."""
        while self._holds(resource):
            await self._flowing.wait()

    def _holds(self, resource: str) -> bool:
        return self._held is not None and (not self._held or resource in self._held)

    def holds(self, resource: str) -> bool:
        """Return whether the watches of ``resource`` are held back, or the server is paused."""
        return self._paused or self._holds(resource)

    def match(self, attributes: Attributes) -> Fault | None:
        """Return the fault to inject into this request."""
        if self.choose is not None:
            fault = self.choose(attributes)
            if fault is not None:
                return fault
        if not self.rules:
            return None
        now = self._clock()
        return next((rule for rule in self.rules if rule.matches(attributes, now)), None)
