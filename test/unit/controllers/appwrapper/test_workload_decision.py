"""What happens next between an AppWrapper and its Workload, and what is written to both."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from cfo.api.appwrapper.names import (
    APPWRAPPER,
    FINALIZER,
    PODS_READY,
    QUOTA_FINALIZER,
    QUOTA_RESERVED,
    RESOURCES_DEPLOYED,
    SELECTOR_ANNOTATION,
)
from cfo.api.kueue import inadmissible_message
from cfo.controllers.appwrapper.workload import (
    WorkloadPriority,
    desired_workload,
    has_left,
    protection_patch,
)
from cfo.controllers.appwrapper.workload_decision import (
    REQUEUED_REASONS,
    QueueAction,
    QueueDecision,
    awaits_admission,
    decide_action,
    finished_status,
    is_followed,
    is_queued,
    is_synchronized_here,
    must_delete_left,
    released_status,
    reported_status,
    spec_changes,
)
from cfo.runtime.objects.unstructured import Object
from envtest.apply.jsonpatch import json_patch
from test.support.kueue_queue import WORKLOAD

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
ADMITTED: Object = {
    "admission": {"clusterQueue": "all"},
    "conditions": [{"type": "Admitted", "status": "True"}],
}
NOT_VALIDATED = {"type": "Validated", "status": "False"}
HELD = {"status": {"conditions": [NOT_VALIDATED]}}
RESERVED = {"status": {"conditions": [{"type": QUOTA_RESERVED, "status": "True"}]}}
DEPLOYED = {"status": {"conditions": [{"type": RESOURCES_DEPLOYED, "status": "True"}]}}
EVICTED = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted by b"}


def being_deleted(finalizer: str) -> Object:
    """Return what an AppWrapper with ``finalizer`` has while it is being deleted."""
    labels = {QUEUE_LABEL: "user"}
    metadata = {"labels": labels, "deletionTimestamp": "now", "finalizers": [finalizer]}
    return {"metadata": metadata}


def wrapper(
    *, suspend: bool = True, queue: str = "user", conditions: tuple[str, ...] = (), **status: Any
) -> Object:
    status = {**status, "conditions": [{"type": kind, "status": "True"} for kind in conditions]}
    return {
        "metadata": {"name": "aw", "namespace": "ns", "labels": {QUEUE_LABEL: queue}},
        "spec": {
            "suspend": suspend,
            "components": [
                {
                    "template": job(completions=4),
                    "podSets": [{"replicas": 2, "path": "template.spec.template"}],
                }
            ],
        },
        "status": status,
    }


def job(**spec: Any) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}


def workload(
    *conditions: Object, queue: str = "user", active: bool = True, **status: Any
) -> Object:
    return {
        "metadata": {"name": "wl", "namespace": "ns"},
        "spec": {"queueName": queue, "active": active},
        "status": {**status, "conditions": [*status.get("conditions", ()), *conditions]},
    }


def own_workload(**status: Any) -> Object:
    """Return a Workload that this operator has created."""
    found = workload(**status)
    found["metadata"]["finalizers"] = [QUOTA_FINALIZER]
    return found


OTHER_MANAGER: Object = {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}


def managed_elsewhere(owner: Object) -> Object:
    """Return an AppWrapper whose ``managedBy`` was changed without the webhook."""
    return {**owner, "spec": {**owner["spec"], **OTHER_MANAGER["spec"]}}


def not_validated(owner: Object) -> Object:
    """Return an AppWrapper that was changed without validation."""
    status = owner["status"]
    return {**owner, "status": {**status, "conditions": [*status["conditions"], NOT_VALIDATED]}}


def kinds(conditions: list[Object]) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition, by its type."""
    return {each["type"]: (each["status"], each["reason"]) for each in conditions}


