"""Which events pass which predicates."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.objects import GVK, NamespacedName
from cfo.runtime.predicate import (
    AnnotationChanged,
    GenerationChanged,
    LabelChanged,
    Predicate,
    ResourceVersionChanged,
    and_,
    from_functions,
    has_labels,
    not_,
    on_update,
    or_,
)

KIND = GVK("example.com", "v1", "Mirror")
KEY = NamespacedName("ns", "a")


def entry(**metadata: Any) -> Entry:
    whole = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", **metadata}
    return EntryDecoder(KIND).decode(
        orjson.dumps({"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": whole})
    )


def created(**metadata: Any) -> Event:
    return Event(EventType.ADDED, KEY, None, entry(**metadata))


def deleted(**metadata: Any) -> Event:
    return Event(EventType.DELETED, KEY, entry(**metadata), None)


def updated(old: dict[str, Any], new: dict[str, Any]) -> Event:
    return Event(EventType.UPDATED, KEY, entry(**old), entry(**new))


CHANGES: list[Predicate] = [GenerationChanged(), ResourceVersionChanged(), LabelChanged(), AnnotationChanged()]


@pytest.mark.parametrize("predicate", CHANGES)
def test_what_comes_or_goes_passes(predicate: Predicate) -> None:
    assert predicate(created())
    assert predicate(deleted())


@pytest.mark.parametrize(
    ("predicate", "old", "new", "passes"),
    [
        (GenerationChanged(), {"generation": 1}, {"generation": 2}, True),
        (GenerationChanged(), {"generation": 2}, {"generation": 2, "resourceVersion": "2"}, False),
        (GenerationChanged(), {}, {"resourceVersion": "2"}, True),
        (ResourceVersionChanged(), {"resourceVersion": "1"}, {"resourceVersion": "2"}, True),
        (ResourceVersionChanged(), {}, {}, False),
        (LabelChanged(), {"labels": {"a": "1"}}, {"labels": {"a": "2"}}, True),
        (LabelChanged(), {"labels": {"a": "1"}}, {"labels": {"a": "1"}, "generation": 2}, False),
        (LabelChanged("b"), {"labels": {"a": "1"}}, {"labels": {"a": "2"}}, False),
        (LabelChanged("b"), {}, {"labels": {"b": "2"}}, True),
        (AnnotationChanged(), {}, {"annotations": {"a": "1"}}, True),
        (AnnotationChanged(), {"annotations": {"a": "1", "b": "2"}}, {"annotations": {"b": "2", "a": "1"}}, False),
        (AnnotationChanged(), {"annotations": {}}, {"annotations": None}, False),
        (AnnotationChanged("b"), {"annotations": {"a": "1"}}, {}, False),
        (AnnotationChanged("a"), {"annotations": {"a": "1"}}, {}, True),
    ],
)
def test_updates_pass_when_what_is_looked_at_changed(
    predicate: Predicate, old: dict[str, Any], new: dict[str, Any], passes: bool
) -> None:
    assert predicate(updated(old, new)) is passes


def test_on_update_asks_about_updates_alone() -> None:
    predicate = on_update(lambda old, new: old.meta.finalizers != new.meta.finalizers)
    assert predicate(created())
    assert predicate(deleted())
    assert not predicate(updated({}, {}))
    assert predicate(updated({}, {"finalizers": ["x"]}))


def test_from_functions_asks_the_function_of_the_event() -> None:
    predicate = from_functions(create=lambda _: False, delete=lambda last: last.meta.generation == 7)
    assert not predicate(created())
    assert predicate(updated({}, {}))
    assert predicate(deleted(generation=7))
    assert not predicate(deleted())


def test_labels_count_in_the_old_and_in_the_new_state() -> None:
    predicate = has_labels("a", "b")
    assert predicate(created(labels={"a": "", "b": "", "c": ""}))
    assert not predicate(created(labels={"a": ""}))
    assert predicate(updated({"labels": {"a": "", "b": ""}}, {}))


def test_predicates_combine() -> None:
    def yes(_: Event) -> bool:
        return True

    def no(_: Event) -> bool:
        return False

    event = created()
    assert [and_(yes, yes)(event), and_(yes, no)(event), or_(no, yes)(event), or_(no, no)(event)] == [
        *(True, False),
        *(True, False),
    ]
    assert not_(no)(event)
    assert not not_(yes)(event)
