"""Summaries of FluxJobs, MiniClusters and FluxSetups: state, quota, failures and logs."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import (
    FLUX_JOB,
    FLUX_SETUP,
    MINICLUSTER,
    NOTHING_RESUMES,
    RESUME_REMEDY,
)
from cfo.console.summary_text import essence
from cfo.runtime import GVK, POD, Object
from cfo.summaries.summary import Level
from test.support.summary_objects import (
    NO_LIMITS,
    condition,
    event,
    messages,
    obj,
    related,
    summarize,
    waits_for,
)

READY_FOR_USE = [
    condition("JobMiniClusterReady", "True"),
    condition("PodsReady", "True", "BrokersReady"),
]
"""The conditions of a FluxJob without a command whose brokers are ready."""


def test_minicluster_that_waits_for_kueue_waits() -> None:
    waits = condition("JobWaitingForResources", "True", message="until Kueue admits it")
    summary = summarize(MINICLUSTER, obj(MINICLUSTER, status={"conditions": [waits]}))
    assert (summary.level, summary.pending, messages(summary)) == (Level.WAITING, "", [])


def test_minicluster_that_nothing_resumes_has_a_problem() -> None:
    waits = condition(
        "JobWaitingForResources", "True", message=f"{NOTHING_RESUMES}: {RESUME_REMEDY}."
    )
    warning = event("NotQueued", "2026-01-01T00:00:00Z", "again")
    summary = summarize(
        MINICLUSTER, obj(MINICLUSTER, status={"conditions": [waits]}), related(events=[warning])
    )
    assert (summary.level, messages(summary)) == (Level.WARNING, [NOTHING_RESUMES])
    assert summary.problems[0].remedy == RESUME_REMEDY


VIOLATION = 'pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'


@pytest.mark.parametrize(
    ("kind", "message", "remedy"),
    [
        (FLUX_JOB, VIOLATION, "template.flux.container"),
        (MINICLUSTER, VIOLATION, "from which flux-view gets them"),
        (FLUX_JOB, NO_LIMITS, "those of flux-view in resources of flux.container"),
        (FLUX_JOB, "exceeded quota: none", "raise the ResourceQuota"),
    ],
)
@pytest.mark.parametrize("source", ["condition", "event"])
def test_remedy_for_refused_pods_of_flux_names_the_fields_and_what_to_create_again(
    kind: GVK, message: str, remedy: str, source: str
) -> None:
    reason = "Starting" if source == "event" else "PodsMissing"
    conditions = [condition("PodsReady", "False", reason, message)]
    events = [
        {"reason": "FailedCreate", "message": message, "involvedObject": {"kind": "Job"}},
    ]
    created = events if source == "event" else []
    found = obj(kind, status={"miniCluster": "x", "conditions": conditions})
    (problem,) = summarize(kind, found, related(created_events=created)).problems
    assert remedy in problem.remedy
    assert problem.remedy.partition("; to change the spec, ")[2].startswith(
        f"delete the {kind.kind} "
    )


@pytest.mark.parametrize(("owner", "named"), [("FluxJob", "delete the FluxJob "), ("Other", "")])
def test_remedy_of_a_minicluster_names_the_fluxjob_that_controls_it(owner: str, named: str) -> None:
    conditions = [condition("PodsReady", "False", "ImagePullBackOff", "not found")]
    reference = {"controller": True, "kind": owner, "name": "x", "uid": "u"}
    found = obj(MINICLUSTER, ownerReferences=[reference], status={"conditions": conditions})
    (problem,) = summarize(MINICLUSTER, found).problems
    assert named in problem.remedy
    assert ("delete the " in problem.remedy) == bool(named)


def test_job_that_exceeded_its_deadline_has_the_remedy_to_increase_it() -> None:
    cause = "Found 1 failed components: Job j (DeadlineExceeded: Job was active longer)"
    status = {
        "phase": "Failed",
        "conditions": [condition("Unhealthy", "True", "FailedComponent", cause)],
    }
    (problem,) = summarize(APPWRAPPER, obj(APPWRAPPER, status=status), related()).problems
    assert problem.message == f"FailedComponent: {cause}"
    assert problem.remedy.startswith("increase the component's deadline (activeDeadlineSeconds)")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Suspended", []),
        ("Preempted", ["Evicted: message"]),
        ("StartTimeout", ["StartTimeout: message"]),
    ],
)
def test_flux_job_that_its_user_suspended_has_no_problem(reason: str, expected: list[str]) -> None:
    conditions = [
        condition("JobWaitingForResources", "True", "JobWaitingForResources"),
        condition("QuotaReserved", "False", reason),
        condition("Evicted", "True", reason),
    ]
    summary = summarize(FLUX_JOB, obj(FLUX_JOB, status={"conditions": conditions}))
    assert messages(summary) == expected


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("ImagePullBackOff: Pod j-0: not found", "check the name of the image"),
        ("Unschedulable: Pod j-0: 0/1 nodes are available", "request less, or wait for"),
        ("4 pods have not started", "correct the spec, or ask the administrator"),
    ],
)
def test_flux_job_that_could_not_start_has_the_remedy_of_its_pods(cause: str, remedy: str) -> None:
    message = f"The job could not start in time: {cause}"
    conditions = [
        condition("JobWaitingForResources", "True", "JobWaitingForResources"),
        condition("QuotaReserved", "False", "StartTimeout", message),
    ]
    (problem,) = summarize(FLUX_JOB, obj(FLUX_JOB, status={"conditions": conditions})).problems
    assert problem.message == f"StartTimeout: {message}"
    assert problem.remedy.startswith(remedy)


def test_deadline_of_a_flux_job_is_one_problem() -> None:
    """The Event of the Job has the same cause as the condition."""
    cause = "Job was active longer than specified deadline"
    conditions = [
        condition("JobFinished", "True"),
        condition("Succeeded", "False", "DeadlineExceeded", f"The Job failed: {cause}"),
    ]
    event = {
        "reason": "DeadlineExceeded",
        "message": cause,
        "involvedObject": {"kind": "Job", "name": "j"},
    }
    for kind in (FLUX_JOB, MINICLUSTER):
        job = obj(kind, status={"miniCluster": "j", "conditions": conditions})
        summary = summarize(kind, job, related(created_events=[event]))
        assert messages(summary) == [f"The Job failed: {cause}"]


@pytest.mark.parametrize("kind", [FLUX_JOB, MINICLUSTER])
@pytest.mark.parametrize(
    ("exit_code", "remedy"),
    [
        ("137 (OOMKilled)", "raise the memory limit of the container; to change the spec"),
        ("3", "read the log of the lead broker: kubectl logs -n n x-0-a -c x --previous"),
    ],
)
def test_restart_of_a_command_that_failed_is_a_problem_while_it_runs(
    kind: GVK, exit_code: str, remedy: str
) -> None:
    message = f"The command ended with exit code {exit_code}. It was started again once."
    failed = condition("CommandFailed", "True", "Any", message)
    runs = [condition("JobRunning", "True"), condition("PodsReady", "True", "BrokersReady")]
    status = {"miniCluster": "x", "conditions": [*runs, failed]}
    of_cluster = [obj(MINICLUSTER, status=status)]
    restarted = lead_pod("x-0-a")
    restarted["status"] = {
        "phase": "Running",
        "containerStatuses": [
            {"name": "x", "ready": True, "restartCount": 1, "state": {"running": {}}}
        ],
    }
    found = obj(kind, status={**status, "conditions": runs} if kind is FLUX_JOB else status)
    others = related(children={MINICLUSTER: of_cluster}, pods=[restarted])
    (problem,) = summarize(kind, found, others).problems
    assert problem.message == message
    assert problem.remedy.startswith(remedy)


@pytest.mark.parametrize("kind", [FLUX_JOB, MINICLUSTER])
def test_command_that_was_killed_for_its_memory_has_the_remedy(kind: GVK) -> None:
    message = "The command failed with exit code 137 (OOMKilled): Job has reached the limit"
    conditions = [
        condition("JobFinished", "True"),
        condition("Succeeded", "False", "BackoffLimitExceeded", message),
        condition("CommandFailed", "True", "OOMKilled", "The command ended"),
    ]
    found = obj(kind, status={"miniCluster": "x", "exitCode": 137, "conditions": conditions})
    children = {MINICLUSTER: [obj(MINICLUSTER, status=found["status"])]}
    (problem,) = summarize(kind, found, related(pods=[], children=children)).problems
    assert problem.remedy.startswith("raise the memory limit of the container; to change the spec")


def test_fluxsetup_shows_used_and_total_quota() -> None:
    status = {
        "conditions": [condition("Active", "True", "Ready")],
        "usedResources": 12,
        "admittedWorkloads": 3,
        "pendingWorkloads": 4,
    }
    summary = summarize(FLUX_SETUP, obj(FLUX_SETUP, spec={"max-size": 20}, status=status))
    assert (summary.state, summary.level, summary.ready) == ("Active", Level.OK, "12/20")
    assert (summary.fact("quota"), summary.fact("jobs")) == (
        "12 of 20 pods used",
        "3 admitted, 4 waiting",
    )
    status["usedWithoutJob"] = 5
    summary = summarize(FLUX_SETUP, obj(FLUX_SETUP, spec={"max-size": 20}, status=status))
    expected = "12 of 20 pods used, 5 of them by MiniClusters that no FluxJob created"
    assert summary.fact("quota") == expected
    status["conditions"] = [condition("Active", "False", "Replaced", "FluxSetup n/y is newer")]
    summary = summarize(FLUX_SETUP, obj(FLUX_SETUP, status=status))
    assert (summary.state, summary.level) == ("Replaced", Level.WARNING)


@pytest.mark.parametrize(
    ("conditions", "state", "level", "problems"),
    [
        ([condition("JobRequested", "True")], "JobRequested", Level.PROGRESSING, []),
        ([condition("JobRunning", "True")], "JobRunning", Level.OK, []),
        (
            [condition("JobFinished", "True"), condition("Succeeded", "True")],
            "JobFinished",
            Level.OK,
            [],
        ),
        (
            [
                condition("JobFinished", "True"),
                condition("Succeeded", "False", "Failed", "exit code 1"),
            ],
            "JobFinished",
            Level.FAILED,
            ["exit code 1"],
        ),
        (
            [
                condition("JobRequested", "True"),
                condition("QuotaReserved", "False", "TooLarge", "needs 9 pods"),
            ],
            "JobRequested",
            Level.WARNING,
            ["TooLarge: needs 9 pods"],
        ),
        (
            [
                condition("JobRequested", "True"),
                condition("QuotaReserved", "False", "InsufficientQuota"),
            ],
            "JobRequested",
            Level.WAITING,
            [],
        ),
        (
            [condition("Valid", "False", "Invalid", "spec.size")],
            "",
            Level.WARNING,
            ["Invalid: spec.size"],
        ),
    ],
)
def test_fluxjob_shows_its_state_and_why_it_does_not_run(
    conditions: Any, state: str, level: Level, problems: list[str]
) -> None:
    summary = summarize(FLUX_JOB, obj(FLUX_JOB, status={"conditions": conditions, "position": 4}))
    assert (summary.state, summary.level, messages(summary)) == (state, level, problems)
    assert summary.fact("position") == "about number 4 in the queue"


def test_next_fluxjob_in_the_queue_shows_what_it_waits_for() -> None:
    why = "Waiting for 5 pods of the quota of FluxSetup n/team"
    waiting = condition("JobWaitingForResources", "True", "InsufficientQuota", why)
    job = obj(FLUX_JOB, status={"conditions": [waiting], "position": 1})
    assert summarize(FLUX_JOB, job).fact("position") == f"next in the queue: {why}"


def waiting_pod(reason: str) -> Object:
    """Return a pod whose container waits for ``reason``."""
    status = {"name": "c", "state": {"waiting": {"reason": reason, "message": "not found"}}}
    return obj(POD, status={"phase": "Pending", "containerStatuses": [status]})


@pytest.mark.parametrize(
    ("command", "conditions", "pending"),
    [
        ("", [condition("JobMiniClusterReady", "True")], "is JobMiniClusterReady"),
        ("", READY_FOR_USE, ""),
        ("sleep 1", READY_FOR_USE, "is JobMiniClusterReady"),
        ("sleep 1", [condition("JobRunning", "True")], "is JobRunning"),
        ("sleep 1", [condition("JobFinished", "True")], ""),
        ("sleep 1", waits_for("TooLarge"), ""),
        ("sleep 1", waits_for("Suspended"), ""),
        ("sleep 1", waits_for("WaitingForKueue"), ""),
        ("sleep 1", waits_for("InsufficientQuota"), "is JobWaitingForResources"),
    ],
)
def test_fluxjob_has_settled_when_it_ended_or_is_ready_for_use_or_waits_for_a_user(
    command: str, conditions: list[Object], pending: str
) -> None:
    job = obj(FLUX_JOB, spec={"command": command}, status={"conditions": conditions})
    assert summarize(FLUX_JOB, job).pending == pending


def test_fluxjob_for_interactive_use_is_ok_when_its_brokers_are_ready() -> None:
    job = obj(FLUX_JOB, status={"conditions": READY_FOR_USE})
    assert summarize(FLUX_JOB, job).level is Level.OK


@pytest.mark.parametrize(
    ("spec", "pending"),
    [
        ({"containers": [{"image": "flux"}]}, ""),
        ({"interactive": True, "containers": [{"command": "hostname"}]}, ""),
        ({"containers": [{"command": "hostname"}]}, "is JobRunning"),
    ],
)
def test_interactive_minicluster_has_settled_when_it_runs(
    spec: dict[str, Any], pending: str
) -> None:
    cluster = obj(MINICLUSTER, spec=spec, status={"conditions": [condition("JobRunning", "True")]})
    assert summarize(MINICLUSTER, cluster).pending == pending


@pytest.mark.parametrize(
    ("spec", "status", "connect"),
    [
        ({}, READY_FOR_USE, "kubectl exec -it -n n job/x -- /mnt/flux/flux-connect.sh"),
        ({}, [], ""),
        ({"command": "sleep 1"}, [condition("JobRunning", "True")], ""),
        ({"template": {"containers": [{"command": "a"}]}}, [condition("JobRunning", "True")], ""),
    ],
)
def test_fluxjob_for_interactive_use_has_the_command_that_connects(
    spec: Object, status: list[Object], connect: str
) -> None:
    job = obj(FLUX_JOB, spec=spec, status={"conditions": status})
    summary = summarize(FLUX_JOB, job)
    assert summary.fact("connect") == connect
    assert not connect or essence(summary) == connect


def test_command_to_connect_has_the_mount_path_of_the_minicluster() -> None:
    spec = {"containers": [{}], "flux": {"container": {"mountPath": "/opt/my flux/"}}}
    cluster = obj(MINICLUSTER, spec=spec, status={"conditions": [condition("JobRunning", "True")]})
    command = "kubectl exec -it -n n job/x -- '/opt/my flux/flux-connect.sh'"
    assert summarize(MINICLUSTER, cluster).fact("connect") == command
    job = obj(FLUX_JOB, status={"conditions": READY_FOR_USE})
    summary = summarize(FLUX_JOB, job, related(children={MINICLUSTER: [cluster]}))
    assert summary.fact("connect") == command


def test_fluxjob_is_not_ok_while_a_pod_of_its_minicluster_cannot_start() -> None:
    running = condition("JobRunning", "True")
    starting = condition("PodsReady", "False", "Starting", "The pods are being started")
    failing = condition("PodsReady", "False", "ImagePullBackOff", "Pod p: not found")
    status = {"miniCluster": "x", "conditions": [running, starting]}
    assert summarize(FLUX_JOB, obj(FLUX_JOB, status=status)).level is Level.PROGRESSING
    pods = related(pods=[waiting_pod("ImagePullBackOff")])
    summary = summarize(FLUX_JOB, obj(FLUX_JOB, status=status), pods)
    assert (summary.level, messages(summary)) == (
        Level.WARNING,
        ["Pod x: container c waits: ImagePullBackOff (not found)"],
    )
    status["conditions"] = [running, failing]
    summary = summarize(FLUX_JOB, obj(FLUX_JOB, status=status))
    assert (summary.level, messages(summary)) == (
        Level.WARNING,
        ["ImagePullBackOff: Pod p: not found"],
    )
    foreign = obj(FLUX_JOB, status={"conditions": [running]})
    assert messages(summarize(FLUX_JOB, foreign, pods)) == []


@pytest.mark.parametrize(
    ("note", "is_covered"), [("", True), ("; in addition, no FluxSetup covers namespace n", False)]
)
def test_remedy_of_a_taken_name_names_a_missing_setup(note: str, *, is_covered: bool) -> None:
    reserved = condition("QuotaReserved", "False", "NameTaken", f"MiniCluster x exists{note}")
    job = obj(FLUX_JOB, status={"conditions": [reserved]})
    (problem,) = summarize(FLUX_JOB, job).problems
    assert problem.message == f"NameTaken: MiniCluster x exists{note}"
    assert problem.remedy.startswith("create the job again with another name")
    assert ("ask the administrator for a FluxSetup" not in problem.remedy) is is_covered
    assert "an annotation of its MiniCluster" in problem.remedy
    (problem,) = summarize(FLUX_JOB, job, related(children={MINICLUSTER: []})).problems
    assert "annotation" not in problem.remedy, "there is no MiniCluster of the job"


@pytest.mark.parametrize("gvk", [FLUX_JOB, MINICLUSTER])
def test_remedy_after_the_deadline_names_its_field(gvk: GVK) -> None:
    failed = condition("Succeeded", "False", "DeadlineExceeded", "The Job failed: too long")
    conditions = [condition("JobFinished", "True"), failed]
    (problem,) = summarize(gvk, obj(gvk, status={"conditions": conditions})).problems
    assert "deadlineSeconds" in problem.remedy
    failed_job = obj(gvk, status={"conditions": conditions})
    problem, *_ = summarize(gvk, failed_job, related(pods=[lead_pod("x-0-a")])).problems
    assert problem.remedy.endswith(
        "took so long: read the log of the lead broker: kubectl logs -n n x-0-a -c x"
    )


def test_failure_without_an_exit_code_names_the_log_of_a_pod_that_exists() -> None:
    conditions = [condition("JobFinished", "True"), condition("Succeeded", "False")]
    failed = obj(FLUX_JOB, status={"conditions": conditions})
    (problem,) = summarize(FLUX_JOB, failed, related(pods=[lead_pod("x-0-a")])).problems
    assert problem.remedy == "read the log of the lead broker: kubectl logs -n n x-0-a -c x"
    (problem,) = summarize(FLUX_JOB, failed, related(pods=[])).problems
    assert problem.remedy.startswith("kubectl describe fluxjob")


def test_minicluster_shows_ready_brokers() -> None:
    status = {"conditions": [condition("JobMiniClusterReady", "True")], "ready": 2, "size": 4}
    summary = summarize(MINICLUSTER, obj(MINICLUSTER, status=status))
    assert (summary.state, summary.level, summary.ready) == (
        "JobMiniClusterReady",
        Level.PROGRESSING,
        "2/4",
    )


def lead_pod(name: str, *, index: str = "0", code: int = 1, created: str = "2026-01-01") -> Object:
    """Return a pod of a MiniCluster whose container has ended and is not started again yet."""
    labels = {"batch.kubernetes.io/job-completion-index": index}
    state = {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": code}},
    }
    created += "T00:00:00Z"
    metadata = {"name": name, "namespace": "n", "labels": labels, "creationTimestamp": created}
    return {"metadata": metadata, "status": {"containerStatuses": [{"name": "x", **state}]}}


@pytest.mark.parametrize("gvk", [FLUX_JOB, MINICLUSTER])
def test_pods_of_workers_do_not_hide_why_the_lead_broker_ends(gvk: GVK) -> None:
    status = {"miniCluster": "x", "conditions": [condition("PodsReady", "False", "Starting")]}
    workers = [lead_pod("x-1-a", index="1"), lead_pod("x-2-a", index="2")]
    pods = [*workers, lead_pod("x-0-a", code=127)]
    summary = summarize(gvk, obj(gvk, status=status), related(pods=pods))
    assert [each for each in messages(summary) if "exit code" in each] == [
        "Pod x-0-a: container x ended with exit code 127"
    ]
    remedy = summary.problems[-1].remedy
    assert remedy.startswith("read the log: kubectl logs -c x --previous -n n x-0-a; to change ")
    without_lead = summarize(gvk, obj(gvk, status=status), related(pods=workers))
    assert "Pods x-1-a, x-2-a: container x ended with exit code 1" in messages(without_lead)


@pytest.mark.parametrize(
    ("pods", "remedy"),
    [
        (
            [
                lead_pod("x-0-b"),
                lead_pod("x-0-a", created="2026-02-01"),
                lead_pod("x-1", index="1"),
            ],
            "read the log of the lead broker: kubectl logs -n n x-0-a -c x",
        ),
        ([], "the pod of the lead broker no longer exists"),
        (None, "read the log of the lead broker, if its pod still exists"),
    ],
)
def test_log_of_a_failed_command_is_that_of_the_newest_lead_broker(
    pods: list[Object] | None, remedy: str
) -> None:
    conditions = [condition("JobFinished", "True"), condition("Succeeded", "False")]
    failed = obj(MINICLUSTER, status={"conditions": conditions, "exitCode": 3})
    # The pods do not say the same once more.
    (problem,) = summarize(MINICLUSTER, failed, related(pods=pods)).problems
    assert problem.remedy.startswith(remedy)


@pytest.mark.parametrize(("reason", "is_shown"), [("SizeOutOfRange", False), ("Other", True)])
def test_size_that_the_operator_has_set_back_is_no_problem(reason: str, is_shown: bool) -> None:
    suspended = obj(MINICLUSTER, spec={"suspend": True}, status={"size": 4})
    warning = event(
        reason, "2026-01-01T00:00:00Z", "spec.size: 9: must be at most 4. It was set to 4."
    )
    problems = messages(summarize(MINICLUSTER, suspended, related(events=[warning])))
    assert any("It was set to 4" in problem for problem in problems) is is_shown