@pytest.mark.parametrize(
    ("owner", "existing", "action"),
    [
        (wrapper(), None, QueueAction.CREATE),
        (wrapper(suspend=False), None, QueueAction.STOP),
        (wrapper(), workload(), QueueAction.NOTHING),
        (wrapper(queue="other"), workload(), QueueAction.MOVE),
        (wrapper(suspend=False), workload(), QueueAction.STOP),
        (wrapper(), workload(**ADMITTED), QueueAction.START),
        (wrapper(suspend=False), workload(**ADMITTED), QueueAction.REPORT),
        (wrapper(suspend=False), workload(EVICTED, **ADMITTED), QueueAction.STOP),
        (wrapper(conditions=(QUOTA_RESERVED,)), workload(EVICTED), QueueAction.NOTHING),
        (wrapper(), workload(EVICTED), QueueAction.RELEASE),
        (wrapper(), workload(active=False, **ADMITTED), QueueAction.RELEASE),
        (wrapper(phase="Succeeded"), workload(EVICTED), QueueAction.FINISH),
        (wrapper(phase="Failed"), workload(), QueueAction.FINISH),
        (wrapper(phase="Failed"), None, QueueAction.FINISH),
        (
            wrapper(phase="Failed", conditions=("ResourcesDeployed",)),
            workload(),
            QueueAction.NOTHING,
        ),
    ],
    ids=[
        "a suspended one gets its Workload",
        "one that runs without a Workload is suspended first",
        "one that waits changes nothing",
        "its Workload follows the label of the queue",
        "one that runs without admission is suspended",
        "an admitted one is resumed",
        "a running one reports its pods",
        "an evicted one is suspended",
        "an evicted one keeps its quota while its resources are deleted",
        "an evicted one without resources releases its quota",
        "a deactivated one is evicted",
        "a successful one finishes although it is evicted",
        "a failed one without resources finishes",
        "one without a Workload can finish",
        "a failed one with resources keeps its quota",
    ],
)
def test_next_step(owner: Object, existing: Object | None, action: QueueAction) -> None:
    assert decide_action(owner, existing).action is action


@pytest.mark.parametrize(
    ("reserved", "expected"),
    [
        ({"status": "False", "reason": "Inadmissible", "message": "no queue"}, "no queue"),
        ({"status": "False", "reason": "Pending", "message": "no quota now"}, None),
        ({"status": "True", "reason": "Inadmissible"}, None),
        ({}, None),
    ],
)
def test_reason_why_kueue_cannot_admit_a_workload_is_known(
    reserved: Object, expected: str | None
) -> None:
    assert inadmissible_message(workload({"type": "QuotaReserved", **reserved})) == expected


@pytest.mark.parametrize("owner", [wrapper(), wrapper(suspend=False), wrapper(queue="other")])
def test_only_a_workload_without_admission_is_pending(owner: Object) -> None:
    assert decide_action(owner, workload()).is_pending
    assert not decide_action(owner, workload(**ADMITTED)).is_pending
    assert not decide_action(owner, workload(EVICTED)).is_pending
    assert not decide_action(owner, None).is_pending


def test_reason_of_the_eviction_is_that_of_the_stop_and_of_the_release() -> None:
    stop = decide_action(wrapper(suspend=False), workload(EVICTED))
    assert stop.message == "Preempted by b"
    release = decide_action(wrapper(), workload(EVICTED))
    assert release == QueueDecision(QueueAction.RELEASE, "Preempted", "Preempted by b")


@pytest.mark.parametrize(
    ("change", "existing", "expected"),
    [
        ({}, None, True),
        ({"metadata": {"labels": {}}}, None, False),
        (HELD, None, False),
        ({"metadata": {"labels": {}}}, workload(), True),
        (HELD, workload(), True),
        (being_deleted(FINALIZER), workload(), False),
        (being_deleted("tenant.test/keep"), workload(), True),
        (being_deleted("tenant.test/keep"), None, False),
        ({**being_deleted("tenant.test/keep"), **RESERVED}, workload(), False),
        ({**being_deleted("tenant.test/keep"), **DEPLOYED}, workload(), False),
        (OTHER_MANAGER, workload(), False),
        (OTHER_MANAGER, own_workload(), True),
        (OTHER_MANAGER, None, False),
    ],
    ids=[
        "with a queue",
        "without a queue",
        "not validated",
        "without a queue, with a Workload",
        "not validated, with a Workload",
        "being deleted",
        "done, and kept by a finalizer of its user",
        "done, without a Workload",
        "being deleted without the operator's finalizer, with quota",
        "being deleted without the operator's finalizer, with components",
        "managed by another controller, with its Workload",
        "managed by another controller, with the operator's Workload",
        "managed by another controller, without a Workload",
    ],
)
def test_wrappers_of_this_operator_with_queue_or_workload_are_synchronized(
    change: Object, existing: Object | None, expected: bool
) -> None:
    assert is_synchronized_here({**wrapper(), **change}, existing) is expected


