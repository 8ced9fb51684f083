"""The state machine of FluxJobs: a pure function from a job, its MiniCluster and the queue's verdict to actions.

Requested (validated) -> Waiting (the queue decides; then its MiniCluster is created, suspended) -> Ready (all objects
of the MiniCluster exist) -> Running (launched: the MiniCluster is not suspended any more) -> Finished. A job without a
command stays Ready, and its MiniCluster runs. An evicted job goes back to Waiting when its pods are deleted.

Each step is one write of the status, or one write of the MiniCluster that the next step recognizes. So a job can be
continued after a crash at any point.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from cfo.api.flux.facts import (
    deadline_of,
    is_false,
    is_suspended,
    is_true,
    message_of,
    own_queue,
    queue_of,
)
from cfo.api.flux.names import (
    BROKERS_READY,
    COMMAND_FAILED,
    EVICTED,
    OBJECTS_READY,
    PODS_MISSING,
    PODS_READY,
    QUOTA_RESERVED,
    STARTING,
    SUCCEEDED,
    UP_TO_DATE,
    VALID,
    JobState,
)
from cfo.controllers.flux.fluxjob.kept_failures import exceeds_quota
from cfo.controllers.flux.fluxjob.rendering import (
    has_command,
    is_command_outdated,
    is_spec_outdated,
    priority_patch,
    restored_size,
    size_patch,
)
from cfo.controllers.flux.fluxjob.start_timeout import (
    MISSING_SECONDS,
    READY_SINCE,
    STARTING_SINCE,
    TIME_TO_STOP,
    Hold,
    describe_missing_pods,
    has_succeeded,
    hold_deadline,
    hold_of,
    lacks_pods,
    lacks_service_pod,
    missing_pods,
    next_check,
    obstacle_of_start,
    record_missing_pods,
    record_readiness,
    record_start,
)
from cfo.controllers.flux.fluxjob.step import JobObservation, JobStatus, JobStep, MiniClusterAction
from cfo.controllers.flux.queue.model import (
    ADMITTED,
    EVICTED_BY_QUEUE,
    MINICLUSTER_REFUSED,
    NAME_TAKEN,
    NO_PRIORITY_CLASS,
    NO_SETUP,
    PAUSES,
    START_TIMEOUT,
    SUSPENDED,
    TOO_COMPLEX,
    WAITING_FOR_KUEUE,
    Blocked,
    PodCounts,
)
from cfo.runtime import (
    Object,
    find_condition,
    is_controlled_by,
    is_deleting,
    name_of,
)
from cfo.runtime.objects import parse_time

_ADMITTED_BY_KUEUE: Final = "AdmittedByKueue"
_RETRYING: Final = "Retrying"
_RETRY_AFTER: Final = timedelta(minutes=1)
"""The shortest pause before a job that could not start is admitted again."""

_LONGEST_PAUSE: Final = timedelta(minutes=10)

_AFTER_DEADLINE: Final = timedelta(minutes=1)
"""For how long after its deadline a job may hold quota: the Job controller needs some time."""

_EXIT_CODE_SECONDS: Final = 10
"""How long a failed MiniCluster without an exit code is kept at least: its pod's end can be seen after its Job's."""

_HELD_FIELDS: Final = (MISSING_SECONDS, READY_SINCE, STARTING_SINCE)
"""The fields of the status that a job has only while it holds quota."""

_SPEC_CHANGED: Final = "SpecChanged"
_PASSING_REASONS: Final = frozenset({"Creating", "Deleting", "Invalid", "NamespaceTerminating"})
"""The reasons of a MiniCluster without all objects that end by themselves, or with the job."""

_WARNINGS: Final = (
    NAME_TAKEN,
    NO_PRIORITY_CLASS,
    NO_SETUP,
    TOO_COMPLEX,
    Blocked.TOO_LARGE.value,
)
"""The reasons for which a job waits until a user or an administrator changes something."""


def decide_step(seen: JobObservation) -> JobStep:
    """Return the next step of a job that is not being deleted."""
    step = JobStep(JobStatus(seen.job, seen.now))
    status = step.status
    if status.state is JobState.FINISHED:
        _complete_result(seen, step)
        _clean_up(seen, step)
        _keep_suspended(seen, step)
    elif status.is_true(QUOTA_RESERVED):
        _go_on(seen, step)
    elif seen.validation_error:
        _reject(seen, step)
        _keep_suspended(seen, step)
    elif status.state is None:
        _accept(step)
        status.enter(JobState.REQUESTED, "Waiting for the queue to decide about the job")
    else:
        _accept(step)
        _wait(seen, step)
        _keep_suspended(seen, step)
    return step


def _reject(seen: JobObservation, step: JobStep) -> None:
    status = step.status
    if status.find(VALID).get("message") != seen.validation_error:
        step.warning("Invalid", seen.validation_error)
    status.set(VALID, False, "Invalid", seen.validation_error)
    status["position"] = None
    status.enter(status.state or JobState.REQUESTED, seen.validation_error)


def _accept(step: JobStep) -> None:
    if step.status.find(VALID):
        step.status.set(VALID, True, "Valid", "The spec is valid")


def _wait(seen: JobObservation, step: JobStep) -> None:
    """Carry out the queue's verdict about a job that holds no quota."""
    cluster = seen.own_cluster
    if cluster is not None and _is_changed(seen, cluster):
        # it was evicted or queued by Kueue, and then changed
        step.action = MiniClusterAction.DELETE
    elif cluster is not None and queue_of(cluster):
        _follow_kueue(seen, step, cluster)
        return
    elif cluster is not None and _is_name_taken(cluster) and not seen.spec.get("suspend"):
        if seen.verdict is not None:
            step.status["fluxSetup"] = seen.verdict.setup or None
        _release_for_the_name(step, message_of(cluster, OBJECTS_READY))
        return
    verdict = seen.verdict
    if (
        _is_paused(seen, step)
        or verdict is None
        or verdict.reason == EVICTED_BY_QUEUE
        or verdict.reason in PAUSES
    ):
        return
    status = step.status
    status["fluxSetup"] = verdict.setup or None
    status["position"] = verdict.position or None
    if verdict.reason == ADMITTED:
        status.enter(JobState.WAITING, "Creating the MiniCluster")
        status.set(QUOTA_RESERVED, True, ADMITTED, verdict.message)
        status.clear(EVICTED, ADMITTED, "The job was admitted again")
        if not status.is_true(MINICLUSTER_REFUSED):
            step.normal(ADMITTED, verdict.message)
        return
    if verdict.reason in _WARNINGS and status.find(QUOTA_RESERVED).get("reason") != verdict.reason:
        step.warning(verdict.reason, verdict.message)
    status.enter(JobState.WAITING, verdict.message)
    status.set(QUOTA_RESERVED, False, verdict.reason, verdict.message)
    if verdict.reason == WAITING_FOR_KUEUE and seen.named_cluster is None:
        step.action = MiniClusterAction.CREATE
        step.kueue_queue = verdict.kueue_queue


