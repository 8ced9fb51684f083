"""Which events are worth a reconcile.

A predicate is a function of an event; all of a watch must say yes. Those here look at metadata, which is
decoded already, and judge updates alone: objects that come or go always pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.store import Event

__all__ = [
    "AnnotationChanged",
    "GenerationChanged",
    "LabelChanged",
    "Predicate",
    "ResourceVersionChanged",
    "and_",
    "from_functions",
    "has_labels",
    "not_",
    "on_update",
    "or_",
]

Predicate: TypeAlias = Callable[[Event], bool]
"""Whether an event is worth a reconcile."""


class GenerationChanged:
    """Updates that change ``metadata.generation``: the spec, or the start of a deletion; not status or metadata.

    Objects of kinds that keep no generation (Secrets, ConfigMaps, ...) always pass: controller-runtime
    drops each of their updates.
    """

    def __call__(self, event: Event) -> bool:
        """Whether the event passes."""
        if event.old is None or event.new is None:
            return True
        old, new = event.old.meta.generation, event.new.meta.generation
        return old != new or new == 0


class ResourceVersionChanged:
    """Updates that change anything, in contrast to those that a list after a broken watch repeats."""

    def __call__(self, event: Event) -> bool:
        """Whether the event passes."""
        if event.old is None or event.new is None:
            return True
        return event.old.meta.resource_version != event.new.meta.resource_version


class LabelChanged:
    """Updates that change labels: any, or one of ``keys``."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def __call__(self, event: Event) -> bool:
        """Whether the event passes."""
        return _differs(event, lambda entry: entry.meta.labels, self._keys)


class AnnotationChanged:
    """Updates that change annotations: any, or one of ``keys``."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def __call__(self, event: Event) -> bool:
        """Whether the event passes."""
        if event.old is None or event.new is None:
            return True
        if event.old.meta.raw_annotations == event.new.meta.raw_annotations:
            return False
        return _differs(event, lambda entry: entry.annotations, self._keys)


def _differs(event: Event, read: Callable[[Entry], Mapping[str, str]], keys: Collection[str]) -> bool:
    if event.old is None or event.new is None:
        return True
    old, new = read(event.old), read(event.new)
    return any(old.get(key) != new.get(key) for key in keys) if keys else old != new


def on_update(changed: Callable[[Entry, Entry], bool]) -> Predicate:
    """Updates for which ``changed(old, new)`` is true; what comes or goes passes."""

    def predicate(event: Event) -> bool:
        return event.old is None or event.new is None or changed(event.old, event.new)

    return predicate


def from_functions(
    *,
    create: Callable[[Entry], bool] = lambda _: True,
    update: Callable[[Entry, Entry], bool] = lambda _old, _new: True,
    delete: Callable[[Entry], bool] = lambda _: True,
) -> Predicate:
    """A function for each sort of event; those not given say yes (controller-runtime's ``predicate.Funcs``)."""

    def predicate(event: Event) -> bool:
        if event.new is None:
            return event.old is None or delete(event.old)
        return create(event.new) if event.old is None else update(event.old, event.new)

    return predicate


def has_labels(*keys: str) -> Predicate:
    """Objects that have all of the labels ``keys``, in their old or their new state."""

    def predicate(event: Event) -> bool:
        return any(
            entry is not None and all(key in entry.meta.labels for key in keys) for entry in (event.old, event.new)
        )

    return predicate


def and_(*predicates: Predicate) -> Predicate:
    """All say yes."""
    return lambda event: all(predicate(event) for predicate in predicates)


def or_(*predicates: Predicate) -> Predicate:
    """One says yes."""
    return lambda event: any(predicate(event) for predicate in predicates)


def not_(predicate: Predicate) -> Predicate:
    """It says no."""
    return lambda event: not predicate(event)
