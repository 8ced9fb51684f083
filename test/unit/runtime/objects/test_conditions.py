"""Conditions of a status: generations, transitions and the summary."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cfo.runtime.objects.conditions import Conditions, ConditionStatus, has_condition

NOW = datetime(2026, 1, 2, tzinfo=UTC)
EARLIER = "2026-01-01T00:00:00Z"


def obj(generation: int, *conditions: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"generation": generation}, "status": {"conditions": list(conditions)}}


def condition(kind: str, status: str, generation: int = 1) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "Testing",
        "message": f"is {status}",
        "observedGeneration": generation,
        "lastTransitionTime": EARLIER,
    }


def test_condition_records_the_generation_and_keeps_the_time_of_its_transition() -> None:
    before = obj(2, condition("Available", "True"))
    conditions = Conditions(before, now=NOW)
    assert conditions.set("Available", True, "Running")
    assert conditions.as_list() == [
        condition("Available", "True", 2)
        | {"reason": "Running", "message": "", "lastTransitionTime": EARLIER}
    ]
    assert not conditions.set("Available", True, "Running")
    assert conditions.set("Available", None, "NotReachable")
    assert conditions.as_list()[0]["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    assert conditions.as_list()[0]["status"] == "Unknown"
    assert before == obj(2, condition("Available", "True"))
    conditions.remove("Available")
    assert conditions.as_list() == []


def test_only_a_true_condition_is_cleared() -> None:
    conditions = Conditions(obj(1, condition("Failing", "True")), now=NOW)
    conditions.clear("Failing", "Recovered", "works again")
    conditions.clear("Absent", "Recovered")
    found = [(item["type"], item["status"], item["reason"]) for item in conditions.as_list()]
    assert found == [("Failing", "False", "Recovered")]


@pytest.mark.parametrize("reason", ["", "two words", "1st", "x" * 1025])
def test_reasons_that_api_servers_reject_are_errors(reason: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        Conditions(obj(1), now=NOW).set("Ready", True, reason)


@pytest.mark.parametrize(
    ("status", "stored"),
    [
        (True, "True"),
        (False, "False"),
        (None, "Unknown"),
        ("True", "True"),
        ("False", "False"),
        ("Unknown", "Unknown"),
    ],
)
def test_status_is_a_boolean_or_what_the_api_writes(status: ConditionStatus, stored: str) -> None:
    conditions = Conditions(obj(1), now=NOW)
    conditions.set("Available", status, "Testing")
    assert conditions.find("Available")["status"] == stored
    assert has_condition("Available", status=status)(obj(1, condition("Available", stored)))
    other = "True" if stored != "True" else "False"
    assert not has_condition("Available", status=status)(obj(1, condition("Available", other)))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("false", ValueError),
        ("maybe", ValueError),
        ("", ValueError),
        (1, TypeError),
        (["True"], TypeError),
    ],
)
def test_other_statuses_are_errors(status: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"condition Ready: status .*: must be True, False, None"):
        Conditions(obj(1), now=NOW).set("Ready", status, "Testing")
    with pytest.raises(error, match=r"condition Ready: status .*: must be True, False, None"):
        has_condition("Ready", status=status)


@pytest.mark.parametrize(
    ("stored", "status", "message"),
    [
        ([condition("A", "True"), condition("B", "True")], "True", ""),
        ([condition("A", "True"), condition("B", "False")], "False", "B: is False"),
        ([condition("A", "Unknown"), condition("B", "False")], "False", "B: is False"),
        ([condition("A", "Unknown"), condition("B", "True")], "Unknown", "A: is Unknown"),
        ([condition("B", "True")], "Unknown", "A"),
        ([condition("A", "yes"), condition("B", "True")], "Unknown", "A: is yes"),
        (
            [condition("A", "False") | {"reason": "x" * 2000}, condition("B", "True")],
            "False",
            "A: is False",
        ),
        (
            [condition("A", "False", 0), condition("B", "True")],
            "Unknown",
            "A: reported for an earlier generation",
        ),
    ],
)
def test_summary_is_the_worst_condition_of_the_current_generation(
    stored: list[dict[str, Any]], status: str, message: str
) -> None:
    conditions = Conditions(obj(1, *stored), now=NOW)
    conditions.summarize(["A", "B"])
    (ready,) = (item for item in conditions.as_list() if item["type"] == "Ready")
    assert (ready["status"], ready["message"]) == (status, message)
    assert conditions.is_true("Ready") is (status == "True")


def test_condition_of_an_earlier_generation_is_not_met() -> None:
    is_ready = has_condition("Ready")
    assert not is_ready(None)
    assert not is_ready(obj(1))
    assert not is_ready(obj(2, condition("Ready", "True", 1)))
    assert is_ready(obj(2, condition("Ready", "True", 2)))
    assert has_condition("Ready", status="False")(obj(1, condition("Ready", "False")))


@pytest.mark.parametrize(
    "status", [None, "ready", [], {"conditions": "Ready"}, {"conditions": [1, {}, {"type": 2}]}]
)
def test_status_of_any_type_has_no_conditions(status: Any) -> None:
    stored = {"metadata": {}, "status": status}
    assert Conditions(stored, now=NOW).as_list() == []
    assert not has_condition("Ready")(stored)


def test_summary_is_not_a_part_of_itself() -> None:
    with pytest.raises(ValueError, match="part of its own summary"):
        Conditions(obj(1), now=NOW).summarize(["Ready"])
