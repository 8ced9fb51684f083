"""What summaries of all kinds have in common: children, details, objects that no operator takes."""

from __future__ import annotations

import pytest

from cfo.api.appwrapper.kinds import RAY_JOB
from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_JOB, FLUX_SETUP, MINICLUSTER
from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime import GVK, NETWORK_POLICY, POD, SECRET, NamespacedName, Object
from cfo.summaries.kind_view import Related, related_objects
from cfo.summaries.summary import Level
from test.support.summaries import VIEWS
from test.support.summary_objects import (
    OLD,
    cluster,
    condition,
    event,
    messages,
    obj,
    pod,
    related,
    summarize,
)


@pytest.mark.parametrize(
    "kind", [RAY_CLUSTER, APPWRAPPER, FLUX_SETUP, FLUX_JOB, MINICLUSTER, INFERENCE_STACKS[1]]
)
def test_object_that_is_being_deleted_is_terminating_and_names_its_finalizers(kind: GVK) -> None:
    finished = [condition(name, "True", name) for name in ("JobFinished", "Ready", "Active")]
    status = {"phase": "Failed", "state": "failed", "conditions": finished}
    deleted = obj(kind, status=status, labels={"operatorVersion": "v2"})
    deleted["metadata"] |= {"deletionTimestamp": "2026-05-31T23:59:00Z", "finalizers": ["a/b"]}
    summary = summarize(kind, deleted, related())
    assert (summary.state, summary.fact("deletion")) == ("Terminating", "waits for a/b")
    assert summary.level in (Level.PROGRESSING, Level.WARNING)


def test_pods_that_end_are_terminating() -> None:
    pods = [pod("Running"), pod("Running"), pod("Succeeded")]
    for each in pods[1:]:
        each["metadata"]["deletionTimestamp"] = "2026-06-01T00:00:00Z"
    summary = summarize(RAY_CLUSTER, cluster(), related(pods=pods))
    assert summary.fact("pods") == "3 (1 running, 1 succeeded, 1 terminating)"


def test_pods_and_children_are_shown_with_commands_for_the_logs() -> None:
    containers = [
        {"name": "a", "ready": True, "restartCount": 2},
        {"name": "b", "ready": False, "restartCount": 1},
    ]
    running = obj(POD, name="w-0", status={"phase": "Running", "containerStatuses": containers})
    pods = [running, *(obj(POD, name=f"w-{number}") for number in range(1, 27))]
    children = {
        NETWORK_POLICY: [obj(NETWORK_POLICY, name="c-head"), obj(NETWORK_POLICY, name="c-workers")],
        SECRET: [],
    }
    view = VIEWS[RAY_CLUSTER]
    key = NamespacedName("team;rm", "c")
    shown = related_objects(view, key, Related(pods=pods, children=children))
    assert shown["Pods"][0] == ("w-0", "Running, 1/2 ready, 3 restarts")
    assert shown["Pods"][1] == ("w-1", "new")
    assert (len(shown["Pods"]), shown["Pods"][-1]) == (26, ("and 2 more", ""))
    assert shown["Children"] == [("NetworkPolicy", "c-head, c-workers")]
    assert [command for _, command in shown["Commands"]] == [
        "kubectl get pods --namespace 'team;rm' --selector ray.io/cluster=c",
        "kubectl logs --namespace 'team;rm' --selector ray.io/cluster=c --all-containers --prefix --tail 100",
    ]
    assert related_objects(view, key, Related(pods=[]))["Commands"] == []


def test_details_contain_each_text_once() -> None:
    conditions = [
        condition(kind, "True", "Resuming", "Suspend is false") for kind in ("A", "B", "C")
    ]
    status = {
        "phase": "Failed",
        "conditions": [*conditions, condition("Unhealthy", "True", "CreateFailed", "refused")],
    }
    event = {"reason": "Unhealthy", "message": "CreateFailed: refused"}
    details = summarize(
        APPWRAPPER, obj(APPWRAPPER, status=status), related(events=[event])
    ).details()
    assert details == {
        "Conditions": [
            ("A: True", "Resuming: Suspend is false"),
            ("B: True", "Resuming"),
            ("C: True", "Resuming"),
            ("Unhealthy: True", "CreateFailed"),
        ],
        "Warning Events": [("Unhealthy", "(as above)")],
    }


