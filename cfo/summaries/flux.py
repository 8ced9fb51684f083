"""The summaries of FluxSetups (a queue and its quota), FluxJobs and MiniClusters."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cfo.api.flux.facts import own_queue, queue_of
from cfo.api.flux.names import (
    BROKERS_READY,
    COMMAND_FAILED,
    COMPLETION_INDEX,
    COVERS,
    EVICTED,
    FLUX_JOB,
    FLUX_SETUP,
    MINICLUSTER,
    MINICLUSTER_LABEL,
    NOTHING_RESUMES,
    OBJECTS_READY,
    PODS_READY,
    RESUME_REMEDY,
    STARTING,
    SUCCEEDED,
    VALID,
    JobState,
)
from cfo.api.reading import MAX_TEXT, items, number, path, text
from cfo.api.waiting_reasons import WAITING_REASONS
from cfo.runtime import Object, controller_of, is_deleting, labels_of, name_of, namespace_of
from cfo.summaries.conditions import (
    condition_of,
    conditions_of,
    is_true,
    message_of,
    state_of,
    statement_of,
)
from cfo.summaries.kind_view import (
    ChildSelection,
    KindView,
    Related,
    Section,
    new_summary,
    unresolved_warnings,
)
from cfo.summaries.problems import (
    DESCRIBE,
    PodRemedies,
    condition_problems,
    created_problems,
    hung_pods,
    pod_problems,
    remedy_for,
    taken_remedy,
    warning_problems,
)
from cfo.summaries.summary import Level, Problem, Summary, SummaryCondition

_WRONG_REASONS: Final = {
    "TooLarge": "request fewer pods, or ask the administrator for a larger FluxSetup",
    "TooComplex": "delete it and create one with fewer containers, or fewer resources in them",
    "NoFluxSetup": "ask the administrator for a FluxSetup that governs this namespace",
    "PriorityClassNotFound": "use an existing PriorityClass, or priority",
    "NameTaken": taken_remedy("the job", "its MiniCluster"),
    "MiniClusterRefused": "correct the spec; the message is that of the API server or a webhook",
    "StartTimeout": "correct the spec, or ask the administrator for the quota or permission that the message names",
}
"""Reasons for which a job is not admitted until someone acts, with the remedy. Other jobs wait for their turn."""

_FAILED_TO_WRITE: Final = "FailedToWrite"
"""The reason of ``ObjectsReady`` while the API server refuses an object."""

_OBJECT_REMEDIES: Final = {
    "NameTaken": taken_remedy("the MiniCluster, or the job that created it,", "the MiniCluster"),
    "Deleting": "wait until the object is deleted; if that takes long, check its finalizers",
    "NamespaceTerminating": "create it in another namespace",
    _FAILED_TO_WRITE: "correct the spec, or ask the administrator for the quota or permission that the message names",
}
"""Remedies by the reason for which objects of a MiniCluster do not exist."""

_VIEW: Final = "flux.container, for FluxJobs in template.flux.container"

_POD_REMEDIES: Final = PodRemedies(
    security=(
        "set the fields of the securityContext that the message names in containers (template.containers of a "
        f"FluxJob), from which flux-view gets them unless it has its own (securityContext of {_VIEW})"
    ),
    resources=f"specify these resources for your containers, and those of flux-view in resources of {_VIEW}",
)

_DESCRIBED_REASONS: Final = frozenset(
    {
        *_WRONG_REASONS,
        "ChangeNotApplied",
        "Failed",
        "Invalid",
        "InvalidSpec",
        "NotQueued",
        "PodsNotReady",
        "SizeOutOfRange",  # the operator has set the size back before it records that
        "UpdateIgnored",
    }
)
"""Reasons of Warning Events whose causes the conditions describe too, as long as they exist."""

_SETTLED_REASONS: Final = {*_WRONG_REASONS, "Suspended", "WaitingForKueue"}
"""Reasons for which a job waits for a user, or for Kueue, and not for other jobs."""


def _summarize_setup(setup: Object, related: Related) -> Summary:
    """Return the summary of a FluxSetup: who holds its quota, and how many wait."""
    conditions = conditions_of(setup)
    active = condition_of(conditions, "Active")
    problems = condition_problems(
        conditions, {"Active": "False"}, {}, "correct or delete the FluxSetup"
    )
    state = state_of(active)
    level = Level.PROGRESSING if active is None else Level.OK
    used = number(path(setup, "status", "usedResources"))
    max_pods = number(path(setup, "spec", "max-size"))
    admitted = number(path(setup, "status", "admittedWorkloads"))
    max_jobs = number(path(setup, "spec", "max-jobs"))
    quotas = [("Pods", used, max_pods, str(used), str(max_pods))]
    if max_jobs:
        quotas.append(("Jobs", admitted, max_jobs, str(admitted), str(max_jobs)))
    return new_summary(
        setup,
        related,
        state,
        level,
        problems,
        _setup_facts(setup, used, max_pods, admitted),
        ready=f"{used}/{max_pods}",
        row={"quotas": quotas},
    )


def _setup_facts(
    setup: Object, used: int, max_pods: int, admitted: int
) -> Iterator[tuple[str, str]]:
    waiting = number(path(setup, "status", "pendingWorkloads"))
    without_job = number(path(setup, "status", "usedWithoutJob"))
    note = f", {without_job} of them by MiniClusters that no FluxJob created" if without_job else ""
    yield "quota", f"{used} of {max_pods} pods used{note}"
    yield "jobs", f"{admitted} admitted, {waiting} waiting"
    yield "max jobs", text(path(setup, "spec", "max-jobs"), 20)
    yield "admitted by", "Kueue" if path(setup, "spec", "queue") == "Kueue" else "this operator"
    yield "order", text(path(setup, "spec", "queueingStrategy"), 40)
    yield "fairness", text(path(setup, "spec", "fairness"), 40)
    yield "preemption", text(path(setup, "spec", "preemption"), 40)


def _summarize_job(job: Object, related: Related) -> Summary:
    """Return the summary of a FluxJob: its place in the queue, or how it ended."""
    conditions = conditions_of(job)
    level = _level(job, conditions)
    state = _state(conditions)
    problems = [
        *_spec_problems(job, conditions),
        *_outcome_problems(job, conditions, related),
        *_admission_problems(conditions, level, related),
    ]
    is_launched = bool(path(job, "status", "miniCluster"))
    of_launched = related if is_launched else Related()
    problems += _start_problems(job, conditions, of_launched, problems)
    for cluster in of_launched.children.get(MINICLUSTER, ()):
        problems += _restart_problems(job, conditions_of(cluster), of_launched)
    problems += hung_pods(of_launched.pods or (), related.now, of_launched.pod_events)
    if level is not Level.OK:
        problems += _event_problems(conditions, related)
    row: dict[str, Any] = {}
    if state in (JobState.REQUESTED, JobState.WAITING):
        row["position"] = number(path(job, "status", "position"))
        row["queue"] = text(path(job, "status", "fluxSetup"))
    return new_summary(
        job,
        related,
        state,
        level,
        problems,
        [*_job_facts(job, conditions), *_connection(job, level, _is_interactive_job(job), related)],
        pending=_pending(conditions, level, is_interactive=_is_interactive_job(job)),
        row=row,
    )


def _pending(
    conditions: tuple[SummaryCondition, ...], level: Level, *, is_interactive: bool
) -> str:
    """Return what has to happen until it ends, or until it can be used if it ``is_interactive``."""
    if is_true(conditions, JobState.FINISHED):
        return ""
    if is_interactive and level is Level.OK:
        return ""
    reserved = condition_of(conditions, "QuotaReserved")
    if reserved is not None and reserved.status == "False" and reserved.reason in _SETTLED_REASONS:
        return ""
    if reserved is None and is_true(conditions, JobState.WAITING):
        return ""  # a MiniCluster, which waits for a user, or for Kueue
    return f"is {_state(conditions) or 'new'}"


def _is_interactive(cluster: Object) -> bool:
    return path(cluster, "spec", "interactive") is True or not _has_command(cluster, "spec")


def _is_interactive_job(job: Object) -> bool:
    return not path(job, "spec", "command") and not _has_command(job, "spec", "template")


def _has_command(obj: Object, *spec: str) -> bool:
    """Return whether a container of a MiniCluster whose spec is at ``spec`` has a command."""
    return any(each.get("command") for each in items(path(obj, *spec, "containers")))


def _connection(
    obj: Object, level: Level, is_interactive: bool, related: Related
) -> Iterator[tuple[str, str]]:
    """Yield the command that opens a shell in the Flux instance of an object that waits for its user."""
    if (
        not is_interactive
        or level is not Level.OK
        or is_true(conditions_of(obj), JobState.FINISHED)
    ):
        return
    mount = path(obj, "spec", "flux", "container", "mountPath")
    for cluster in related.children.get(MINICLUSTER, ()):
        mount = path(cluster, "spec", "flux", "container", "mountPath")
    root = text(mount, MAX_TEXT).rstrip("/") or "/mnt/flux"
    job = shlex.quote(f"job/{name_of(obj)}")
    script = shlex.quote(f"{root}/flux-connect.sh")
    yield (
        "connect",
        f"kubectl exec -it -n {shlex.quote(namespace_of(obj))} {job} -- {script}",
    )


def _job_facts(job: Object, conditions: tuple[SummaryCondition, ...]) -> Iterator[tuple[str, str]]:
    position = number(path(job, "status", "position"))
    place = f"about number {position} in the queue"
    if position == 1:
        place = f"next in the queue: {_why(conditions)}".rstrip(": ")
    yield "position", place if position else ""
    yield "why", _why(conditions)
    yield "queue", text(path(job, "status", "fluxSetup"))
    yield "pods", text(path(job, "spec", "size"), 20)
    yield (
        "priority",
        text(path(job, "spec", "priority") or path(job, "spec", "priorityClassName"), 63),
    )
    yield "command", text(path(job, "spec", "command"), 120)
    yield from _end_facts(job)
    yield "MiniCluster", text(path(job, "status", "miniCluster"), 253)


def _why(conditions: tuple[SummaryCondition, ...]) -> str:
    """Return how the object ended, or the message of its state unless that only repeats the state."""
    succeeded = condition_of(conditions, SUCCEEDED)
    if succeeded is not None and is_true(conditions, JobState.FINISHED):
        return message_of(succeeded)
    condition = condition_of(conditions, _state(conditions))
    if condition is None or condition.message == condition.type:
        return ""
    return condition.message


def _summarize_minicluster(cluster: Object, related: Related) -> Summary:
    """Return the summary of a MiniCluster: how many of its brokers are ready, or how it ended."""
    conditions = conditions_of(cluster)
    level = _level(cluster, conditions)
    size = number(path(cluster, "status", "size")) or number(path(cluster, "spec", "size")) or 1
    problems = [
        *_spec_problems(cluster, conditions),
        *_outcome_problems(cluster, conditions, related),
        *_queue_problems(conditions),
    ]
    if level is not Level.OK:
        problems += _start_problems(cluster, conditions, related, problems)
        problems += _event_problems(conditions, related)
    problems += _restart_problems(cluster, conditions, related)
    problems += hung_pods(related.pods or (), related.now, related.pod_events)
    ready = number(path(cluster, "status", "ready"))
    return new_summary(
        cluster,
        related,
        _state(conditions),
        level,
        problems,
        [
            *_cluster_facts(cluster, conditions),
            *_connection(cluster, level, _is_interactive(cluster), related),
        ],
        ready=f"{ready}/{size}",
        pending=_pending(conditions, level, is_interactive=_is_interactive(cluster)),
    )


def _cluster_facts(
    cluster: Object, conditions: tuple[SummaryCondition, ...]
) -> Iterator[tuple[str, str]]:
    yield "why", _why(conditions)
    yield "size", text(path(cluster, "status", "size"), 20)
    yield "maximum size", _maximum_size(cluster)
    yield from _end_facts(cluster)


def _maximum_size(cluster: Object) -> str:
    """Return up to which size a MiniCluster can be scaled; empty if its status does not say how many hosts it knows."""
    known = number(path(cluster, "status", "maximumSize"))
    wanted = number(path(cluster, "spec", "maxSize"))
    return str(min(wanted or known, known)) if known else ""


def _end_facts(obj: Object) -> Iterator[tuple[str, str]]:
    yield "exit code", text(path(obj, "status", "exitCode"), 20)
    yield "started", text(path(obj, "status", "startTime"), 40)
    yield "ended", text(path(obj, "status", "completionTime"), 40)


def _state(conditions: tuple[SummaryCondition, ...]) -> str:
    """Return the type of the first condition that is true, as kubectl's column shows it."""
    return next((condition.type for condition in conditions if condition.status == "True"), "")


