"""Summaries of AppWrappers: level, components, retries, and their pods."""

from __future__ import annotations

from typing import Any

import pytest

from cfo.api.appwrapper.names import APPWRAPPER, FINALIZER
from cfo.api.appwrapper.waiting_pods import cause_with_pod
from cfo.api.reading import milliseconds
from cfo.runtime import GVK, Object
from cfo.summaries.summary import Level
from test.support.summaries import VIEWS
from test.support.summary_objects import (
    NOT_OURS,
    OLD,
    changed,
    condition,
    event,
    messages,
    obj,
    pod,
    related,
    summarize,
)


def test_timeline_of_an_appwrapper_ends_with_the_time_of_its_deletion() -> None:
    wrapper = obj(APPWRAPPER, status={"phase": "Running"})
    wrapper["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    past_phases = VIEWS[APPWRAPPER].past_phases
    assert past_phases is not None
    (*_, last) = past_phases(summarize(APPWRAPPER, wrapper, related()))
    assert last == (milliseconds("2026-06-01T00:00:00Z"), "Terminating", "progressing")


def test_deletion_that_components_delay_names_them_and_how_to_see_their_finalizers() -> None:
    kinds = [("v1", "ConfigMap"), ("batch/v1", "Job"), ("v1", "Secret"), ("apps/v1", "Deployment")]
    components = [
        {
            "apiVersion": api_version,
            "kind": kind,
            "name": f"c{index}",
            "conditions": [condition("ResourcesDeployed", "True", "ComponentCreatedSuccessfully")],
        }
        for index, (api_version, kind) in enumerate(kinds)
    ]
    wrapper = obj(
        APPWRAPPER,
        status={"phase": "Terminating", "componentStatus": components},
        deletionTimestamp="2026-05-31T23:00:00Z",
        finalizers=[FINALIZER],
    )
    (problem,) = summarize(APPWRAPPER, wrapper, related()).problems
    assert problem.message.endswith(
        f"waiting for {FINALIZER}; objects that are deleted first: ConfigMap c0, Job c1, Secret c2 and 1 more"
    )
    assert "kubectl get configmap c0 -n n -o 'jsonpath={.metadata.finalizers}'; " in problem.remedy
    components[0]["conditions"] = [condition("ResourcesDeployed", "False", "ComponentDeleted")]
    summary = summarize(APPWRAPPER, wrapper, related())
    assert summary.fact("deletion") == "waits for Job c1, Secret c2, Deployment c3"
    assert summary.pending == "is being deleted, waiting for Job c1, Secret c2, Deployment c3"
    (problem,) = summary.problems
    assert problem.message.endswith("first: Job c1, Secret c2, Deployment c3")
    assert "kubectl get job.batch c1 -n n" in problem.remedy
    wrapper["metadata"]["finalizers"] = ["example.com/other"]
    (problem,) = summarize(APPWRAPPER, wrapper, related()).problems
    assert problem.message.endswith("waiting for example.com/other")
    assert problem.remedy == "check that the controllers run which own these finalizers"


def test_failed_attempts_of_an_appwrapper_are_one_problem() -> None:
    def cause(attempt: int) -> str:
        return f"FoundFailedPods: 1 failed pods: j-{attempt} (container main: exit code 3)"

    events = [
        {
            "type": "Warning",
            "reason": "Unhealthy",
            "message": cause(attempt),
            "lastTimestamp": f"2026-01-01T0{attempt}Z",
        }
        for attempt in (2, 3, 1)
    ]
    unhealthy = condition(
        "Unhealthy", "True", "FoundFailedPods", f"{cause(3).partition(': ')[2]}; retry 3 of 3"
    )
    for conditions, expected in (
        ([unhealthy], f"{cause(3)}; retry 3 of 3"),
        ([], f"Unhealthy: {cause(3)}"),
    ):
        wrapper = obj(APPWRAPPER, status={"phase": "Resetting", "conditions": conditions})
        assert messages(summarize(APPWRAPPER, wrapper, related(events=events))) == [expected]


@pytest.mark.parametrize(
    ("phase", "suspend", "labels", "level"),
    [
        ("Running", False, {}, Level.OK),
        ("Succeeded", False, {}, Level.OK),
        ("Failed", False, {}, Level.FAILED),
        ("Resuming", False, {}, Level.PROGRESSING),
        ("Suspended", True, {}, Level.WAITING),
        ("Suspended", True, {"kueue.x-k8s.io/queue-name": "q"}, Level.WAITING),
        ("", False, {}, Level.PROGRESSING),
    ],
)
def test_level_of_an_appwrapper_follows_its_phase(
    phase: str, suspend: bool, labels: Any, level: Level
) -> None:
    wrapper = obj(APPWRAPPER, spec={"suspend": suspend}, status={"phase": phase}, labels=labels)
    summary = summarize(APPWRAPPER, wrapper)
    assert (summary.state, summary.level) == (phase, level)
    why = dict(summary.facts).get("why", "")
    assert ("set spec.suspend to false" in why) is (suspend and not labels)


def test_appwrapper_reports_why_a_component_cannot_be_created() -> None:
    errored = condition(
        "ResourcesDeployed", "False", "ComponentCreationErrored", "forbidden: quota"
    )
    status = {
        "phase": "Resuming",
        "resettingCount": 2,
        "conditions": [
            condition("QuotaReserved", "True"),
            condition("Unhealthy", "True", "CreateFailed", ""),
        ],
        "componentStatus": [
            {"kind": "Job", "name": "j", "conditions": [errored]},
            {
                "kind": "Service",
                "name": "s",
                "conditions": [condition("ResourcesDeployed", "True")],
            },
        ],
    }
    components = [{"template": {"kind": "Job"}}, {"template": {"kind": "Service"}}]
    summary = summarize(APPWRAPPER, obj(APPWRAPPER, spec={"components": components}, status=status))
    assert messages(summary) == ["CreateFailed", "Job j cannot be created: forbidden: quota"]
    assert dict(summary.facts) == {
        "components": "1 Job, 1 Service",
        "quota reserved": "yes",
        "retries": "2",
    }


def test_ignored_annotations_of_an_appwrapper_are_problems() -> None:
    message = (
        "Suspend is false; annotation p/retryLimit: 'three': must be an integer; 3 is used; "
        "annotation p/retrylimit: unknown, so it is ignored"
    )
    deployed = condition("ResourcesDeployed", "True", "Resuming", message)
    events = [event("MalformedAnnotations", "")]
    wrapper = obj(APPWRAPPER, status={"phase": "Running", "conditions": [deployed]})
    summary = summarize(APPWRAPPER, wrapper, related(events=events))
    assert summary.level is Level.WARNING
    assert messages(summary) == [
        "annotation p/retryLimit: 'three': must be an integer; 3 is used",
        "annotation p/retrylimit: unknown, so it is ignored",
    ]
    assert {problem.remedy for problem in summary.problems} == {"correct or remove the annotation"}

    succeeded = obj(APPWRAPPER, status={"phase": "Succeeded", "conditions": [deployed]})
    summary = summarize(APPWRAPPER, succeeded, related(events=events))
    assert (summary.level, summary.problems) == (Level.OK, ())


def test_component_with_a_taken_name_is_one_problem_of_a_failed_appwrapper() -> None:
    taken = condition("ResourcesDeployed", "False", "ComponentCreationErrored", NOT_OURS)
    status = {
        "phase": "Failed",
        "conditions": [
            condition("Unhealthy", "True", "CreateFailed", f"error creating components: {NOT_OURS}")
        ],
        "componentStatus": [{"kind": "Job", "name": "j", "conditions": [taken]}],
    }
    (problem,) = summarize(APPWRAPPER, obj(APPWRAPPER, status=status)).problems
    assert problem.remedy.startswith("delete Job j if it is yours")
    assert "another name" in problem.remedy


def test_remedy_for_a_component_with_a_taken_name_is_not_a_quota() -> None:
    taken = condition("ResourcesDeployed", "False", "ComponentCreationErrored", NOT_OURS)
    component = {"kind": "Job", "name": "j", "conditions": [taken]}
    wrapper = obj(APPWRAPPER, status={"componentStatus": [component]})
    (problem,) = summarize(APPWRAPPER, wrapper).problems
    assert problem.remedy.startswith("delete Job j if it is yours")
    assert "another name" in problem.remedy
    assert "quota" not in problem.remedy


def test_remedy_for_pods_beyond_the_quota_is_to_scale_back_in_time() -> None:
    excess = "Deployment d has 3 pods, but its queue admitted 1"
    status = {
        "phase": "Running",
        "conditions": [
            condition("Unhealthy", "True", "ExcessPods", excess),
            condition("PodsReady", "False", "InsufficientPodsReady", ""),
        ],
    }
    event = {"type": "Warning", "reason": "ExcessPods", "message": f"{excess}; other words"}
    seen = related(events=[event])
    (problem,) = summarize(APPWRAPPER, obj(APPWRAPPER, status=status), seen).problems
    assert problem.message == f"ExcessPods: {excess}"
    assert problem.remedy.startswith("scale the component back within a minute")
    assert "reset, at most three times" in problem.remedy
    status["phase"] = "Resetting"
    problem, *_ = summarize(APPWRAPPER, obj(APPWRAPPER, status=status), seen).problems
    assert problem.remedy.startswith("to run more pods than its queue admitted")


@pytest.mark.parametrize(("phase", "level"), [("Running", Level.WARNING), ("Succeeded", Level.OK)])
def test_dropped_fields_of_a_component_are_a_problem_of_its_appwrapper_until_it_succeeds(
    phase: str, level: Level
) -> None:
    dropped = condition("UnknownFields", "True", "FieldsDropped", 'unknown field "spec.paralelism"')
    component = {"kind": "Job", "name": "j", "conditions": [dropped]}
    wrapper = obj(APPWRAPPER, status={"phase": phase, "componentStatus": [component]})
    event = {"type": "Warning", "reason": "ComponentWarning", "message": "other words"}
    summary = summarize(APPWRAPPER, wrapper, related(events=[event]))
    assert summary.level is level
    message = 'Job j was created without fields that its kind does not have: unknown field "spec.paralelism"'
    if phase == "Succeeded":
        assert messages(summary) == []
        assert dict(summary.facts)["dropped fields"] == message
    else:
        assert messages(summary) == [message]


def running_wrapper(reason: str, message: str, status: str = "False", replicas: int = 1) -> Object:
    component = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "podSets": [{"replicas": replicas}],
    }
    conditions = [
        condition("ResourcesDeployed", "True"),
        condition("PodsReady", status, reason, message),
    ]
    fields = {"phase": "Running", "conditions": conditions, "componentStatus": [component]}
    return obj(APPWRAPPER, spec={"components": [{"template": {"kind": "Job"}}]}, status=fields)


