"""The time for which an AppWrapper keeps quota that its pods do not request has a limit."""

from __future__ import annotations

import copy
import dataclasses
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock, Mock, call

import msgspec
import pytest

from cfo.api.appwrapper.names import (
    APPWRAPPER,
    PODS_READY,
    QUOTA_RESERVED,
    RESOURCES_DEPLOYED,
    UNHEALTHY,
    Phase,
)
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.pod_requests import PodShape
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.appwrapper_settings import Settings
from cfo.controllers.appwrapper.components import ComponentObject
from cfo.controllers.appwrapper.creation import Creation, after_creation
from cfo.controllers.appwrapper.observer import WrapperObserver
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.appwrapper.reconciler import AppWrapperReconciler
from cfo.controllers.appwrapper.transition import decide
from cfo.controllers.appwrapper.unused_quota import (
    QuotaUse,
    UnusedQuota,
    use_of_quota,
)
from cfo.controllers.appwrapper.workload_decision import queue_state
from cfo.runtime.objects.unstructured import Object, find_condition, key_of
from test.support.observations import NOW, observe, seconds_later, with_decided_status, wrapper

LIMIT = timedelta(minutes=30)
GPU = "nvidia.com/gpu"


def pod_template(**requests: str) -> Object:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}


def pod(phase: str = "Running", **fields: Any) -> WrapperPod:
    return WrapperPod(phase, **fields)


def requesting(phase: str, **requests: str) -> WrapperPod:
    shape = msgspec.convert(pod_template(**requests)["spec"], PodShape)
    return WrapperPod(phase, shape=shape)


BIG = {"cpu": "8", GPU: "8"}
CPU_ONLY = requesting("Running", cpu="8")
TINY = requesting("Running", cpu="1m")
WITH_GPU = requesting("Pending", **BIG)


def running(
    requests: Object | None = None, *, queue: str = "lq", jobs: int = 1, **annotations: str
) -> Object:
    """Return an AppWrapper whose Jobs, of two pods each, have been created."""
    obj = wrapper(*["Job"] * jobs, **annotations)
    if queue:
        obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: queue}
    spec = {"parallelism": 2, "completions": 2, "template": pod_template(**(requests or BIG))}
    for component in obj["spec"]["components"]:
        component["template"]["spec"] = spec
    return with_created_components(obj)


def with_created_components(obj: Object) -> Object:
    """Return a new AppWrapper after its components have been created."""
    obj = with_decided_status(obj, decide(observe(obj)))
    created = [Creation(item, uid=f"c-{item.index}") for item in observe(obj).components]
    return with_decided_status(obj, after_creation(observe(obj), created))


def condition(obj: Object, kind: str) -> dict[str, Any]:
    return dict(find_condition(obj["status"]["conditions"], kind) or {})


def with_condition(obj: Object, kind: str, status: str) -> Object:
    """Return ``obj`` with another status of a condition."""
    conditions = [
        {**item, "status": status} if item["type"] == kind else item
        for item in obj["status"]["conditions"]
    ]
    return {**obj, "status": {**obj["status"], "conditions": conditions}}


def use(obj: Object, pods: list[WrapperPod], **fields: Any) -> QuotaUse:
    return use_of_quota(observe(obj, pods=pods, **fields))


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], QuotaUse.UNUSED, id="no pods"),
        pytest.param([WITH_GPU], QuotaUse.REQUESTED, id="one waits, such as for its image"),
        pytest.param([TINY, WITH_GPU], QuotaUse.REQUESTED, id="one with GPUs"),
        pytest.param([TINY, TINY], QuotaUse.UNUSED, id="no GPUs"),
        pytest.param([CPU_ONLY], QuotaUse.UNUSED, id="only CPU"),
        pytest.param([requesting("Succeeded", **BIG)], QuotaUse.UNUSED, id="ended"),
        pytest.param([requesting("Failed", **BIG)], QuotaUse.UNUSED, id="failed"),
        pytest.param([TINY, pod("Pending", is_read=False)], QuotaUse.UNUSED, id="not read"),
        pytest.param([pod(is_read=False), WITH_GPU], QuotaUse.REQUESTED, id="read in part"),
        pytest.param(
            [dataclasses.replace(WITH_GPU, deleting=True)], QuotaUse.UNUSED, id="never scheduled"
        ),
        pytest.param(
            [dataclasses.replace(WITH_GPU, deleting=True, has_node=True)],
            QuotaUse.REQUESTED,
            id="ends on a node",
        ),
    ],
)
def test_quota_is_used_if_pods_request_some_of_each_resource(
    pods: list[WrapperPod], expected: QuotaUse
) -> None:
    assert use(running(), pods) is expected


