"""When a child that another client overwrites is reported, and how long its correction is delayed."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from cfo.runtime import SERVICE, NamespacedName
from cfo.runtime.client.name_checks import WantedName
from cfo.runtime.client.overwrites import MAX_CORRECTION_DELAY, OVERWRITE_WINDOW, Overwrites
from test.support.clocks import FakeClock

DESIRED = {"spec": {"type": "ClusterIP"}}


def service(owner_uid: str) -> WantedName:
    return WantedName(owner_uid, SERVICE, NamespacedName("ns", "a"))


def test_third_write_of_the_same_content_within_a_minute_is_reported_once_a_minute() -> None:
    clock = FakeClock()
    overwrites = Overwrites(clock=clock)
    counted: list[str] = []
    overwrites.count = counted.append
    reported = []
    for _ in range(14):
        reported.append(overwrites.wrote(service("u"), DESIRED))
        clock.advance(10)
    assert [index for index, is_reported in enumerate(reported) if is_reported] == [2, 8]
    assert counted == ["Service", "Service"]


def test_rare_overwrites_and_own_changes_are_not_reported() -> None:
    clock = FakeClock()
    overwrites = Overwrites(clock=clock)
    for port in range(10):
        assert not overwrites.wrote(service("u"), {"port": port}), "the operator's own change"
        assert not overwrites.wrote(service(f"{port}"), {"port": 0}), "another object"
    for _ in range(5):
        assert not overwrites.wrote(service("v"), {"port": 0})
        assert not overwrites.wrote(service("v"), {"port": 0})
        assert not overwrites.delay(service("v"), {"port": 0})
        clock.advance(OVERWRITE_WINDOW + 1)


def test_each_correction_is_delayed_twice_as_long_as_the_one_before() -> None:
    clock = FakeClock()
    overwrites = Overwrites(clock=clock)
    delays = []
    for _ in range(10):
        overwrites.wrote(service("u"), DESIRED)
        delay = overwrites.delay(service("u"), DESIRED)
        delays.append(delay)
        clock.advance(delay)
        assert not overwrites.delay(service("u"), DESIRED)
    assert delays == [0, 0, 1, 2, 4, 8, 16, *3 * [MAX_CORRECTION_DELAY]]


def test_time_that_has_passed_since_the_last_correction_counts() -> None:
    clock = FakeClock()
    overwrites = Overwrites(clock=clock)
    for _ in range(4):
        overwrites.wrote(service("u"), DESIRED)
    assert overwrites.delay(service("u"), DESIRED) == 2
    clock.advance(1.5)
    assert overwrites.delay(service("u"), DESIRED) == pytest.approx(0.5)


def test_other_content_and_other_children_are_not_delayed() -> None:
    overwrites = Overwrites(clock=FakeClock())
    for _ in range(4):
        overwrites.wrote(service("u"), DESIRED)
    assert overwrites.delay(service("u"), DESIRED)
    assert not overwrites.delay(service("u"), {"spec": {"type": "NodePort"}})
    assert not overwrites.delay(service("v"), DESIRED)


def test_child_that_is_not_overwritten_for_a_minute_is_forgotten() -> None:
    clock = FakeClock()
    overwrites = Overwrites(clock=clock)
    for _ in range(20):
        overwrites.wrote(service("u"), DESIRED)
    clock.advance(OVERWRITE_WINDOW + 1)
    overwrites.wrote(service("v"), DESIRED)
    assert len(overwrites) == 1
    overwrites.wrote(service("u"), DESIRED)
    assert not overwrites.delay(service("u"), DESIRED)


def test_objects_and_lines_of_the_log_are_limited() -> None:
    overwrites = Overwrites(size=3, clock=FakeClock())
    with capture_logs() as logged:
        for uid in range(10):
            reports = [overwrites.wrote(service(str(uid)), {"port": 0}) for _ in range(3)]
            assert reports == [False, False, True]
    assert len(overwrites) == 3
    assert [line["object"] for line in logged] == ["ns/a"]


def test_content_that_is_nested_too_deeply_is_not_recorded() -> None:
    nested: dict[str, object] = {}
    for _ in range(300):
        nested = {"a": nested}
    overwrites = Overwrites(clock=FakeClock())
    for _ in range(5):
        assert not overwrites.wrote(service("u"), nested)
    assert not overwrites.delay(service("u"), nested)
