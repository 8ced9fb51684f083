"""What controllers read of cached objects: single fields, why pods do not run, and objects that a label names.

Only the fields that are read are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from cfo.api.reading import WAITING_REASONS
from cfo.runtime import Entry, Informer, NamespacedName, Reader, Request
from cfo.runtime.cache import IndexFunction

_T = TypeVar("_T")


def field_reader(*path: str, kind: type[_T], default: _T) -> Callable[[Entry], _T]:
    """Return a function that returns the field at ``path`` of a cached object; ``default`` if it is missing or null.

    The same if the field, or a part of its path, has another type: a CRD without a schema accepts any.
    """
    top, *below = path
    decoded: Any = kind
    for name in reversed(below):
        fields = [("value", decoded | None, None)]
        decoded = msgspec.defstruct("Field", fields, rename={"value": name}, gc=False)
    decoder = msgspec.json.Decoder(decoded | None)

    def read(entry: Entry) -> _T:
        try:
            found: Any = decoder.decode(entry.part(top) or b"null")
        except msgspec.ValidationError:
            return default
        for _ in below:
            found = found.value if found is not None else None
        return default if found is None else found

    return read


class NamingLabel:
    """A label with which objects name an object of another kind in their namespace."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._index: IndexFunction = lambda entry: map(str, self.requests(entry))

    def requests(self, entry: Entry) -> Iterable[Request]:
        """Return the object that the label of ``entry`` names, if it has the label."""
        name = entry.meta.labels.get(self._label)
        return (NamespacedName(entry.namespace, name),) if name else ()

    def add_index(self, objects: Informer) -> Informer:
        """Add the index that :meth:`entries` reads to the informer of a kind that has the label."""
        return objects.add_index(self._label, self._index)

    def entries(self, objects: Reader, named: NamespacedName) -> list[Entry]:
        """Return the objects whose label names ``named``; any client can set the label."""
        return objects.entries(index=(self._label, str(named)))


class _Terminated(msgspec.Struct, gc=False, rename="camel"):
    exit_code: int = 0
    reason: str = ""


class _Waiting(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, gc=False):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class ContainerStatus(msgspec.Struct, gc=False, rename="camel"):
    """The status of one container."""

    name: str = ""
    restart_count: int = 0
    state: _State | None = None
    last_state: _State | None = None


class Condition(msgspec.Struct, gc=False):
    """A condition, without its times."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, gc=False, rename="camel"):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


status_of_pod = field_reader("status", kind=PodStatus, default=PodStatus())
"""Return the status of a pod; empty if it has none."""

conditions_of = field_reader("status", "conditions", kind=tuple[Condition, ...], default=())
"""Return the conditions of an object."""

_MAX_MESSAGE: Final = 300


class PodFailure(NamedTuple):
    """The reason why a pod does not run, in CamelCase, and a sentence about it."""

    reason: str
    message: str


def failure_of(status: PodStatus) -> PodFailure | None:
    """Return why a pod does not run; ``None`` if it runs, or is only starting."""
    for condition in status.conditions or ():
        if (
            condition.type == "PodScheduled"
            and condition.status == "False"
            and condition.reason == "Unschedulable"
        ):
            return PodFailure("Unschedulable", shortened(condition.message or "no node fits"))
    if status.phase == "Failed" and status.reason:
        return PodFailure(_reason(status.reason), shortened(status.message or "the pod failed"))
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        if (failure := _container_failure(container)) is not None:
            return failure
    return None


def _container_failure(container: ContainerStatus) -> PodFailure | None:
    waiting = container.state.waiting if container.state is not None else None
    terminated = container.last_state.terminated if container.last_state is not None else None
    if waiting is None:
        return None
    if waiting.reason == "CrashLoopBackOff":
        ended = (
            f"exited with code {terminated.exit_code}"
            if terminated is not None
            else "exits repeatedly"
        )
        cause = (
            f" ({terminated.reason})"
            if terminated is not None and terminated.reason not in ("", "Error")
            else ""
        )
        message = f"container {container.name} {ended}{cause}, {container.restart_count} restarts"
        return PodFailure("CrashLoopBackOff", shortened(message))
    if waiting.reason in WAITING_REASONS:
        return PodFailure(
            waiting.reason, shortened(f"container {container.name}: {waiting.message}".rstrip(": "))
        )
    return None


def _reason(text: str) -> str:
    return text if text.isascii() and text.isalnum() and text[0].isalpha() else "PodFailed"


def shortened(message: str, limit: int = _MAX_MESSAGE) -> str:
    """Return at most ``limit`` characters of ``message``."""
    return message if len(message) <= limit else message[: limit - 3] + "..."
