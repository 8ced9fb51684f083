"""Observes the requests to one control plane, and injects the fault of one point into them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final

from envtest.apimachinery.errors import GroupResource
from envtest.auth.attributes import Attributes
from envtest.chaos.names import Names
from envtest.chaos.points import FaultPoint, Target
from envtest.chaos.run_clock import RunClock
from envtest.faults import Fault
from envtest.planes.embedded import EmbeddedServer
from envtest.storage import Change

__all__ = ["IGNORED", "WRITES", "Injector", "is_ignored", "qualified"]

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_REVIEWS: Final = ("subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews")
IGNORED: Final = frozenset(
    {
        "events",
        "events.events.k8s.io",
        "leases.coordination.k8s.io",
        *(f"{review}.authorization.k8s.io" for review in _REVIEWS),
        "selfsubjectrulesreviews.authorization.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "selfsubjectreviews.authentication.k8s.io",
    }
)
"""Resources whose objects are no part of a state, and whose writes are no activity; reviews are not stored at all."""
_OUTAGE: Final = 1.0
"""Seconds of an outage."""

_WRITE_FAULTS: Final[dict[str, dict[str, Any]]] = {
    "crash": {"after": True, "reset": True},
    "conflict": {
        "code": 409,
        "reason": "Conflict",
        "message": "the object has been modified (injected by envtest)",
    },
    "throttle": {"code": 429, "reason": "TooManyRequests", "retry_after": 1},
    "error": {"code": 500, "reason": "InternalError"},
    "timeout": {"after": True, "code": 504, "reason": "Timeout"},
    "reset": {"after": True, "reset": True},
}


def qualified(group: str, resource: str, subresource: str = "") -> str:
    """Return ``widgets.example.com/status``."""
    name = f"{resource}.{group}" if group else resource
    return f"{name}/{subresource}" if subresource else name


def is_ignored(resource: str, ignored: Collection[str]) -> bool:
    """Return whether a qualified resource, or its plural, is in ``ignored``."""
    name = resource.partition("/")[0]
    return name in ignored or name.partition(".")[0] in ignored


class Injector:
    """Connects to the requests of ``plane`` until :meth:`close`.

    ``names`` and ``point`` are those of the run (``None`` injects nothing); ``crash`` is called when the point is a
    crash that is due. ``step`` is set by the run. While ``down`` is set, all connections are refused, because the
    operator has been killed and may still have requests under way. Times are those of ``clock``.
    """

    def __init__(
        self,
        plane: EmbeddedServer,
        clock: RunClock,
        names: Names,
        point: FaultPoint | None,
        ignored: Collection[str],
        crash: Callable[[], None],
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._names = names
        self._point = point
        self._ignored = ignored
        self._crash = crash
        self._counts: Counter[tuple[int, Target]] = Counter()
        self._expired: set[str] | None = None
        self._outage_until = 0.0
        self._fault: Fault | None = None
        self._faulted = Attributes()
        self._changed = asyncio.Event()
        self.step = 0
        self.down = False
        self.reached = False
        self.watched: set[str] = set()
        started = clock.now()
        self.last_request = started
        self.last_activity = started
        self.requests = 0
        self.watches = 0
        plane.faults.choose = self._choose
        plane.faults.listeners.append(self._injected)
        plane.audit.listeners.append(self._finished)
        plane.store.journal.append(self._stored)

    def close(self) -> None:
        """Disconnect, and deliver what was held back."""
        self._plane.faults.clear()
        self._plane.faults.listeners.remove(self._injected)
        self._plane.audit.listeners.remove(self._finished)
        self._plane.store.journal.remove(self._stored)

    def target(self, attributes: Attributes) -> Target:
        """Return what a request addresses, with canonical names; a create names no object."""
        resource = qualified(attributes.group, attributes.resource)
        name = attributes.name and self._names.canonical(
            (resource, attributes.namespace, attributes.name)
        )
        whole = qualified(attributes.group, attributes.resource, attributes.subresource)
        return Target(attributes.verb, whole, attributes.namespace, name)

    def _choose(self, attributes: Attributes) -> Fault | None:
        if not attributes.is_resource_request:
            return Fault(reset=True) if self.down else None
        if self.down:
            return Fault(reset=True)
        self.requests += 1
        now = self._clock.now()
        self.last_request = now
        resource = qualified(attributes.group, attributes.resource, attributes.subresource)
        is_write = attributes.verb in WRITES
        if is_write and not is_ignored(resource, self._ignored):
            self._active()
        if attributes.verb == "watch":
            self.watched.add(attributes.resource)
            self.watches += 1
        if self._outage_until > now:
            return Fault(code=503, reason="ServiceUnavailable")
        if (
            self._expired is not None
            and attributes.verb == "watch"
            and attributes.resource not in self._expired
        ):
            self._expired.add(attributes.resource)
            return Fault(expired=True)
        return self._write_fault(attributes) if is_write else None

    def _write_fault(self, attributes: Attributes) -> Fault | None:
        point = self._point
        target = self.target(attributes)
        self._counts[self.step, target] += 1
        if point is None or point.target != target or point.step != self.step or self.reached:
            return None
        if self._counts[self.step, target] != point.occurrence:
            return None
        self._fault = Fault(**_WRITE_FAULTS[point.kind])
        self._faulted = attributes
        return self._fault

    def _injected(self, fault: Fault) -> None:
        if fault is not self._fault:
            return
        self.reached = True
        self._active()
        kind = self._point.kind if self._point is not None else ""
        if kind == "crash":
            self.down = True
            self._crash()
        elif kind == "conflict":
            self._write_concurrently(self._faulted)

    def _write_concurrently(self, attributes: Attributes) -> None:
        """Change the object of a request, as the client does with which it conflicts: only its managedFields.

        Operators that do not repeat the write rely on the event of that change.
        """
        core = self._plane.api_server.core
        info = core.registry.lookup(attributes.group, attributes.version, attributes.resource)
        record = (
            core.store.get(info.storage, attributes.namespace, attributes.name)
            if info is not None
            else None
        )
        if info is None or record is None:
            return
        obj = record.obj()
        entry = {
            "manager": "envtest-chaos",
            "operation": "Update",
            "apiVersion": info.api_version,
            "time": core.clock.timestamp(),
            "fieldsType": "FieldsV1",
            "fieldsV1": {},
        }
        obj["metadata"]["managedFields"] = [*(obj["metadata"].get("managedFields") or ()), entry]
        core.store.update(info.storage, obj, record)

    def _finished(self, event: dict[str, Any]) -> None:
        reference = event.get("objectRef") or {}
        resource = qualified(reference.get("apiGroup", ""), reference.get("resource", ""))
        if event["verb"] in WRITES and not is_ignored(resource, self._ignored):
            self._active()

    def _stored(self, resource: GroupResource, change: Change) -> None:
        if not is_ignored(str(resource), self._ignored):
            self._active()

    def _active(self) -> None:
        self.last_activity = self._clock.now()
        self._changed.set()

    def touch(self) -> None:
        """Count this moment as activity, because the scenario or the run changed something."""
        self._active()

    def close_watches(self) -> None:
        """End all watches of clients."""
        self._plane.api_server.core.close_watchers()
        self._active()

    def expire_watches(self) -> None:
        """End all watches; the next one of each resource fails with 410, and so do reads of the past."""
        self._expired = set()
        self._plane.store.compact()
        self.close_watches()

    def begin_outage(self) -> None:
        """Let all requests fail for one second."""
        self._outage_until = self._clock.now() + _OUTAGE
        self.close_watches()

    async def wait_quiet(self, seconds: float, deadline: float) -> bool:
        """Wait until nothing was written for ``seconds``; return false at ``deadline``."""
        return await self._clock.wait_until(lambda: self.last_activity + seconds, deadline)

    async def wait_activity(self, deadline: float) -> None:
        """Wait for the next write, at most until ``deadline``."""
        self._changed.clear()
        await self._clock.wait_for(self._changed, deadline)
