"""What controllers read of cached objects: single fields, the status of pods, and objects that a label names.

Only the fields that are read are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from cfo.runtime import Entry, Informer, NamespacedName, Reader, Request
from cfo.runtime.cache import IndexFunction

_T = TypeVar("_T")


def field_reader(*path: str, kind: type[_T], default: _T) -> Callable[[Entry], _T]:
    """Return a function that returns the field at ``path`` of a cached object; ``default`` if it is missing or null.

    The function raises :class:`msgspec.ValidationError` if the field, or a part of its path, has another type.
    """
    decoded: Any = kind
    for name in reversed(path):
        fields = [("value", decoded | None, None)]
        decoded = msgspec.defstruct("Field", fields, rename={"value": name}, gc=False)
    decoder = msgspec.json.Decoder(decoded)

    def read(entry: Entry) -> _T:
        found: Any = decoder.decode(entry.raw)
        for _ in path:
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
