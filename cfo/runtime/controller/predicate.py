"""Predicates: functions that decide whether an event is passed to the handler.

An event must pass all predicates of its watch. The predicates of this module read only metadata, which is already
decoded, except :class:`ValueChanged`. They filter updates; creations and deletions always pass, unless stated
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from cfo.runtime.cache.entry import Entry
from cfo.runtime.cache.store import Event
from cfo.runtime.objects.errors import InvalidResource
from cfo.runtime.objects.unstructured import ObjectKind, require_kind
from cfo.runtime.process.arguments import (
    finished,
    function_name,
    require_plain_function,
    truth_of,
)

Predicate: TypeAlias = Callable[[Event], bool]
"""Returns whether an event passes."""

T = TypeVar("T")


class _UpdatePredicate:
    def __call__(self, event: Event) -> bool:
        """Return whether the event passes."""
        return event.old is None or event.new is None or self._changed(event.old, event.new)

    def _changed(self, old: Entry, new: Entry) -> bool:
        raise NotImplementedError


class GenerationChanged(_UpdatePredicate):
    """Passes updates that change ``metadata.generation``: changes of the spec and the start of a deletion.

    Changes of only the status or the metadata are dropped. Updates of objects without a generation (such as Secrets and
    ConfigMaps) always pass; controller-runtime drops them.
    """

    def _changed(self, old: Entry, new: Entry) -> bool:
        return old.meta.generation != new.meta.generation or new.meta.generation == 0


class ResourceVersionChanged(_UpdatePredicate):
    """Passes updates that change the object; drops unchanged objects repeated by a relist."""

    def _changed(self, old: Entry, new: Entry) -> bool:
        return old.meta.resource_version != new.meta.resource_version


class LabelChanged(_UpdatePredicate):
    """Passes updates that change one of the labels ``keys``, or any label if there are no ``keys``."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def _changed(self, old: Entry, new: Entry) -> bool:
        return _differ(old.meta.labels, new.meta.labels, self._keys)


class AnnotationChanged(_UpdatePredicate):
    """Passes updates that change one of the annotations ``keys``, or any annotation if there are no ``keys``."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def _changed(self, old: Entry, new: Entry) -> bool:
        is_same = old.meta.raw_annotations == new.meta.raw_annotations
        return not is_same and _differ(old.annotations, new.annotations, self._keys)


def _differ(old: Mapping[str, str], new: Mapping[str, str], keys: Collection[str]) -> bool:
    if not keys:
        return old != new
    return any(old.get(key) != new.get(key) for key in keys)


class ValueChanged(_UpdatePredicate, Generic[T]):
    """Passes updates that change ``value(obj)``, computed from the whole object, which is read as ``kind``.

    ``kind`` is a GVK or a class: ``ValueChanged(Website, lambda website: website.spec.html)``. Both states of the
    object are decoded for each update, so place predicates that read only metadata first. An update whose old or new
    state does not fit the class passes.
    """

    def __init__(self, kind: ObjectKind[T], value: Callable[[T], Any]) -> None:
        require_kind("ValueChanged", kind)
        require_plain_function(
            "ValueChanged", value, "a function that returns a part of the object", "object"
        )
        self._kind = kind
        self._value = value
        self._name = f"ValueChanged: {function_name(value)}"

    def _changed(self, old: Entry, new: Entry) -> bool:
        try:
            before = self._kind.decode(old.object())
            after = self._kind.decode(new.object())
        except InvalidResource:
            return True
        return bool(self._value_of(before) != self._value_of(after))

    def _value_of(self, obj: T) -> Any:
        # A coroutine or a generator differs from every other one.
        return finished(self._name, self._value(obj), "a part of the object")


def on_update(changed: Callable[[Entry, Entry], bool]) -> Predicate:
    """Return a predicate that passes updates for which ``changed(old, new)`` is true."""
    require_plain_function(
        "on_update", changed, "a function of the old and new state", "old", "new"
    )

    def predicate(event: Event) -> bool:
        if event.old is None or event.new is None:
            return True
        return _is_true("on_update", changed, event.old, event.new)

    return predicate


def from_functions(
    *,
    create: Callable[[Entry], bool] = lambda _: True,
    update: Callable[[Entry, Entry], bool] = lambda _old, _new: True,
    delete: Callable[[Entry], bool] = lambda _: True,
) -> Predicate:
    """Combine one function for each type of event; the default passes (controller-runtime's ``predicate.Funcs``).

    An object that is left out of the cache is not deleted: it was updated, or created if no earlier state is known.
    """
    for name, function in (("create", create), ("delete", delete)):
        require_plain_function(f"from_functions: {name}", function, "a function", "entry")
    require_plain_function("from_functions: update", update, "a function", "old", "new")

    def predicate(event: Event) -> bool:
        current = event.current
        if current is None:
            return event.old is None or _is_true("delete", delete, event.old)
        if event.old is None or event.old is current:
            return _is_true("create", create, current)
        return _is_true("update", update, event.old, current)

    return predicate


def and_(*predicates: Predicate) -> Predicate:
    """Return a predicate that passes an event if all ``predicates`` pass it."""
    require_predicates("and_", predicates)
    return lambda event: all(passes(predicate, event) for predicate in predicates)


def or_(*predicates: Predicate) -> Predicate:
    """Return a predicate that passes an event if at least one of ``predicates`` passes it."""
    require_predicates("or_", predicates)
    return lambda event: any(passes(predicate, event) for predicate in predicates)


def not_(predicate: Predicate) -> Predicate:
    """Return a predicate that passes an event if ``predicate`` does not pass it."""
    require_predicates("not_", [predicate])
    return lambda event: not passes(predicate, event)


def passes(predicate: Predicate, event: Event) -> bool:
    """Return whether an event passes a predicate. Raises :class:`TypeError` if the predicate returns a coroutine."""
    return _is_true("predicate", predicate, event)


def _is_true(parameter: str, function: Callable[..., object], *arguments: Event | Entry) -> bool:
    """Return whether ``function``, which was passed as ``parameter``, returns what is true; see :func:`truth_of`."""
    result = function(*arguments)
    if isinstance(result, bool):
        return result
    return truth_of(f"{parameter}: {function_name(function)}", result)


def require_predicates(name: str, predicates: Iterable[Predicate]) -> None:
    """Raise :class:`TypeError` for a predicate that is a class or an async function; ``name`` is the parameter."""
    for predicate in predicates:
        require_plain_function(
            name, predicate, "a function or an instance, such as GenerationChanged()", "event"
        )
