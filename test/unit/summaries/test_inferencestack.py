"""Summaries of InferenceStacks: applications, gateway and queue."""

from __future__ import annotations

import pytest

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.console.summary_text import essence
from cfo.runtime import GVK, Object
from cfo.summaries import kind_view as summaries
from cfo.summaries.kind_view import PODS_OF_DEPLOYMENT
from cfo.summaries.summary import Level
from test.support.summaries import VIEWS
from test.support.summary_objects import OLD, condition, event, messages, obj, related, summarize

APPLICATIONS: Object = {"applications": {"chat": {}}}
"""The spec of an InferenceStack with one application."""


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        ('violates PodSecurity "restricted:latest": runAsNonRoot != true', "securityProfile"),
        ("exceeded quota: none", "raise the ResourceQuota"),
        (
            'error looking up service account n/s: serviceaccount "s" not found',
            "create the ServiceAccount",
        ),
        ("something else", "quota or permission"),
    ],
)
@pytest.mark.parametrize("stalled", [False, True])
def test_remedy_for_refused_pods_of_a_stack_stays_when_the_rollout_stalls(
    refusal: str, remedy: str, *, stalled: bool
) -> None:
    reason = "FailedCreate"
    message = f'pods "p" is forbidden: {refusal}'
    if stalled:
        message = f"FailedCreate: {message}"
        reason = "RolloutStalled"
    conditions = [
        condition("Degraded", "True", reason, f"gateway: {reason}: {message}"),
        condition("GatewayReady", "False", reason, message),
    ]
    stack = obj(
        INFERENCE_STACKS[0],
        status={"conditions": conditions},
        labels={"operatorVersion": "v1"},
    )
    (problem,) = summarize(INFERENCE_STACKS[0], stack).problems
    assert problem.message == f"gateway: {reason}: {message}"
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("applications", "gateway", "ready"),
    [("1/1", "False", "1/2"), ("1/1", "True", "2/2"), ("1/1", "", "1/1"), ("x", "True", "x")],
)
def test_gateway_counts_as_a_part_of_an_inferencestack(
    applications: str, gateway: str, ready: str
) -> None:
    conditions = [condition("GatewayReady", gateway)] if gateway else []
    status = {"readyApplications": applications, "conditions": conditions}
    assert summarize(INFERENCE_STACKS[0], obj(INFERENCE_STACKS[0], status=status)).ready == ready


@pytest.mark.parametrize(
    ("reason", "message", "remedy"),
    [
        ("ImagePullBackOff", "container server waits", "check the name of the image"),
        ("OOMKilled", "container server used more memory", "raise the memory limit"),
        ("FailedCreate", 'pods "{}" is forbidden: violates PodSecurity "x"', "securityProfile"),
        ("FailedCreate", 'pods "{}" is forbidden: exceeded quota: none', "ResourceQuota"),
        (
            "FailedCreate",
            'Pod "{}" is invalid: a.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
            "LimitRange",
        ),
    ],
)
def test_cause_of_several_components_of_a_stack_is_one_problem(
    reason: str, message: str, remedy: str
) -> None:
    of_gateway = message.format("gateway-1")
    of_chat = message.format("chat-1")
    degraded = f"gateway: {reason}: {of_gateway}; application chat: {reason}: {of_chat}"
    status = {
        "conditions": [
            condition("Degraded", "True", reason, degraded),
            condition("GatewayReady", "False", reason, of_gateway),
        ],
        "applications": [
            {"name": "chat", "state": "Failed", "reason": reason, "message": of_chat},
            {"name": "other", "state": "Progressing", "reason": "RollingOut", "message": "new"},
        ],
    }
    stack = obj(INFERENCE_STACKS[1], status=status, labels={"operatorVersion": "v2"})
    (problem,) = summarize(INFERENCE_STACKS[1], stack).problems
    assert problem.message == f"gateway, application chat: {reason}: {of_gateway}"
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("reason", "events", "remedy"),
    [
        ("Unclaimed", [event("Unclaimed", "", "It. Running: v1, v2.")], "that runs: v1, v2"),
        ("Unclaimed", [event("Unclaimed", "", "Run: evil.")], "the administrator knows it"),
        ("Unclaimed", [], "the administrator knows it"),
        ("ClaimedTwice", [], "remove all but one of these operators"),
    ],
)
def test_remedy_for_a_stack_without_one_operator_names_no_version_of_its_own(
    reason: str, events: list[Object], remedy: str
) -> None:
    conditions = [condition("Claimed", "False", reason)]
    labels = {"operatorVersion": "v9"}
    stack = obj(INFERENCE_STACKS[1], status={"conditions": conditions}, labels=labels)
    (problem,) = summarize(INFERENCE_STACKS[1], stack, related(events=events)).problems
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("message", "shown"), [("", "Suspended"), ("spec.suspend", "Suspended: spec.suspend")]
)
def test_gateway_of_a_suspended_stack_shows_its_reason(message: str, shown: str) -> None:
    conditions = [condition("GatewayReady", "False", "Suspended", message)]
    stack = obj(INFERENCE_STACKS[0], status={"conditions": conditions})
    assert summarize(INFERENCE_STACKS[0], stack).fact("gateway") == shown


