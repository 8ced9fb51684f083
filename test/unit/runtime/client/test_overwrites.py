"""When a child that another client overwrites is reported."""

from __future__ import annotations

from structlog.testing import capture_logs

from cfo.runtime import Object
from cfo.runtime.client.overwrites import OVERWRITE_WINDOW, Overwrites
from test.support.clocks import FakeClock


def service(uid: str) -> Object:
    metadata = {"namespace": "ns", "name": "a", "uid": uid}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata}


def test_third_write_of_the_same_content_within_a_minute_is_reported_once_a_minute() -> None:
    clock = FakeClock()
    overwrites = Overwrites(clock=clock)
    counted: list[str] = []
    overwrites.count = counted.append
    desired = {"spec": {"type": "ClusterIP"}}
    reported = []
    for _ in range(14):
        reported.append(overwrites.wrote(service("u"), desired))
        clock.advance(10)
    assert [index for index, is_reported in enumerate(reported) if is_reported] == [2, 9]
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
        clock.advance(OVERWRITE_WINDOW + 1)


def test_objects_and_lines_of_the_log_are_limited() -> None:
    overwrites = Overwrites(size=3, clock=FakeClock())
    with capture_logs() as logged:
        for uid in range(10):
            reports = [overwrites.wrote(service(str(uid)), {"port": 0}) for _ in range(3)]
            assert reports == [False, False, True]
    assert len(overwrites) == 3
    assert [line["object"] for line in logged] == ["ns/a"]