def test_pods_without_requests_use_the_quota_of_pods() -> None:
    obj = running({"memory": "0"})
    assert use(obj, [pod()]) is QuotaUse.REQUESTED
    assert use(obj, []) is QuotaUse.UNUSED


def test_pods_of_others_do_not_use_the_quota() -> None:
    assert use(running(), [WITH_GPU], owned=False) is QuotaUse.UNUSED


def test_ready_pods_that_run_use_the_quota() -> None:
    obj = with_condition(running(), PODS_READY, "True")
    assert use(obj, [requesting("Running", **BIG)]) is QuotaUse.RUNNING
    assert use(obj, [WITH_GPU]) is QuotaUse.REQUESTED
    assert use(obj, [TINY]) is QuotaUse.UNUSED


def test_pods_with_gpus_may_succeed_before_others_of_the_component() -> None:
    """As in a JobSet that trains with GPUs, and evaluates without them."""
    obj = with_condition(running(), PODS_READY, "True")
    sets = obj["spec"]["components"]
    sets.append(copy.deepcopy(sets[0]))
    sets[1]["template"]["spec"]["template"] = pod_template(cpu="8")
    assert use(obj, [requesting("Succeeded", **BIG), CPU_ONLY]) is QuotaUse.RUNNING


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(running(queue=""), id="no queue"),
        pytest.param(with_condition(running(), QUOTA_RESERVED, "False"), id="no quota"),
    ],
)
def test_no_quota_is_kept_unused(obj: Object) -> None:
    assert use(obj, []) is QuotaUse.NONE


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], QuotaUse.UNUSED, id="no pods"),
        pytest.param([TINY], QuotaUse.UNUSED, id="tiny"),
        pytest.param([WITH_GPU], QuotaUse.REQUESTED, id="with GPUs"),
    ],
)
def test_pods_that_completed_components_leave_use_the_quota_of_all(
    pods: list[WrapperPod], expected: QuotaUse
) -> None:
    completed: list[ComponentObject | None] = [ComponentObject(uid="c", completed=True)]
    assert use(running(), pods, objects=completed) is expected


def test_component_may_complete_without_all_of_its_pods() -> None:
    """As a Job with a success policy does; those of the others go on."""
    obj = with_condition(running(jobs=2), PODS_READY, "True")
    objects = [ComponentObject(uid="c-0"), ComponentObject(uid="c-1", completed=True)]
    pods = [requesting("Running", **BIG)] * 2
    assert use(obj, pods, objects=objects) is QuotaUse.RUNNING


def test_pods_that_are_not_listed_yet_may_use_the_quota() -> None:
    obj = running()
    assert use(obj, [], knowledge=PodKnowledge.LEFT_OUT) is QuotaUse.NOT_KNOWN_YET
    obj = with_condition(obj, RESOURCES_DEPLOYED, "False")
    assert use(obj, [], knowledge=PodKnowledge.LEFT_OUT) is QuotaUse.UNUSED


def test_pods_with_owners_that_stay_unknown_do_not_use_the_quota() -> None:
    """Users can create pods faster than their owners are read."""
    unknown: dict[str, Any] = {
        "knowledge": PodKnowledge.OWNERS_UNKNOWN,
        "owners_unknown_since": seconds_later(0),
    }
    assert use(running(), [], **unknown, now=seconds_later(1799)) is QuotaUse.NOT_KNOWN_YET
    assert use(running(), [], **unknown, now=seconds_later(1800)) is QuotaUse.UNUSED
    assert use(running(), [WITH_GPU], **unknown) is QuotaUse.REQUESTED


def test_pods_with_lost_owners_may_use_the_quota_in_a_deletion() -> None:
    obj = running()
    obj["spec"]["suspend"] = True
    for _ in range(2):
        obj = with_decided_status(obj, decide(observe(obj, pods=[TINY])))
    assert obj["status"]["phase"] == Phase.SUSPENDING
    lost = dataclasses.replace(TINY, has_controller=True)
    assert use(obj, [lost], owned=False) is QuotaUse.UNKNOWN
    assert use(obj, [lost]) is QuotaUse.UNUSED
    assert use(obj, [TINY], owned=False) is QuotaUse.UNUSED
    assert use(obj, [lost], owned=False, now=seconds_later(600)) is QuotaUse.UNUSED


def workload(*conditions: str, admission: bool = True) -> Object:
    """Return a Workload of which these conditions are true."""
    found = [{"type": kind, "status": "True"} for kind in conditions]
    status = {"conditions": found, **({"admission": {"clusterQueue": "cq"}} if admission else {})}
    return {"metadata": {}, "spec": {}, "status": status}


SUSPENDED = {"phase": Phase.SUSPENDED.value}


