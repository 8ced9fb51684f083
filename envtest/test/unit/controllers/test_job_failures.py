"""What failed pods mean for their Job: policies, indexes and back-off."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from envtest.apimachinery.objects import Object
from envtest.controllers.job_failures import (
    Backoff,
    Verdict,
    fails_index,
    failure_count_annotations,
    policy_verdict,
    restarts_exceed_limit,
    seconds_until_retry,
)
from envtest.controllers.job_indexes import (
    contains,
    format_intervals,
    intersect,
    parse_intervals,
    pending,
    total,
    union,
)
from envtest.controllers.job_outcome import outcome

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def pod(code: int = 1, phase: str = "Failed", seconds: int = 0, **annotations: str) -> Object:
    ended = (NOW + timedelta(seconds=seconds)).isoformat()
    state = {"terminated": {"exitCode": code, "finishedAt": ended}}
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "c", "restartCount": 2, "state": state}],
        },
    }


def job(**spec: Any) -> Object:
    return {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"backoffLimit": 6, **spec}}


def policy(action: str, **rule: Any) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": [{"action": action, **rule}]}}


def codes(operator: str, *values: int, **more: str) -> dict[str, Any]:
    return {"onExitCodes": {"operator": operator, "values": list(values), **more}}


DISRUPTED: dict[str, Any] = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Verdict()),
        (
            policy("FailJob", **codes("In", 1)),
            Verdict(
                "FailJob",
                "Container c for pod ns/p failed with exit code 1 matching FailJob rule at index 0",
            ),
        ),
        (policy("FailJob", **codes("In", 2)), Verdict()),
        (policy("Ignore", **codes("NotIn", 2)), Verdict("Ignore")),
        (policy("Ignore", **codes("In", 1, containerName="other")), Verdict()),
        (policy("Count", **codes("In", 1, containerName="c")), Verdict("Count")),
        (
            policy("FailJob", **DISRUPTED),
            Verdict(
                "FailJob",
                "Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0",
            ),
        ),
    ],
)
def test_pod_failure_policy(spec: dict[str, Any], expected: Verdict) -> None:
    failed = pod()
    failed["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    assert policy_verdict(job(**spec), failed) == expected


def test_exit_code_zero_matches_no_rule() -> None:
    assert policy_verdict(job(**policy("Ignore", **codes("NotIn", 2))), pod(0)) == Verdict()


@pytest.mark.parametrize(
    ("failures", "elapsed", "expected"),
    [(0, 0, 0), (1, 0, 10), (2, 0, 20), (3, 5, 35), (7, 0, 600), (60, 0, 600), (1, 11, 0)],
)
def test_back_off_doubles_up_to_ten_minutes(failures: int, elapsed: int, expected: float) -> None:
    assert seconds_until_retry(failures, NOW, NOW + timedelta(seconds=elapsed)) == expected


def test_success_resets_the_back_off() -> None:
    before = Backoff(3, NOW)
    assert before.after([], []) == before
    assert before.after([], [pod(seconds=5)]).failures == 4
    assert before.after([pod(0, "Succeeded", seconds=5)], [pod(seconds=3)]) == Backoff()
    assert before.after([pod(0, "Succeeded", seconds=5)], [pod(seconds=9)]).failures == 1


def test_failures_of_an_index_are_counted_in_annotations() -> None:
    limited = job(backoffLimitPerIndex=1)
    assert failure_count_annotations(limited, None) == {COUNT: "0"}
    assert failure_count_annotations(limited, pod(**{COUNT: "1"})) == {COUNT: "2"}
    ignoring = job(backoffLimitPerIndex=1, **policy("Ignore", **codes("In", 1)))
    assert failure_count_annotations(ignoring, pod(**{COUNT: "1"})) == {COUNT: "1", IGNORED: "1"}
    assert failure_count_annotations(limited, pod(**{COUNT: "99999999999999999999"})) == {
        COUNT: "1"
    }


@pytest.mark.parametrize(
    ("spec", "count", "expected"),
    [
        ({}, "0", False),
        ({}, "1", True),
        (policy("Ignore", **codes("In", 1)), "5", False),
        (policy("FailIndex", **codes("In", 1)), "0", True),
    ],
)
def test_index_fails(spec: dict[str, Any], count: str, expected: bool) -> None:
    assert fails_index(job(backoffLimitPerIndex=1, **spec), pod(**{COUNT: count})) is expected


def test_restarts_count_only_with_restart_policy_on_failure() -> None:
    running = [pod(phase="Running"), pod(phase="Running")]
    never = job(backoffLimit=4, template={"spec": {"restartPolicy": "Never"}})
    on_failure = job(backoffLimit=4, template={"spec": {"restartPolicy": "OnFailure"}})
    assert not restarts_exceed_limit(never, running)
    assert restarts_exceed_limit(on_failure, running)
    assert not restarts_exceed_limit(on_failure, running[:1])


@pytest.mark.parametrize(
    ("text", "completions", "expected"),
    [
        ("", 5, ()),
        ("0,2-4,7", 9, ((0, 0), (2, 4), (7, 7))),
        ("0-1,2", 9, ((0, 2),)),
        ("1-9,12", 4, ((1, 3),)),
        ("x,1,3-y", 9, ((1, 1),)),
    ],
)
def test_intervals_are_parsed(text: str, completions: int, expected: Any) -> None:
    assert parse_intervals(text, completions) == expected


def test_intervals_are_formatted() -> None:
    assert format_intervals(union((), [0, 2, 3, 4, 7, 8])) == "0,2-4,7,8"


def test_interval_operations() -> None:
    done = ((0, 2), (5, 6))
    assert union(done, [3, 9], ((4, 4),)) == ((0, 6), (9, 9))
    assert intersect(done, ((2, 5), (6, 9))) == ((2, 2), (5, 5), (6, 6))
    assert total(done) == 5
    assert [index for index in range(8) if contains(done, index)] == [0, 1, 2, 5, 6]


@pytest.mark.parametrize(
    ("done", "count", "completions", "expected"),
    [
        ((), 2, 5, [0, 1]),
        (((0, 2), (4, 4)), 3, 8, [3, 5, 6]),
        (((0, 4),), 3, 5, []),
        (((1, 1),), 9, 3, [0, 2]),
        (((0, 9_999_998),), 2, 10_000_000, [9_999_999]),
    ],
)
def test_pending_indexes(done: Any, count: int, completions: int, expected: list[int]) -> None:
    assert pending(done, count, completions) == expected


@pytest.mark.parametrize(
    ("spec", "status", "failures", "reason"),
    [
        ({}, {}, 6, None),
        ({}, {}, 7, "BackoffLimitExceeded"),
        ({"activeDeadlineSeconds": 60}, {"startTime": "2025-12-31T23:59:01Z"}, 0, None),
        (
            {"activeDeadlineSeconds": 60},
            {"startTime": "2025-12-31T23:59:00Z"},
            0,
            "DeadlineExceeded",
        ),
        (
            {"activeDeadlineSeconds": 60, "suspend": True},
            {"startTime": "2025-12-31T23:59:00Z"},
            0,
            None,
        ),
    ],
)
def test_outcome_of_a_job(
    spec: dict[str, Any], status: Object, failures: int, reason: str | None
) -> None:
    found = outcome({**job(**spec), "status": status}, [], failures, (), None, NOW)
    assert (found and found.reason) == reason


@pytest.mark.parametrize(
    ("spec", "succeeded", "failed", "reason"),
    [
        ({}, "0-3", "", None),
        ({"backoffLimitPerIndex": 0}, "0-3", "4", "FailedIndexes"),
        ({"backoffLimitPerIndex": 0}, "0-2", "4", None),
        ({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}, "", "3,4", "MaxFailedIndexesExceeded"),
        ({"successPolicy": {"rules": [{"succeededIndexes": "0,2"}]}}, "0-1", "", None),
        ({"successPolicy": {"rules": [{"succeededIndexes": "0,2"}]}}, "0-2", "", "SuccessPolicy"),
        (
            {"successPolicy": {"rules": [{"succeededIndexes": "0-4", "succeededCount": 2}]}},
            "3-4",
            "",
            "SuccessPolicy",
        ),
        ({"successPolicy": {"rules": [{"succeededCount": 3}]}}, "3-4", "", None),
    ],
)
def test_outcome_of_an_indexed_job(
    spec: dict[str, Any], succeeded: str, failed: str, reason: str | None
) -> None:
    indexed = job(completionMode="Indexed", completions=5, **spec)
    found = outcome(indexed, [], 0, parse_intervals(succeeded, 5), parse_intervals(failed, 5), NOW)
    assert (found and found.reason) == reason