def test_details_do_not_repeat_the_type_of_a_condition() -> None:
    conditions = [
        condition("JobRunning", "False", "JobRunning", "JobRunning"),
        condition("Admitted", "False", "Admitted", "Not yet"),
        condition("Valid", "True", "Checked", "Checked"),
    ]
    details = summarize(FLUX_JOB, obj(FLUX_JOB, status={"conditions": conditions})).details()
    assert details["Conditions"] == [
        ("JobRunning: False", ""),
        ("Admitted: False", "Not yet"),
        ("Valid: True", "Checked"),
    ]


@pytest.mark.parametrize(
    ("gvk", "setting", "prerequisite"),
    [
        (
            APPWRAPPER,
            "appwrapper.enabled",
            "; with appwrapper.kueueIntegration, it waits until Kueue is installed",
        ),
        (FLUX_JOB, "flux.enabled", ""),
    ],
)
def test_remedy_names_the_setting_that_enables_the_kind(
    gvk: GVK, setting: str, prerequisite: str
) -> None:
    (problem,) = summarize(gvk, obj(gvk, creationTimestamp=OLD), related()).problems
    assert problem.remedy == (
        "check that the CodeFlare operator runs and may read this namespace: cfo doctor; and that in its configuration "
        f"{setting} is true (the default is false), and watchNamespaces and labelSelector include the object"
        f"{prerequisite}"
    )


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (obj(FLUX_JOB, creationTimestamp=OLD), "the CodeFlare operator has not written a state"),
        (obj(RAY_CLUSTER, creationTimestamp=OLD), "KubeRay has not written a state"),
        *(
            (obj(gvk, creationTimestamp=OLD, spec={"suspend": True}), f"{operator} has not written")
            for gvk, operator in (
                (APPWRAPPER, "the CodeFlare operator"),
                (FLUX_JOB, "the CodeFlare operator"),
                (MINICLUSTER, "the CodeFlare operator"),
                (RAY_CLUSTER, "KubeRay"),
            )
        ),
        (
            obj(RAY_CLUSTER, creationTimestamp=OLD, spec={"managedBy": "example.com/other"}),
            "spec.managedBy is example.com/other",
        ),
        (
            obj(INFERENCE_STACKS[0], creationTimestamp=OLD, labels={"operatorVersion": "v9"}),
            "operatorVersion v9: no operator of this version has written a status",
        ),
        (
            obj(
                INFERENCE_STACKS[0],
                status={"conditions": [condition("Claimed", "False", "Unclaimed", "No operator")]},
                labels={"operatorVersion": "v9"},
            ),
            "Unclaimed: No operator",
        ),
    ],
    ids=[
        "fluxjob",
        "raycluster",
        "suspended appwrapper",
        "suspended fluxjob",
        "suspended minicluster",
        "suspended raycluster",
        "other controller",
        "operatorVersion",
        "claimed",
    ],
)
def test_object_that_no_operator_takes_is_a_problem(one: Object, message: str) -> None:
    gvk = GVK.parse(one["apiVersion"], one["kind"])
    summary = summarize(gvk, one, related())
    assert summary.level is Level.WARNING
    assert any(message in each for each in messages(summary))
    with_state = {
        **one,
        "metadata": {**one["metadata"], "creationTimestamp": "2026-06-01T00:00:00Z"},
    }
    if "conditions" not in one["status"]:
        assert messages(summarize(gvk, with_state, related())) == []


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("maximum cpu usage per Container is 1, but limit is 2", "within the LimitRange"),
        (
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
            "at most the limit of the container",
        ),
        ("violates nothing that is known", "kubectl get events -n n --field-selector"),
    ],
)
def test_commands_in_remedies_have_the_namespace_of_the_object(message: str, remedy: str) -> None:
    failed = {
        "reason": "Unknown",
        "message": message,
        "involvedObject": {"kind": "Job", "name": "it's"},
    }
    wrapper = obj(APPWRAPPER, status={"phase": "Resuming"})
    (problem,) = summarize(APPWRAPPER, wrapper, related(created_events=[failed])).problems
    assert remedy in problem.remedy
    assert "-n n " in f"{problem.remedy} "


