"""Faults that tests inject into the API server: the requests that fail, and how, how often and how long they fail.

A :class:`Fault` is matched before the server does anything else with a request. Rules are tried in the order in which
they were added; the first that matches is injected. :class:`Faults` holds the rules and two settings of the whole
server: whether it is paused, and a stale revision of the watch cache. ``fault_injection`` executes the faults and
serves them to other programs at ``/envtest/faults``.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Final

from envtest.auth.attributes import Attributes
from envtest.registry.resource import ResourceInfo

__all__ = ["RESOURCE_VERBS", "Choose", "Fault", "FaultError", "Faults"]

RESOURCE_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
)
_METHODS: Final = ("head", "options", "post", "put")
"""The verbs of requests for other paths than resources, in addition to delete, get and patch."""

_RESOURCE: Final = re.compile(r"[a-z0-9-]{1,63}(?:/[a-z]{1,63})?")
_NAMESPACE: Final = re.compile(r"[a-z0-9-]{1,63}")
_LISTS: Final = ("verbs", "resources", "namespaces")
_FLAGS: Final = ("reset", "expired", "torn", "after")
_TEXTS: Final = ("reason", "message")
_COUNTS: Final = ("count", "retry_after", "cut_after")
_DEPENDENCIES: Final = {
    "reason": ("code",),
    "message": ("code", "expired"),
    "retry_after": ("code",),
    "torn": ("cut_after",),
    "after": ("latency", "reset", "code", "expired"),
}
"""Fields that have an effect only together with one of others."""

_MAX_SHOWN: Final = 100


class FaultError(ValueError):
    """Raised for an invalid rule; the message names the field, its value and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}: {_shown(value)}: must be {allowed}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


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

    Raises FaultError if a field has a wrong type or value, or no effect without another one.
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

    def __post_init__(self) -> None:
        for name in _LISTS:
            values = getattr(self, name)
            _check_list(name, values)
            setattr(self, name, tuple(values))
        for verb in self.verbs:
            if verb not in RESOURCE_VERBS and verb not in _METHODS:
                methods = ", ".join(_METHODS)
                allowed = f"one of {', '.join(RESOURCE_VERBS)}; or, for other paths than resources, {methods}"
                raise FaultError("verbs", verb, allowed)
        _check_resources(self.resources)
        for namespace in self.namespaces:
            if not _NAMESPACE.fullmatch(namespace):
                raise FaultError("namespaces", namespace, "the name of a namespace")
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise FaultError(name, getattr(self, name), "true or false")
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise FaultError(name, getattr(self, name), "a string")
        for name in _COUNTS:
            _check_count(name, getattr(self, name))
        if self.seconds is not None:
            _check_seconds("seconds", self.seconds)
        _check_seconds("latency", self.latency)
        is_error = _is_integer(self.code) and 400 <= self.code <= 599
        if not is_error and (not _is_integer(self.code) or self.code != 0):
            allowed = "the code of an HTTP error, 400 to 599, or 0 for none"
            raise FaultError("code", self.code, allowed)
        self._check_dependencies()

    def _check_dependencies(self) -> None:
        defaults = {each.name: each.default for each in fields(self)}
        given = {name for name, default in defaults.items() if getattr(self, name) != default}
        for name, others in _DEPENDENCIES.items():
            if name in given and given.isdisjoint(others):
                raise FaultError(name, getattr(self, name), f"used with {' or '.join(others)}")

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


def _check_list(name: str, values: object) -> None:
    if not isinstance(values, tuple | list | set | frozenset):
        raise FaultError(name, values, "a list of strings")
    for value in values:
        if not isinstance(value, str):
            raise FaultError(name, value, "a string")


def _check_resources(resources: Iterable[str]) -> None:
    for resource in resources:
        if not _RESOURCE.fullmatch(resource):
            allowed = "a plural in lower case such as pods, or pods/status, without its group"
            raise FaultError("resources", resource, allowed)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_count(name: str, value: int | None) -> None:
    if value is None:
        return
    if not _is_integer(value) or value < 0:
        raise FaultError(name, value, "an integer, 0 or more")


def _check_seconds(name: str, value: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise FaultError(name, value, "a number of seconds, 0 or more")


Choose = Callable[[Attributes], Fault | None]
"""A function that is called with each request, and may return a fault for it."""


class Faults:
    """The active rules. While ``stale_revision`` is set, reads from the cache (resourceVersion 0) return that state.

    ``choose`` is called with each request before the rules; the fault that it returns is injected instead of them.
    ``listeners`` are called when a fault is injected, before the client can notice it. ``served`` are the resources of
    the server.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, served: Iterable[ResourceInfo] = ()
    ) -> None:
        self.rules: list[Fault] = []
        self.choose: Choose | None = None
        self.listeners: list[Callable[[Fault], None]] = []
        self._stale_revision: int | None = None
        self._clock = clock
        self._served = served
        self._running = asyncio.Event()
        self._running.set()
        self._paused = False
        self._held: tuple[str, ...] | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def stale_revision(self) -> int | None:
        """The revision at which reads from the cache see the objects; ``None`` is the current one."""
        return self._stale_revision

    @stale_revision.setter
    def stale_revision(self, revision: int | None) -> None:
        _check_count("stale_revision", revision)
        self._stale_revision = revision

    def add(self, fault: Fault) -> Fault:
        """Activate a rule.

        Raises TypeError for anything but a Fault; FaultError if one of its resources is another name of a served
        resource than its plural. Names that are not known are allowed, because their CRD may be installed later.
        """
        if not isinstance(fault, Fault):
            raise TypeError(f"fault: {_shown(fault)}: must be an envtest.faults.Fault")
        self._check_plurals(fault.resources)
        fault.since = self._clock()
        self.rules.append(fault)
        return fault

    def _check_plurals(self, resources: Iterable[str]) -> None:
        if not resources:
            return
        plurals = set()
        plural_of = {}
        for info in self._served:
            plurals.add(info.plural)
            for name in (info.singular, info.kind.lower(), *info.short_names):
                plural_of[name] = info.plural
        for resource in resources:
            name, slash, subresource = resource.partition("/")
            if name not in plurals and name in plural_of:
                raise FaultError(
                    "resources", resource, f"the plural {plural_of[name]}{slash}{subresource}"
                )

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

        Nothing is lost: clients that read only these watches do not see newer changes for a while. Raises FaultError
        for what is not a plural, as :class:`Fault` and :meth:`add`.
        """
        _check_list("resources", resources)
        _check_resources(resources)
        self._check_plurals(resources)
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