@pytest.mark.parametrize(
    ("managed_by", "ready"), [("kueue.x-k8s.io/multikueue", "1/1"), (None, "0/1")]
)
def test_appwrapper_that_multikueue_runs_elsewhere_is_as_ready_as_it_reports(
    managed_by: str | None, ready: str
) -> None:
    template = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}]}}
    component = {"podSets": [{"path": "template", "replicas": 1}]}
    condition = {"type": "PodsReady", "status": "True", "reason": "SufficientPodsReady"}
    wrapper = obj(
        APPWRAPPER,
        spec={"managedBy": managed_by, "components": [{"template": template}]},
        status={"phase": "Running", "conditions": [condition], "componentStatus": [component]},
    )
    summary = summarize(APPWRAPPER, wrapper, related(pods=[]))
    assert (summary.ready, summary.level) == (ready, Level.OK)
    assert bool(summary.fact("pods")) is (managed_by is None)


def test_pods_of_an_appwrapper_are_counted_as_pods() -> None:
    pending = summarize(
        APPWRAPPER, running_wrapper("Resuming", "Suspend is false"), related(pods=[pod("Pending")])
    )
    assert (pending.state, pending.level, pending.ready) == ("Running", Level.PROGRESSING, "0/1")
    assert pending.fact("pods") == "1 (1 pending)"
    assert "Suspend is false" not in dict(pending.facts).values()
    ready = pod("Running", conditions=[condition("Ready", "True")])
    wrapper = running_wrapper("SufficientPodsReady", "2 pods running", "True", replicas=3)
    found = summarize(APPWRAPPER, wrapper, related(pods=[ready, pod("Succeeded"), pod("Running")]))
    assert (found.level, found.ready, found.fact("pods")) == (
        Level.OK,
        "2/3",
        "3 (2 running, 1 succeeded)",
    )
    assert (
        summarize(APPWRAPPER, wrapper).ready == "3/3"
    )  # who cannot read pods relies on the condition


