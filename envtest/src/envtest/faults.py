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

__all__ = ["Fault", "Faults"]


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


class Faults:
    """The active rules. While ``stale_revision`` is set, reads from the cache (resourceVersion 0) return that state."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.rules: list[Fault] = []
        self.stale_revision: int | None = None
        self._clock = clock
        self._running = asyncio.Event()
        self._running.set()

    def add(self, fault: Fault) -> Fault:
        """Activate a rule."""
        fault.since = self._clock()
        self.rules.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all rules, end a pause and let the watch cache catch up."""
        self.rules.clear()
        self.stale_revision = None
        self.resume()

    def pause(self) -> None:
        """Hold all requests and watches until :meth:`resume`: the server hangs, with its connections open."""
        self._running.clear()

    def resume(self) -> None:
        """End a pause."""
        self._running.set()

    async def wait_while_paused(self) -> None:
        """Wait until the server is not paused."""
        if not self._running.is_set():
            await self._running.wait()

    def match(self, attributes: Attributes) -> Fault | None:
        """Return the rule to inject into this request."""
        if not self.rules:
            return None
        now = self._clock()
        return next((rule for rule in self.rules if rule.matches(attributes, now)), None)