def test_workload_of_an_appwrapper_that_is_done_is_deleted_once() -> None:
    done = {**wrapper(suspend=False), **being_deleted("tenant.test/keep")}
    assert decide_action(done, workload(**ADMITTED)).action is QueueAction.DELETE
    deleting = workload(**ADMITTED)
    deleting["metadata"]["deletionTimestamp"] = "now"
    assert decide_action(done, deleting).action is QueueAction.NOTHING


@pytest.mark.parametrize(
    ("owner", "existing", "expected"),
    [
        (wrapper(), None, True),
        (managed_elsewhere(wrapper()), None, False),
        (managed_elsewhere(wrapper()), workload(), False),
        (managed_elsewhere(wrapper()), own_workload(), True),
        ({**managed_elsewhere(wrapper()), **being_deleted(FINALIZER)}, None, True),
        ({**managed_elsewhere(wrapper()), **being_deleted("tenant.test/keep")}, None, False),
    ],
    ids=[
        "managed here",
        "managed elsewhere",
        "with the Workload of another controller",
        "with a Workload of this operator",
        "deleted with the operator's finalizer",
        "deleted with another finalizer",
    ],
)
def test_appwrapper_with_another_manager_is_followed_while_something_of_the_operator_remains(
    owner: Object, existing: Object | None, expected: bool
) -> None:
    assert is_followed(owner, existing) is expected


OUTSIDE = [
    pytest.param(lambda **state: wrapper(queue="", **state), id="without a queue"),
    pytest.param(lambda **state: not_validated(wrapper(**state)), id="not validated"),
    pytest.param(lambda **state: managed_elsewhere(wrapper(**state)), id="managedBy changed"),
]


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize(
    "existing",
    [workload(), workload(**ADMITTED), workload(EVICTED, **ADMITTED), workload(active=False)],
    ids=["waits", "admitted", "evicted", "deactivated"],
)
def test_workload_is_deleted_after_its_wrapper_has_left_the_queue(
    outside: Callable[..., Object], suspend: bool, existing: Object
) -> None:
    owner = outside(suspend=suspend)
    assert decide_action(owner, existing) == QueueDecision(QueueAction.DELETE)
    assert awaits_admission(owner, existing)
    assert is_queued(owner, existing)
    being_deleted = {**existing, "metadata": {**existing["metadata"], "deletionTimestamp": "now"}}
    assert decide_action(owner, being_deleted) == QueueDecision(QueueAction.NOTHING)
    assert awaits_admission(owner, being_deleted)


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize(
    ("state", "existing", "action", "message"),
    [
        ({}, workload(**ADMITTED), QueueAction.REPORT, ""),
        ({}, workload(EVICTED, **ADMITTED), QueueAction.STOP, "Preempted by b"),
        ({}, workload(), QueueAction.STOP, "Not admitted by cluster queue"),
        ({"suspend": True}, workload(EVICTED, **ADMITTED), QueueAction.NOTHING, ""),
        ({"suspend": True}, workload(**ADMITTED), QueueAction.NOTHING, ""),
        ({"suspend": True}, workload(), QueueAction.NOTHING, ""),
        ({"phase": "Succeeded"}, workload(**ADMITTED), QueueAction.FINISH, None),
        ({"phase": "Failed"}, workload(**ADMITTED), QueueAction.FINISH, None),
    ],
    ids=[
        "it runs as admitted",
        "evicted",
        "not admitted",
        "evicted, being suspended",
        "admitted, being suspended",
        "waiting, being suspended",
        "succeeded",
        "failed",
    ],
)
def test_workload_is_followed_while_its_wrapper_runs_outside_the_queue(
    outside: Callable[..., Object],
    state: Object,
    existing: Object,
    action: QueueAction,
    message: str | None,
) -> None:
    owner = outside(**{"suspend": False, "conditions": (QUOTA_RESERVED,), **state})
    decision = decide_action(owner, existing)
    assert decision.action is action
    if message is not None:
        assert decision.message == message
    assert is_queued(owner, existing)


