"""Detection of hot loops and of writes without a reason."""

from __future__ import annotations

from envtest.chaos.activity import LIMIT, Sent, hot_loops, writes_at_rest
from envtest.chaos.points import Target

PATCH = Target("patch", "widgets.example.com/status", "default", "a")
LIST = Target("list", "pods", "default")
WATCH = Target("watch", "pods", "default")


def patches(count: int, seconds: float, *, changed: bool = True) -> list[Sent]:
    return [
        Sent(number * seconds / count, PATCH, 200, changed, uri="/widgets/a")
        for number in range(count)
    ]


def test_repeated_write_is_a_hot_loop() -> None:
    (loop,) = hot_loops(patches(LIMIT, 1.0, changed=False))
    assert (loop.target, loop.count, loop.unchanged) == (PATCH, LIMIT, LIMIT)
    assert str(loop) == "20 times in 2 s, 20 of them without a change"


def test_slow_repetition_is_no_loop() -> None:
    assert hot_loops(patches(LIMIT * 3, 60.0)) == []


def test_writes_to_different_objects_are_no_loop() -> None:
    requests = [Sent(0.0, PATCH, 200, uri=f"/widgets/{number}") for number in range(100)]
    assert hot_loops(requests) == []


def test_created_objects_are_no_loop_but_failing_creates_are() -> None:
    create = Target("create", "pods", "default")
    assert hot_loops([Sent(0.0, create, 201, changed=True, uri="/pods")] * 100) == []
    assert len(hot_loops([Sent(0.0, create, 409, uri="/pods")] * 100)) == 1


def test_watches_that_restart_at_other_revisions_are_a_loop() -> None:
    requests = [
        Sent(
            number / 50,
            WATCH,
            200,
            is_write=False,
            uri=f"/pods?resourceVersion={number}&watch=true",
        )
        for number in range(LIMIT)
    ]
    assert [loop.target for loop in hot_loops(requests)] == [WATCH]


def test_lists_with_other_selectors_are_no_loop() -> None:
    requests = [
        Sent(0.0, LIST, 200, is_write=False, uri=f"/pods?labelSelector=a%3D{number}")
        for number in range(50)
    ]
    assert hot_loops(requests) == []


def test_worst_loop_is_first_and_each_request_is_named_once() -> None:
    many = [Sent(each.at, LIST, 200, is_write=False, uri="/pods") for each in patches(60, 1.0)]
    assert [loop.target for loop in hot_loops([*patches(30, 1.0), *many])] == [LIST, PATCH]


def test_writes_at_rest_are_counted_from_a_moment_on() -> None:
    requests = [*patches(4, 4.0, changed=False), Sent(3.0, LIST, 200, is_write=False)]
    assert writes_at_rest(requests, 2.0) == [f"{PATCH}: 2 writes, 2 without a change"]
    assert writes_at_rest(requests, 10.0) == []