def _level(obj: Object, conditions: tuple[SummaryCondition, ...]) -> Level:
    succeeded = condition_of(conditions, SUCCEEDED)
    if is_true(conditions, JobState.FINISHED):
        return Level.FAILED if succeeded is not None and succeeded.status == "False" else Level.OK
    if is_deleting(obj):
        return Level.PROGRESSING
    if path(obj, "spec", "suspend") is True:
        return Level.WAITING
    reserved = condition_of(conditions, "QuotaReserved")
    if reserved is not None and reserved.status == "False":
        return Level.WAITING
    if is_true(conditions, JobState.WAITING):
        return Level.WAITING
    pods_ready = condition_of(conditions, PODS_READY)
    if pods_ready is not None and pods_ready.status == "False":
        return Level.PROGRESSING
    if is_true(conditions, JobState.RUNNING):
        return Level.OK
    # A FluxJob without a command stays JobMiniClusterReady, for interactive use.
    is_usable = pods_ready is not None and pods_ready.reason == BROKERS_READY
    if is_usable and is_true(conditions, JobState.READY):
        return Level.OK
    return Level.PROGRESSING


def _event_problems(
    conditions: tuple[SummaryCondition, ...], related: Related
) -> Iterator[Problem]:
    """Yield what Warning Events say about causes that may still exist and that no condition describes."""
    warnings = unresolved_warnings(related.events, conditions, _DESCRIBED_REASONS)
    yield from warning_problems(warnings, {})