@pytest.mark.parametrize(
    ("owner", "existing", "expected"),
    [
        (wrapper(suspend=False), None, True),
        (wrapper(suspend=False), workload(), True),
        (wrapper(suspend=False), workload(EVICTED, **ADMITTED), True),
        (wrapper(suspend=False), workload(**ADMITTED), False),
        (wrapper(suspend=False, queue=""), None, False),
        (
            wrapper(suspend=False, queue="", conditions=(QUOTA_RESERVED,)),
            workload(**ADMITTED),
            False,
        ),
    ],
    ids=[
        "without a Workload",
        "not admitted",
        "evicted",
        "admitted",
        "without a queue",
        "admitted, and left the queue while it runs",
    ],
)
def test_wrapper_is_deployed_with_admission_or_without_a_queue(
    owner: Object, existing: Object | None, expected: bool
) -> None:
    assert awaits_admission(owner, existing) is expected


def test_resumed_wrapper_gets_the_changes_of_the_admission_and_a_stopped_one_loses_them() -> None:
    suspended = wrapper()
    infos = [[{"nodeSelector": {"gpu": "a100"}}]]
    running = json_patch(suspended, spec_changes(suspended, infos, suspend=False))
    assert running["spec"]["suspend"] is False
    assert running["spec"]["components"][0]["podSetInfos"] == infos[0]

    resumed = {"op": "add", "path": "/spec/suspend", "value": False}
    assert spec_changes(running, infos, suspend=False) == [resumed]
    stopped = spec_changes(running, None, suspend=True)
    assert json_patch(running, stopped) == suspended
    assert spec_changes(suspended, None, suspend=True) == [{**resumed, "value": True}]


def test_stopped_wrapper_can_have_lost_the_changes_of_the_admission_already() -> None:
    """Its user can remove them together with the suspension, after the operator has read it."""
    running = wrapper(suspend=False)
    running["spec"]["components"][0]["podSetInfos"] = [{"nodeSelector": {"gpu": "a100"}}]
    stopped = json_patch(wrapper(), spec_changes(running, None, suspend=True))
    assert stopped == wrapper()


LABEL_STATES = list(product(("a", "b", None), ("lq", None)))
"""All values of the labels that decide about an AppWrapper: its part and its queue."""
SPEC_STATES = list(product((True, False), (True, False)))
"""Whether it is suspended, and whether it has quota."""
WORKLOAD_STATES: list[Object] = [
    workload(),
    workload(**ADMITTED),
    workload(EVICTED, **ADMITTED),
    workload(active=False),
]


def labelled(part: str | None, queue: str | None, *, suspend: bool, quota: bool) -> Object:
    """Return an AppWrapper with these labels."""
    found = wrapper(suspend=suspend, conditions=(QUOTA_RESERVED,) if quota else ())
    labels = {"part": part, QUEUE_LABEL: queue}
    found["metadata"]["labels"] = {key: value for key, value in labels.items() if value}
    return found


def followed_by(existing: Object, selector: str) -> Object:
    """Return a Workload that the operator with this label selector follows."""
    annotations = {SELECTOR_ANNOTATION: selector} if selector else {}
    return {**existing, "metadata": {**existing["metadata"], "annotations": annotations}}


@pytest.mark.parametrize("existing", WORKLOAD_STATES, ids=["waiting", "admitted", "evicted", "off"])
@pytest.mark.parametrize(("suspend", "quota"), SPEC_STATES)
@pytest.mark.parametrize(("part", "queue"), LABEL_STATES)
def test_workload_is_deleted_in_whatever_order_its_appwrapper_has_left_its_queue_and_its_part(
    part: str | None, queue: str | None, suspend: bool, quota: bool, existing: Object
) -> None:
    """Whatever the updates before were, the last one leads to one of these states."""
    owner = labelled(part, queue, suspend=suspend, quota=quota)
    own = followed_by(existing, "part=a")
    assert has_left(owner, own) is (part != "a")
    if part == "a":
        assert is_synchronized_here(owner, own)
        return
    assert must_delete_left(owner, own)
    deleting = {**own["metadata"], "deletionTimestamp": "now"}
    assert not must_delete_left(owner, {**own, "metadata": deleting})


@pytest.mark.parametrize(("suspend", "quota"), SPEC_STATES)
@pytest.mark.parametrize(("part", "queue"), LABEL_STATES)
@pytest.mark.parametrize("selector", ["", "part in (a,b)", "!other"])
def test_workload_of_another_operator_is_kept(
    selector: str, part: str | None, queue: str | None, suspend: bool, quota: bool
) -> None:
    """The selector of this operator may have changed since, or a Workload may be of an earlier version."""
    owner = labelled(part, queue, suspend=suspend, quota=quota)
    theirs = followed_by(workload(**ADMITTED), selector)
    is_theirs = part is not None or selector != "part in (a,b)"
    assert has_left(owner, theirs) is not is_theirs
    holds_nothing = queue is None and not quota
    assert must_delete_left(owner, theirs) is (holds_nothing or not is_theirs)


