"""The time for which an AppWrapper keeps quota that its pods do not request has a limit."""

from __future__ import annotations

import copy
import dataclasses
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from cfo.api.appwrapper.names import PODS_READY, QUOTA_RESERVED, UNHEALTHY, Phase
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.pod_requests import PodShape
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.appwrapper_settings import Settings
from cfo.controllers.appwrapper.components import ComponentObject
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.controllers.appwrapper.transition import Creation, after_creation, decide
from cfo.controllers.appwrapper.unused_quota import QuotaUse, UnusedQuota, use_of_quota
from cfo.runtime.objects.unstructured import Object, find_condition
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


def running(requests: Object | None = None, *, queue: str = "lq", **annotations: str) -> Object:
    """Return an AppWrapper whose Job of two pods has been created."""
    obj = wrapper("Job", **annotations)
    if queue:
        obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: queue}
    template = obj["spec"]["components"][0]["template"]
    spec = {"parallelism": 2, "completions": 2, "template": pod_template(**(requests or BIG))}
    template["spec"] = spec
    obj = with_decided_status(obj, decide(observe(obj)))
    created = [Creation(item, uid="c-0") for item in observe(obj).components]
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
        pytest.param([TINY, pod("Pending", is_read=False)], QuotaUse.UNKNOWN, id="not read"),
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
    ("obj", "fields"),
    [
        pytest.param(running(queue=""), {}, id="no queue"),
        pytest.param(with_condition(running(), QUOTA_RESERVED, "False"), {}, id="no quota"),
        pytest.param(
            running(),
            {"objects": [ComponentObject(completed=True)]},
            id="only completed components",
        ),
    ],
)
def test_no_quota_is_kept_unused(obj: Object, fields: dict[str, Any]) -> None:
    assert use(obj, [], **fields) is QuotaUse.NONE


@pytest.mark.parametrize("knowledge", [PodKnowledge.LEFT_OUT, PodKnowledge.OWNERS_UNKNOWN])
def test_pods_that_are_not_known_may_use_the_quota(knowledge: PodKnowledge) -> None:
    assert use(running(), [], knowledge=knowledge) is QuotaUse.UNKNOWN


def test_pods_with_unread_owners_may_use_the_quota() -> None:
    """In a deletion, they are read only after some minutes."""
    obj = running()
    obj["spec"]["suspend"] = True
    for _ in range(2):
        obj = with_decided_status(obj, decide(observe(obj, pods=[TINY])))
    assert obj["status"]["phase"] == Phase.SUSPENDING
    assert use(obj, [dataclasses.replace(TINY)]) is QuotaUse.UNKNOWN
    assert use(obj, []) is QuotaUse.UNUSED
    assert use(obj, [TINY], now=seconds_later(600)) is QuotaUse.UNUSED


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def test_time_without_use_is_added_up_until_pods_run() -> None:
    unused = UnusedQuota("uid")
    for minute, use_then in ((0, QuotaUse.UNUSED), (10, QuotaUse.REQUESTED)):
        unused = unused.after(use_then, at(minute))
    assert unused.ends_at(LIMIT) is None
    for minute, use_then in ((60, QuotaUse.UNUSED), (65, QuotaUse.UNUSED), (66, QuotaUse.UNKNOWN)):
        unused = unused.after(use_then, at(minute))
        assert unused.ends_at(LIMIT) == at(80)
    unused = unused.after(QuotaUse.REQUESTED, at(80)).after(QuotaUse.UNUSED, at(90))
    assert unused.ends_at(LIMIT) == at(90)
    unused = unused.after(QuotaUse.RUNNING, at(91)).after(QuotaUse.UNUSED, at(92))
    assert unused.ends_at(LIMIT) == at(92 + 30)
    unused = unused.after(QuotaUse.NONE, at(93)).after(QuotaUse.UNUSED, at(94))
    assert unused.ends_at(LIMIT) == at(94 + 30)


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


def test_limit_is_at_most_the_ceiling() -> None:
    tolerance = {"gracePeriodCeiling": "20m", "unusedQuotaLimit": "30m"}
    config = AppWrapperConfiguration.from_document({"faultTolerance": tolerance})
    settings = Settings.of(wrapper(), config.fault_tolerance)
    assert settings.unused_quota_limit == timedelta(minutes=20)
