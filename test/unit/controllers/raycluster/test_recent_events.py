"""Events about RayClusters are not repeated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from cfo.controllers.raycluster.recent_events import RecentEvents
from cfo.runtime import EventRecorder
from test.support.clocks import FakeClock

CLUSTER = {"metadata": {"name": "rc", "namespace": "ns", "uid": "1"}}


def test_repeated_event_is_recorded_once_a_minute() -> None:
    recorded: list[tuple[str, str]] = []
    recorder = SimpleNamespace(
        event=lambda obj, _, reason, __: recorded.append((obj["metadata"]["uid"], reason))
    )
    clock = FakeClock()
    events = RecentEvents(cast("EventRecorder", recorder), clock)
    other = {"metadata": {"uid": "2"}}
    for seconds, obj, reason in (
        (0, CLUSTER, "A"),
        (1, CLUSTER, "A"),
        (1, CLUSTER, "A"),
        (1, other, "A"),
    ):
        clock.advance(seconds)
        events.event(obj, "Warning", reason, "message")
    assert recorded == [("1", "A"), ("2", "A")]
    clock.advance(57)
    events.event(CLUSTER, "Warning", "A", "message")
    events.event(other, "Warning", "A", "message")
    assert recorded == [("1", "A"), ("2", "A"), ("1", "A")]


def test_event_about_a_host_is_recorded_once_in_ten_minutes() -> None:
    recorded: list[str] = []
    recorder = SimpleNamespace(event=lambda _, __, ___, message: recorded.append(message))
    clock = FakeClock()
    events = RecentEvents(cast("EventRecorder", recorder), clock)
    for number in range(60):
        for host in ("a.test", "b.test"):
            events.event(CLUSTER, "Warning", "HostShared", f"{host} is used by {number}", host)
        clock.advance(10)
    assert recorded == ["a.test is used by 0", "b.test is used by 0"]
    events.event(CLUSTER, "Warning", "HostShared", "a.test is used by 60", "a.test")
    assert recorded[2:] == ["a.test is used by 60"]


def test_number_of_remembered_events_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecentEvents, "_LIMIT", 1)
    recorded: list[str] = []
    recorder = SimpleNamespace(event=lambda _, __, reason, ___: recorded.append(reason))
    events = RecentEvents(cast("EventRecorder", recorder), FakeClock())
    for reason in "ABA":
        events.event(CLUSTER, "Warning", reason, "message")
    assert recorded == ["A", "B", "A"]
