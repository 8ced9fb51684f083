"""One reconcile at a time has large objects in memory, and those with usual ones do not wait."""

from __future__ import annotations

import anyio
import orjson
import pytest

from cfo.runtime.process.large_objects import MANY_VALUES, LargeObjects, admit, is_large
from test.support.scheduling import run_until_idle

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


async def test_one_reconcile_at_a_time_has_large_objects() -> None:
    room = LargeObjects()
    running: list[str] = []
    ends = {name: anyio.Event() for name in ("first", "second", "usual")}

    async def reconcile(name: str, encoded: bytes) -> None:
        with room.reconcile():
            async with anyio.create_task_group() as tasks:
                for _ in range(2):  # two tasks of a reconcile have it together
                    tasks.start_soon(admit, encoded)
            await admit(encoded)
            running.append(name)
            await ends[name].wait()
        running.remove(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reconcile, "first", LARGE)
        await run_until_idle()
        tasks.start_soon(reconcile, "second", LARGE)
        tasks.start_soon(reconcile, "usual", USUAL)
        await run_until_idle()
        assert running == ["first", "usual"]
        ends["first"].set()
        await run_until_idle()
        assert running == ["usual", "second"]
        ends["second"].set()
        ends["usual"].set()
    assert running == []


async def test_room_is_free_after_a_failed_or_cancelled_reconcile() -> None:
    room = LargeObjects()

    async def fail() -> None:
        with room.reconcile():
            await admit(LARGE)
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        await fail()
    with room.reconcile():
        await admit(LARGE)
        with anyio.CancelScope() as scope:
            scope.cancel()
            with room.reconcile():
                await admit(LARGE)
    with room.reconcile():
        await admit(LARGE)


async def test_outside_of_a_reconcile_no_object_waits() -> None:
    with LargeObjects().reconcile():
        await admit(LARGE)
    await admit(LARGE)
    await admit(LARGE)
