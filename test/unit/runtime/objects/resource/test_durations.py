"""Durations in typed resources: Go durations on the wire, timedeltas in Python."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from pydantic import Field

from cfo.runtime import APIModel, CustomResource, Duration, NamespacedName
from cfo.runtime.objects import InvalidResource


class TimerSpec(APIModel):
    """Has a required, an optional and several durations."""

    interval: Duration
    timeout: Duration | None = None
    retries: list[Duration] = Field(default_factory=list)


class Timer(CustomResource, group="example.com", version="v1"):
    """A kind with durations."""

    spec: TimerSpec


def timer(**spec: Any) -> Timer:
    return Timer.decode(
        {
            "apiVersion": "example.com/v1",
            "kind": "Timer",
            "metadata": {"name": "tea", "namespace": "default"},
            "spec": spec,
        }
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("-5m", timedelta(minutes=-5)),
        ("0", timedelta(0)),
    ],
)
def test_go_duration_is_read_as_a_timedelta(text: str, expected: timedelta) -> None:
    assert timer(interval=text).spec.interval == expected


@pytest.mark.parametrize(
    "value",
    ["PT30S", "2 weeks", "30", "", " 5s", "5d", "1" * 100 + "s", 30, 1.5, True, None, ["5s"]],
)
def test_other_value_is_rejected_with_its_field(value: object) -> None:
    with pytest.raises(
        InvalidResource, match=r"spec\.interval: .*: must be a duration such as 30s or 1h30m"
    ):
        timer(interval=value)


def test_unchanged_duration_is_written_as_it_was_read() -> None:
    spec = {"interval": "90s", "timeout": "60m", "retries": ["100ns", "0"]}
    assert timer(**spec).to_object()["spec"] == spec
    assert deepcopy(timer(**spec)).to_object()["spec"] == spec


def test_changed_duration_is_written_as_a_go_duration() -> None:
    tea = timer(interval="90s")
    tea.spec.interval *= 2
    tea.spec.timeout = timedelta(days=2, milliseconds=500)
    tea.spec.retries.append(timedelta(seconds=-1))
    assert tea.to_object()["spec"] == {
        "interval": "3m",
        "timeout": "48h0.5s",
        "retries": ["-1s"],
    }


def test_duration_is_shown_as_a_timedelta() -> None:
    assert repr(timer(interval="90s").spec.interval) == "datetime.timedelta(seconds=90)"


def test_status_of_another_class_is_rejected_with_its_field() -> None:
    with pytest.raises(
        InvalidResource, match=r"spec: Invalid value: .*interval.*: Input should be"
    ):
        Timer.intent(NamespacedName("default", "tea"), spec=timer(interval="90s"))


def test_intent_has_go_durations() -> None:
    spec = TimerSpec(interval=timedelta(seconds=30))
    intent = Timer.intent(NamespacedName("default", "tea"), spec=spec)
    assert intent["spec"] == {"interval": "30s"}


def test_duration_that_go_cannot_represent_is_rejected() -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        TimerSpec(interval=timedelta(days=200_000))