def test_stack_names_the_secret_that_a_pod_lacks_while_kubelet_reports_it() -> None:
    gvk = INFERENCE_STACKS[0]
    conditions = [condition("GatewayReady", "True"), condition("Ready", "False")]
    status = {"conditions": conditions, "applications": [{"name": "chat", "state": "Progressing"}]}
    stack = obj(gvk, status=status, labels={"operatorVersion": "v2"})
    created = VIEWS[gvk].created
    assert created is not None
    assert created(stack) == [(PODS_OF_DEPLOYMENT, "x-inference-stack-chat", "")]
    involved = {"kind": "Pod", "name": "x-inference-stack-chat-7d-abcde", "uid": "1"}
    missing = 'MountVolume.SetUp failed for volume "v" : secret "token" not found'
    for last, shown in ((OLD, 1), ("2026-05-31T23:49:00Z", 0)):
        reported = {**event("FailedMount", last, missing), "involvedObject": involved}
        found = messages(summarize(gvk, stack, related(created_events=[reported])))
        assert [message.startswith("Pod x-inf") for message in found] == [True] * shown
    ready = obj(gvk, status={"conditions": [condition("Ready", "True")]})
    assert created(ready) == []


@pytest.mark.parametrize("gvk", INFERENCE_STACKS, ids=str)
def test_inferencestack_shows_applications_and_their_failures(gvk: GVK) -> None:
    failed = {
        "name": "chat",
        "state": "Failed",
        "reason": "ImagePullBackOff",
        "replicas": 2,
        "model": "m",
    }
    status = {
        "conditions": [
            condition("Ready", "False", "ApplicationsNotReady"),
            condition("Degraded", "True", "Broken"),
        ],
        "applications": [failed],
        "readyApplications": "0/1",
        "url": "http://gateway",
        "operator": {"version": "2.0.0"},
    }
    summary = summarize(gvk, obj(gvk, status=status, labels={"operatorVersion": "v2"}))
    assert (summary.state, summary.level, summary.ready) == (
        "ApplicationsNotReady",
        Level.WARNING,
        "0/1",
    )
    assert messages(summary) == ["application chat: ImagePullBackOff", "Broken: message"]
    assert summary.fact("app chat") == "Failed, 0/2, m"
    assert summary.fact("operator") == "v2 (2.0.0)"
    unlabeled = summarize(gvk, obj(gvk))
    assert "label operatorVersion is missing" in messages(unlabeled)[0]


@pytest.mark.parametrize("gvk", INFERENCE_STACKS, ids=str)
def test_inferencestack_shows_its_queue_and_what_waits_in_it(gvk: GVK) -> None:
    labels = {"operatorVersion": "v2", "kueue.x-k8s.io/queue-name": "team"}
    conditions = [
        condition("Ready", "False", "WaitingForKueue"),
        condition("Degraded", "False", "AsExpected"),
        condition("QuotaReserved", "False", "WaitingForKueue"),
    ]
    waiting = summarize(
        gvk, obj(gvk, status={"conditions": conditions}, labels=labels, spec=APPLICATIONS)
    )
    assert (waiting.state, waiting.level, waiting.pending) == ("WaitingForKueue", Level.WAITING, "")
    assert (waiting.fact("queue"), waiting.fact("quota reserved")) == ("team", "no")
    assert essence(waiting) == "message", "not the URL, which does not answer yet"
    assert messages(waiting) == []
    conditions.append(condition("Evicted", "True", "Preempted"))
    evicted = summarize(
        gvk, obj(gvk, status={"conditions": conditions}, labels=labels, spec=APPLICATIONS)
    )
    assert (evicted.level, messages(evicted)) == (Level.WARNING, ["Evicted: message"])
    conditions[0] = condition("Ready", "True", "AllReady")
    conditions[2] = condition("QuotaReserved", "True", "AdmittedByKueue")
    conditions[3] = condition("Evicted", "False", "AdmittedByKueue")
    ready = summarize(
        gvk, obj(gvk, status={"conditions": conditions}, labels=labels, spec=APPLICATIONS)
    )
    assert (ready.state, ready.level, ready.fact("quota reserved")) == ("Ready", Level.OK, "yes")