def _job_of(obj: Object) -> list[tuple[str, str, str]]:
    """Return the Job of a MiniCluster or FluxJob, which has its name; no status has its uid."""
    return [("Job", name_of(obj), "")]


def _queue_of_cluster(cluster: Object, related: Related) -> str:
    """Return the LocalQueue of a MiniCluster."""
    return queue_of(cluster)


def _queue_of_job(job: Object, related: Related) -> str:
    """Return the LocalQueue of a FluxJob, which its MiniCluster has from the FluxSetup if it names none itself."""
    queues = (queue_of(cluster) for cluster in related.children.get(MINICLUSTER, ()))
    return own_queue(job) or next(queues, "")


def _spec_problems(obj: Object, conditions: tuple[SummaryCondition, ...]) -> Iterator[Problem]:
    again = "create it again"
    if controller_of(obj) is not None:
        again = "make it in a new FluxJob"
    for kind, remedy in (
        (VALID, "correct the spec"),
        ("UpToDate", f"{again}; the change does not apply to a job that was started"),
        (OBJECTS_READY, DESCRIBE),
    ):
        known = tuple(condition for condition in conditions if condition.reason != "Creating")
        refused_by_api = any(
            condition.type == kind and condition.reason == _FAILED_TO_WRITE for condition in known
        )
        advice = _change_of_job(obj) if refused_by_api else ""
        for problem in condition_problems(known, {kind: "False"}, _OBJECT_REMEDIES, remedy):
            yield Problem(problem.message, f"{problem.remedy}{advice}")
    refused = condition_of(conditions, "MiniClusterRefused")
    if refused is not None and refused.status == "True":
        yield Problem(
            f"The MiniCluster was refused: {message_of(refused)}",
            _WRONG_REASONS["MiniClusterRefused"],
        )