@pytest.mark.parametrize(
    ("conditions", "admission", "expected"),
    [
        pytest.param(["QuotaReserved", "Admitted"], True, QuotaUse.UNUSED, id="admitted"),
        pytest.param(["QuotaReserved", "Admitted", "Evicted"], True, QuotaUse.UNUSED, id="evicted"),
        pytest.param(["QuotaReserved"], True, QuotaUse.NONE, id="admission checks"),
        pytest.param([], False, QuotaUse.NONE, id="waits"),
        pytest.param(["Admitted", "Finished"], True, QuotaUse.NONE, id="finished"),
    ],
)
def test_suspended_appwrapper_has_quota_while_its_workload_holds_it(
    conditions: list[str], admission: bool, expected: QuotaUse
) -> None:
    """Its user can suspend it at any time, and it is resumed."""
    obj = with_condition(running(), QUOTA_RESERVED, "False")
    obj["status"] |= SUSPENDED
    objects: list[ComponentObject | None] = [None]
    found = workload(*conditions, admission=admission)
    assert use(obj, [], objects=objects, workload=found) is expected


def test_suspended_appwrapper_without_known_workload_may_have_quota() -> None:
    obj = with_condition(running(), QUOTA_RESERVED, "False")
    obj["status"] |= SUSPENDED
    assert use(obj, [], objects=[None]) is QuotaUse.SUSPENDED


def at(minutes: float) -> float:
    return minutes * 60


def test_time_without_use_is_added_up_until_pods_run() -> None:
    unused = UnusedQuota("uid")
    for minute, use_then in ((0, QuotaUse.UNUSED), (10, QuotaUse.REQUESTED)):
        unused = unused.after(use_then, at(minute))
    assert unused.ends_at(LIMIT) is None
    for minute, use_then in (
        (60, QuotaUse.UNUSED),
        (65, QuotaUse.UNUSED),
        (66, QuotaUse.UNKNOWN),
        (67, QuotaUse.NOT_KNOWN_YET),
    ):
        unused = unused.after(use_then, at(minute))
        assert unused.ends_at(LIMIT) == at(80)
    suspended = unused.after(QuotaUse.SUSPENDED, at(70))
    assert suspended.ends_at(LIMIT) is None
    assert suspended.after(QuotaUse.UNUSED, at(100)).ends_at(LIMIT) == at(110)
    unused = unused.after(QuotaUse.REQUESTED, at(80)).after(QuotaUse.UNUSED, at(90))
    assert unused.ends_at(LIMIT) == at(90)
    unused = unused.after(QuotaUse.RUNNING, at(91)).after(QuotaUse.UNUSED, at(92))
    assert unused.ends_at(LIMIT) == at(92 + 30)
    unused = unused.after(QuotaUse.NONE, at(93)).after(QuotaUse.UNUSED, at(94))
    assert unused.ends_at(LIMIT) == at(94 + 30)


def test_step_of_the_date_does_not_change_how_long_quota_is_unused() -> None:
    observer = WrapperObserver(*([Mock()] * 7))
    seen = observe(running())
    hours = timedelta(hours=3)
    for seconds, ahead in ((0, timedelta(0)), (10, hours), (20, timedelta(0)), (30, -hours)):
        now = seconds_later(seconds) + ahead
        later = msgspec.structs.replace(seen, monotonic=seconds, now=now)
        found = observer._with_unused_quota(later)
        assert found.unused_until == now + LIMIT - timedelta(seconds=seconds)


@pytest.mark.parametrize("phase", [Phase.RESUMING, Phase.RUNNING, Phase.RESETTING])
def test_appwrapper_that_does_not_use_its_quota_fails_at_the_limit(phase: Phase) -> None:
    obj = running(admissionGracePeriodDuration="24h", retryPausePeriodDuration="24h")
    obj["status"] |= {"phase": phase.value, "resettingCount": 1}
    fields: dict[str, Any] = {"objects": [None]} if phase is Phase.RESETTING else {}
    unused_until = seconds_later(1800)
    waiting = decide(observe(obj, unused_until=unused_until, now=seconds_later(1799), **fields))
    assert waiting.status.phase is phase
    assert waiting.deadline is not None
    assert waiting.deadline <= unused_until
    ended = decide(observe(obj, unused_until=unused_until, now=unused_until, **fields))
    assert ended.status.phase is Phase.FAILED
    assert not ended.create
    assert "have not requested the quota for 30m" in ended.status.message(UNHEALTHY)
    assert [event.reason for event in ended.events][-1] == "Failed"


def test_failed_appwrapper_keeps_its_components_no_longer_than_to_the_limit() -> None:
    obj = running(deletionOnFailureGracePeriodDuration="24h")
    obj["status"]["phase"] = Phase.FAILED.value
    unused_until = seconds_later(1800)
    kept = decide(observe(obj, unused_until=unused_until))
    assert kept.deadline == unused_until
    assert not kept.deletions
    obj = with_decided_status(obj, kept)
    ended = decide(observe(obj, unused_until=unused_until, now=unused_until))
    assert [item.uid for item in ended.deletions] == ["c-0"]


