"""The status of a MiniCluster: a pure function of its Job, its lead broker and what could be created.

The conditions begin with the five of the Go operator, in its order, with reason equal to type. As in the Go operator a
new cluster is *Requested* and then *Ready*. Beyond that:

* it is *WaitingForResources* while its objects exist and its Job is suspended;
* it is *Running*, in addition to Ready, from when enough brokers were ready until it is suspended or ends;
* it is *Finished*, and nothing else of these, when its Job has ended.

Further conditions follow: ``ObjectsReady``; ``Succeeded`` once it has ended; ``Valid``, ``UpToDate`` and
``PodsReady`` if they are, or were, false; ``CommandFailed`` if the last run of the command failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cfo.api.flux.facts import is_true, message_of, needed_brokers, queue_of
from cfo.api.flux.names import (
    COMMAND_FAILED,
    FLUX_JOB,
    NOTHING_RESUMES,
    OBJECTS_READY,
    PODS_READY,
    RESUME_REMEDY,
    STATES,
    SUCCEEDED,
    UP_TO_DATE,
    VALID,
    JobState,
)
from cfo.controllers.flux.minicluster.job_changes import end_condition, is_suspended
from cfo.controllers.flux.minicluster.lead import LeadPod
from cfo.controllers.flux.minicluster.plan import wanted_suspend
from cfo.controllers.pod_status import ERROR, PodFailure, is_same_failure
from cfo.runtime import (
    EventType,
    Object,
    controller_of,
    find_condition,
    name_of,
    rfc3339,
    set_condition,
    uid_of,
)
from cfo.runtime.objects import copied

ADDED_STATUS: Final = frozenset(
    {"completionTime", "exitCode", "observedGeneration", "ready", "startTime"}
)
"""Fields of the status that the CRD of the Go operator does not have."""

_MESSAGE_LIMIT: Final = 4096


@dataclass(frozen=True, slots=True)
class Observed:
    """What a reconcile found out about a MiniCluster.

    ``error`` is the validation message, or empty. ``problem`` is a reason and a message if an object could not be
    created. ``outdated`` says what in the spec cannot be followed, or is empty. ``failure`` is why a pod cannot start.
    """

    job: Object | None = None
    lead: LeadPod | None = None
    maximum: int = 0
    error: str = ""
    problem: tuple[str, str] | None = None
    outdated: str = ""
    failure: PodFailure | None = None

    @property
    def problem_message(self) -> str:
        """The message of the problem; empty if there is none."""
        return self.problem[1] if self.problem is not None else ""

    @property
    def objects_ready(self) -> bool:
        """Whether all objects exist."""
        return self.job is not None and self.problem is None


def is_finished(cluster: Mapping[str, Any]) -> bool:
    """Return whether the status says that the cluster has ended; it then never runs again."""
    return is_true(cluster, JobState.FINISHED)


def desired_status(cluster: Object, observed: Observed, now: datetime) -> Object:
    """Return the status of ``cluster``; times of conditions are kept if their status does not change."""
    before = cluster.get("status") or {}
    job = observed.job
    job_status = (job or {}).get("status") or {}
    generation = (cluster.get("metadata") or {}).get("generation") or 0
    states = _states(cluster, observed)
    conditions = _conditions_to_change(before)

    def set_state(kind: str, status: bool, reason: str, message: str) -> None:
        condition: Object = {
            "type": str(kind),
            "status": str(status),
            "reason": str(reason),
            "message": message[:_MESSAGE_LIMIT],
        }
        if kind == OBJECTS_READY:
            condition["observedGeneration"] = generation
        set_condition(conditions, condition, now=rfc3339(now))

    for state in STATES:
        set_state(state, state in states, state, states.get(state) or state)
    if observed.objects_ready:
        set_state(OBJECTS_READY, True, "Created", "All objects of the MiniCluster exist.")
    elif JobState.FINISHED not in states:
        reason, message = _missing_objects(observed)
        set_state(OBJECTS_READY, False, reason, message)
    if observed.error:
        set_state(VALID, False, "Invalid", observed.error)
    elif find_condition(conditions, VALID) is not None:
        set_state(VALID, True, VALID, "The spec is valid.")
    if observed.outdated:
        set_state(UP_TO_DATE, False, "Started", observed.outdated)
    elif find_condition(conditions, UP_TO_DATE) is not None:
        set_state(UP_TO_DATE, True, UP_TO_DATE, "The spec is in effect.")
    pods_ready = find_condition(conditions, PODS_READY)
    if observed.failure is not None:
        failure = _reported_failure(pods_ready or {}, observed.failure)
        set_state(PODS_READY, False, failure.reason, failure.message)
    elif pods_ready is not None:
        set_state(PODS_READY, True, "Started", "No pod reports a problem.")
    end = end_condition(job)
    exit_code = _exit_code(before, observed)
    lead = observed.lead
    if lead is not None and lead.has_failed and not _is_complete(job):
        set_state(COMMAND_FAILED, True, lead.reason, _failed_command(lead))
    elif not exit_code or (lead is not None and lead.exit_code is not None):
        conditions = [item for item in conditions if item["type"] != COMMAND_FAILED]
    if end is not None:
        failed_command = find_condition(conditions, COMMAND_FAILED) or {}
        succeeded, reason, message = _outcome(end, exit_code, failed_command)
        set_state(SUCCEEDED, succeeded, reason, message)
    elif job is not None:
        conditions = [item for item in conditions if item["type"] != SUCCEEDED]
    parallelism = (job or {}).get("spec", {}).get("parallelism")
    status: Object = {
        "jobid": f"{name_of(cluster)}-{uid_of(cluster)}",
        "size": int(parallelism or 0) if job else before.get("size") or 0,
        "maximumSize": observed.maximum or before.get("maximumSize") or 0,
        "selector": f"hpa-selector={name_of(cluster)}",
        "ready": int(job_status.get("ready") or 0),
        "observedGeneration": generation,
        "conditions": conditions,
        **_times(before, job, end),
    }
    if exit_code is not None:
        status["exitCode"] = exit_code
    return status


def _conditions_to_change(before: Mapping[str, Any]) -> list[Object]:
    """Return a copy of the conditions of a status: first one of each state, then the others."""
    stored = before.get("conditions") or ()
    conditions: list[Object] = []
    for state in STATES:
        known = find_condition(stored, state) or {"type": str(state), "status": ""}
        conditions.append(copied(dict(known)))
    others = [condition for condition in stored if condition.get("type") not in STATES]
    return conditions + copied(others)


def _reported_failure(before: Mapping[str, Any], failure: PodFailure) -> PodFailure:
    """Return the failure to report: the one in the condition ``before``, if only the attempt is another one."""
    known = PodFailure(str(before.get("reason") or ""), str(before.get("message") or ""))
    if before.get("status") == "False" and is_same_failure(known, failure):
        return known
    return failure


def _missing_objects(observed: Observed) -> tuple[str, str]:
    """Return why objects of the MiniCluster are missing: reason and message."""
    if observed.error:
        return "Invalid", "The spec is invalid, so no objects are created."
    if observed.problem is not None:
        return observed.problem
    return "Creating", "Objects of the MiniCluster are missing."


def notices(cluster: Object, status: Mapping[str, Any]) -> list[tuple[EventType, str, str]]:
    """Return the Events (type, reason, message) for what is different in the new ``status``."""
    new = {"status": status}

    def changed(kind: str, *, to: bool) -> bool:
        old_condition = find_condition((cluster.get("status") or {}).get("conditions"), kind) or {}
        condition = find_condition(status.get("conditions"), kind) or {}
        if condition.get("status") != str(to):
            return False
        if old_condition.get("status") != str(to):
            return True
        return not to and old_condition.get("message") != message_of(new, kind)

    found: list[tuple[EventType, str, str]] = []
    if changed(VALID, to=False):
        found.append(("Warning", "InvalidSpec", message_of(new, VALID)))
    if changed(PODS_READY, to=False):
        found.append(("Warning", "PodsNotReady", message_of(new, PODS_READY)))
    if changed(UP_TO_DATE, to=False):
        found.append(("Warning", "ChangeNotApplied", message_of(new, UP_TO_DATE)))
    is_stuck = message_of(new, JobState.WAITING).startswith(NOTHING_RESUMES)
    was_stuck = message_of(cluster, JobState.WAITING).startswith(NOTHING_RESUMES)
    if is_stuck and not was_stuck:
        found.append(("Warning", "NotQueued", message_of(new, JobState.WAITING)))
    elif changed(JobState.WAITING, to=True):
        found.append(("Normal", "Waiting", message_of(new, JobState.WAITING)))
    if changed(JobState.READY, to=True):
        started = "The Job is not suspended; its pods are being created."
        found.append(("Normal", "Started", started))
    if changed(JobState.RUNNING, to=True):
        found.append(("Normal", "Running", message_of(new, JobState.RUNNING)))
    if changed(JobState.FINISHED, to=True):
        outcome = message_of(new, SUCCEEDED)
        if is_true(new, SUCCEEDED):
            found.append(("Normal", "Finished", outcome))
        else:
            found.append(("Warning", "Failed", outcome))
    return found


def _cause_of_end(end: Mapping[str, Any]) -> str:
    """Return why the Job has ended, according to its condition ``end``."""
    if end.get("reason") == "SuccessPolicy":
        # Its message is about the rules of spec.successPolicy, which users do not write.
        return "the pod of the lead broker has succeeded"
    return str(end.get("message") or end.get("reason") or end.get("type"))


def _states(cluster: Object, observed: Observed) -> dict[str, str]:
    """Return the states that are true, each with a message; without a message its type is the message."""
    job = observed.job
    end = end_condition(job)
    if end is not None:
        return {JobState.FINISHED: f"The Job has ended: {_cause_of_end(end)}"}
    if job is None and is_finished(cluster):
        return {JobState.FINISHED: message_of(cluster, JobState.FINISHED)}
    if job is None:  # it is created after all other objects
        return {JobState.REQUESTED: observed.error or observed.problem_message}
    if is_suspended(job):
        if queue_of(cluster):
            return {JobState.WAITING: "The Job is suspended until Kueue admits it."}
        if wanted_suspend(cluster) is None:
            return {JobState.WAITING: f"{NOTHING_RESUMES}: {RESUME_REMEDY}."}
        message = "The Job is suspended. It starts when spec.suspend is set to false."
        if (controller_of(cluster) or {}).get("kind") == FLUX_JOB.kind:
            message = "The Job is suspended until its FluxJob has quota."
        return {JobState.WAITING: message}
    states: dict[str, str] = {JobState.READY: ""}
    ready = int((job.get("status") or {}).get("ready") or 0)
    if ready >= needed_brokers(cluster.get("spec") or {}) or is_true(cluster, JobState.RUNNING):
        states[JobState.RUNNING] = "The brokers are ready."
        lead = observed.lead
        if lead is not None and lead.phase == "Running" and lead.exit_code == 0:
            states[JobState.RUNNING] = (
                "The command has succeeded. The MiniCluster ends when the other containers in the pod of the lead "
                "broker have ended."
            )
    return states


def _is_complete(job: Object | None) -> bool:
    """Return whether the Job is complete, and so its pod with index 0, the lead broker's, has succeeded."""
    end = end_condition(job)
    return end is not None and end.get("type") == "Complete"


