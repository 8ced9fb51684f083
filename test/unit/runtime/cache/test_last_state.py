"""The lines that a timeout of a wait shows."""

from __future__ import annotations

from cfo.runtime.cache.last_state import MAX_SHOWN, last_state
from cfo.runtime.objects.unstructured import Object


def event(number: int, message: str = "no quota") -> Object:
    return {
        "involvedObject": {"kind": "ReplicaSet", "name": f"web-{number}"},
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": f"2026-01-01T00:00:{number:02d}Z",
    }


def test_state_has_conditions_pods_and_the_newest_events() -> None:
    obj = {
        "metadata": {"generation": 2, "deletionTimestamp": "now", "finalizers": ["a/b"]},
        "status": {
            "observedGeneration": 1,
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "NoPods", "message": "0 of 2"}
            ],
        },
    }
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Full", "message": "no node"}
    pod = {
        "metadata": {"name": "web-0"},
        "status": {
            "phase": "Pending",
            "conditions": [scheduled],
            "containerStatuses": [{"name": "c", "state": {"waiting": waiting}}],
        },
    }
    warnings = [event(number) for number in range(20)]
    lines = last_state(obj, [pod], warnings).splitlines()
    assert lines[:5] == [
        "",
        "  being deleted, finalizers: ['a/b']",
        "  generation 2, of which 1 was observed",
        "  Ready: False (NoPods) 0 of 2",
        "  Pod web-0: Pending; Full: no node; container c waits: ImagePullBackOff not found",
    ]
    assert lines[5:] == [
        f"  Warning of ReplicaSet web-{number}: FailedCreate: no quota" for number in range(15, 20)
    ]


def test_state_of_an_object_without_conditions_is_its_status() -> None:
    assert last_state(None) == "\n  the object does not exist"
    obj = {"metadata": {}, "status": {"phase": "New"}}
    assert last_state(obj) == '\n  status without conditions: {"phase":"New"}'


def test_lines_are_few_short_and_printable() -> None:
    hostile = "\x1b[2J\u202e\n" + "x" * 100_000
    conditions = [{"type": hostile, "status": hostile, "message": hostile}] * 1000
    pods: list[Object] = [{"metadata": {"name": hostile}, "status": {"phase": hostile}}] * 1000
    warnings = [event(number, hostile) for number in range(1000)]
    state = last_state({"status": {"conditions": conditions}}, pods, warnings)
    lines = state.splitlines()
    assert len(lines) == 1 + 20 + 2 * MAX_SHOWN
    assert all(len(line) <= 302 and line.isprintable() for line in lines)


def test_fields_of_other_types_are_left_out() -> None:
    strange: list[Object] = [{"status": 1, "metadata": []}]
    assert "Pod None" in last_state({"status": {"conditions": "x"}}, strange)