def _start_problems(
    obj: Object,
    conditions: tuple[SummaryCondition, ...],
    related: Related,
    shown: Sequence[Problem],
) -> Iterator[Problem]:
    """Yield why pods do not start: what the pods say, or else the condition of the object that was launched.

    ``shown`` are the other problems, which can have the same cause. After the end, only failed pods of an object that
    has failed still say something about it, unless its exit code does.
    """
    is_finished = is_true(conditions, JobState.FINISHED)
    has_result = is_true(conditions, SUCCEEDED) or bool(number(path(obj, "status", "exitCode")))
    if is_finished and has_result:
        return
    pods_ready = condition_of(conditions, PODS_READY)
    found: list[Problem] = []
    if pods_ready is None or pods_ready.status == "False":
        found += pod_problems(_pods_to_explain(related.pods or ()))
        if not is_finished:
            found += created_problems(
                related.created_events, related.pods, remedies=_POD_REMEDIES, shown=shown
            )
    is_wrong = pods_ready is not None and pods_ready.status == "False"
    if pods_ready is not None and is_wrong and not found and pods_ready.reason != STARTING:
        message = message_of(pods_ready)
        known = WAITING_REASONS.get(pods_ready.reason) or DESCRIBE
        remedy = remedy_for(message, known, pods=_POD_REMEDIES)
        found.append(Problem(statement_of(pods_ready), remedy))
    advice = _change_remedy(obj)
    for problem in found:
        yield Problem(problem.message, f"{problem.remedy}{advice}")


