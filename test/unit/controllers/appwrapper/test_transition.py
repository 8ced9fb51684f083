"""Decisions about AppWrappers: the transitions between phases, without a server."""

from __future__ import annotations

import pytest

from cfo.api.appwrapper.names import (
    DELETING_RESOURCES,
    PODS_READY,
    RESOURCES_DEPLOYED,
    UNHEALTHY,
    Phase,
)
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.controllers.appwrapper.components import (
    ComponentObject,
)
from cfo.controllers.appwrapper.transition import decide
from test.support.observations import (
    observe,
    seconds_later,
    wrapper,
)
from test.support.wrapper_steps import (
    FAILED_POD,
    PENDING_POD,
    RUNNING_POD,
    SUCCEEDED_POD,
    condition,
    phase,
    running_wrapper,
    step,
)


def test_phases_from_creation_to_success() -> None:
    obj = running_wrapper("Pod", "Job")
    assert phase(obj) == Phase.RUNNING
    assert [item["name"] for item in obj["status"]["componentStatus"]] == ["pod-0", "job-1"]
    obj, decision = step(obj, pods=[PENDING_POD])
    assert decision.deadline == seconds_later(10), "too few pods: ask for the reason"
    _, decision = step(obj, pods=[PENDING_POD], now=seconds_later(10))
    assert decision.deadline == seconds_later(60), "still too few pods: the admission grace period"
    obj, decision = step(obj, pods=[PENDING_POD, RUNNING_POD])
    assert decision.deadline == seconds_later(300), "enough pods: the warm-up grace period"
    obj, decision = step(obj, pods=[RUNNING_POD, RUNNING_POD])
    assert condition(obj, "PodsReady")["message"] == "2 pods running; 0 pods succeeded"
    assert decision.deadline is None
    obj, decision = step(obj, pods=[SUCCEEDED_POD, SUCCEEDED_POD], now=seconds_later(5))
    assert phase(obj) == Phase.SUCCEEDED
    obj, decision = step(obj, now=seconds_later(10))
    assert decision.deadline == seconds_later(5 + 7 * 24 * 3600)


def test_unchanged_observation_keeps_status() -> None:
    obj = running_wrapper()
    obj, _ = step(obj, pods=[RUNNING_POD])
    repeated, _ = step(obj, pods=[RUNNING_POD], now=seconds_later(3600))
    assert repeated == obj


def test_transition_times_have_microseconds() -> None:
    assert (
        condition(running_wrapper(), RESOURCES_DEPLOYED)["lastTransitionTime"]
        == "2026-01-01T12:00:00.250000Z"
    )


def test_missing_component_fails_and_unserved_kind_is_reported() -> None:
    obj, _ = step(
        running_wrapper("Pod", "Job"),
        objects=[ComponentObject(uid="c-0"), None],
        unserved=frozenset({1}),
    )
    assert phase(obj) == Phase.FAILED
    assert condition(obj, UNHEALTHY)["message"] == (
        "Only found 1 deployed components, but was expecting 2; missing: Job job-1; "
        "the API server no longer serves Job (batch/v1)"
    )


def test_unowned_object_is_not_a_component() -> None:
    obj, _ = step(running_wrapper("Pod"), objects=[ComponentObject(uid="other", owned=False)])
    assert condition(obj, UNHEALTHY)["reason"] == "MissingComponent"
    obj, decision = step(obj, objects=[ComponentObject(uid="other", owned=False)])
    assert decision.deletions == []
    assert condition(obj, RESOURCES_DEPLOYED)["status"] == "False"
    assert condition(obj, PODS_READY)["reason"] == "Failed", "it does not resume any more"


def test_failed_components_are_kept_once_from_failure_on() -> None:
    obj = running_wrapper(
        failureGracePeriodDuration="0s", retryLimit="0", deletionOnFailureGracePeriodDuration="4s"
    )
    obj["status"]["conditions"].append(
        {
            "type": DELETING_RESOURCES,
            "status": "False",
            "reason": "DeletionComplete",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    )
    obj, _ = step(obj, pods=[FAILED_POD])
    obj, decision = step(obj, pods=[FAILED_POD])
    assert (condition(obj, DELETING_RESOURCES)["reason"], decision.deadline) == (
        "DeletionPaused",
        seconds_later(4),
    )
    obj, decision = step(obj, pods=[FAILED_POD], now=seconds_later(4))
    assert condition(obj, DELETING_RESOURCES)["reason"] == "DeletionInitiated"
    obj, _ = step(
        obj,
        objects=[ComponentObject(uid="c-0", deleting=True)],
        pods=[FAILED_POD],
        now=seconds_later(5),
    )
    assert condition(obj, DELETING_RESOURCES)["reason"] == "DeletionInitiated"
    obj, _ = step(obj, objects=[None], now=seconds_later(6))
    assert condition(obj, DELETING_RESOURCES)["reason"] == "DeletionComplete"
    assert condition(obj, "QuotaReserved")["status"] == "False"
    repeated, _ = step(obj, objects=[None], now=seconds_later(7))
    assert repeated == obj


@pytest.mark.parametrize("queue", ["", "team"])
def test_suspended_wrapper_without_a_queue_reports_what_resumes_it(queue: str) -> None:
    obj = wrapper()
    obj["spec"]["suspend"] = True
    if queue:
        obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: queue}
    message = (
        "spec.suspend is true, and no queue resumes it: set spec.suspend to false, or add the label "
        "kueue.x-k8s.io/queue-name with the name of a LocalQueue"
    )
    obj, decision = step(obj)
    expected = [] if queue else [("Normal", "Suspended", message)]
    assert phase(obj) == Phase.SUSPENDED
    assert [(each.type, each.reason, each.message) for each in decision.events] == expected
    assert step(obj)[1].events == []
    running = running_wrapper()
    running["metadata"]["labels"] = obj["metadata"].get("labels") or {}
    running["spec"]["suspend"] = True
    suspending, _ = step(running)
    suspended, decision = step(suspending, objects=[None])
    assert phase(suspended) == Phase.SUSPENDED
    assert [(each.type, each.reason, each.message) for each in decision.events] == expected