def _is_changed(seen: JobObservation, cluster: Object) -> bool:
    """Return whether the MiniCluster is not the one that would be created for the job now."""
    if is_spec_outdated(seen.job, cluster) or is_command_outdated(seen.job, cluster):
        return True
    wanted = own_queue(seen.job) or seen.kueue_queue
    return queue_of(cluster) != wanted


def _is_current(condition: Mapping[str, Any], obj: Object) -> bool:
    """Return whether a condition is about the current generation of its object."""
    return bool(condition.get("observedGeneration") == obj["metadata"].get("generation"))


def _is_paused(seen: JobObservation, step: JobStep) -> bool:
    """Return whether a job that could not start must wait before it is admitted again.

    When the pause ends, the status says so, and the queue considers the job again.
    """
    released = step.status.find(QUOTA_RESERVED)
    if released.get("reason") not in PAUSES or not _is_current(released, seen.job):
        return False
    since = parse_time(released.get("lastTransitionTime"))
    pause = _RETRY_AFTER
    if released.get("reason") == START_TIMEOUT:
        pause = _growing_pause(seen.job, since)
    remaining = (since + pause - seen.now).total_seconds()
    if remaining > 0:
        step.requeue_after = remaining
    else:
        step.status.set(QUOTA_RESERVED, False, _RETRYING, str(released.get("message")))
    return True


def _growing_pause(job: Object, since: datetime) -> timedelta:
    """Return the pause of a job that released its quota at ``since``: its age, so that it about doubles each time."""
    age = since - parse_time(job["metadata"]["creationTimestamp"])
    return min(max(age, _RETRY_AFTER), _LONGEST_PAUSE)


