"""Decisions about more pods than a queue admitted."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from cfo.api.appwrapper.names import (
    DELETING_RESOURCES,
    UNHEALTHY,
    Phase,
)
from cfo.controllers.appwrapper.components import (
    ComponentObject,
)
from cfo.controllers.appwrapper.creation import Creation, after_creation
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.appwrapper.transition import decide
from cfo.runtime.objects import parse_time
from cfo.runtime.objects.kinds import JOB, POD
from cfo.runtime.objects.unstructured import Object
from test.support.observations import (
    UID,
    observe,
    seconds_later,
    with_decided_status,
)
from test.support.wrapper_steps import (
    FAILED_POD,
    PENDING_POD,
    RUNNING_POD,
    SUCCEEDED_POD,
    condition,
    phase,
    queued,
    resumed_wrapper,
    running_wrapper,
    step,
)


def test_more_pods_than_admitted_reset_an_appwrapper_of_a_queue() -> None:
    """M1: ``kubectl scale``, an autoscaler of pods or an edit adds pods that no queue has admitted."""
    obj = running_wrapper("Job")
    pods = [RUNNING_POD, PENDING_POD, SUCCEEDED_POD, FAILED_POD]
    unqueued, _ = step(obj, pods=pods[:2])
    assert condition(unqueued, UNHEALTHY)["status"] == "False"
    obj, decision = step(queued(obj), pods=pods)
    message = "Job job-0 has 2 pods, but its queue admitted 1"
    assert (phase(obj), condition(obj, UNHEALTHY)["message"]) == (Phase.RUNNING, message)
    assert decision.deadline == seconds_later(60)
    (warning,) = decision.events
    assert (warning.type, warning.reason) == ("Warning", "ExcessPods")
    assert (
        warning.message
        == f"{message}; unless it is scaled back, all pods are deleted at 12:01:00 UTC"
    )
    _, again = step(obj, pods=pods, now=seconds_later(30))
    assert (again.events, again.deadline) == ([], seconds_later(60))
    replaced, _ = step(
        obj,
        pods=[dataclasses.replace(RUNNING_POD, deleting=True), PENDING_POD],
        now=seconds_later(60),
    )
    assert condition(replaced, UNHEALTHY)["status"] == "False"
    obj, decision = step(obj, pods=pods, now=seconds_later(60))
    assert phase(obj) == Phase.RESETTING
    assert condition(obj, UNHEALTHY)["message"] == f"{message}; retry 1 of 3"
    assert [item.message for item in decision.events] == [f"ExcessPods: {message}"]


def test_ending_pods_count_beyond_as_many_as_were_admitted() -> None:
    """Users choose how long their pods take to end, and the controller of a Job replaces each at once."""
    obj = queued(running_wrapper("Job"))
    ending = dataclasses.replace(RUNNING_POD, deleting=True)
    replaced, _ = step(obj, pods=[ending, RUNNING_POD])
    assert condition(replaced, UNHEALTHY)["status"] == "False"
    exceeded, _ = step(obj, pods=[ending, ending, RUNNING_POD])
    assert (
        condition(exceeded, UNHEALTHY)["message"]
        == "Job job-0 has 2 pods, but its queue admitted 1"
    )


ENDING_POD = dataclasses.replace(RUNNING_POD, deleting=True, has_node=True)
ADMITTED = [ENDING_POD, RUNNING_POD]
EXCESS = [ENDING_POD, RUNNING_POD, RUNNING_POD]
EXISTING = ComponentObject(uid="c-0")
FAILED = ComponentObject(uid="c-1", failed=True)
SUSPENDED: Object = {"spec": {"suspend": True}}
DELETED: Object = {"metadata": {"deletionTimestamp": "2026-01-01T12:00:00Z"}}


@pytest.mark.parametrize(
    ("changes", "objects", "before", "after", "are_forced"),
    [
        ({}, [EXISTING], EXCESS, EXCESS, True),
        ({}, [EXISTING, None], ADMITTED, EXCESS, True),
        ({}, [EXISTING, None], ADMITTED, ADMITTED, False),
        ({}, [EXISTING, FAILED], EXCESS, EXCESS, True),
        ({}, [EXISTING, FAILED], ADMITTED, ADMITTED, False),
        (SUSPENDED, [EXISTING], EXCESS, EXCESS, True),
        (SUSPENDED, [EXISTING], ADMITTED, ADMITTED, False),
        (DELETED, [EXISTING], ADMITTED, EXCESS, True),
        (DELETED, [EXISTING], ADMITTED, ADMITTED, False),
        ({}, [EXISTING], [SUCCEEDED_POD], [RUNNING_POD], True),
    ],
    ids=[
        "more pods than admitted",
        "component missing, then more pods",
        "component missing",
        "component failed, with more pods",
        "component failed",
        "suspended with more pods",
        "suspended",
        "deleted, then more pods",
        "deleted",
        "pods after the success",
    ],
)
def test_only_pods_without_quota_are_forced_to_end_a_minute_after_a_deletion_began(
    changes: Object,
    objects: list[ComponentObject | None],
    before: list[WrapperPod],
    after: list[WrapperPod],
    *,
    are_forced: bool,
) -> None:
    """Whatever the components are deleted for, and also pods that the garbage collector has not deleted."""
    kinds = ["Job"] * len(objects)
    obj = queued(running_wrapper(*kinds, forcefulDeletionGracePeriodDuration="10h"))
    for section, values in changes.items():
        obj[section] = {**obj[section], **values}
    for seconds, pods in ((0, before), (60, before), (60, after)):
        obj, _ = step(obj, objects=objects, pods=pods, now=seconds_later(seconds))
    deleting = condition(obj, DELETING_RESOURCES)
    assert deleting["status"] == "True"
    due = parse_time(deleting["lastTransitionTime"]) + timedelta(minutes=1)
    _, waiting = step(obj, objects=objects, pods=after, now=due - timedelta(milliseconds=1))
    assert POD not in [item.gvk for item in waiting.deletions]
    _, decision = step(obj, objects=objects, pods=after, now=due)
    forced = [item.force for item in decision.deletions if item.gvk == POD]
    notes = [item.message for item in decision.events if item.reason == "ForcefulDeletion"]
    if not are_forced:
        assert (forced, notes) == ([], [])
        return
    assert forced == [True] * len(after)
    (note,) = notes
    assert "of 1m for pods without quota (" in note


@pytest.mark.parametrize("is_finished", [False, True])
def test_pods_of_a_deleted_appwrapper_are_without_quota_once_its_workload_is_finished(
    *, is_finished: bool
) -> None:
    obj = queued(running_wrapper("Job", forcefulDeletionGracePeriodDuration="10h"))
    obj["metadata"] = {**obj["metadata"], **DELETED["metadata"]}
    finished = {"type": "Finished", "status": str(is_finished)}
    workload = {"status": {"conditions": [finished]}}
    obj, _ = step(obj, pods=ADMITTED, workload=workload)
    _, decision = step(obj, pods=ADMITTED, workload=workload, now=seconds_later(60))
    forced = [item.force for item in decision.deletions if item.gvk == POD]
    assert forced == [True] * len(ADMITTED) * is_finished


def test_more_pods_than_admitted_are_retried_three_times_at_most() -> None:
    obj = queued(running_wrapper("Job", retryLimit="1000"))
    obj["status"]["resettingCount"] = 3
    pods = [RUNNING_POD, RUNNING_POD]
    obj, _ = step(obj, pods=pods)
    obj, _ = step(obj, pods=pods, now=seconds_later(60))
    assert phase(obj) == Phase.FAILED
    assert condition(obj, UNHEALTHY)["message"].endswith(
        "; not retried any more, because 3 retries failed, and at most 3 are allowed with more pods than admitted"
    )


def test_failures_with_more_pods_than_admitted_are_retried_three_times_at_most() -> None:
    obj = queued(running_wrapper("Job", "Job", retryLimit="1000"))
    obj["status"]["resettingCount"] = 3
    for pods, expected in ((ADMITTED, Phase.RESETTING), (EXCESS, Phase.FAILED)):
        after, _ = step(obj, objects=[EXISTING, FAILED], pods=pods)
        assert phase(after) == expected


def test_failed_components_are_not_kept_with_more_pods_than_admitted() -> None:
    settings = {"retryLimit": "0", "deletionOnFailureGracePeriodDuration": "10h"}
    obj = queued(running_wrapper("Job", failureGracePeriodDuration="0s", **settings))
    obj, _ = step(obj, pods=[FAILED_POD])
    obj, decision = step(obj, pods=[FAILED_POD, RUNNING_POD])
    assert (phase(obj), decision.deletions) == (Phase.FAILED, [])
    obj, decision = step(obj, pods=[FAILED_POD, RUNNING_POD, RUNNING_POD])
    assert [item.gvk for item in decision.deletions] == [JOB]
    message = condition(obj, UNHEALTHY)["message"]
    assert message.startswith("Job job-0 has 2 pods, but its queue admitted 1; failed before with")
    assert "FoundFailedPods: 1 failed pods" in message


def test_no_component_is_created_while_another_one_has_more_pods_than_admitted() -> None:
    obj = queued(resumed_wrapper("Job", "Job", admissionGracePeriodDuration="10h"))
    observation = observe(obj)
    first, second = observation.components
    created = [Creation(first, uid="c-0"), Creation(second, error="denied")]
    obj = with_decided_status(obj, after_creation(observation, created))
    _, decision = step(obj, objects=[None, None])
    assert decision.create
    pods = [dataclasses.replace(RUNNING_POD, ancestor="c-0")] * 2
    obj, decision = step(obj, objects=[None, None], pods=pods)
    assert (phase(obj), decision.create) == (Phase.RESUMING, False)
    obj, _ = step(obj, objects=[None, None], pods=pods, now=seconds_later(60))
    assert phase(obj) == Phase.RESETTING


def other_pods(number: int, **state: bool) -> list[WrapperPod]:
    """Return pods that descend from the AppWrapper, and from none of its components."""
    return [dataclasses.replace(RUNNING_POD, ancestor=UID, **state)] * number


def test_pods_of_no_component_are_more_than_admitted() -> None:
    """A tenant can create a Job that the AppWrapper controls, next to the components or in place of one."""
    obj = queued(running_wrapper("Job"))
    excess, decision = step(obj, pods=[RUNNING_POD, *other_pods(2)])
    message = "2 pods are of no component, but its queue admitted 0"
    assert condition(excess, UNHEALTHY)["message"] == message
    assert decision.deadline == seconds_later(60)
    ending, _ = step(obj, pods=[RUNNING_POD, *other_pods(1, deleting=True)])
    assert condition(ending, UNHEALTHY)["reason"] == "ExcessPods"
    for harmless in (other_pods(1, deleting=True, forced=True), [WrapperPod("Running")]):
        tolerated = observe(obj, pods=harmless, owned=False)
        decided = with_decided_status(obj, decide(tolerated))
        assert condition(decided, UNHEALTHY)["status"] == "False"
    unqueued, _ = step(running_wrapper("Job"), pods=[RUNNING_POD, *other_pods(2)])
    assert condition(unqueued, UNHEALTHY)["status"] == "False"


def test_pods_of_a_component_that_is_not_recorded_yet_are_admitted() -> None:
    obj = queued(resumed_wrapper("Job"))
    _, decision = step(obj, objects=[None], pods=other_pods(1))
    assert decision.create
    excess, decision = step(obj, objects=[None], pods=other_pods(2))
    assert not decision.create
    message = "2 pods are of no component, but its queue admitted 1"
    assert condition(excess, UNHEALTHY)["message"] == message


def test_failure_with_pods_in_place_of_a_component_is_not_kept() -> None:
    obj = queued(running_wrapper("Job", deletionOnFailureGracePeriodDuration="24h"))
    replacement = ComponentObject(uid="other")
    pods = [dataclasses.replace(RUNNING_POD, ancestor="other")]
    obj, _ = step(obj, objects=[replacement], pods=pods)
    assert condition(obj, UNHEALTHY)["reason"] == "MissingComponent"
    obj, decision = step(obj, objects=[replacement], pods=pods)
    assert [item.uid for item in decision.deletions] == ["other"]
    assert "failed before with MissingComponent" in condition(obj, UNHEALTHY)["message"]


@pytest.mark.parametrize(("grace", "seconds"), [("1h", 60), ("5s", 5)])
def test_users_can_only_shorten_how_long_excess_is_tolerated(grace: str, seconds: int) -> None:
    obj = queued(running_wrapper("Job", failureGracePeriodDuration=grace))
    _, decision = step(obj, pods=[RUNNING_POD, RUNNING_POD])
    assert decision.deadline == seconds_later(seconds)
