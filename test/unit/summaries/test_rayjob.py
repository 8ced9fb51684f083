"""Summaries of RayJobs: the state of KubeRay, why one has failed, and why it does not start."""

from __future__ import annotations

import pytest

from cfo.api.appwrapper.kinds import RAY_JOB
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.runtime import Object
from cfo.summaries.summary import Level
from test.support.summary_objects import OLD, event, messages, obj, related, summarize


@pytest.mark.parametrize(
    ("spec", "status", "level"),
    [
        ({}, {"jobDeploymentStatus": "Initializing"}, Level.PROGRESSING),
        ({}, {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, Level.OK),
        ({}, {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, Level.OK),
        ({}, {"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"}, Level.FAILED),
        ({}, {"jobDeploymentStatus": "Failed"}, Level.FAILED),
        ({"suspend": True}, {}, Level.WAITING),
        ({"suspend": True}, {"jobDeploymentStatus": "Suspended"}, Level.WAITING),
        ({"suspend": True}, {"jobDeploymentStatus": 5}, Level.WAITING),
    ],
)
def test_level_follows_the_state_of_kuberay(spec: Object, status: Object, level: Level) -> None:
    summary = summarize(RAY_JOB, obj(RAY_JOB, spec=spec, status=status))
    assert summary.level is level


def test_cause_of_a_failed_rayjob_and_its_log_are_named() -> None:
    status = {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "exit code 1"}
    (problem,) = summarize(RAY_JOB, obj(RAY_JOB, status=status)).problems
    assert problem.message == "AppFailed: exit code 1"
    assert problem.remedy.endswith("kubectl logs -n n job/x")
    without_submitter = obj(RAY_JOB, spec={"submissionMode": "HTTPMode"}, status=status)
    (problem,) = summarize(RAY_JOB, without_submitter).problems
    assert "job/x" not in problem.remedy


def test_refused_raycluster_is_a_problem_of_its_rayjob() -> None:
    """It has no RayCluster, which would have a summary of its own."""
    job = obj(RAY_JOB, status={"jobDeploymentStatus": "Initializing"})
    refusal = "Failed to create RayCluster n/x-abc: enableIngress must not be true"
    found = summarize(
        RAY_JOB, job, related(events=[event("FailedToCreateRayCluster", OLD, refusal)])
    )
    assert messages(found) == [f"FailedToCreateRayCluster: {refusal}"]
    assert found.level is Level.WARNING


def test_rayjob_that_waits_names_its_queue() -> None:
    job = obj(RAY_JOB, spec={"suspend": True}, labels={QUEUE_NAME_LABEL: "lq"})
    assert dict(summarize(RAY_JOB, job).facts)["why"] == "waits for quota in the LocalQueue lq"


def test_rayjob_that_starts_names_the_raycluster_for_which_it_waits() -> None:
    status = {"jobDeploymentStatus": "Initializing", "rayClusterName": "x-abc"}
    facts = dict(summarize(RAY_JOB, obj(RAY_JOB, status=status)).facts)
    assert facts["why"].startswith("waits for RayCluster x-abc")
    running = {**status, "jobDeploymentStatus": "Running"}
    assert "why" not in dict(summarize(RAY_JOB, obj(RAY_JOB, status=running)).facts)


def test_rayjob_that_kuberay_has_not_seen_is_a_problem() -> None:
    new = obj(RAY_JOB, creationTimestamp="2026-05-31T23:00:00Z")
    (message,) = messages(summarize(RAY_JOB, new, related()))
    assert message.startswith("KubeRay has not written a state")
