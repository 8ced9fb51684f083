"""Warning events: which are problems, until when, and how they are shown."""

from __future__ import annotations

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, MINICLUSTER
from cfo.api.kueue import WORKLOADS
from cfo.api.raycluster.conditions import EXPOSED, LASTING_REASONS
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime import GVK, INGRESS, Object
from cfo.summaries.raycluster import LASTING_REMEDIES
from cfo.summaries.summary import Level
from test.support.summary_objects import (
    changed,
    cluster,
    condition,
    event,
    messages,
    obj,
    pod,
    related,
    summarize,
    waits_for,
)


@pytest.mark.parametrize(
    ("state", "reason", "last", "is_problem"),
    [
        ("", "CertificateRequestDenied", "2026-01-01T00:00:00Z", True),
        ("ready", "CertificateRequestDenied", "2026-01-01T00:00:00Z", False),
        ("ready", "CertificateRequestDenied", "2026-01-03T00:00:00Z", True),
        ("ready", "IngressDomainMissing", "2026-01-01T00:00:00Z", True),
        ("ready", "HostTooLong", "2026-01-01T00:00:00Z", True),
        ("", "RayClientNotExposed", "2026-01-01T00:00:00Z", True),
        ("ready", "RayClientNotExposed", "2026-01-03T00:00:00Z", False),
    ],
)
def test_warning_events_are_problems_until_they_are_resolved(
    state: str, reason: str, last: str, is_problem: bool
) -> None:
    ray_cluster = cluster(state)
    ray_cluster["status"]["stateTransitionTimes"] = {"ready": "2026-01-02T00:00:00Z"}
    summary = summarize(
        RAY_CLUSTER, ray_cluster, related(events=[event(reason, last)], children={INGRESS: []})
    )
    assert [warning.reason for warning in summary.warnings] == [reason]
    assert messages(summary) == ([f"{reason}: why"] if is_problem else [])


