"""One reconcile at a time has large objects in memory; the others end, and are repeated when it is their turn."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import pytest

from cfo.runtime.process.large_objects import (
    HOLD_SECONDS,
    MANY_VALUES,
    MAX_PAUSE,
    OTHERS_SHARE,
    PAUSE_SHARE,
    LargeObjects,
    RoomTaken,
    admit,
    call_uncounted,
)
from test.support.clocks import FakeClock

LARGE = orjson.dumps([{}] * MANY_VALUES)
USUAL = orjson.dumps({"text": "x" * 1_000_000})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{}] * MANY_VALUES, True),
        ([0] * (MANY_VALUES - 100), False),
        ([[10_000] * 100] * 99, False),
        ([[10_000] * 100] * 101, True),
        ({"text": "x" * 1_000_000}, False),
        ({str(number): number for number in range(MANY_VALUES)}, True),
    ],
)
def test_objects_are_large_by_the_number_of_their_values(value: object, expected: bool) -> None:
    assert needs_room([value]) is expected


def needs_room(values: list[object]) -> bool:
    room = LargeObjects(FakeClock())
    with room.reconcile("running", "ns"):
        admit(LARGE)
        with room.reconcile("other", "ns"):
            try:
                for value in values:
                    admit(orjson.dumps(value))
            except RoomTaken:
                return True
    return False


def test_objects_of_one_reconcile_are_counted_together() -> None:
    usual = {"env": [{"name": "A", "value": "x" * 100}] * 100}
    assert not needs_room([usual] * 10)
    assert needs_room([usual] * 50)


def test_event_handlers_that_a_reconcile_causes_need_no_room() -> None:
    room = LargeObjects(FakeClock())
    with room.reconcile("first", "ns"):
        admit(LARGE)
        with room.reconcile("second", "ns"):
            call_uncounted(admit, LARGE)
            with pytest.raises(RoomTaken):
                admit(LARGE)


def test_second_reconcile_with_a_large_object_is_repeated_after_the_first() -> None:
    room = LargeObjects(FakeClock())
    repeated: list[str] = []
    with room.reconcile("first", "ns"):
        admit(LARGE)
        admit(LARGE)
        with room.reconcile("usual", "ns"):
            admit(USUAL)
        with room.reconcile("second", "ns"), pytest.raises(RoomTaken):
            admit(LARGE)
        room.wait("second", "ns", lambda: repeated.append("second"))
        room.wait("second", "ns", lambda: repeated.append("second"))  # another event of it
        assert repeated == []
    assert repeated == ["second"]
    with room.reconcile("third", "ns"), pytest.raises(RoomTaken):
        admit(LARGE)  # the room is kept
    with room.reconcile("second", "ns"):
        admit(LARGE)
    with room.reconcile("third", "ns"):
        admit(LARGE)


def test_namespaces_take_turns() -> None:
    room = LargeObjects(FakeClock())
    repeated: list[str] = []

    def wait(identity: str, namespace: str) -> None:
        room.wait(identity, namespace, lambda: repeated.append(identity))

    with room.reconcile("running", "ns"):
        admit(LARGE)
        for number in range(3):
            wait(f"a{number}", "attacker")
        wait("v", "victim")
    for identity in ("a0", "v", "a1", "a2"):
        assert repeated.pop() == identity
        with room.reconcile(identity, "ns"):
            pass  # the object was deleted meanwhile
    assert repeated == []


def test_room_is_passed_on_if_it_became_free_before_the_reconcile_waits() -> None:
    room = LargeObjects(FakeClock())
    repeated: list[Any] = []
    room.wait("late", "ns", lambda: repeated.append("late"))
    assert repeated == ["late"]
    with room.reconcile("late", "ns"):
        admit(LARGE)


def test_room_is_free_after_a_failed_reconcile() -> None:
    room = LargeObjects(FakeClock())

    def fail() -> None:
        with room.reconcile("failed", "ns"):
            admit(LARGE)
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        fail()
    with room.reconcile("next", "ns"):
        admit(LARGE)


def test_slow_reconcile_keeps_the_room_from_other_namespaces_for_a_short_time() -> None:
    clock = FakeClock()
    room = LargeObjects(clock)
    repeated: list[str] = []
    with room.reconcile("slow", "attacker"):
        admit(LARGE)
        for namespace in ("attacker", "a", "b", "c"):
            room.wait(f"next of {namespace}", namespace, partial(repeated.append, namespace))
        clock.advance(HOLD_SECONDS - 0.1)
        assert repeated == []
        clock.advance(0.1)
        assert repeated == ["a"]
        clock.advance(HOLD_SECONDS)
        assert repeated == ["a", "b"]
        clock.advance(10 * HOLD_SECONDS)
        assert repeated == ["a", "b"], "more would have too many values in memory"
    clock.advance(OTHERS_SHARE * MAX_PAUSE)
    assert repeated == ["a", "b", "c"]


def test_pause_is_shorter_for_other_namespaces() -> None:
    clock = FakeClock()
    room = LargeObjects(clock)
    repeated: list[str] = []
    with room.reconcile("first", "busy"):
        admit(LARGE)
        for namespace in ("busy", "other"):
            room.wait(f"next of {namespace}", namespace, partial(repeated.append, namespace))
        clock.advance(0.1)
    clock.advance(0.1 - 0.01)
    assert repeated == []
    clock.advance(0.01)
    assert repeated == ["other"]
    with room.reconcile("next of other", "other"):
        admit(LARGE)
    assert repeated == ["other"]
    clock.advance(0.3)
    assert repeated == ["other", "busy"]


def test_room_is_passed_on_after_a_pause() -> None:
    """To decode large objects takes time, in which nothing else runs."""
    clock = FakeClock()
    room = LargeObjects(clock)
    repeated: list[str] = []
    with room.reconcile("first", "ns"):
        admit(LARGE)
        room.wait("second", "ns", lambda: repeated.append("second"))
        clock.advance(0.1)
    with room.reconcile("third", "ns"), pytest.raises(RoomTaken):
        admit(LARGE)
    with room.reconcile("usual", "ns"):
        admit(USUAL)
    clock.advance(PAUSE_SHARE * 0.1 - 0.01)
    assert repeated == []
    clock.advance(0.01)
    assert repeated == ["second"]
    with room.reconcile("second", "ns"):
        clock.advance(3600)
    clock.advance(MAX_PAUSE - 0.1)
    with room.reconcile("third", "ns"), pytest.raises(RoomTaken):
        admit(LARGE)
    clock.advance(0.1)
    with room.reconcile("third", "ns"):
        admit(LARGE)


def test_outside_of_a_reconcile_there_is_no_limit() -> None:
    room = LargeObjects(FakeClock())
    with room.reconcile("first", "ns"):
        admit(LARGE)
    admit(LARGE)