def _keep_suspended(seen: JobObservation, step: JobStep) -> None:
    """Stop the MiniCluster of a job that holds no quota, if a user has resumed it."""
    if step.action is not MiniClusterAction.NONE or step.status.is_true(QUOTA_RESERVED):
        return
    cluster = seen.own_cluster
    if cluster is None or queue_of(cluster) or is_true(cluster, JobState.FINISHED):
        return
    if not is_suspended(cluster):
        released = step.status.find(QUOTA_RESERVED).get("lastTransitionTime")
        since = parse_time(released or seen.job["metadata"]["creationTimestamp"])
        _stop(step, is_late=seen.now >= since + TIME_TO_STOP)


def _stop(step: JobStep, *, is_late: bool) -> None:
    """Suspend the MiniCluster of a job that may have no pods; delete it if ``is_late``.

    Any user can resume it again and again, and other webhooks can refuse its changes.
    """
    if not is_late:
        step.action = MiniClusterAction.SUSPEND
        return
    step.action = MiniClusterAction.DELETE
    step.warning(
        "MiniClusterDeleted",
        f"The MiniCluster is deleted: it still ran {TIME_TO_STOP.seconds} seconds after the job lost its quota",
    )


def _follow_kueue(seen: JobObservation, step: JobStep, cluster: Object) -> None:
    """Let the status of a job that holds no quota follow Kueue, which decides when its Job starts."""
    if seen.spec.get("suspend"):
        step.action = MiniClusterAction.DELETE  # only Kueue may suspend the Job
        _release(step, SUSPENDED, "Suspended by spec.suspend")
        return
    step.status.remove(MINICLUSTER_REFUSED)
    if is_true(cluster, JobState.READY) or is_true(cluster, JobState.FINISHED):
        message = "Admitted by Kueue"
        step.status.enter(JobState.READY, message)
        step.status.set(QUOTA_RESERVED, True, _ADMITTED_BY_KUEUE, message)
        step.normal(ADMITTED, message)
        return
    _pass_on(step, priority_patch(seen.job, cluster, is_admitted=False))
    about_objects = message_of(cluster, OBJECTS_READY)
    if _is_name_taken(cluster):
        _release_for_the_name(step, about_objects)
        return
    message = message_of(cluster, JobState.WAITING) or about_objects or "Creating the MiniCluster"
    step.status.enter(JobState.WAITING, message)
    step.status.set(QUOTA_RESERVED, False, WAITING_FOR_KUEUE, message)


def _pass_on(step: JobStep, patch: Object | None) -> None:
    """Change the MiniCluster, unless there is something else to do; the next step does the rest."""
    if patch is not None and step.action is MiniClusterAction.NONE:
        step.action = MiniClusterAction.PATCH
        step.patch = patch


def _go_on(seen: JobObservation, step: JobStep) -> None:
    """Continue a job that holds quota, and come back if it may have to give that back."""
    _continue(seen, step)
    status = step.status
    if status.is_true(QUOTA_RESERVED) and not status.is_true(EVICTED):
        if status.state is JobState.WAITING and status["startTime"]:
            # its MiniCluster is being created again
            status[READY_SINCE] = None
            record_missing_pods(status, seen.now, are_missing=True)
            message = str(status.find(JobState.WAITING).get("message"))
            status.set(PODS_READY, False, PODS_MISSING, message)
        record_start(seen, status)
        checks = (next_check(seen, status), _latest_end(seen, status))
        check = min((time for time in checks if time is not None), default=None)
        if check is not None:
            step.requeue_after = max(0.0, (check - seen.now).total_seconds())