@pytest.mark.parametrize("reason", sorted(LASTING_REASONS))
@pytest.mark.parametrize("last", ["", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"])
def test_condition_shows_whether_a_lasting_warning_is_resolved(reason: str, last: str) -> None:
    events = [event(reason, last)] if last else []
    ray_cluster = cluster()
    ray_cluster["status"]["stateTransitionTimes"] = {"ready": "2026-01-02T00:00:00Z"}
    ray_cluster["status"]["conditions"] = [condition(EXPOSED, "True", reason, "why")]
    found = summarize(RAY_CLUSTER, ray_cluster, related(events=events, children={INGRESS: []}))
    assert found.level is Level.WARNING
    assert messages(found) == [f"{reason}: why"]
    assert found.problems[0].remedy == LASTING_REMEDIES[reason]

    ray_cluster["status"]["conditions"] = [condition(EXPOSED, "True", "Exposed", "Dashboard: a")]
    found = summarize(RAY_CLUSTER, ray_cluster, related(events=events, children={INGRESS: []}))
    assert found.level is Level.OK
    assert messages(found) == []


@pytest.mark.parametrize("has_condition", [False, True])
def test_missing_role_is_a_problem_also_of_a_raycluster_that_is_being_deleted(
    has_condition: bool,
) -> None:
    ray_cluster = cluster()
    ray_cluster["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    conditions = [condition(EXPOSED, "False", "OAuthUnavailable", "why")]
    if has_condition:
        conditions = [condition(EXPOSED, "False", "MissingRole", "why")]
    ray_cluster["status"]["conditions"] = conditions
    events = [event("MissingRole", "2026-06-01T00:00:00Z")]
    found = summarize(RAY_CLUSTER, ray_cluster, related(events=events, children={INGRESS: []}))
    assert messages(found).count("MissingRole: why") == 1
    assert not [message for message in messages(found) if "OAuthUnavailable" in message]


def test_each_lasting_reason_has_a_remedy() -> None:
    assert set(LASTING_REMEDIES) == LASTING_REASONS


@pytest.mark.parametrize(
    ("kind", "reason", "status", "is_problem"),
    [
        (FLUX_JOB, "NoFluxSetup", {"conditions": waits_for("WaitingForTurn")}, False),
        (FLUX_JOB, "UpdateIgnored", {"conditions": waits_for("WaitingForTurn")}, False),
        (MINICLUSTER, "InvalidSpec", {"conditions": [condition("JobRequested", "True")]}, False),
        (FLUX_JOB, "Inadmissible", {"conditions": waits_for("WaitingForKueue")}, True),
        (APPWRAPPER, "ComponentCreationErrored", {"phase": "Resuming"}, False),
        (APPWRAPPER, "NotValidated", {"phase": "Resuming"}, False),
        (APPWRAPPER, "InvalidPodSets", {"phase": "Suspended"}, True),
    ],
)
def test_conditions_show_whether_the_cause_of_a_warning_exists(
    kind: GVK, reason: str, status: Object, *, is_problem: bool
) -> None:
    events = related(events=[event(reason, "2026-01-01T00:00:00Z")])
    summary = summarize(kind, obj(kind, status=status), events)
    assert messages(summary) == ([f"{reason}: why"] if is_problem else [])


@pytest.mark.parametrize(
    ("reserved", "expected"),
    [
        (None, ["Inadmissible: why"]),  # Workloads cannot be read
        (condition("QuotaReserved", "False", "Inadmissible"), ["Inadmissible: message"]),
        (condition("QuotaReserved", "False", "Pending"), []),
    ],
)
@pytest.mark.parametrize("version", WORKLOADS)
def test_appwrapper_is_inadmissible_as_long_as_its_workload_is(
    version: GVK, reserved: Object | None, expected: list[str]
) -> None:
    wrapper = obj(APPWRAPPER, spec={"suspend": True}, status={"phase": "Suspended"})
    children = {}
    if reserved is not None:
        children[version] = [obj(version, status={"conditions": [reserved]})]
    events = [event("Inadmissible", "2026-01-01T00:00:00Z")]
    assert messages(summarize(APPWRAPPER, wrapper, related(events=events, children=children))) == (
        expected
    )


@pytest.mark.parametrize(
    ("last", "is_problem"),
    [
        ("2026-01-01T00:00:09Z", False),
        ("2026-01-01T00:00:10Z", True),
        ("2026-01-01T00:00:10.500000Z", True),
        ("", True),
    ],
)
@pytest.mark.parametrize("kind", [FLUX_JOB, MINICLUSTER, APPWRAPPER])
def test_warning_is_no_problem_once_a_condition_has_changed_after_it(
    kind: GVK, last: str, *, is_problem: bool
) -> None:
    conditions = [
        changed("QuotaReserved", "False", "WaitingForTurn", "2026-01-01T00:00:01Z"),
        changed("PodsReady", "False", "Starting", "2026-01-01T00:00:10Z"),
    ]
    events = related(events=[event("Other", last)])
    summary = summarize(kind, obj(kind, status={"conditions": conditions}), events)
    assert messages(summary) == (["Other: why"] if is_problem else [])


@pytest.mark.parametrize(
    ("created", "owner", "is_problem"),
    [
        ("2026-01-01T00:00:11Z", "x", False),
        ("2026-01-01T00:00:10Z", "x", True),
        ("2026-01-01T00:00:11Z", "other", True),
    ],
)
@pytest.mark.parametrize("kind", [FLUX_JOB, MINICLUSTER, APPWRAPPER, RAY_CLUSTER])
def test_refusal_of_pods_is_no_problem_once_one_was_created_after_it(
    kind: GVK, created: str, owner: str, *, is_problem: bool
) -> None:
    is_ray = kind is RAY_CLUSTER
    refusal = event("FailedToCreateHeadPod" if is_ray else "FailedCreate", "2026-01-01T00:00:10Z")
    controller_kind = "RayCluster" if is_ray else "Job"
    refusal["involvedObject"] = {"kind": controller_kind, "name": "x"}
    reference = {"controller": True, "kind": controller_kind, "name": owner, "uid": "u"}
    starting = pod("Pending")
    starting["metadata"].update(creationTimestamp=created, ownerReferences=[reference])
    statuses = {
        FLUX_JOB: {"miniCluster": "x", "conditions": [condition("PodsReady", "False", "Starting")]},
        APPWRAPPER: {"phase": "Resuming"},
        RAY_CLUSTER: {"state": ""},
    }
    events = "events" if is_ray else "created_events"
    objects = related(pods=[starting], **{events: [refusal]})
    summary = summarize(kind, obj(kind, status=statuses.get(kind)), objects)
    assert len([each for each in messages(summary) if "why" in each]) == is_problem


FINISHED = condition("JobFinished", "True")
SUCCESS = {"conditions": [FINISHED, condition("Succeeded", "True")], "miniCluster": "x"}
FAILURE = {"conditions": [FINISHED, condition("Succeeded", "False")], "miniCluster": "x"}


@pytest.mark.parametrize(
    ("kind", "status", "deletion", "expected"),
    [
        (FLUX_JOB, SUCCESS, "", []),
        (FLUX_JOB, FAILURE, "", ["message"]),
        (MINICLUSTER, SUCCESS, "", []),
        (MINICLUSTER, FAILURE, "", ["message"]),
        (APPWRAPPER, {"phase": "Succeeded"}, "", []),
        (APPWRAPPER, {"phase": "Succeeded"}, "2026-06-01T00:00:00Z", []),
        (APPWRAPPER, {"phase": "Failed"}, "", ["The AppWrapper has failed"]),
    ],
)
def test_refusal_of_pods_is_no_problem_of_a_finished_object(
    kind: GVK, status: Object, deletion: str, expected: list[str]
) -> None:
    refusal = event("FailedCreate", "2026-01-01T00:00:10Z")
    refusal["involvedObject"] = {"kind": "Job", "name": "x"}
    finished = obj(kind, status=status)
    if deletion:
        finished["metadata"]["deletionTimestamp"] = deletion
    summary = summarize(kind, finished, related(pods=[], created_events=[refusal]))
    assert messages(summary) == expected


def test_failed_pod_of_a_flux_job_that_has_succeeded_is_no_problem() -> None:
    """The Job has replaced it."""
    ended = {"name": "x", "state": {"terminated": {"exitCode": 3}}}
    failed = pod("Failed", containerStatuses=[ended])
    summary = summarize(FLUX_JOB, obj(FLUX_JOB, status=SUCCESS), related(pods=[failed]))
    assert (summary.level, messages(summary)) == (Level.OK, [])


def test_warning_events_are_the_newest_first_and_not_repeated() -> None:
    events = [
        event("A", "2026-01-01T00:00:00Z"),
        event("B", "2026-01-02T00:00:00Z", count=3),
        event("A", "2026-01-03"),
    ]
    warnings = summarize(RAY_CLUSTER, cluster(), related(events=events)).warnings
    assert [(each.reason, each.count) for each in warnings] == [("A", 1), ("B", 3)]


def test_the_end_of_a_long_event_is_not_lost() -> None:
    """The operator's own Events end with what to do."""
    message = f"{'cause ' * 100}set kuberay.authentication"
    events = [{**event("OAuthUnavailable", "2026-01-01T00:00:00Z"), "message": message}]
    others = related(events=events, children={INGRESS: []})
    summary = summarize(RAY_CLUSTER, cluster(), others)
    (problem,) = [each for each in summary.problems if message in each.message]
    assert "outside OpenShift also kuberay.ingressDomain" in problem.remedy


def test_an_event_that_repeats_a_condition_is_no_further_problem() -> None:
    unhealthy = condition("Unhealthy", "True", "CreateFailed", "m" * 400)
    status = {"phase": "Failed", "conditions": [unhealthy]}
    repeated = {"reason": "Unhealthy", "message": f"CreateFailed: {'m' * 400}"}
    summary = summarize(APPWRAPPER, obj(APPWRAPPER, status=status), related(events=[repeated]))
    assert len(summary.problems) == 1


@pytest.mark.parametrize("field", ["events", "created_events"])
def test_prefix_of_combined_events_is_not_shown(field: str) -> None:
    combined = event("FailedCreate", "2026-01-01T00:00:10Z")
    combined["message"] = f"(combined from similar events): {combined['message']}"
    combined["involvedObject"] = {"kind": "Job", "name": "x"}
    conditions = [condition("PodsReady", "False", "Starting")]
    found = obj(FLUX_JOB, status={"miniCluster": "x", "conditions": conditions})
    (message,) = messages(summarize(FLUX_JOB, found, related(**{field: [combined]})))
    assert message.endswith("FailedCreate: why")
    assert "combined" not in message


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ('pods "run-b65wn" is forbidden: no quota', 'pods "run-*" is forbidden: no quota'),
        ('Pod "run-0-x7r5b" is invalid: spec', 'Pod "run-0-*" is invalid: spec'),
        ('pods "run-" is forbidden: no account', 'pods "run-" is forbidden: no account'),
        ('pods "web-0" is forbidden: no quota', 'pods "web-0" is forbidden: no quota'),
    ],
)
def test_retries_of_a_refused_pod_change_no_problem(named: str, shown: str) -> None:
    refused = event("FailedCreate", "2026-01-01T00:00:10Z", f"Error creating: {named}")
    refused["involvedObject"] = {"kind": "Job", "name": "run"}
    wrapper = obj(APPWRAPPER, status={"phase": "Resuming"})
    summary = summarize(APPWRAPPER, wrapper, related(created_events=[refused]))
    assert messages(summary) == [f"Job run: FailedCreate: Error creating: {shown}"]
    ready = condition("ReplicaFailure", "True", "FailedCreatePods", named)
    failed = obj(RAY_CLUSTER, status={"state": "", "conditions": [ready]})
    assert f"KubeRay cannot create pods: {shown}" in messages(summarize(RAY_CLUSTER, failed))


def test_event_that_a_condition_repeats_with_more_detail_is_one_problem() -> None:
    status = {
        "phase": "Failed",
        "conditions": [
            condition(
                "Unhealthy", "True", "FoundFailedPods", "1 failed pods: a (exit 3); retry limit 0"
            )
        ],
    }
    wrapper = obj(APPWRAPPER, status=status)
    event = {
        "metadata": {"name": "e"},
        "type": "Warning",
        "reason": "Unhealthy",
        "message": "FoundFailedPods: 1 failed pods: a (exit 3)",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    summary = summarize(APPWRAPPER, wrapper, related(events=[event]))
    assert messages(summary) == ["FoundFailedPods: 1 failed pods: a (exit 3); retry limit 0"]
    assert len(summary.warnings) == 1