@pytest.mark.parametrize(
    ("gvk", "status"),
    [
        (RAY_CLUSTER, {"state": "failed"}),
        (APPWRAPPER, {"phase": "Failed"}),
        (MINICLUSTER, {"conditions": [condition("ObjectsReady", "False", "Other")]}),
        (INFERENCE_STACKS[1], {"conditions": [condition("Degraded", "True", "Other")]}),
    ],
)
def test_describe_names_kind_group_object_and_namespace(gvk: GVK, status: Object) -> None:
    found = obj(gvk, status=status, labels={"operatorVersion": "v2"}, name="a b", namespace="n")
    resource = f"{gvk.kind.lower()}.{gvk.group}"
    remedies = [problem.remedy for problem in summarize(gvk, found).problems]
    assert any(f"kubectl describe {resource} 'a b' -n n" in remedy for remedy in remedies)


@pytest.mark.parametrize(
    ("reason", "message", "shown"),
    [
        ("Unhealthy", "", ["Unhealthy"]),
        ("Unhealthy", " \n", ["Unhealthy"]),
        ("", "why", ["why"]),
        ("why", "why", ["why"]),
        ("", " ", []),
    ],
)
@pytest.mark.parametrize(
    "one", [cluster("suspended"), obj(MINICLUSTER), obj(APPWRAPPER), obj(RAY_JOB)]
)
def test_event_without_reason_or_message_is_shown_by_the_other_one(
    one: Object, reason: str, message: str, shown: list[str]
) -> None:
    gvk = GVK.parse(one["apiVersion"], one["kind"])
    about_object = related(events=[event(reason, OLD, message)])
    assert messages(summarize(gvk, one, about_object)) == shown
    of_job = {**event(reason, OLD, message), "involvedObject": {"kind": "Job", "name": "j"}}
    wrapper = obj(APPWRAPPER, status={"phase": "Resuming"})
    about_job = related(created_events=[of_job])
    expected = [f"Job j: {each}" for each in shown]
    assert messages(summarize(APPWRAPPER, wrapper, about_job)) == expected


@pytest.mark.parametrize(
    ("gvk", "kind", "status"),
    [
        (APPWRAPPER, "Unhealthy", "True"),
        (FLUX_JOB, "Valid", "False"),
        (FLUX_SETUP, "Active", "False"),
        (INFERENCE_STACKS[0], "Degraded", "True"),
        (INFERENCE_STACKS[0], "Claimed", "False"),
    ],
)
def test_condition_without_reason_or_message_is_shown_by_what_it_has(
    gvk: GVK, kind: str, status: str
) -> None:
    for reason, message, shown in (
        ("Other", "", "Other"),
        ("", "why", "why"),
        ("Other", "why", "Other: why"),
        ("", " ", kind),
    ):
        conditions = [condition(kind, status, reason, message)]
        one = obj(gvk, status={"conditions": conditions}, labels={"operatorVersion": "v2"})
        assert shown in messages(summarize(gvk, one))


def test_reason_without_message_hides_no_other_problem() -> None:
    events = [event("FailedCreate", OLD, "exceeded quota"), event("Failed", OLD, "")]
    one = obj(APPWRAPPER)
    assert messages(summarize(APPWRAPPER, one, related(events=events))) == [
        "Failed",
        "FailedCreate: exceeded quota",
    ]