def _continue(seen: JobObservation, step: JobStep) -> None:
    """Take the next step of a job that holds quota."""
    cluster = seen.named_cluster
    if seen.own_cluster is None and cluster is not None:
        _wait_for_the_name(seen, step, cluster)
        return
    if _has_ended_early(seen, step) or _is_evicted(seen, step) or _is_overdue(seen, step):
        return
    if cluster is None:
        _create(seen, step)
        return
    _report_ignored_changes(seen, step, cluster)
    _report_missing_objects(step, cluster)
    status = step.status
    is_by_kueue = status.find(QUOTA_RESERVED).get("reason") == _ADMITTED_BY_KUEUE
    if is_true(cluster, JobState.FINISHED):
        _finish(seen, step, cluster)
    elif is_false(cluster, VALID):
        _end(step, "InvalidMiniCluster", message_of(cluster, VALID), succeeded=False)
    elif is_by_kueue and is_true(cluster, JobState.WAITING):
        status.clear(QUOTA_RESERVED, WAITING_FOR_KUEUE, "Kueue has suspended the job")
        status.remove(PODS_READY)
        status.enter(JobState.WAITING, message_of(cluster, JobState.WAITING))
    elif status.state is JobState.WAITING:
        _await_objects(step, cluster)
    else:
        _run(seen, step, cluster)


def _wait_for_the_name(seen: JobObservation, step: JobStep, cluster: Object) -> None:
    """Wait until the previous MiniCluster is deleted; give the quota back if another client's has the name."""
    if is_deleting(cluster) and is_controlled_by(cluster, seen.job):
        if not _is_evicted(seen, step):  # a finalizer can keep the MiniCluster for any time
            step.status.enter(JobState.WAITING, "Waiting until the previous MiniCluster is deleted")
        return
    message = f"MiniCluster {name_of(seen.job)} exists and does not belong to this FluxJob"
    _release_for_the_name(step, message)


def _is_name_taken(cluster: Object) -> bool:
    """Return whether another owner has an object with a name that the MiniCluster needs."""
    conditions = (cluster.get("status") or {}).get("conditions")
    condition = find_condition(conditions, OBJECTS_READY) or {}
    return condition.get("status") == "False" and condition.get("reason") == NAME_TAKEN


def _release_for_the_name(step: JobStep, message: str) -> None:
    """Give the quota back, because the job cannot start before a name is free."""
    known = step.status.find(QUOTA_RESERVED)
    if (known.get("reason"), known.get("message")) != (NAME_TAKEN, message):
        step.warning(NAME_TAKEN, message)
    step.status["position"] = None
    _release(step, NAME_TAKEN, message)


def _is_evicted(seen: JobObservation, step: JobStep) -> bool:
    """Evict the job if it must give its quota back; return whether that is so."""
    status = step.status
    cluster = seen.own_cluster
    if not status.is_true(EVICTED):
        cause = _cause_of_eviction(seen, status)
        if cause is None or (cluster is not None and is_true(cluster, JobState.FINISHED)):
            return False
        reason, message = cause
        status.set(EVICTED, True, reason, message)
        if reason == START_TIMEOUT:
            step.warning(reason, message)
        else:
            step.normal(reason, message)
    evicted = status.find(EVICTED)
    message = str(evicted.get("message"))
    latest = parse_time(evicted.get("lastTransitionTime")) + TIME_TO_STOP
    is_late = seen.now >= latest
    if cluster is not None and queue_of(cluster):
        step.action = MiniClusterAction.DELETE
    elif cluster is not None and (not is_suspended(cluster) or (is_late and seen.creates_pods)):
        _stop(step, is_late=is_late)
    if seen.is_drained and (is_late or step.action is MiniClusterAction.NONE):
        _release(step, str(evicted.get("reason")), message)
        return True
    status.enter(JobState.WAITING, f"Waiting until the pods are deleted: {message}")
    if not is_late:
        step.requeue_after = (latest - seen.now).total_seconds()
    return True


def _cause_of_eviction(seen: JobObservation, status: JobStatus) -> tuple[str, str] | None:
    """Return why the job must give its quota back (reason and message), if it must."""
    if seen.verdict is not None and seen.verdict.reason == EVICTED_BY_QUEUE:
        return EVICTED_BY_QUEUE, seen.verdict.message
    if seen.spec.get("suspend"):
        return SUSPENDED, "Suspended by spec.suspend"
    if _has_timed_out(seen, status):
        return START_TIMEOUT, f"The job could not start in time: {obstacle_of_start(seen, status)}"
    return None


def _has_timed_out(seen: JobObservation, status: JobStatus) -> bool:
    """Return whether the job has held quota for too long without its pods."""
    deadline = hold_deadline(seen, status)
    return deadline is not None and deadline <= seen.now