def test_cause_of_a_retry_comes_first_and_its_remedy_agrees_with_the_retry() -> None:
    message = (
        '0 pods running; 1 pods missing (FailedCreate: Job j: pods "j-b65wn" is forbidden: exceeded quota: none); '
        "retry 1 of 3"
    )
    deleted = "Resources deleted; next attempt at 2026-06-01 00:01:30 UTC"
    status = {
        "phase": "Resetting",
        "conditions": [
            condition("Unhealthy", "True", "InsufficientPodsReady", message),
            condition("ResourcesDeployed", "False", "Resetting", deleted),
        ],
    }
    event = {
        "reason": "FailedCreate",
        "message": 'Error creating: pods "j-x7r5b" is forbidden: exceeded quota: none',
        "involvedObject": {"kind": "Job", "name": "j"},
    }
    wrapper = obj(APPWRAPPER, status=status)
    (first,) = summarize(APPWRAPPER, wrapper, related(created_events=[event])).problems
    assert first.message.startswith("Job j: FailedCreate: ")
    assert first.remedy.startswith("the next attempt is at 2026-06-01 00:01:30 UTC; request less")
    assert first.remedy.endswith("delete the AppWrapper and create it again")
    assert "wait" not in first.remedy
    (known,) = summarize(APPWRAPPER, wrapper).problems
    assert known.message.startswith("InsufficientPodsReady: ")
    assert known.remedy == first.remedy