def _restart_problems(
    obj: Object, of_cluster: tuple[SummaryCondition, ...], related: Related
) -> Iterator[Problem]:
    """Yield how the last run of a command failed that is run again, from the conditions of its MiniCluster."""
    failed = condition_of(of_cluster, COMMAND_FAILED)
    if (
        failed is not None
        and failed.status == "True"
        and not is_true(of_cluster, JobState.FINISHED)
    ):
        message = message_of(failed)
        yield Problem(message, _failure_remedy(obj, message, related))


def _failure_remedy(obj: Object, message: str, related: Related) -> str:
    """Return what to do about a command that has failed: what ``message`` calls for, or else how to read its log."""
    log = _log_remedy(obj, related)
    remedy = remedy_for(message, log)
    return log if remedy == log else f"{remedy}{_change_remedy(obj)}"


def _change_remedy(obj: Object) -> str:
    """Return what else is necessary if a remedy changes the spec; empty if another controller writes the spec."""
    advice = _change_of_job(obj)
    if advice or controller_of(obj) is not None:
        return advice
    if text(obj.get("kind"), 63) == MINICLUSTER.kind:
        return "; to change the spec, delete the MiniCluster and create it again: a started Job does not follow changes"
    return ""


def _change_of_job(obj: Object) -> str:
    """Return how to change the spec of an admitted FluxJob; empty if ``obj`` is neither one nor its MiniCluster."""
    kind = text((controller_of(obj) or {}).get("kind"), 63) or text(obj.get("kind"), 63)
    if kind == FLUX_JOB.kind:
        return "; to change the spec, delete the FluxJob and create another one: an admitted one cannot be changed"
    return ""


def _pods_to_explain(pods: Sequence[Object]) -> list[Object]:
    """Return the pods that explain why a MiniCluster does not start: the lead broker's, or all if that has no problem.

    The other brokers end when they cannot reach the lead broker, and their logs say no more than that.
    """
    leads = [pod for pod in pods if _is_lead(pod)]
    if any(pod_problems(leads)):
        return leads
    return list(pods)


def _is_lead(pod: Object) -> bool:
    return labels_of(pod).get(COMPLETION_INDEX) == "0"


def _age_key(pod: Object) -> tuple[str, str]:
    """Return the time of creation, and the name."""
    return text(path(pod, "metadata", "creationTimestamp"), 40), name_of(pod)


def _outcome_problems(
    obj: Object, conditions: tuple[SummaryCondition, ...], related: Related
) -> Iterator[Problem]:
    succeeded = condition_of(conditions, SUCCEEDED)
    has_failed = succeeded is not None and succeeded.status == "False"
    if succeeded is not None and has_failed and is_true(conditions, JobState.FINISHED):
        code = number(path(obj, "status", "exitCode"))
        has_log = any(map(_is_lead, related.pods or ()))
        remedy = DESCRIBE
        if code or has_log:
            remedy = _failure_remedy(obj, message_of(succeeded), related)
        if succeeded.reason == "DeadlineExceeded":
            advice = "create it again with more deadlineSeconds, or find out why it took so long"
            remedy = f"{advice}: {remedy}" if has_log else advice
        yield Problem(message_of(succeeded), remedy)