def test_suspended_stack_shows_why_it_has_no_pods() -> None:
    suspended = condition("Ready", "False", "Suspended", "spec.suspend is true")
    status = {"conditions": [suspended], "url": "http://x", "readyApplications": "0/1"}
    gvk = INFERENCE_STACKS[1]
    stack = obj(gvk, spec={"suspend": True}, status=status, labels={"operatorVersion": "v2"})
    summary = summarize(gvk, stack)
    assert (summary.state, summary.level) == ("Suspended", Level.WAITING)
    assert essence(summary) == "spec.suspend is true"


def test_ready_stack_without_applications_has_a_problem_unless_none_is_wanted() -> None:
    status = {"conditions": [condition("Ready", "True", "AllReady")], "readyApplications": "0/0"}
    labels = {"operatorVersion": "v2"}
    gvk = INFERENCE_STACKS[1]
    found = summarize(gvk, obj(gvk, status=status, labels=labels))
    assert found.level is Level.WARNING
    assert "no applications" in found.problems[0].message
    asked = summarize(gvk, obj(gvk, status=status, labels=labels, spec={"applications": {}}))
    assert asked.level is Level.OK


@pytest.mark.parametrize(
    ("spec", "applications", "is_missing"),
    [({}, "0/3", True), ({}, "2/3", False), ({"suspend": True}, "0/3", False)],
)
def test_missing_kueue_is_no_problem_of_a_stack_with_admitted_pods_or_a_suspended_one(
    spec: Object, applications: str, is_missing: bool
) -> None:
    gvk = INFERENCE_STACKS[1]
    conditions = [
        condition("QuotaReserved", "False", "WaitingForKueue", "1 of 3 pods wait for quota"),
        condition("GatewayReady", "False", "Waiting"),
    ]
    status = {"conditions": conditions, "readyApplications": applications}
    labels = {"operatorVersion": "v2", "kueue.x-k8s.io/queue-name": "team"}
    missing = related(queue_problem=summaries.missing_kueue("team"))
    found = messages(summarize(gvk, obj(gvk, spec=spec, status=status, labels=labels), missing))
    assert any("Kueue is not installed" in message for message in found) is is_missing


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"operatorVersion": "v9"}, "operatorVersion v9: no operator of this version has"),
        ({}, "the label operatorVersion is missing"),
    ],
)
def test_ready_stack_that_its_operator_no_longer_reconciles_has_a_problem(
    labels: dict[str, str], message: str
) -> None:
    status = {"conditions": [condition("Ready", "True")], "operator": {"major": "v1"}}
    stack = obj(INFERENCE_STACKS[0], spec=APPLICATIONS, status=status, labels=labels)
    summary = summarize(INFERENCE_STACKS[0], stack, related())
    (problem,) = summary.problems
    assert message in problem.message
    assert problem.remedy.endswith("that of version v1 reconciled it last")
    assert summary.level is Level.WARNING
    stack["metadata"]["labels"] = {"operatorVersion": "v1"}
    assert summarize(INFERENCE_STACKS[0], stack, related()).level is Level.OK


@pytest.mark.parametrize(
    ("generation", "level", "pending"),
    [
        (2, Level.OK, ""),
        (3, Level.PROGRESSING, "was changed, and not reconciled since"),
    ],
)
def test_ready_stack_with_a_status_of_an_older_generation_is_in_progress(
    generation: int, level: Level, pending: str
) -> None:
    status = {"conditions": [condition("Ready", "True")], "observedGeneration": 2}
    stack = obj(
        INFERENCE_STACKS[0],
        spec=APPLICATIONS,
        status=status,
        labels={"operatorVersion": "v1"},
        generation=generation,
    )
    summary = summarize(INFERENCE_STACKS[0], stack, related())
    assert (summary.level, summary.pending) == (level, pending)