def test_finalizers_of_components_keep_no_quota_beyond_the_limit() -> None:
    obj = running(forcefulDeletionGracePeriodDuration="24h")
    obj["spec"]["suspend"] = True
    deleting: list[ComponentObject | None] = [ComponentObject(uid="c-0", deleting=True)]
    for _ in range(2):
        obj = with_decided_status(obj, decide(observe(obj, objects=deleting)))
    unused_until = seconds_later(1800)
    later = seconds_later(121)
    waiting = decide(observe(obj, objects=deleting, unused_until=unused_until, now=later))
    assert waiting.deadline == unused_until
    ended = decide(observe(obj, objects=deleting, unused_until=unused_until, now=unused_until))
    assert ended.status.phase is Phase.SUSPENDED


@pytest.mark.parametrize("is_evicted", [False, True])
def test_suspended_appwrapper_fails_at_the_limit_unless_its_quota_is_given_back(
    *, is_evicted: bool
) -> None:
    """Its user can suspend it again before it is resumed."""
    obj = with_condition(running(), RESOURCES_DEPLOYED, "False")
    obj["status"] |= SUSPENDED
    obj["spec"]["suspend"] = True
    fields: dict[str, Any] = {
        "objects": [None],
        "workload": workload("Admitted"),
        "awaits_admission": is_evicted,
        "unused_until": NOW,
    }
    ended = decide(observe(obj, **fields))
    assert ended.status.phase is (Phase.SUSPENDED if is_evicted else Phase.FAILED)


def test_owners_that_are_not_known_keep_no_quota_after_the_limit() -> None:
    """Users can create pods faster than their owners are read."""
    obj = running(forcefulDeletionGracePeriodDuration="24h")
    obj["spec"]["suspend"] = True
    for _ in range(2):
        obj = with_decided_status(obj, decide(observe(obj)))
    fields: dict[str, Any] = {
        "objects": [None],
        "unused_until": seconds_later(1800),
        "knowledge": PodKnowledge.OWNERS_UNKNOWN,
    }
    waiting = decide(observe(obj, now=seconds_later(1799), **fields))
    assert waiting.status.phase is Phase.SUSPENDING
    ended = decide(observe(obj, now=seconds_later(1800), **fields))
    assert ended.status.phase is Phase.SUSPENDED


@pytest.mark.parametrize("is_unused", [False, True])
async def test_deletion_is_not_complete_by_a_list_that_may_have_begun_before_it(
    *, is_unused: bool
) -> None:
    """Its components may have created pods since, which the cache leaves out."""
    obj = running(forcefulDeletionGracePeriodDuration="24h")
    obj["spec"]["suspend"] = True
    deleting: list[ComponentObject | None] = [ComponentObject(uid="c-0", deleting=True)]
    for _ in range(2):
        obj = with_decided_status(obj, decide(observe(obj, objects=deleting)))
    now = seconds_later(1801)
    observation = observe(obj, objects=deleting, now=now, knowledge=PodKnowledge.LEFT_OUT)
    unused_until = seconds_later(1800) if is_unused else None
    listed = observe(
        obj, objects=deleting, now=now, knowledge=PodKnowledge.LISTED, unused_until=unused_until
    )
    client = Mock(get=AsyncMock(return_value=obj))
    observer = Mock(
        hand_over_pods=AsyncMock(),
        observe=AsyncMock(return_value=observation),
        with_listed_pods=AsyncMock(return_value=listed),
        has_unwatched_objects=Mock(return_value=False),
    )
    observer.clock.now.return_value = now
    namespaces = Mock(read_for=AsyncMock(), retry_after=Mock(return_value=30.0))
    read_queue = AsyncMock(return_value=queue_state(obj, None))
    reconciler = AppWrapperReconciler(
        client, Mock(), observer, Mock(), Mock(), namespaces, Mock(), read_queue
    )
    assert decide(listed).status.is_true(RESOURCES_DEPLOYED) is not is_unused
    result = await reconciler.reconcile(key_of(obj))
    assert result.requeue_after == 30
    assert client.mock_calls == [call.get(APPWRAPPER, key_of(obj))]


def test_limit_is_at_most_the_ceiling() -> None:
    tolerance = {"gracePeriodCeiling": "20m", "unusedQuotaLimit": "30m"}
    config = AppWrapperConfiguration.from_document({"faultTolerance": tolerance})
    settings = Settings.of(wrapper(), config.fault_tolerance)
    assert settings.unused_quota_limit == timedelta(minutes=20)