def _log_remedy(obj: Object, related: Related) -> str:
    """Return how to read the log of the lead broker, whose pod may have been deleted."""
    leads = [pod for pod in related.pods or () if _is_lead(pod)]
    if leads:
        newest = max(leads, key=_age_key)
        command = f"kubectl logs -n NAMESPACE {shlex.quote(name_of(newest))} -c {shlex.quote(name_of(obj))}"
        if _runs_again(newest, name_of(obj)):
            command += " --previous"
        return f"read the log of the lead broker: {command}"
    if related.pods is None:
        return "read the log of the lead broker, if its pod still exists"
    return (
        "the pod of the lead broker no longer exists, so its log is not in the cluster: create the job again, and "
        "follow the log while it runs (a FluxJob that fails keeps its pods for an hour, or its "
        "ttlSecondsAfterFinished, unless a ResourceQuota has no room for another one)"
    )


def _runs_again(pod: Object, container: str) -> bool:
    """Return whether a container of a pod runs that was restarted."""
    return any(
        bool(number(status.get("restartCount"))) and path(status, "state", "running") is not None
        for status in items(path(pod, "status", "containerStatuses"))
        if status.get("name") == container
    )


def _queue_problems(conditions: tuple[SummaryCondition, ...]) -> Iterator[Problem]:
    """Yield that a MiniCluster waits for no one."""
    waiting = condition_of(conditions, JobState.WAITING)
    if waiting is not None and message_of(waiting).startswith(NOTHING_RESUMES):
        yield Problem(NOTHING_RESUMES, RESUME_REMEDY)


def _may_have_cluster(related: Related) -> bool:
    """Return whether a job has a MiniCluster, which its user can change; also if MiniClusters cannot be read."""
    clusters = related.children.get(MINICLUSTER)
    return clusters is None or bool(clusters)


def _admission_problems(
    conditions: tuple[SummaryCondition, ...], level: Level, related: Related
) -> Iterator[Problem]:
    reserved = condition_of(conditions, "QuotaReserved")
    if reserved is not None and reserved.status == "False" and reserved.reason in _WRONG_REASONS:
        message = message_of(reserved)
        remedy = remedy_for(message, _WRONG_REASONS[reserved.reason], pods=_POD_REMEDIES)
        if reserved.reason == "NameTaken" and not _may_have_cluster(related):
            remedy = taken_remedy("the job", None)
        if reserved.reason == "NameTaken" and COVERS in message:
            remedy += f"; then {_WRONG_REASONS['NoFluxSetup']}"
        yield Problem(statement_of(reserved), remedy)
    evicted = condition_of(conditions, EVICTED)
    is_preempted = (
        evicted is not None and evicted.status == "True" and evicted.reason == "Preempted"
    )
    if evicted is not None and is_preempted and level is not Level.OK:
        yield Problem(
            f"Evicted: {message_of(evicted)}",
            "nothing to do: the job starts again when there is quota for it",
        )


VIEWS: Final = (
    KindView(
        gvk=FLUX_SETUP,
        setting="flux.enabled",
        summarize=_summarize_setup,
        section=Section(
            id="queues",
            kind=FLUX_SETUP.kind,
            type="queues",
            position=3,
            title="Queues",
            empty="No Flux queue. An administrator creates a FluxSetup.",
            tile="Flux jobs",
            jobs=FLUX_JOB.kind,
        ),
    ),
    KindView(
        gvk=FLUX_JOB,
        setting="flux.enabled",
        summarize=_summarize_job,
        children=(ChildSelection(MINICLUSTER),),
        pod_label=MINICLUSTER_LABEL,
        created=_job_of,
        queue=_queue_of_job,
    ),
    KindView(
        gvk=MINICLUSTER,
        setting="flux.enabled",
        summarize=_summarize_minicluster,
        pod_label=MINICLUSTER_LABEL,
        created=_job_of,
        queue=_queue_of_cluster,
        section=Section(
            id="miniclusters",
            kind=MINICLUSTER.kind,
            type="table",
            position=4,
            title="MiniClusters",
            empty="No MiniClusters.",
            facts=(("Size", "size"), ("Exit code", "exit code")),
            optional=True,
        ),
    ),
)
