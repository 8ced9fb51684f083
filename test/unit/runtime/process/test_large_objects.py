"""One reconcile at a time has large objects in memory; the others end, and are repeated when it is their turn."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cfo.runtime.process.large_objects import (
    MANY_VALUES,
    LargeObjects,
    RoomTaken,
    admit,
    is_large,
)

LARGE = orjson.dumps([{}] * MANY_VALUES)
USUAL = orjson.dumps({"text": "x" * 1_000_000})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{}] * MANY_VALUES, True),
        ([0] * (MANY_VALUES - 100), False),
        ({"text": "x" * 1_000_000}, False),
        ({str(number): number for number in range(MANY_VALUES)}, True),
    ],
)
def test_objects_are_large_by_the_number_of_their_values(value: object, expected: bool) -> None:
    assert is_large(orjson.dumps(value)) is expected


def test_second_reconcile_with_a_large_object_is_repeated_after_the_first() -> None:
    room = LargeObjects()
    repeated: list[str] = []
    with room.reconcile("first"):
        admit(LARGE)
        admit(LARGE)
        with room.reconcile("usual"):
            admit(USUAL)
        with room.reconcile("second"), pytest.raises(RoomTaken):
            admit(LARGE)
        room.wait("second", "ns", lambda: repeated.append("second"))
        room.wait("second", "ns", lambda: repeated.append("second"))  # another event of it
        assert repeated == []
    assert repeated == ["second"]
    with room.reconcile("third"), pytest.raises(RoomTaken):
        admit(LARGE)  # the room is kept
    with room.reconcile("second"):
        admit(LARGE)
    with room.reconcile("third"):
        admit(LARGE)


def test_namespaces_take_turns() -> None:
    room = LargeObjects()
    repeated: list[str] = []

    def wait(identity: str, namespace: str) -> None:
        room.wait(identity, namespace, lambda: repeated.append(identity))

    with room.reconcile("running"):
        admit(LARGE)
        for number in range(3):
            wait(f"a{number}", "attacker")
        wait("v", "victim")
    for identity in ("a0", "v", "a1", "a2"):
        assert repeated.pop() == identity
        with room.reconcile(identity):
            pass  # the object was deleted meanwhile
    assert repeated == []


def test_room_is_passed_on_if_it_became_free_before_the_reconcile_waits() -> None:
    room = LargeObjects()
    repeated: list[Any] = []
    room.wait("late", "ns", lambda: repeated.append("late"))
    assert repeated == ["late"]
    with room.reconcile("late"):
        admit(LARGE)


def test_room_is_free_after_a_failed_reconcile() -> None:
    room = LargeObjects()

    def fail() -> None:
        with room.reconcile("failed"):
            admit(LARGE)
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        fail()
    with room.reconcile("next"):
        admit(LARGE)


def test_outside_of_a_reconcile_there_is_no_limit() -> None:
    room = LargeObjects()
    with room.reconcile("first"):
        admit(LARGE)
    admit(LARGE)