def test_events_since_a_reset_began_are_no_causes() -> None:
    """The reset deletes the pods of a Job, which then fails."""
    waited = condition("Unhealthy", "True", "InsufficientPodsReady", "0 pods running; 1 missing")
    waited["lastTransitionTime"] = "2026-06-01T00:01:30.400000Z"
    wrapper = obj(APPWRAPPER, status={"phase": "Resetting", "conditions": [waited]})
    event = {
        "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit",
        "involvedObject": {"kind": "Job", "name": "j"},
        "lastTimestamp": "2026-06-01T00:01:30Z",
    }
    (problem,) = summarize(APPWRAPPER, wrapper, related(created_events=[event])).problems
    assert problem.message.startswith("InsufficientPodsReady: ")
    event["lastTimestamp"] = "2026-06-01T00:01:29Z"
    first, _ = summarize(APPWRAPPER, wrapper, related(created_events=[event])).problems
    assert first.message.startswith("Job j: BackoffLimitExceeded: ")


def test_remedy_for_pods_of_an_appwrapper_names_how_to_change_a_component() -> None:
    waiting = condition("PodScheduled", "False", "Unschedulable", "Insufficient cpu")
    pending = {
        "metadata": {"namespace": "n", "name": "a"},
        "status": {"phase": "Pending", "conditions": [waiting]},
    }
    wrapper = obj(APPWRAPPER, status={"phase": "Resuming"})
    (problem,) = summarize(APPWRAPPER, wrapper, related(pods=[pending])).problems
    assert problem.remedy.startswith("request less")
    assert "to change a component, delete the AppWrapper" in problem.remedy