def _exit_code(before: Mapping[str, Any], observed: Observed) -> int | None:
    if _is_complete(observed.job):
        return 0  # the pod may have been deleted, or the cache may not have its end yet
    if observed.lead is not None and observed.lead.exit_code is not None:
        return observed.lead.exit_code
    job = observed.job
    if job is not None and end_condition(job) is None and is_suspended(job):
        return None
    code = before.get("exitCode")
    return None if code is None else int(code)


def _failed_command(lead: LeadPod) -> str:
    """Return how the last run of the command failed, and how often it was started again."""
    message = f"The command ended with exit code {lead.exit_code}{_cause(lead.reason)}."
    if lead.restarts:
        times = "once" if lead.restarts == 1 else f"{lead.restarts} times"
        message += f" It was started again {times}."
    return message


def _cause(reason: str) -> str:
    return "" if reason in ("", ERROR) else f" ({reason})"


def _outcome(
    end: Mapping[str, Any], exit_code: int | None, failed_command: Mapping[str, Any]
) -> tuple[bool, str, str]:
    """Return the condition Succeeded of a MiniCluster whose Job has ended: status, reason and message.

    ``failed_command`` is the condition CommandFailed; empty if the command did not fail.
    """
    if end.get("type") == "Complete":
        return True, "Succeeded", "The command succeeded."
    reason = str(end.get("reason") or "Failed")
    cause = end.get("message") or reason
    if exit_code:
        why = _cause(str(failed_command.get("reason") or ""))
        return False, reason, f"The command failed with exit code {exit_code}{why}: {cause}"
    return False, reason, f"The Job failed: {cause}"


def _times(before: Mapping[str, Any], job: Object | None, end: Mapping[str, Any] | None) -> Object:
    """Return the fields of the status with the times at which the cluster started and ended."""
    if job is None:
        times = {key: before.get(key) for key in ("startTime", "completionTime")}
    else:
        status = job.get("status") or {}
        times = {"startTime": status.get("startTime")}
        if end:
            completion = status.get("completionTime") or end.get("lastTransitionTime")
            times["completionTime"] = completion
    return {key: value for key, value in times.items() if value}
