"""Predicates: which events pass them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.store import Event, EventType
from cfo.runtime.controller.predicate import (
    AnnotationChanged,
    GenerationChanged,
    LabelChanged,
    Predicate,
    ResourceVersionChanged,
    and_,
    from_functions,
    not_,
    on_update,
    or_,
)
from cfo.runtime.objects.unstructured import GVK, NamespacedName

KIND = GVK("example.com", "v1", "Mirror")
KEY = NamespacedName("ns", "a")


def entry(**metadata: Any) -> Entry:
    all_metadata = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", **metadata}
    return EntryDecoder(KIND).decode(
        orjson.dumps({"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": all_metadata})
    )


def created(**metadata: Any) -> Event:
    return Event(EventType.ADDED, KEY, None, entry(**metadata))


def deleted(**metadata: Any) -> Event:
    return Event(EventType.DELETED, KEY, entry(**metadata), None)


def updated(old: dict[str, Any], new: dict[str, Any]) -> Event:
    return Event(EventType.UPDATED, KEY, entry(**old), entry(**new))


CHANGE_PREDICATES: list[Predicate] = [
    GenerationChanged(),
    ResourceVersionChanged(),
    LabelChanged(),
    AnnotationChanged(),
]


@pytest.mark.parametrize("predicate", CHANGE_PREDICATES)
def test_creation_and_deletion_pass(predicate: Predicate) -> None:
    assert predicate(created())
    assert predicate(deleted())


@pytest.mark.parametrize(
    ("predicate", "old", "new", "expected"),
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
        (
            AnnotationChanged(),
            {"annotations": {"a": "1", "b": "2"}},
            {"annotations": {"b": "2", "a": "1"}},
            False,
        ),
        (AnnotationChanged(), {"annotations": {}}, {"annotations": None}, False),
        (AnnotationChanged("b"), {"annotations": {"a": "1"}}, {}, False),
        (AnnotationChanged("a"), {"annotations": {"a": "1"}}, {}, True),
    ],
)
def test_update_passes_if_the_compared_field_changed(
    predicate: Predicate, old: dict[str, Any], new: dict[str, Any], expected: bool
) -> None:
    assert predicate(updated(old, new)) is expected


def test_on_update_filters_only_updates() -> None:
    predicate = on_update(lambda old, new: old.meta.finalizers != new.meta.finalizers)
    assert predicate(created())
    assert predicate(deleted())
    assert not predicate(updated({}, {}))
    assert predicate(updated({}, {"finalizers": ["x"]}))


def test_from_functions_calls_the_function_of_the_event_type() -> None:
    predicate = from_functions(
        create=lambda _: False, delete=lambda last: last.meta.generation == 7
    )
    assert not predicate(created())
    assert predicate(updated({}, {}))
    assert predicate(deleted(generation=7))
    assert not predicate(deleted())


def test_object_that_is_left_out_counts_as_created_or_updated() -> None:
    predicate = from_functions(
        create=lambda new: new.meta.generation == 1,
        update=lambda old, new: old.meta.generation != new.meta.generation,
        delete=lambda _: False,
    )
    before = entry(generation=1)
    after = entry(generation=2)
    assert predicate(Event(EventType.DELETED, KEY, before, None, left_out=after))
    assert predicate(Event(EventType.DELETED, KEY, before, None, left_out=before))
    assert not predicate(Event(EventType.DELETED, KEY, after, None, left_out=after))


def test_predicates_can_be_combined() -> None:
    def accept(_: Event) -> bool:
        return True

    def reject(_: Event) -> bool:
        return False

    event = created()
    assert [
        and_(accept, accept)(event),
        and_(accept, reject)(event),
        or_(reject, accept)(event),
        or_(reject, reject)(event),
    ] == [
        *(True, False),
        *(True, False),
    ]
    assert not_(reject)(event)
    assert not not_(accept)(event)


async def _async_function(*_: object) -> bool:
    return False


@pytest.mark.parametrize(
    "combine",
    [
        lambda function: on_update(function),
        lambda function: from_functions(create=function),
        lambda function: from_functions(update=function),
        lambda function: from_functions(delete=function),
        lambda function: and_(function),
        lambda function: or_(function),
        lambda function: not_(function),
    ],
)
def test_async_functions_are_refused(combine: Callable[[Any], Predicate]) -> None:
    with pytest.raises(TypeError, match=r"async function .* without async"):
        combine(_async_function)
