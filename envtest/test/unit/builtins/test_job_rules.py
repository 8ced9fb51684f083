"""Policies, indexes and status of Jobs, validated as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.builtins.job_rules import indexed_name_errors, job_policy_errors, job_status_errors

POD = {"spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}}
INDEXED = {"completionMode": "Indexed", "completions": 3}
IN_THREE = {"operator": "In", "values": [3]}


def errors(**spec: Any) -> list[str]:
    return [str(each) for each in job_policy_errors({"template": POD, **spec}, "spec")]


def failure(**rule: Any) -> dict[str, Any]:
    return {"rules": [{"action": "Ignore", **rule}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"backoffLimitPerIndex": 1},
            ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
        ),
        (
            {**INDEXED, "maxFailedIndexes": 1},
            ["spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"],
        ),
        (
            {**INDEXED, "completions": 100_001, "parallelism": 10_001, "backoffLimitPerIndex": 1},
            [
                "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
                (
                    "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are "
                    "above 100000 and used with backoff limit per index"
                ),
            ],
        ),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, []),
        (
            {"managedBy": "kueue"},
            [
                'spec.managedBy: Invalid value: "kueue": must be a domain-prefixed path (such as "acme.io/foo")'
            ],
        ),
        ({"podFailurePolicy": failure(onExitCodes={**IN_THREE, "containerName": "i"})}, []),
        ({"podFailurePolicy": failure(onExitCodes={"operator": "In", "values": [-1]})}, []),
        ({"completionMode": "Odd", "backoffLimitPerIndex": 1}, []),
        (
            {"podFailurePolicy": failure(onExitCodes={"operator": "In", "values": [2, 0, 2]})},
            [
                (
                    "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: "
                    "must not be 0 for the In operator"
                ),
                "spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 2",
                "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
            ],
        ),
        (
            {"podFailurePolicy": failure()},
            [
                (
                    "spec.podFailurePolicy.rules[0]: Invalid value: "
                    "specifying one of OnExitCodes and OnPodConditions is required"
                )
            ],
        ),
        (
            {
                "podFailurePolicy": failure(onExitCodes=IN_THREE),
                "podReplacementPolicy": "TerminatingOrFailed",
            },
            [
                'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"'
            ],
        ),
        (
            {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
            [
                (
                    'spec.successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":"0","SucceededCount":null}]}: '
                    "requires indexed completion mode"
                )
            ],
        ),
    ],
)
def test_policies(spec: dict[str, Any], expected: list[str]) -> None:
    assert errors(**spec) == expected


@pytest.mark.parametrize(
    ("indexes", "problem"),
    [
        ("0,2", ""),
        ("0-2", ""),
        ("", ""),
        ("0-1-2", 'the fragment "0-1-2" violates the requirement'),
        ("x", 'cannot convert string to integer for index: "x"'),
        ("3", 'too large index: "3"'),
        ("1,1", "non-increasing order, previous: 1, current: 1"),
        ("1-0", "non-increasing order, previous: 1, current: 0"),
    ],
)
def test_indexes_of_a_success_policy(indexes: str, problem: str) -> None:
    found = errors(**INDEXED, successPolicy={"rules": [{"succeededIndexes": indexes}]})
    assert len(found) == bool(problem)
    assert all(problem in each for each in found)


def test_success_policy_without_rules() -> None:
    assert errors(successPolicy={}) == [
        'spec.successPolicy: Invalid value: {"Rules":null}: requires indexed completion mode'
    ]


def test_success_count_is_at_most_the_number_of_indexes() -> None:
    found = errors(
        **INDEXED, successPolicy={"rules": [{"succeededIndexes": "0-1", "succeededCount": 3}]}
    )
    assert [each.partition(": ")[0] for each in found] == [
        "spec.successPolicy.rules[0].succeededCount"
    ]
    assert not errors(
        **INDEXED, successPolicy={"rules": [{"succeededIndexes": "0-1", "succeededCount": 2}]}
    )


def test_host_name_of_the_last_index_must_be_valid() -> None:
    def job(completions: int) -> dict[str, Any]:
        return {"metadata": {"name": "n" * 61}, "spec": {**INDEXED, "completions": completions}}

    assert not list(indexed_name_errors(job(10)))
    assert len(list(indexed_name_errors(job(11)))) == 1


def status_errors(old: dict[str, Any], **status: Any) -> list[str]:
    spec = {"template": POD}
    return [
        str(each)
        for each in job_status_errors(
            {"spec": spec, "status": status}, {"spec": spec, "status": old}
        )
    ]


def condition(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True"} for kind in kinds]


def test_finished_job_needs_its_times_and_the_interim_condition() -> None:
    assert status_errors({}, conditions=condition("Complete")) == [
        (
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true "
            "condition"
        ),
        "status.completionTime: Required value: completionTime is required for Complete jobs",
        "status.startTime: Required value: startTime is required for finished job",
    ]
    times = {"startTime": "2020-01-01T00:00:00Z", "completionTime": "2020-01-01T00:00:05Z"}
    assert not status_errors({}, conditions=condition("SuccessCriteriaMet", "Complete"), **times)


def test_counters_and_terminal_conditions_are_never_taken_back() -> None:
    old = {"succeeded": 2, "conditions": condition("FailureTarget")}
    assert status_errors(old, succeeded=1) == [
        "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
        "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter",
    ]


def test_errors_of_the_old_status_are_not_repeated() -> None:
    old = {"active": 0, "ready": 2}
    assert not status_errors(old, active=0, ready=2, failed=1)
    assert status_errors(old, active=0, ready=3) == [
        "status.ready: Invalid value: 3: cannot set more ready pods than active"
    ]


def test_start_time_changes_only_when_a_job_is_resumed() -> None:
    started = {"startTime": "2026-01-01T00:00:00Z"}
    suspended = [{"type": "Suspended", "status": "True"}]
    resumed = [{"type": "Suspended", "status": "False"}]
    later = "2026-01-01T00:00:01Z"
    assert (
        status_errors({**started, "conditions": suspended}, startTime=later, conditions=resumed)
        == []
    )
    for conditions in ([], resumed):
        assert status_errors(
            {**started, "conditions": conditions}, startTime=later, conditions=conditions
        ) == [
            f'status.startTime: Invalid value: "{later}": startTime cannot be updated for unsuspended job'
        ]


def test_uncounted_pods_of_a_finished_job_are_shown_as_internal_type() -> None:
    complete = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
    status = {
        "conditions": complete,
        "startTime": "2030-01-01T00:00:00Z",
        "completionTime": "2030-01-01T00:00:00Z",
        "uncountedTerminatedPods": {"succeeded": ["a"]},
    }
    (error,) = job_status_errors({"spec": {}, "status": status}, {"spec": {}, "status": {}})
    shown = '{"Succeeded":["a"],"Failed":null}'
    text = "uncountedTerminatedPods needs to be empty for finished job"
    assert str(error) == f"status.uncountedTerminatedPods: Invalid value: {shown}: {text}"
