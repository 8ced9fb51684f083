"""The pods of an AppWrapper of a queue must use the quota that they keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from cfo.api.appwrapper.inference import infer_pod_sets
from cfo.api.appwrapper.names import PODS_READY, QUOTA_RESERVED, UNHEALTHY, Phase
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.pod_requests import PodShape
from cfo.controllers.appwrapper.creation import Creation, after_creation
from cfo.controllers.appwrapper.decision import WrapperDecision
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import Termination, WrapperPod
from cfo.controllers.appwrapper.transition import decide
from cfo.controllers.pod_status import PodStatus
from cfo.runtime import rfc3339
from cfo.runtime.objects.unstructured import Object, find_condition
from test.support.observations import observe, seconds_later, with_decided_status, wrapper

GPU = "nvidia.com/gpu"
BIG = {"cpu": "8", "memory": "64Gi", GPU: "8"}
HEAD = {"cpu": "1", "memory": "2Gi"}
TINY = {"cpu": "1m", "memory": "1Mi"}
ADMISSION_GRACE = 60
IDLE_LIMIT = 1800
DAY = 24 * 3600


def pod_template(requests: Object) -> Object:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}


def job(*, parallelism: int = 2, completions: int = 2) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {
            "parallelism": parallelism,
            "completions": completions,
            "template": pod_template(BIG),
        },
    }


def ray_cluster(*, workers: int, **fields: Any) -> Object:
    group: Object = {"replicas": workers, "maxReplicas": 4, "template": pod_template(BIG)}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "spec": {
            **fields,
            "headGroupSpec": {"template": pod_template(HEAD)},
            "workerGroupSpecs": [group],
        },
    }


def train_job(*jobs: str) -> Object:
    """Return a TrainJob of one node that patches the pods of these replicated jobs."""
    patches = [{"name": name, "template": {"spec": {"template": {"spec": {}}}}} for name in jobs]
    runtime = {"template": {"spec": {"replicatedJobs": patches}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "spec": {
            "trainer": {"numNodes": 1, "resourcesPerNode": {"requests": BIG}},
            "runtimePatches": [{"trainingRuntimeSpec": runtime}],
        },
    }


def pod_sets_of(template: Object) -> list[Object]:
    """Return the pod sets of a component; each patch of a TrainJob is for one pod."""
    if template["kind"] != "TrainJob":
        return infer_pod_sets(template)
    path = "template.spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs"
    patched = template["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]
    jobs = patched["template"]["spec"]["replicatedJobs"]
    return [{"path": f"{path}[{index}].template.spec.template"} for index in range(len(jobs))]


def pod(requests: Object, phase: str = "Running", *, ended: float = 0, **fields: Any) -> WrapperPod:
    """Return a pod; ``ended`` is when its container has ended."""
    shape = msgspec.convert(pod_template(requests)["spec"], PodShape)
    ends = (Termination("main", 0, at=rfc3339(seconds_later(ended))),) if ended else ()
    return WrapperPod(phase, shape=shape, terminated=ends, **fields)


def running(template: Object, *, queue: str = "lq", **annotations: Any) -> Object:
    """Return an AppWrapper whose component has been created."""
    obj = wrapper(**annotations)
    if queue:
        obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: queue}
    component: Object = {"template": {**template, "metadata": {"name": "c"}}}
    component["podSets"] = pod_sets_of(component["template"])
    obj["spec"]["components"] = [component]
    obj = with_decided_status(obj, decide(observe(obj)))
    created = [Creation(item, uid="c-0") for item in observe(obj).components]
    return with_decided_status(obj, after_creation(observe(obj), created))


def step(obj: Object, pods: Iterable[WrapperPod], now: float = 0, **fields: Any) -> Object:
    return with_decided_status(obj, decision_about(obj, pods, now, **fields))


def decision_about(
    obj: Object, pods: Iterable[WrapperPod], now: float = 0, **fields: Any
) -> WrapperDecision:
    return decide(observe(obj, pods=list(pods), now=seconds_later(now), **fields))


def phase(obj: Object) -> str:
    return str(obj["status"]["phase"])


def condition(obj: Object, kind: str) -> dict[str, Any]:
    return dict(find_condition(obj["status"]["conditions"], kind) or {})


def is_ready(obj: Object) -> bool:
    return bool(condition(obj, PODS_READY)["status"] == "True")


@pytest.mark.parametrize("state", ["Running", "Succeeded"])
@pytest.mark.parametrize(
    ("requests", "shortage"),
    [
        pytest.param(TINY, "0 of at least 16 nvidia.com/gpu", id="tiny"),
        pytest.param({**BIG, GPU: "7"}, "14 of at least 16 nvidia.com/gpu", id="fewer devices"),
        pytest.param({**BIG, "cpu": "1999m"}, "3998m of at least 4 cpu", id="little CPU"),
    ],
)
def test_small_pods_keep_quota_only_for_the_admission_grace_period(
    state: str, requests: Object, shortage: str
) -> None:
    """Users can create them with the owner of those that cannot be created."""
    pods = [pod(requests, state), pod(requests, state, deleting=True)]
    if state == "Running":
        pods.append(pod(requests))
    else:
        pods.append(pod(TINY, "Pending"))  # otherwise the AppWrapper has succeeded
    obj = running(job(completions=3))
    decision = decision_about(obj, pods)
    assert decision.deadline == seconds_later(ADMISSION_GRACE)
    (event,) = [event for event in decision.events if event.reason == "PodsNotReady"]
    assert shortage in event.message
    obj = with_decided_status(obj, decision)
    assert not is_ready(obj)
    assert shortage in condition(obj, PODS_READY)["message"]
    assert step(obj, pods, 30) == obj, "nothing is written without a change"
    assert decision_about(obj, pods, 30).events == []
    reset = step(obj, pods, ADMISSION_GRACE)
    assert phase(reset) == Phase.RESETTING
    assert shortage in condition(reset, UNHEALTHY)["message"]


def test_pods_that_are_replaced_by_small_ones_keep_no_quota() -> None:
    obj = step(running(job()), [pod(BIG), pod(BIG)])
    assert is_ready(obj)
    small = [pod(BIG), pod(TINY)]
    obj = step(obj, small, DAY)
    assert condition(obj, PODS_READY)["status"] == "False"
    assert phase(step(obj, small, DAY + ADMISSION_GRACE)) == Phase.RESETTING


def test_pods_that_wait_have_the_warm_up_period_also_if_small_ones_have_started() -> None:
    """These may be of another component, whose autoscaler has added them."""
    obj = running(job(completions=9))
    small = pod(TINY, "Succeeded")
    pods = [small, small, pod(BIG, "Pending"), pod(BIG, "Pending")]
    decision = decision_about(obj, pods)
    assert not decision.status.is_true(PODS_READY)
    assert decision.deadline == seconds_later(300)


def test_pod_that_cannot_start_is_reported_instead_of_small_ones() -> None:
    obj = running(job(completions=9))
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    container = {"name": "main", "state": waiting}
    stuck = pod(
        BIG, "Pending", status=msgspec.convert({"containerStatuses": [container]}, PodStatus)
    )
    pods = [pod(TINY, "Succeeded"), pod(TINY, "Succeeded")]
    for observed in (pods, [*pods, stuck]):
        decision = decision_about(obj, observed)
        obj = with_decided_status(obj, decision)
        assert [event.reason for event in decision.events] == ["PodsNotReady"]
        repeated = decision_about(obj, observed)
        assert repeated.events == []
        assert with_decided_status(obj, repeated) == obj, "each write would cause another one"
    assert "ImagePullBackOff" in condition(obj, PODS_READY)["message"]
    assert "0 of at least" in condition(step(obj, pods), PODS_READY)["message"]


AUTOSCALED = ray_cluster(workers=0, enableInTreeAutoscaling=True)
AUTOSCALER = {"cpu": "1500m", "memory": "2.5Gi"}
GPU_AUTOSCALER = ray_cluster(
    workers=0,
    enableInTreeAutoscaling=True,
    autoscalerOptions={"resources": {"requests": {GPU: "1"}}},
)
GPU_COLLECTORS = ray_cluster(
    workers=1,
    historyServerOptions={"collectorOptions": {"resources": {"requests": {GPU: "1"}}}},
)


@pytest.mark.parametrize(
    ("template", "pods"),
    [
        pytest.param(job(), [BIG, BIG], id="as in the template"),
        pytest.param(job(), [{**BIG, "cpu": "2", "memory": "16Gi"}] * 2, id="overcommitted"),
        pytest.param(ray_cluster(workers=2), [HEAD, BIG, BIG], id="RayCluster"),
        pytest.param(AUTOSCALED, [AUTOSCALER], id="RayCluster without workers"),
        pytest.param(AUTOSCALED, [AUTOSCALER, BIG, BIG], id="RayCluster that was scaled"),
        pytest.param(GPU_AUTOSCALER, [{**HEAD, GPU: "1"}], id="autoscaler with a device"),
        pytest.param(
            GPU_COLLECTORS, [{**HEAD, GPU: "1"}, {**BIG, GPU: "9"}], id="collectors with devices"
        ),
        pytest.param(train_job("node", "node"), [BIG, BIG], id="TrainJob"),
        pytest.param(train_job("launcher", "node"), [TINY, BIG], id="TrainJob with a launcher"),
        pytest.param(
            train_job("dataset-initializer", "node"), [TINY, BIG], id="TrainJob with an initializer"
        ),
        pytest.param(train_job("evaluator", "node"), [TINY, BIG], id="TrainJob with another job"),
    ],
)
def test_pods_as_their_controllers_create_them_are_ready(
    template: Object, pods: list[Object]
) -> None:
    obj = step(running(template), map(pod, pods))
    assert is_ready(obj), condition(obj, PODS_READY)
    assert decision_about(obj, map(pod, pods), DAY).deadline is None


@pytest.mark.parametrize(
    ("template", "pods"),
    [
        pytest.param(GPU_AUTOSCALER, [HEAD], id="autoscaler"),
        pytest.param(GPU_COLLECTORS, [HEAD, BIG], id="collectors"),
    ],
)
def test_containers_with_chosen_resources_that_kuberay_does_not_add_keep_no_quota(
    template: Object, pods: list[Object]
) -> None:
    """Earlier versions of KubeRay add no collector, and users can switch off the autoscaler after the admission."""
    obj = step(running(template), map(pod, pods))
    assert not is_ready(obj)
    assert phase(step(obj, map(pod, pods), ADMISSION_GRACE)) == Phase.RESETTING


def test_all_admitted_nodes_of_a_train_job_must_request_the_resources() -> None:
    """More pods can be declared than it has nodes, and users can create small ones with the same owner."""
    obj = step(running(train_job("node", "node")), [pod(TINY), pod(BIG)])
    assert not is_ready(obj)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"initContainers": [{"resources": {"requests": BIG}}]}, id="init container"),
        pytest.param(
            {"initContainers": [{"restartPolicy": "Always", "resources": {"requests": BIG}}]},
            id="sidecar",
        ),
        pytest.param({"resources": {"requests": BIG}}, id="resources of the pod"),
        pytest.param({"containers": [{"resources": {"limits": BIG}}]}, id="limits"),
    ],
)
def test_all_that_the_scheduler_counts_counts(spec: Object) -> None:
    shape = msgspec.convert(spec, PodShape)
    pods = [WrapperPod("Running", shape=shape), WrapperPod("Running", shape=shape)]
    assert is_ready(step(running(job()), pods))
    template = job()
    template["spec"]["template"]["spec"] = {
        "containers": [{"name": "main"}],
        **spec,
    }
    assert not is_ready(step(running(template), [pod(TINY), pod(TINY)]))


def test_small_pods_are_ready_without_a_queue() -> None:
    obj = step(running(job(), queue=""), [pod(TINY), pod(TINY)])
    assert is_ready(obj)


def ended_at(seconds: float) -> datetime:
    """Return the time that many seconds later as kubelets write it, in whole seconds."""
    return seconds_later(seconds).replace(microsecond=0)


def succeeded(ended: float) -> list[WrapperPod]:
    return [pod(BIG, "Succeeded", ended=ended), pod(BIG, "Succeeded", ended=ended)]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([], id="no other pods"),
        pytest.param([pod(BIG, "Pending")], id="pending"),
        pytest.param([pod(TINY)], id="a small one runs"),
    ],
)
def test_pods_that_have_succeeded_keep_quota_only_for_half_an_hour(
    others: list[WrapperPod],
) -> None:
    """A Job with more completions needs further pods, which may be refused."""
    obj = running(job(completions=100))
    obj = step(obj, [pod(BIG), pod(BIG)])
    pods = [*succeeded(ended=DAY), *others]
    decision = decision_about(obj, pods, DAY + 1)
    assert decision.deadline == ended_at(DAY + IDLE_LIMIT)
    obj = with_decided_status(obj, decision)
    assert is_ready(obj)
    assert step(obj, pods, DAY + IDLE_LIMIT - 1) == obj
    more = [*pods, *succeeded(ended=DAY + 1000)]
    assert is_ready(step(obj, more, DAY + IDLE_LIMIT)), "another one has ended meanwhile"
    reset = step(obj, pods, DAY + IDLE_LIMIT)
    assert phase(reset) == Phase.RESETTING
    assert not is_ready(reset)
    assert "no pod that uses the quota has run for 30m" in condition(reset, UNHEALTHY)["message"]


def test_warm_up_period_of_the_user_may_be_longer_than_half_an_hour() -> None:
    obj = running(job(completions=100), warmupGracePeriodDuration="2h")
    obj = step(obj, succeeded(ended=10))
    assert decision_about(obj, succeeded(ended=10), 20).deadline == ended_at(10 + 7200)


@pytest.mark.parametrize(
    ("template", "pods"),
    [
        pytest.param(
            job(completions=100), [*succeeded(ended=1), pod(BIG)], id="Job with a batch that runs"
        ),
        pytest.param(job(), [*succeeded(ended=1)[:1], pod(BIG)], id="Job with one that runs"),
        pytest.param(
            ray_cluster(workers=1),
            [pod(HEAD), *succeeded(ended=1)[:1]],
            id="RayCluster with a head",
        ),
    ],
)
def test_running_pod_keeps_quota_without_a_limit(template: Object, pods: list[WrapperPod]) -> None:
    decision = decision_about(step(running(template), pods), pods, 30 * DAY)
    assert decision.deadline is None
    assert decision.status.is_true(PODS_READY)


@pytest.mark.parametrize(
    ("template", "fields"),
    [
        pytest.param(
            job(completions=9), {"knowledge": PodKnowledge.LEFT_OUT}, id="pods that are not cached"
        ),
        pytest.param(
            train_job("node", "node"), {"owned": False}, id="pods with owners of other kinds"
        ),
    ],
)
def test_pods_that_are_not_known_may_run(template: Object, fields: dict[str, Any]) -> None:
    obj = running(template)
    pods = succeeded(ended=1)
    obj = step(obj, pods, **fields)
    assert is_ready(obj)
    assert decision_about(obj, pods, DAY, **fields).deadline is None


def test_pods_that_a_list_does_not_have_do_not_run() -> None:
    """One pod that the cache has no room for must not end the limit for its whole namespace."""
    pods = succeeded(ended=1)
    obj = step(running(job(completions=9)), pods)
    listed = PodKnowledge.LISTED
    assert decision_about(obj, pods, 0, knowledge=listed).deadline is not None
    with_unknown = [*pods, dataclasses.replace(pod(BIG), phase="Pending", is_read=False)]
    assert decision_about(obj, with_unknown, 0, knowledge=listed).deadline is None


@pytest.mark.parametrize(
    ("retries", "hours", "queue", "outcome"),
    [
        pytest.param(1000, 24, "lq", Phase.FAILED, id="a day without pods"),
        pytest.param(1000, 23, "lq", Phase.RESETTING, id="less than a day"),
        pytest.param(2, 24, "lq", Phase.FAILED, id="few retries, each with a long period"),
        pytest.param(1000, 24, "", Phase.RESETTING, id="no queue"),
    ],
)
def test_retries_keep_quota_without_ready_pods_for_at_most_a_day(
    retries: int, hours: int, queue: str, outcome: Phase
) -> None:
    """Users choose the number of retries."""
    obj = running(job(), queue=queue, retryLimit="100000")
    obj["status"]["resettingCount"] = retries
    obj = step(obj, [], hours * 3600, refusal=None)
    ended = step(obj, [], hours * 3600 + 1)
    assert phase(ended) == outcome
    if outcome is Phase.FAILED:
        message = condition(ended, UNHEALTHY)["message"]
        assert "its pods have not been ready for 24h" in message


def test_time_in_the_queue_is_no_time_without_ready_pods() -> None:
    obj = running(job(), retryLimit="100000")
    obj["status"]["resettingCount"] = 1000
    for item in obj["status"]["conditions"]:
        if item["type"] == QUOTA_RESERVED:
            item["lastTransitionTime"] = rfc3339(seconds_later(DAY))
    assert phase(step(obj, [], DAY + 1)) == Phase.RESETTING
