"""The summary of a RayJob, which only KubeRay reconciles: its state, and why its RayCluster does not exist.

States: ``JobDeploymentStatus`` and ``JobStatus`` in ``rayjob_types.go`` of KubeRay 1.7. Its submitter, a Job that some
modes have, has the name of the RayJob.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from cfo.api.appwrapper.kinds import RAY_JOB
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.reading import MAX_MESSAGE, path, text
from cfo.runtime import JOB, Object, is_deleting, labels_of, name_of
from cfo.summaries.kind_view import (
    KindView,
    Related,
    Section,
    labelled_queue,
    new_summary,
    warnings_of,
)
from cfo.summaries.problems import DESCRIBE, created_problems, warning_problems
from cfo.summaries.summary import Level, Problem, Summary

_FAILED_STATES: Final = ("Failed", "ValidationFailed")
_FAILED_JOBS: Final = ("FAILED", "STOPPED")

_READ_LOG: Final = (
    "read the log of the entrypoint, which the submitter has: kubectl logs -n NAMESPACE job/RAYJOB"
)
_REMEDIES: Final = {
    "DeadlineExceeded": "set a longer activeDeadlineSeconds, or find out what takes long",
    "ValidationFailed": "correct the RayJob, and create it again",
}
"""What to do about the reasons in the status."""


def _summarize(job: Object, related: Related) -> Summary:
    """Return the summary of a RayJob."""
    state = text(path(job, "status", "jobDeploymentStatus"), 40)
    level = _level(job, state)
    return new_summary(
        job,
        related,
        state,
        level,
        _problems(job, related, level),
        _facts(job, level),
        pending=f"is {state or 'new'}" if level is Level.PROGRESSING else "",
    )


def _level(job: Object, state: str) -> Level:
    if is_deleting(job):
        return Level.PROGRESSING
    status = text(path(job, "status", "jobStatus"), 40)
    if state in _FAILED_STATES or (state == "Complete" and status in _FAILED_JOBS):
        return Level.FAILED
    if state == "Complete":
        return Level.OK
    if state == "Suspended" or path(job, "spec", "suspend") is True:
        return Level.WAITING
    return Level.OK if state == "Running" else Level.PROGRESSING


def _problems(job: Object, related: Related, level: Level) -> Iterator[Problem]:
    if level is Level.FAILED:
        yield _failure(job)
    if level is not Level.PROGRESSING:
        return  # no condition says whether the cause of an Event still exists
    found = list(warning_problems(warnings_of(related.events), {}))
    yield from found
    yield from created_problems(related.created_events, related.pods, shown=found)


def _failure(job: Object) -> Problem:
    """Return why a RayJob has failed, as KubeRay says it."""
    reason = text(path(job, "status", "reason"), 80)
    message = text(path(job, "status", "message"), MAX_MESSAGE)
    remedy = _REMEDIES.get(reason, DESCRIBE)
    if reason == "AppFailed" and _has_submitter(job):
        remedy = _READ_LOG.replace("RAYJOB", shlex.quote(name_of(job)))
    return Problem(": ".join(filter(None, (reason, message))) or "The RayJob has failed", remedy)


def _facts(job: Object, level: Level) -> Iterator[tuple[str, str]]:
    queue = text(labels_of(job).get(QUEUE_NAME_LABEL), 63)
    if level is Level.WAITING:
        waits_for = f"waits for quota in the LocalQueue {queue}" if queue else ""
        yield "why", waits_for or "spec.suspend is true"
    cluster = text(path(job, "status", "rayClusterName"), 253)
    if level is Level.PROGRESSING and cluster and not is_deleting(job):
        yield "why", f"waits for RayCluster {cluster}, which has a state of its own"
    yield "job", text(path(job, "status", "jobStatus"), 40)
    yield "cluster", cluster
    yield "queue", queue
    yield "managed by", text(path(job, "spec", "managedBy"), 80)


def _submitter(job: Object) -> Sequence[tuple[str, str, str]]:
    """Return kind, name and uid of the Job that submits the entrypoint; the RayCluster has a summary of its own."""
    return ((JOB.kind, name_of(job), ""),) if _has_submitter(job) else ()


def _has_submitter(job: Object) -> bool:
    """Return whether a Job submits the entrypoint; in other modes, KubeRay or the head does."""
    return path(job, "spec", "submissionMode") in (None, "", "K8sJobMode")


VIEWS: Final = (
    KindView(
        gvk=RAY_JOB,
        operator="KubeRay",
        summarize=_summarize,
        created=_submitter,
        queue=labelled_queue,
        is_in_operator=False,
        section=Section(
            id="rayjobs",
            kind=RAY_JOB.kind,
            type="table",
            position=2,
            title="RayJobs",
            empty="",
            facts=(("Job", "job"), ("RayCluster", "cluster")),
            optional=True,
        ),
    ),
)