def _has_ended_early(seen: JobObservation, step: JobStep) -> bool:
    """End a job whose command has succeeded, and whose Job does not end without its pods; return whether that is so.

    A user can keep the Job from ending: it counts any pod that names it as its controller.
    """
    cluster = seen.own_cluster
    status = step.status
    if cluster is None or is_true(cluster, JobState.FINISHED):
        return False
    if hold_of(seen, status) is not Hold.SUCCEEDED or not _has_timed_out(seen, status):
        return False
    status["exitCode"] = 0
    _end(step, "Succeeded", "The command succeeded.", succeeded=True)
    if not is_suspended(cluster):
        step.action = MiniClusterAction.SUSPEND
    return True


def _latest_end(seen: JobObservation, status: JobStatus) -> datetime | None:
    """Return when a launched job must have ended; ``None`` if it has no deadline, or Kueue has admitted it.

    The Job of its MiniCluster ends at the deadline. But users can raise that of the MiniCluster, or delete the
    MiniCluster, and the queue has promised the quota to others.
    """
    deadline = deadline_of(seen.spec)
    started = status["startTime"]
    if not deadline or not started or status.find(QUOTA_RESERVED).get("reason") != ADMITTED:
        return None
    return parse_time(started) + timedelta(seconds=deadline) + _AFTER_DEADLINE


def _is_overdue(seen: JobObservation, step: JobStep) -> bool:
    """End the job if it has run for longer than its deadline; return whether that is so."""
    cluster = seen.own_cluster
    latest = _latest_end(seen, step.status)
    if latest is None or seen.now < latest:
        return False
    if cluster is not None and is_true(cluster, JobState.FINISHED):
        return False
    deadline = deadline_of(seen.spec)
    message = f"The job ran for longer than its deadlineSeconds ({deadline})"
    _end(step, "DeadlineExceeded", message, succeeded=False)
    if cluster is not None and not is_suspended(cluster):
        step.action = MiniClusterAction.SUSPEND
    return True


def _release(step: JobStep, reason: str, message: str) -> None:
    """Give the quota back."""
    step.status.set(QUOTA_RESERVED, False, reason, message)
    step.status.remove(OBJECTS_READY)
    step.status.remove(PODS_READY)
    step.status.enter(JobState.WAITING, message)
    for name in ("startTime", "exitCode", "miniCluster", *_HELD_FIELDS):
        step.status[name] = None


def _create(seen: JobObservation, step: JobStep) -> None:
    status = step.status
    admitted = status.find(QUOTA_RESERVED)
    is_handed_over = admitted.get("reason") == ADMITTED and bool(own_queue(seen.job))
    is_changed = is_handed_over or not _is_current(admitted, seen.job)
    if status["miniCluster"] is None and is_changed:
        _release(step, _SPEC_CHANGED, "The job was changed after its admission, and waits again")
        return
    if status.state is not JobState.WAITING:
        step.warning("MiniClusterDeleted", "The MiniCluster was deleted; it is created again")
        status.enter(JobState.WAITING, "Creating the MiniCluster")
    step.action = MiniClusterAction.CREATE


def _await_objects(step: JobStep, cluster: Object) -> None:
    status = step.status
    status["miniCluster"] = name_of(cluster)
    status.remove(MINICLUSTER_REFUSED)
    conditions = (cluster.get("status") or {}).get("conditions")
    condition = find_condition(conditions, OBJECTS_READY) or {}
    if condition.get("status") == "True" and _is_current(condition, cluster):
        status.enter(JobState.READY, "All objects of the MiniCluster exist")
    elif _is_name_taken(cluster):
        _release_for_the_name(step, message_of(cluster, OBJECTS_READY))
    elif condition.get("status") == "False" and condition.get("reason") != "Creating":
        status.enter(JobState.WAITING, str(condition.get("message")))


def _run(seen: JobObservation, step: JobStep, cluster: Object) -> None:
    """Launch a job that is ready, and report how it runs."""
    status = step.status
    runs_command = has_command(cluster)
    waits_for_command = status.state is JobState.READY and not runs_command
    if waits_for_command and is_command_outdated(seen.job, cluster):
        # its pods have no command to run; the new MiniCluster has
        step.action = MiniClusterAction.DELETE
        status.enter(JobState.WAITING, "Restarting the MiniCluster with the command")
        return
    if is_suspended(cluster) and not queue_of(cluster):
        step.action = MiniClusterAction.LAUNCH
        step.size = restored_size(seen.spec, cluster, seen.default_size)
        if status.state is JobState.READY:
            return  # the state follows when the launch is visible
    patch = size_patch(seen.job, cluster) or priority_patch(seen.job, cluster, is_admitted=True)
    _pass_on(step, patch)
    if not status["startTime"]:
        status["startTime"] = status.timestamp
        step.normal("Launched", "The MiniCluster was started")
    message = _report_pods(seen, step, cluster)
    state = JobState.RUNNING if runs_command else JobState.READY
    status.enter(state, message)


