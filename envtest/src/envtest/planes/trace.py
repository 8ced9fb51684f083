"""A trace: the requests to a control plane with the changes that they caused, and assertions about them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.object_diff import object_diff
from envtest.configuration.arguments import checked_seconds
from envtest.endpoints.audit import AuditLog, current_request
from envtest.faults import RESOURCE_VERBS
from envtest.registry.registry import Registry
from envtest.storage import Change, Store
from envtest.storage.record import DELETED

__all__ = ["Trace", "TracedChange", "TracedRequest"]

KEEP: Final = 10_000
"""Maximum number of requests, and of changes without a request, that a trace keeps."""
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_LEASES: Final = ("leases",)
_EXAMPLE: Final = 'such as {"create pods": 2, "update pods/status": 1}'


@dataclass(frozen=True, slots=True)
class TracedChange:
    """A change of an object: ``type`` is ADDED, MODIFIED or DELETED."""

    resource: GroupResource
    change: Change

    @property
    def type(self) -> str:
        """The type of the change."""
        return self.change.type

    @property
    def before(self) -> dict[str, Any] | None:
        """The object before the change."""
        return self.change.previous.obj() if self.change.previous is not None else None

    @property
    def after(self) -> dict[str, Any] | None:
        """The object after the change."""
        return None if self.change.type == DELETED else self.change.record.obj()

    def lines(self) -> list[str]:
        """Return the change as text: one line for the object, and one for each field."""
        record = self.change.record
        name = "/".join(filter(None, (record.namespace, record.name)))
        if self.type == DELETED:
            return [f"DELETED {self.resource} {name}"]
        return [
            f"{self.type} {self.resource} {name}",
            *(f"  {line}" for line in object_diff(self.before, self.after)),
        ]


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """A finished request. ``resource`` includes the subresource (``pods/status``); paths have an empty one.

    ``finished`` is the time at which it was processed, in seconds of ``time.monotonic()``.
    """

    verb: str
    resource: str
    namespace: str
    name: str
    user: str
    user_agent: str
    uri: str
    code: int
    changes: tuple[TracedChange, ...]
    group: str = ""
    finished: float = 0.0

    @property
    def is_write(self) -> bool:
        """Whether the verb writes, even if this request changed nothing."""
        return self.verb in _WRITES

    def lines(self) -> list[str]:
        """Return the request and its changes as text."""
        target = (
            f"{self.resource} {'/'.join(filter(None, (self.namespace, self.name)))}"
            if self.resource
            else self.uri
        )
        unchanged = ", unchanged" if self.is_write and not self.changes and self.code < 300 else ""
        user = f" by {self.user}" if self.user else ""  # injected faults precede authentication
        lines = [f"{self.code} {self.verb} {target.rstrip()}{user}{unchanged}"]
        return lines + [f"    {line}" for change in self.changes for line in change.lines()]


class Trace:
    """The requests between :meth:`start` and :meth:`stop`, or in a ``with`` block; the latest :data:`KEEP` of them.

    Watches are added when they end. Methods can be called from any thread.
    """

    def __init__(self, audit: AuditLog, store: Store, registry: Registry) -> None:
        self._audit = audit
        self._store = store
        self._registry = registry
        self._lock = threading.Lock()
        self._entries: deque[TracedRequest | TracedChange] = deque(maxlen=KEEP)
        self._pending: dict[str, list[TracedChange]] = {}
        self._last_writes: dict[str, float] = {}

    def start(self) -> Self:
        """Start recording."""
        self._audit.listeners.append(self._finished)
        self._store.journal.append(self._changed)
        return self

    def stop(self) -> None:
        """Stop recording; what was recorded can still be read."""
        if self._finished in self._audit.listeners:
            self._audit.listeners.remove(self._finished)
            self._store.journal.remove(self._changed)

    def clear(self) -> None:
        """Forget what was recorded."""
        with self._lock:
            self._entries.clear()
            self._last_writes.clear()

    def _changed(self, resource: GroupResource, change: Change) -> None:
        traced = TracedChange(resource, change)
        request = current_request.get()
        with self._lock:
            if not request:
                self._entries.append(traced)
                return
            if request not in self._pending and len(self._pending) >= KEEP:
                del self._pending[next(iter(self._pending))]  # its client disconnected
            self._pending.setdefault(request, []).append(traced)

    def _finished(self, event: dict[str, Any]) -> None:
        reference = event.get("objectRef") or {}
        resource = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
        with self._lock:
            request = TracedRequest(
                event["verb"],
                resource,
                reference.get("namespace", ""),
                reference.get("name", ""),
                (event.get("impersonatedUser") or event["user"]).get("username", ""),
                event.get("userAgent", ""),
                event["requestURI"],
                event["responseStatus"]["code"],
                tuple(self._pending.pop(event["auditID"], ())),
                reference.get("apiGroup", ""),
                time.monotonic(),
            )
            self._entries.append(request)
            if request.is_write:
                self._last_writes[resource] = time.monotonic()

    @property
    def entries(self) -> list[TracedRequest | TracedChange]:
        """The requests, and the changes that the plane's own controllers made, in order."""
        with self._lock:
            return list(self._entries)

    @property
    def requests(self) -> list[TracedRequest]:
        """The requests in the order in which they finished."""
        return [entry for entry in self.entries if isinstance(entry, TracedRequest)]

    def report(self, *, reads: bool = False) -> str:
        """Return the entries as text: each write with the fields that it changed; ``reads`` includes other requests."""
        lines: list[str] = []
        for entry in self.entries:
            if isinstance(entry, TracedChange):
                first, *rest = entry.lines()
                lines += [f"controller: {first}", *(f"    {line}" for line in rest)]
            elif reads or entry.is_write:
                lines += entry.lines()
        return "\n".join(lines)

    def counts(self, *, user: str = "", namespace: str = "") -> Counter[str]:
        """Return how many requests there were by ``VERB RESOURCE``: of all users or one, in all namespaces or one."""
        return Counter(
            f"{request.verb} {request.resource}"
            for request in self.requests
            if request.resource
            and user in ("", request.user)
            and namespace in ("", request.namespace)
        )

    def assert_requests(
        self,
        expected: Mapping[str, int],
        *,
        user: str = "",
        namespace: str = "",
        others: bool = False,
    ) -> None:
        """Assert how many requests there were, by ``VERB RESOURCE`` (``{"create pods": 2, "update pods/status": 1}``).

        Writes that ``expected`` does not name must not have happened, unless ``others`` is true; reads may have. The
        filters are those of :meth:`counts`. Raises AssertionError with a report; TypeError and ValueError for what is
        not a count of an existing verb and resource, because such a count of 0 would be right whatever happens.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        counts = self.counts(user=user, namespace=namespace)
        self._check_expected(expected)
        wrong = [
            f"{name}: expected {number}, found {counts[name]}"
            for name, number in expected.items()
            if counts[name] != number
        ]
        if not others:
            unexpected = (
                name
                for name in sorted(counts.keys() - expected.keys())
                if name.split(" ", 1)[0] in _WRITES
            )
            wrong += [f"{name}: expected 0, found {counts[name]}" for name in unexpected]
        if wrong:
            raise AssertionError("\n".join([*wrong, "", "Requests:", self.report()]))

    def _check_expected(self, expected: Mapping[str, int]) -> None:
        __tracebackhide__ = True
        if not isinstance(expected, Mapping):
            raise TypeError(f"expected: {expected!r}: must be a mapping, {_EXAMPLE}")
        for name, number in expected.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ValueError(f"expected: {name}: {number!r}: must be an integer, 0 or more")
            if not isinstance(name, str):
                raise TypeError(f"expected: {name!r}: must be a string, {_EXAMPLE}")
            verb, _, resource = name.partition(" ")
            if verb not in RESOURCE_VERBS or not resource:
                verbs = ", ".join(RESOURCE_VERBS)
                raise ValueError(
                    f"expected: {name!r}: must be VERB RESOURCE, {_EXAMPLE}; the verbs are {verbs}"
                )
            self._check_resource(name, resource)

    def _check_resource(self, name: str, resource: str) -> None:
        __tracebackhide__ = True
        plural, _, subresource = resource.partition("/")
        subresources: dict[str, set[str]] = {}
        plural_of = {}
        for info in self._registry:
            subresources.setdefault(info.plural, set()).update(info.subresources)
            for other in (info.singular, info.kind.lower(), *info.short_names):
                plural_of[other] = info.plural
        if plural not in subresources:
            if plural.lower() in plural_of:
                allowed = f"the plural {plural_of[plural.lower()]}"
            else:
                allowed = f"one of {', '.join(sorted(subresources))}"
            raise ValueError(f"expected: {name!r}: the resource must be {allowed}")
        if subresource and subresource not in subresources[plural]:
            found = ", ".join(sorted(subresources[plural])) or "no subresource"
            raise ValueError(f"expected: {name!r}: {plural} have {found}")

    def _idle_since(self, ignored: Collection[str]) -> float:
        with self._lock:
            return max(
                (at for resource, at in self._last_writes.items() if resource not in ignored),
                default=0.0,
            )

    def _remaining(
        self, seconds: float, started: float, within: float, ignored: Collection[str]
    ) -> float:
        """Return the seconds to wait until the plane was idle for ``seconds``. Raises AssertionError."""
        __tracebackhide__ = True
        now = time.monotonic()
        since = max(started, self._idle_since(ignored))
        if since > started + within:
            message = f"writes continued for {since - started:.1f} seconds, allowed are {within:g}"
            raise AssertionError(f"{message}\n\nRequests:\n{self.report()}")
        return since + seconds - now

    def assert_idle(
        self, seconds: float = 1.0, *, within: float = 0.0, ignore: Collection[str] = _LEASES
    ) -> None:
        """Assert that no client writes for ``seconds`` of real time, by blocking this thread that long.

        The clients may still finish their work in the first ``within`` seconds. Writes of the resources ``ignore`` do
        not count. Must not be called on the event loop of the plane: use :meth:`wait_idle` there. Raises AssertionError
        with a report, TypeError or ValueError for a wrong argument.
        """
        __tracebackhide__ = True
        checked_seconds("seconds", seconds)
        checked_seconds("within", within)
        started = time.monotonic()
        while (remaining := self._remaining(seconds, started, within, ignore)) > 0:
            time.sleep(remaining)

    async def wait_idle(
        self, seconds: float = 1.0, *, within: float = 0.0, ignore: Collection[str] = _LEASES
    ) -> None:
        """Do what :meth:`assert_idle` does, without blocking the event loop."""
        checked_seconds("seconds", seconds)
        checked_seconds("within", within)
        started = time.monotonic()
        while (remaining := self._remaining(seconds, started, within, ignore)) > 0:  # noqa: ASYNC110
            # not polling: the exact time until the last write is old enough
            await asyncio.sleep(remaining)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