def test_operator_marks_the_workloads_that_it_follows() -> None:
    owner = labelled("a", "lq", suspend=True, quota=False)
    owner |= {"apiVersion": APPWRAPPER.api_version, "kind": APPWRAPPER.kind}
    owner["metadata"]["uid"] = "uid"
    owner["spec"]["components"] = []
    created = desired_workload(owner, WORKLOAD, WorkloadPriority(), "part=a")
    assert created["metadata"]["annotations"][SELECTOR_ANNOTATION] == "part=a"
    assert protection_patch(owner, created, "part=a") == {}
    for selector in ("part=b", ""):
        marked = {"metadata": {"annotations": {SELECTOR_ANNOTATION: selector or None}}}
        assert protection_patch(owner, created, selector) == marked
    unmarked = desired_workload(owner, WORKLOAD, WorkloadPriority())
    assert SELECTOR_ANNOTATION not in unmarked["metadata"]["annotations"]
    assert protection_patch(owner, unmarked) == {}


@pytest.mark.parametrize(
    ("was_ready", "reason", "is_ready", "expected"),
    [
        (False, "WaitForStart", True, ("True", "Started")),
        (False, "WaitForRecovery", True, ("True", "Recovered")),
        (True, "Started", False, ("False", "WaitForRecovery")),
        (False, "WaitForStart", False, None),
        (True, "Started", True, None),
    ],
)
def test_workload_reports_readiness_only_when_it_changes(
    was_ready: bool, reason: str, is_ready: bool, expected: tuple[str, str] | None
) -> None:
    owner = wrapper(suspend=False, conditions=(PODS_READY,) if is_ready else ())
    before = {"type": PODS_READY, "status": str(was_ready), "reason": reason}
    status = reported_status(owner, workload(before, admission={}), NOW)
    if expected is None:
        assert status == {}
    else:
        assert kinds(status["conditions"])[PODS_READY] == expected


def test_released_workload_needs_all_of_its_quota_again() -> None:
    """An earlier release gave back the quota of succeeded pods."""
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}
    earlier = workload(reserved, reclaimablePods=[{"name": "aw-0", "count": 1}])
    assert released_status(earlier, "Preempted", "", NOW)["reclaimablePods"] is None
    assert "reclaimablePods" not in released_status(workload(reserved), "Preempted", "", NOW)


@pytest.mark.parametrize("reason", ["Started", "WaitForRecovery"])
def test_released_workload_waits_for_the_start_again(reason: str) -> None:
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}
    ready = {"type": PODS_READY, "status": "True", "reason": reason}
    status = released_status(workload(reserved, ready), "Preempted", "", NOW)
    assert kinds(status["conditions"])[PODS_READY] == ("False", "WaitForStart")


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [(reason, "True") for reason in REQUEUED_REASONS] + [("Deactivated", "False")],
)
def test_released_workload_is_requeued_unless_it_was_deactivated(
    reason: str, requeued: str
) -> None:
    reserved = workload({"type": "QuotaReserved", "status": "True"}, admission={})
    status = released_status(reserved, reason, "because", NOW)
    assert status["admission"] is None
    found = kinds(status["conditions"])
    assert found["Requeued"] == (requeued, reason)
    assert found["QuotaReserved"] == ("False", "Pending")
    assert found["Admitted"] == ("False", "NoReservation")


def test_quota_is_released_once() -> None:
    assert released_status(workload(EVICTED), "Preempted", "because", NOW) == {}


@pytest.mark.parametrize(
    ("existing", "is_written"),
    [
        (workload(), True),
        (workload({"type": "Finished", "status": "False"}), True),
        (workload({"type": "Finished", "status": "True"}), False),
        (None, False),
    ],
    ids=["new", "not finished", "finished", "missing"],
)
def test_workload_is_marked_as_finished_once(existing: Object | None, is_written: bool) -> None:
    status = finished_status(existing, "Succeeded", "done", NOW)
    assert bool(status) is is_written
    if is_written:
        assert kinds(status["conditions"])["Finished"] == ("True", "Succeeded")