def _report_pods(seen: JobObservation, step: JobStep, cluster: Object) -> str:
    """Record whether the brokers are ready, and why a pod cannot start; return the message."""
    status = step.status
    known = status.find(PODS_READY).get("reason")
    record_readiness(seen, status, cluster)
    conditions = (cluster.get("status") or {}).get("conditions")
    problem = find_condition(conditions, PODS_READY) or {}
    if problem.get("status") == "False":
        reason = str(problem.get("reason"))
        message = str(problem.get("message"))
        step.exceeds_quota = step.exceeds_quota or exceeds_quota(message)
    elif status[READY_SINCE]:
        reason = BROKERS_READY
        message = "The brokers are ready"
        if is_true(cluster, COMMAND_FAILED):
            message += f". {message_of(cluster, COMMAND_FAILED)}"
    else:
        reason = STARTING
        message = "The pods are being started"
    pods = seen.pods or PodCounts()
    lacks_service = lacks_service_pod(seen, status, cluster)
    is_unexplained = reason != PODS_MISSING or pods.small or lacks_service
    if is_unexplained and lacks_pods(seen, status, cluster):
        missing = describe_missing_pods(seen, status, cluster)
        were_ready = reason == BROKERS_READY and missing_pods(seen, status, cluster)
        message = missing if were_ready else f"{missing} {message}"
        reason = PODS_MISSING
        if has_succeeded(cluster) and not pods.live:
            message = "The command has succeeded, and no pod of the job runs"
    if problem.get("status") == "False" and reason != known:
        step.warning("PodsNotReady", message)
    record_missing_pods(status, seen.now, are_missing=reason == PODS_MISSING)
    status.set(PODS_READY, reason == BROKERS_READY, reason, message)
    return message


def _finish(seen: JobObservation, step: JobStep, cluster: Object) -> None:
    """Copy the result of the MiniCluster."""
    status = step.status
    result = cluster.get("status") or {}
    status["exitCode"] = result.get("exitCode")
    status["startTime"] = status["startTime"] or result.get("startTime")
    status["miniCluster"] = name_of(cluster)
    succeeded = find_condition(result.get("conditions"), SUCCEEDED) or {}
    _end(
        step,
        str(succeeded.get("reason") or "Finished"),
        str(succeeded.get("message") or "The MiniCluster has ended"),
        succeeded=succeeded.get("status") == "True",
        ended=result.get("completionTime"),
    )
    _clean_up(seen, step)


def _lacks_exit_code(seen: JobObservation, step: JobStep) -> bool:
    """Return whether the job failed with its MiniCluster, whose exit code was not known yet."""
    cluster = seen.own_cluster
    if cluster is None or step.status["exitCode"] is not None:
        return False
    succeeded = step.status.find(SUCCEEDED)
    result = find_condition((cluster.get("status") or {}).get("conditions"), SUCCEEDED) or {}
    has_failed = succeeded.get("status") == "False" and result.get("status") == "False"
    return has_failed and succeeded.get("reason") == result.get("reason")


def _complete_result(seen: JobObservation, step: JobStep) -> None:
    """Copy the exit code if the MiniCluster has it only now, with the message that contains it."""
    cluster = seen.own_cluster
    if cluster is None or not _lacks_exit_code(seen, step):
        return
    code = (cluster.get("status") or {}).get("exitCode")
    if code is None:
        return
    status = step.status
    message = message_of(cluster, SUCCEEDED)
    status["exitCode"] = code
    status.enter(JobState.FINISHED, message)
    status.set(SUCCEEDED, False, str(status.find(SUCCEEDED).get("reason")), message)


