"""Why a reconcile runs: the events that queued its request.

A source passes a :class:`Cause` to the queue with each request. The queue merges the causes of a request that is queued
several times, and the controller adds them to the log lines of the reconcile. Log lines name only the kind and key of
an object and the fields that changed, never their values.

Recording a cause costs one small object. An update refers to the JSON of both states, which the cache has anyway; they
are compared only if the cause is read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self

import msgspec

from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.objects.unstructured import GVK, NamespacedName
from cfo.runtime.process.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CAUSES: Final = 3
"""The number of causes that are kept for a request; further ones are only counted."""

MAX_FIELDS: Final = 8
"""The number of changed fields that are named."""

_MAX_FIELD_LENGTH: Final = 64
_MAX_TEXT_LENGTH: Final = 400

_UNINFORMATIVE: Final = frozenset(
    {"metadata.generation", "metadata.managedFields", "metadata.resourceVersion"}
)
"""Fields that change with each write, or that the cache does not keep."""

_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])


class CauseType(StrEnum):
    """What queued a request: the event of an object, or the reason if there was none."""

    ADDED = "added"
    UPDATED = "updated"
    DELETED = "deleted"
    LISTED = "initial list"
    """The object existed when the controller started. Such events have no key, only the kind."""
    REQUEUE_AFTER = "requeue after"
    RETRY = "retry"
    GENERIC = "generic"
    """The program queued the request (:class:`~cfo.runtime.controller.source.Channel`)."""


class Cause(msgspec.Struct, gc=False, eq=False):
    """One event that queued a request.

    ``gvk`` and ``key`` identify the object of the event, which need not be the object to reconcile; they are ``None``
    for causes without an object. ``detail`` is a short text, for example the class of the error that is retried.
    """

    type: CauseType
    gvk: GVK | None = None
    key: NamespacedName | None = None
    detail: str = ""
    _old: bytes = b""
    _new: bytes = b""
    _changed: tuple[str, ...] | None = None

    @classmethod
    def of_event(cls, gvk: GVK, event: Event) -> Self:
        """Return the cause for an event of an informer of kind ``gvk``."""
        if event.old is not None and event.new is not None:
            return cls(CauseType.UPDATED, gvk, event.key, "", event.old.raw, event.new.raw)
        if event.left_out is not None:
            return cls(CauseType.UPDATED, gvk, event.key)
        if event.type is EventType.DELETED:
            return cls(CauseType.DELETED, gvk, event.key)
        return cls(CauseType.ADDED, gvk, event.key)

    @property
    def changed(self) -> tuple[str, ...]:
        """The changed fields of an updated object (:func:`changed_fields`), computed on first use.

        Empty if they are not known: the queue forgets the states of objects while it holds too many of them.
        """
        if self._changed is None:
            self._changed = changed_fields(self._old, self._new) if self._old else ()
        return self._changed

    @property
    def held(self) -> int:
        """The bytes of JSON that this cause may keep in memory."""
        return len(self._old) + len(self._new)

    def without_states(self) -> Cause:
        """Return the cause without the two states of the object, so that :attr:`changed` is empty."""
        return Cause(self.type, self.gvk, self.key, self.detail)

    def has_object_of(self, other: Cause) -> bool:
        """Return whether both causes are events of the same object, or have no object and are equal."""
        if self.key != other.key or self.gvk != other.gvk:
            return False
        return self.key is not None or self.type is other.type

    def followed_by(self, later: Cause) -> Cause:
        """Return one cause for this event and a later one of the same object."""
        if self.type is CauseType.UPDATED and later.type is CauseType.UPDATED:
            if not self._old or not later._new:
                return self.without_states()
            return Cause(CauseType.UPDATED, self.gvk, self.key, self.detail, self._old, later._new)
        if self.type is CauseType.ADDED and later.type is CauseType.UPDATED:
            return self
        return later.without_states()

    def __str__(self) -> str:
        if self.gvk is None:
            subject = str(self.type)
        elif self.key is None:
            subject = f"{self.type} of {self.gvk.kind}"
        else:
            subject = f"{self.gvk.kind} {self.key} {self.type}"
        detail = self.detail or ", ".join(self.changed)
        return f"{subject}: {detail}" if detail else subject


class Causes(msgspec.Struct, gc=False, eq=False, frozen=True):
    """The causes of a request: the first events, one for each object, and the number of those that were omitted.

    Several events of one object are merged into one cause. Its string, at most 400 characters, is the field ``causes``
    of log lines.
    """

    first: tuple[Cause, ...] = ()
    omitted: int = 0
    held: int = 0
    """The bytes of JSON that these causes may keep in memory."""

    @classmethod
    def of(cls, cause: Cause) -> Self:
        """Return ``cause`` as the only one."""
        return cls((cause,), 0, cause.held)

    def __iter__(self) -> Iterator[Cause]:
        return iter(self.first)

    def __len__(self) -> int:
        return len(self.first)

    def followed_by(self, later: Cause) -> Causes:
        """Return these causes and a later one."""
        for number, known in enumerate(self.first):
            if known is later:
                return self
            if known.has_object_of(later):
                merged = known.followed_by(later)
                first = (*self.first[:number], merged, *self.first[number + 1 :])
                return Causes(first, self.omitted, self.held - known.held + merged.held)
        if len(self.first) < MAX_CAUSES:
            return Causes((*self.first, later), self.omitted, self.held + later.held)
        return Causes(self.first, self.omitted + 1, self.held)

    def without_states(self) -> Causes:
        """Return these causes without the states of objects (:meth:`Cause.without_states`)."""
        return Causes(tuple([cause.without_states() for cause in self.first]), self.omitted)

    def __str__(self) -> str:
        parts = [str(cause) for cause in self.first]
        if self.omitted:
            parts.append(f"{self.omitted} more")
        text = "; ".join(parts)
        if len(text) > _MAX_TEXT_LENGTH:
            return f"{text[: _MAX_TEXT_LENGTH - 3]}..."
        return text

    __repr__ = __str__


def changed_fields(old: bytes, new: bytes) -> tuple[str, ...]:
    """Return the fields that differ between two states of an object, at the top two levels (``spec.replicas``).

    At most 8 fields, then ``...``. Compares JSON as the API server writes it, so another order of keys counts as a
    change. Fields that change with every write (resourceVersion, generation) are left out. Malformed JSON, and
    JSON that is nested too deeply to decode, has no fields.
    """
    found: list[str] = []
    try:
        before = _parts.decode(old)
        after = _parts.decode(new)
        for name in {**before, **after}:
            one = before.get(name)
            other = after.get(name)
            if one is not None and other is not None and one == other:
                continue
            for field in _differing(name, one, other):
                if field in _UNINFORMATIVE:
                    continue
                if len(found) == MAX_FIELDS:
                    return (*found, "...")
                found.append(printable(field, _MAX_FIELD_LENGTH))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ()
    return tuple(found)


def _differing(name: str, old: msgspec.Raw | None, new: msgspec.Raw | None) -> Iterator[str]:
    """Yield the fields that differ in one top-level field."""
    if old is None or new is None or not (_is_object(old) and _is_object(new)):
        yield name
        return
    before = _parts.decode(old)
    after = _parts.decode(new)
    for inner in {**before, **after}:
        if inner not in before or inner not in after or before[inner] != after[inner]:
            yield f"{name}.{inner}"


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"
