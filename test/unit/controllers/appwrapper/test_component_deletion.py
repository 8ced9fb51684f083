"""Decisions about the deletion of components, their pods and the finalizer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cfo.api.appwrapper.names import (
    DELETING_RESOURCES,
    FINALIZER,
    Phase,
)
from cfo.controllers.appwrapper.components import (
    ComponentObject,
)
from cfo.controllers.appwrapper.decision import Deletion
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.runtime.objects.kinds import JOB
from cfo.runtime.objects.unstructured import NamespacedName, Object
from test.support.observations import (
    seconds_later,
)
from test.support.wrapper_steps import (
    RUNNING_POD,
    condition,
    phase,
    queued,
    resumed_wrapper,
    running_wrapper,
    step,
)


def test_event_of_a_forced_deletion_names_at_most_five_pods() -> None:
    obj = running_wrapper(forcefulDeletionGracePeriodDuration="6s")
    obj["spec"]["suspend"] = True
    pods = [RUNNING_POD] * 7
    obj, _ = step(obj, pods=pods)
    obj, decision = step(obj, pods=pods)
    assert decision.deadline == seconds_later(6)
    _, decision = step(obj, objects=[None], pods=pods, now=seconds_later(6))
    assert len(decision.deletions) == 7
    (event,) = [event for event in decision.events if event.reason == "ForcefulDeletion"]
    assert event.message.endswith("p0, p1, p2, p3, p4, ...")


def test_object_that_was_created_but_not_recorded_is_recorded_and_deleted() -> None:
    obj = resumed_wrapper("Job", "Job")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj)
    after, decision = step(obj)
    assert [item.uid for item in decision.deletions] == ["c-0", "c-1"]
    recorded = after["status"]["componentStatus"]
    assert [component["name"] for component in recorded] == ["job-0", "job-1"]


def test_only_owned_pods_are_deleted_by_force_and_others_do_not_block() -> None:
    obj = running_wrapper(forcefulDeletionGracePeriodDuration="6s")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj, pods=[RUNNING_POD])
    obj, decision = step(obj, pods=[RUNNING_POD])
    assert decision.deadline == seconds_later(6)
    waiting, decision = step(
        obj, objects=[None], pods=[RUNNING_POD], owned=False, now=seconds_later(5.9)
    )
    assert (phase(waiting), decision.deletions) == (Phase.SUSPENDING, [])
    forced, decision = step(obj, objects=[None], pods=[RUNNING_POD], now=seconds_later(6))
    assert [(item.uid, item.force) for item in decision.deletions] == [("pod-0", True)]
    assert phase(forced) == Phase.SUSPENDING
    _, decision = step(
        obj,
        objects=[None],
        pods=[WrapperPod("Running", has_node=True, deleting=True, forced=True)],
        now=seconds_later(7),
    )
    assert decision.deletions == []
    done, decision = step(
        obj, objects=[None], pods=[RUNNING_POD], owned=False, now=seconds_later(6)
    )
    assert (phase(done), decision.deletions) == (Phase.SUSPENDED, [])


def suspending_wrapper(*kinds: str) -> Object:
    """Return an AppWrapper whose components are being deleted since ``NOW``, with a grace period of 6 s."""
    obj = running_wrapper(*kinds, forcefulDeletionGracePeriodDuration="6s")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj)
    obj, _ = step(obj)
    return obj


FORCED_POD = WrapperPod("Running", has_node=True, deleting=True, forced=True)


@pytest.mark.parametrize(
    ("changes", "seconds", "expected"),
    [
        ({}, 6, Phase.SUSPENDING),
        ({}, 6000, Phase.SUSPENDING),
        ({"forced_since": seconds_later(7)}, 66.9, Phase.SUSPENDING),
        ({"forced_since": seconds_later(7)}, 67, Phase.SUSPENDED),
        ({"has_node": False}, 5.9, Phase.SUSPENDING),
        ({"has_node": False}, 6, Phase.SUSPENDED),
        ({"phase": "Failed"}, 6, Phase.SUSPENDED),
        ({"has_node": False, "forced": False}, 6, Phase.SUSPENDING),
        ({"forced": False}, 6000, Phase.SUSPENDING),
        ({"created": "2026-01-01T12:10:00Z"}, 6, Phase.SUSPENDING),
        ({"created": "2026-01-01T12:10:01Z"}, 6, Phase.SUSPENDED),
    ],
)
def test_pod_that_a_finalizer_keeps_holds_quota_only_while_it_can_run(
    changes: dict[str, Any], seconds: float, expected: Phase
) -> None:
    pod = dataclasses.replace(FORCED_POD, **changes)
    after, decision = step(
        suspending_wrapper(), objects=[None], pods=[pod], now=seconds_later(seconds)
    )
    assert phase(after) == expected
    assert [item.force for item in decision.deletions] == [True] * (not pod.forced)
    if pod.forced_since is not None and expected is Phase.SUSPENDING:
        assert decision.deadline == seconds_later(67)


@pytest.mark.parametrize(
    ("is_deleting", "seconds", "seen", "expected"),
    [
        (True, 6, 0, Phase.SUSPENDING),
        (True, 9.9, 0, Phase.SUSPENDING),
        (True, 10, 0, Phase.SUSPENDED),
        (True, 3600, 3595, Phase.SUSPENDING),
        (True, 3605, 3595, Phase.SUSPENDED),
        (False, 3600, 0, Phase.SUSPENDING),
    ],
)
def test_component_that_a_finalizer_keeps_holds_no_quota(
    is_deleting: bool, seconds: float, seen: float, expected: Phase
) -> None:
    obj = suspending_wrapper("Job")
    kept = ComponentObject(uid="c-0", deleting=is_deleting, finalizers=("a.b/keep",))
    seen_at = seconds_later(seen)
    after, decision = step(
        obj, objects=[kept], now=seconds_later(seconds), deletion_seen_at=seen_at
    )
    assert phase(after) == expected
    notes = [event.message for event in decision.events if event.reason == "FinalizersRemain"]
    if expected is Phase.SUSPENDED:
        assert notes == ["No longer waiting for the finalizers of Job job-0"]
        return
    assert notes == []
    message = condition(after, DELETING_RESOURCES)["message"]
    assert message == "Waiting for the deletion of Job job-0 (finalizers: a.b/keep)"
    if is_deleting:
        assert decision.deadline == seconds_later(seen + 10)
    else:
        assert [item.uid for item in decision.deletions] == ["c-0"]


def test_objects_that_an_appwrapper_of_a_queue_controls_are_deleted_with_its_components() -> None:
    other = Deletion(JOB, NamespacedName("ns", "extra"), "other")
    obj = queued(running_wrapper("Job"))
    _, decision = step(obj, others=[other])
    assert not decision.others
    obj["spec"]["suspend"] = True
    obj, _ = step(obj, others=[other])
    _, decision = step(obj, others=[other])
    assert decision.others == [other]
    del obj["metadata"]["labels"]
    _, decision = step(obj, others=[other])
    assert not decision.others


@pytest.mark.parametrize(
    ("pod", "seconds"),
    [(RUNNING_POD, 120), (dataclasses.replace(RUNNING_POD, has_controller=True), 600)],
    ids=["only the label", "an unknown owner"],
)
def test_deletion_waits_only_some_minutes_for_pods_that_may_be_of_others(
    pod: WrapperPod, seconds: int
) -> None:
    """Any user can create them, and choose a grace period of 24 hours."""
    obj = running_wrapper("Job", forcefulDeletionGracePeriodDuration="24h")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj, pods=[pod])
    waiting, decision = step(obj, pods=[pod], owned=False, objects=[None])
    assert decision.deadline == seconds_later(seconds)
    later = seconds_later(seconds)
    still, decision = step(waiting, pods=[pod], objects=[None], now=later)
    assert phase(still) == Phase.SUSPENDING
    assert decision.deadline == seconds_later(24 * 3600)
    ended, _ = step(waiting, pods=[pod], owned=False, objects=[None], now=later)
    assert phase(ended) == Phase.SUSPENDED


def test_deletion_waits_some_minutes_until_the_owners_of_listed_pods_are_known() -> None:
    obj = running_wrapper("Job")
    obj["spec"]["suspend"] = True
    obj, _ = step(obj)
    unknown: dict[str, Any] = {"objects": [None], "knowledge": PodKnowledge.OWNERS_UNKNOWN}
    waiting, _ = step(obj, **unknown)
    assert phase(waiting) == Phase.SUSPENDING
    known, _ = step(waiting, objects=[None], knowledge=PodKnowledge.LISTED)
    assert phase(known) == Phase.SUSPENDED
    for seconds, expected in ((599, Phase.SUSPENDING), (600, Phase.SUSPENDED)):
        later, _ = step(waiting, now=seconds_later(seconds), **unknown)
        assert phase(later) == expected


@pytest.mark.parametrize("finalizer", [FINALIZER, "tenant.test/keep"])
def test_finalizer_is_removed_after_components_are_deleted(finalizer: str) -> None:
    """A user can replace it, so the components are also deleted without it."""
    obj = running_wrapper()
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    obj["metadata"]["finalizers"] = [finalizer]
    obj, decision = step(obj)
    assert (phase(obj), decision.remove_finalizer, len(decision.deletions)) == (
        Phase.TERMINATING,
        False,
        1,
    )
    obj, decision = step(obj, objects=[None])
    assert decision.remove_finalizer
    assert condition(obj, "QuotaReserved")["reason"] == "Terminating"