def failed_step(job: Object, now: datetime, reason: str, message: str) -> JobStep:
    """Return the step that ends a job that cannot run."""
    step = JobStep(JobStatus(job, now))
    _end(step, reason, message, succeeded=False)
    return step


def refused_step(job: Object, now: datetime, message: str) -> JobStep:
    """Return the step that gives the quota back because the API server does not permit the MiniCluster at present."""
    step = JobStep(JobStatus(job, now))
    status = step.status
    text = f"The MiniCluster was refused: {message}"
    if not status.is_true(MINICLUSTER_REFUSED):
        step.warning(MINICLUSTER_REFUSED, text)
    status.set(MINICLUSTER_REFUSED, True, "Forbidden", text)
    status.remove(QUOTA_RESERVED)  # so that its time is that of this refusal
    _release(step, MINICLUSTER_REFUSED, text)
    return step


def _end(
    step: JobStep, reason: str, message: str, *, succeeded: bool, ended: str | None = None
) -> None:
    status = step.status
    status["completionTime"] = ended or status.timestamp
    status["position"] = None
    status.remove(OBJECTS_READY)
    status.remove(PODS_READY)
    for name in _HELD_FIELDS:
        status[name] = None
    status.enter(JobState.FINISHED, message)
    status.set(QUOTA_RESERVED, False, "Finished", "The job has finished")
    status.set(SUCCEEDED, succeeded, reason, message)
    if succeeded:
        step.normal("Finished", message)
    else:
        step.warning("Failed", message)


def _clean_up(seen: JobObservation, step: JobStep) -> None:
    """Delete the MiniCluster and the FluxJob when their time has come."""
    completion = step.status["completionTime"]
    if not completion:
        return
    ended = parse_time(completion)
    if seen.deletes_cluster and seen.own_cluster is not None:
        kept = seen.keep_seconds
        if _lacks_exit_code(seen, step):
            kept = max(kept, _EXIT_CODE_SECONDS)
        has_failed = step.status.find(SUCCEEDED).get("status") == "False"
        if has_failed and is_true(seen.own_cluster, JobState.FINISHED):
            step.keeps_failure = _seconds_until(ended, seen.keep_failed_seconds, seen.now) > 0
            kept = max(kept, seen.keep_failed_seconds)
        remaining = _seconds_until(ended, kept, seen.now)
        if remaining > 0:
            step.requeue_after = remaining
        else:
            step.action = MiniClusterAction.DELETE
    ttl = seen.spec.get("ttlSecondsAfterFinished")
    if ttl is not None:
        remaining = _seconds_until(ended, ttl, seen.now)
        if remaining > 0:
            step.requeue_after = min(step.requeue_after or remaining, remaining)
        else:
            step.delete_job = True


def _seconds_until(ended: datetime, seconds: int, now: datetime) -> float:
    """Return the time until ``seconds`` after the end of the job."""
    return (ended + timedelta(seconds=seconds) - now).total_seconds()


def _report_ignored_changes(seen: JobObservation, step: JobStep, cluster: Object) -> None:
    status = step.status
    waits_for_command = status.state is JobState.READY and not has_command(cluster)
    is_ignored = is_spec_outdated(seen.job, cluster)
    if not is_ignored and not waits_for_command:
        is_ignored = is_command_outdated(seen.job, cluster)
    if not is_ignored:
        status.remove(UP_TO_DATE)
        return
    message = (
        "The spec was changed after the admission of the job; delete it and create another one"
    )
    if status.find(UP_TO_DATE).get("status") != "False":
        step.warning("UpdateIgnored", message)
    status.set(UP_TO_DATE, False, "UpdateIgnored", message)


def _report_missing_objects(step: JobStep, cluster: Object) -> None:
    """Record why objects of the MiniCluster cannot be created, unless that ends without anyone's help."""
    status = step.status
    conditions = (cluster.get("status") or {}).get("conditions")
    condition = find_condition(conditions, OBJECTS_READY) or {}
    reason = str(condition.get("reason"))
    if condition.get("status") != "False" or reason in _PASSING_REASONS:
        status.remove(OBJECTS_READY)
        return
    message = str(condition.get("message"))
    known = status.find(OBJECTS_READY)
    if (known.get("reason"), known.get("message")) != (reason, message):
        step.warning(reason, message)
    status.set(OBJECTS_READY, False, reason, message)
    step.exceeds_quota = exceeds_quota(message)