@pytest.mark.parametrize(
    ("job", "succeeded", "ready"),
    [
        ({"parallelism": 2, "completions": 4}, 3, "3/4"),
        ({"parallelism": 2, "completions": 4}, 4, "4/4"),
        ({"parallelism": 2}, 3, "2/2"),
    ],
)
def test_pods_that_a_job_replaces_count_until_it_is_complete(
    job: dict[str, int], succeeded: int, ready: str
) -> None:
    template = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {**job, "template": {"spec": {"containers": [{"name": "c"}]}}},
    }
    component = {"podSets": [{"path": "template.spec.template", "replicas": 2}]}
    wrapper = obj(
        APPWRAPPER,
        spec={"components": [{"template": template}]},
        status={"phase": "Running", "componentStatus": [component]},
    )
    pods = [pod("Succeeded", f"p{number}") for number in range(succeeded)]
    assert summarize(APPWRAPPER, wrapper, related(pods=pods)).ready == ready


def test_failed_job_shows_its_next_attempt_and_how_to_keep_its_pods() -> None:
    cause = "Found 1 failed components: Job j; 1 failed pods: j-x (container main: exit code 3); retry 1 of 3"
    deleted = "Resources deleted for resetting AppWrapper; next attempt at 2026-06-01 00:01:30 UTC"
    status = {
        "phase": "Resetting",
        "conditions": [
            condition("Unhealthy", "True", "FailedComponent", cause),
            condition("ResourcesDeployed", "False", "Resetting", deleted),
        ],
    }
    (problem,) = summarize(APPWRAPPER, obj(APPWRAPPER, status=status), related()).problems
    assert problem.message == f"FailedComponent: {cause}"
    assert problem.remedy.startswith(
        "the next attempt is at 2026-06-01 00:01:30 UTC; to keep the pods"
    )
    assert "deletionOnFailureGracePeriodDuration: 1h" in problem.remedy
    status["phase"] = "Failed"
    failed = summarize(
        APPWRAPPER,
        obj(APPWRAPPER, status=status),
        related(pods=[pod("Failed", "j-x"), pod("Running")]),
    )
    assert failed.problems[0].remedy.startswith("kubectl logs -n n j-x; ")
    killed = cause.replace("exit code 3", "exit code 137, OOMKilled")
    status["conditions"] = [condition("Unhealthy", "True", "FailedComponent", killed)]
    (problem,) = summarize(APPWRAPPER, obj(APPWRAPPER, status=status), related()).problems
    assert problem.remedy.startswith(
        "raise the memory limit of the container; to change a component, delete the AppWrapper"
    )


@pytest.mark.parametrize(
    ("state", "pending"),
    [("Running", "is Running"), ("", "is new"), ("Failed", ""), ("Succeeded", "")],
)
def test_appwrapper_has_settled_when_it_has_ended(state: str, pending: str) -> None:
    assert summarize(APPWRAPPER, obj(APPWRAPPER, status={"phase": state})).pending == pending


@pytest.mark.parametrize(
    ("kind", "ready", "pending"),
    [
        (GVK("ray.io", "v1", "RayCluster"), "True", ""),
        (GVK("apps", "v1", "Deployment"), "True", ""),
        (GVK("apps", "v1", "Deployment"), "False", "is Running"),
        (GVK("batch", "v1", "Job"), "True", "is Running"),
    ],
)
def test_appwrapper_that_never_ends_has_settled_when_its_pods_are_ready(
    kind: GVK, ready: str, pending: str
) -> None:
    template = {"apiVersion": kind.api_version, "kind": kind.kind}
    status = {"phase": "Running", "conditions": [condition("PodsReady", ready)]}
    wrapper = obj(APPWRAPPER, spec={"components": [{"template": template}]}, status=status)
    assert summarize(APPWRAPPER, wrapper).pending == pending