def test_object_that_a_user_created_in_place_of_a_component_is_not_one() -> None:
    """The pods of the object that was created may still run, so they and new ones would be more than admitted."""
    obj, _ = step(running_wrapper("Job"), objects=[ComponentObject(uid="other")])
    assert condition(obj, UNHEALTHY)["reason"] == "MissingComponent"
    _, decision = step(obj, objects=[ComponentObject(uid="other")])
    assert [item.uid for item in decision.deletions] == ["other"]


def test_missing_components_are_named_up_to_three() -> None:
    obj, _ = step(running_wrapper(*["Pod"] * 5), objects=[None] * 5)
    assert condition(obj, UNHEALTHY)["message"] == (
        "Only found 0 deployed components, but was expecting 5; "
        "missing: Pod pod-0, Pod pod-1, Pod pod-2 and 2 more"
    )


def test_unknown_annotations_are_reported_up_to_ten() -> None:
    problems = observe(wrapper(retrylimit="1", retryLimit="2")).settings.problems
    prefix = "workload.codeflare.dev.appwrapper/"
    assert problems == (
        f"annotation {prefix}retrylimit: unknown, so it is ignored; did you mean retryLimit?",
    )
    many = {f"x{number}{'y' * 500}": "1" for number in range(300)}
    malformed = {"terminalExitCodes": ",".join(["x"] * 20)}
    for settings in (many, {**malformed, **many}):
        assert len(observe(wrapper(**settings)).settings.problems) == 10
    problems = observe(wrapper(**many)).settings.problems
    assert max(map(len, problems)) < 200


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("workload.codeflare.dev/retryLimit", "retryLimit"),
        ("appwrapper.codeflare.dev/RETRYLIMIT", "retryLimit"),
        ("codeflare.dev/retryLimits", ""),
        ("successTTLDuration", "successTTLDuration"),
        ("example.com/retryLimit", ""),
        ("workload.codeflare.dev/user", ""),
    ],
)
def test_settings_with_another_prefix_are_reported(key: str, name: str) -> None:
    obj = wrapper()
    obj["metadata"]["annotations"] = {key: "1"}
    problems = observe(obj).settings.problems
    meant = f"workload.codeflare.dev.appwrapper/{name}"
    expected = f"annotation {key}: unknown, so it is ignored; did you mean {meant}?"
    assert problems == ((expected,) if name else ())


def test_invalid_annotations_are_reported_on_deployment() -> None:
    obj, decision = step(wrapper(retryLimit="many"))
    problem = "annotation workload.codeflare.dev.appwrapper/retryLimit: 'many': must be an integer; 3 is used"
    assert [(item.type, item.reason, item.message) for item in decision.events] == [
        ("Warning", "MalformedAnnotations", problem)
    ]
    assert condition(obj, RESOURCES_DEPLOYED)["message"] == f"Suspend is false; {problem}"


def test_report_of_annotations_follows_their_changes_until_the_success_expires() -> None:
    key = "workload.codeflare.dev.appwrapper/retryLimit"
    obj = running_wrapper("Job", retryLimit="many")
    problem = f"; annotation {key}: 'many': must be an integer; 3 is used"
    same, decision = step(obj, pods=[RUNNING_POD])
    assert condition(same, RESOURCES_DEPLOYED)["message"] == f"Suspend is false{problem}"
    assert decision.events == []
    succeeded, decision = step(obj, objects=[ComponentObject(uid="c-0", completed=True)])
    assert phase(succeeded) == Phase.SUCCEEDED
    assert condition(succeeded, RESOURCES_DEPLOYED)["message"].endswith(problem)
    assert decision.events == []
    del succeeded["metadata"]["annotations"][key]
    corrected, _ = step(succeeded)
    assert "annotation" not in condition(corrected, RESOURCES_DEPLOYED)["message"]
    corrected["metadata"]["annotations"][key] = "few"
    wrong, decision = step(corrected)
    assert "'few'" in condition(wrong, RESOURCES_DEPLOYED)["message"]
    assert [event.reason for event in decision.events] == ["MalformedAnnotations"]


def test_unknown_phase_is_an_error() -> None:
    with pytest.raises(ValueError, match="Dancing"):
        decide(observe(wrapper(status={"phase": "Dancing"})))