@pytest.mark.parametrize("phase", ["Resetting", "Failed"])
def test_secret_that_deleted_pods_lacked_is_the_first_problem_after_a_reset(phase: str) -> None:
    message = f"1 pods pending; 1 waiting pods: {cause_with_pod('ContainerCreating', 'j-1')}"
    waited = changed("Unhealthy", "True", "InsufficientPodsReady", "2026-06-01T00:00:00Z")
    status = {"phase": phase, "conditions": [{**waited, "message": message}]}
    wrapper = obj(APPWRAPPER, status=status)
    created = VIEWS[APPWRAPPER].created
    assert created is not None
    assert created(wrapper) == [("Pod", "j-1", "")]
    missing = 'MountVolume.SetUp failed for volume "v" : secret "token" not found'
    about_pod = {"involvedObject": {"kind": "Pod", "name": "j-1", "uid": "1"}}
    events = [
        {**event("FailedMount", OLD, missing), **about_pod},
        {**event("BackOff", OLD, "Back-off restarting failed container"), **about_pod},
    ]
    summary = summarize(APPWRAPPER, wrapper, related(pods=[], created_events=events))
    (problem,) = summary.problems
    assert problem.message == f"Pod j-1: FailedMount: {missing}"
    assert "kubelet" not in problem.remedy
    unhealthy = wrapper["status"]["conditions"][0]
    unhealthy["message"] += "; 2 pods missing"
    summary = summarize(APPWRAPPER, wrapper, related(pods=[], created_events=events))
    assert messages(summary) == [
        f"Pod j-1: FailedMount: {missing}",
        f"InsufficientPodsReady: {message}; 2 pods missing",
    ]
    assert created(obj(APPWRAPPER, status={"phase": "Running"})) == []


@pytest.mark.parametrize(
    ("kind", "field", "where"),
    [
        ("RayCluster", "", "template.spec"),
        ("RayJob", "rayClusterSpec", "template.spec.rayClusterSpec"),
    ],
)
def test_worker_groups_with_one_name_are_the_first_problem_of_an_appwrapper(
    kind: str, field: str, where: str
) -> None:
    groups = {"workerGroupSpecs": [{"groupName": "a"}, {"groupName": "a"}]}
    template = {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "spec": {field: groups} if field else groups,
    }
    waited = condition("Unhealthy", "True", "InsufficientPodsReady", "1 pods missing")
    wrapper = obj(
        APPWRAPPER,
        spec={"components": [{"template": {"kind": "Job"}}, {"template": template}]},
        status={"phase": "Resetting", "conditions": [waited]},
    )
    first = summarize(APPWRAPPER, wrapper).problems[0]
    assert first.message.startswith(
        f"spec.components[1].{where}.workerGroupSpecs[1].groupName: 'a' is also the name of"
    )
    assert "another groupName; to change a component, delete the AppWrapper" in first.remedy
    wrapper["status"] = {"phase": "Succeeded"}
    assert summarize(APPWRAPPER, wrapper).problems == ()


def test_remedy_of_a_suspended_component_resumes_it() -> None:
    cause = "ComponentSuspended: RayCluster r is suspended (spec.suspend): resume it"
    wrapper = running_wrapper("InsufficientPodsReady", f"A pod cannot start: {cause}", "False", 1)
    (problem,) = summarize(APPWRAPPER, wrapper, related(pods=[])).problems
    assert problem.message == cause
    assert problem.remedy.startswith("set that field of the component to false")


@pytest.mark.parametrize(("phase", "is_shown"), [("Running", True), ("Resetting", False)])
def test_pod_of_the_last_attempt_is_no_problem_of_a_reset(phase: str, *, is_shown: bool) -> None:
    message = "A pod cannot start: ImagePullBackOff: Pod p waits"
    ready = condition("PodsReady", "False", "InsufficientPodsReady", message)
    wrapper = obj(APPWRAPPER, status={"phase": phase, "conditions": [ready]})
    found = messages(summarize(APPWRAPPER, wrapper, related(pods=[])))
    assert any("Pod p waits" in each for each in found) is is_shown
