"""Decisions about AppWrappers whose components or pods have ended."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import orjson
import pytest

from cfo.api.appwrapper.kinds import JOB_SET, PYTORCH_JOB, RAY_JOB, TRAIN_JOB
from cfo.api.appwrapper.names import (
    DELETING_RESOURCES,
    PODS_READY,
    RESOURCES_DEPLOYED,
    UNHEALTHY,
    Phase,
)
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.controllers.appwrapper.component_informers import _REPORTING, _from_entry, _from_object
from cfo.controllers.appwrapper.components import (
    ComponentObject,
)
from cfo.controllers.appwrapper.creation import Creation, after_creation
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import WrapperPod
from cfo.runtime.cache.entry import EntryDecoder
from cfo.runtime.objects.kinds import JOB
from cfo.runtime.objects.unstructured import GVK, Object
from test.support.observations import (
    observe,
    seconds_later,
    with_decided_status,
    wrapper,
)
from test.support.wrapper_steps import (
    FAILED_POD,
    PENDING_POD,
    RUNNING_POD,
    SUCCEEDED_POD,
    condition,
    phase,
    queued,
    running_component,
    running_wrapper,
    step,
)


@pytest.mark.parametrize(
    ("api_version", "kind"), [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet")]
)
def test_appwrapper_without_pods_succeeds_at_once(api_version: str, kind: str) -> None:
    obj = wrapper()
    spec = {"replicas": 0, "template": {"spec": {"containers": [{"name": "main"}]}}}
    component = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    obj["spec"]["components"] = [{"template": component}]
    obj, _ = step(obj)
    observation = observe(obj)
    obj = with_decided_status(
        obj, after_creation(observation, [Creation(observation.components[0], uid="u")])
    )
    obj, _ = step(obj)
    assert phase(obj) == Phase.SUCCEEDED


def running_mpi_job() -> Object:
    template = {"template": {"spec": {"containers": [{"name": "main"}]}}}
    spec = {"mpiReplicaSpecs": {"Launcher": template, "Worker": {**template, "replicas": 2}}}
    return running_component(apiVersion="kubeflow.org/v2beta1", kind="MPIJob", spec=spec)


COMPLETED_MPI_JOB = ComponentObject(uid="u", completed=True)


def test_workers_of_a_completed_mpi_job_keep_the_quota_and_are_deleted() -> None:
    """M2: with the default ``cleanPodPolicy``, the workers of a completed MPIJob run forever."""
    obj = running_mpi_job()
    deleting = dataclasses.replace(RUNNING_POD, deleting=True)
    pods = [SUCCEEDED_POD, RUNNING_POD, RUNNING_POD]
    running, decision = step(obj, pods=pods, objects=[ComponentObject(uid="u")])
    assert (phase(running), decision.deletions) == (Phase.RUNNING, [])
    for failed in ([], [FAILED_POD]):
        left, decision = step(obj, pods=[*pods, *failed], objects=[COMPLETED_MPI_JOB])
        assert phase(left) == Phase.RUNNING
        assert condition(left, "QuotaReserved")["status"] == "True"
        assert [(item.key.name, item.force) for item in decision.deletions] == [
            ("p1", False),
            ("p2", False),
        ]
        assert [item.reason for item in decision.events] == ["DeletingRemainingPods"]
    left, decision = step(obj, pods=[SUCCEEDED_POD, deleting], objects=[COMPLETED_MPI_JOB])
    assert (phase(left), decision.deletions) == (Phase.RUNNING, [])
    for ended in ([SUCCEEDED_POD], [SUCCEEDED_POD, FAILED_POD], []):
        done, decision = step(obj, pods=ended, objects=[COMPLETED_MPI_JOB])
        assert (phase(done), decision.deletions) == (Phase.SUCCEEDED, [])
    failed_job, _ = step(obj, pods=pods, objects=[ComponentObject(uid="u", failed=True)])
    assert phase(failed_job) == Phase.RESETTING


def test_pods_of_completed_components_that_do_not_end_are_deleted_by_force() -> None:
    stuck = dataclasses.replace(
        RUNNING_POD, deleting=True, end_requested_for="2026-01-01T12:00:00Z"
    )
    obj = running_wrapper("Job", forcefulDeletionGracePeriodDuration="60s")
    waiting, decision = step(obj, pods=[stuck], objects=[FINISHED], now=seconds_later(59))
    assert (phase(waiting), decision.deletions) == (Phase.RUNNING, [])
    assert decision.deadline == seconds_later(59.75)
    waiting, decision = step(obj, pods=[stuck], objects=[FINISHED], now=seconds_later(60))
    assert phase(waiting) == Phase.RUNNING
    assert [(item.key.name, item.force) for item in decision.deletions] == [("p0", True)]
    forced = dataclasses.replace(stuck, forced=True)
    _, decision = step(obj, pods=[forced], objects=[FINISHED], now=seconds_later(61))
    assert decision.deletions == []


@pytest.mark.parametrize(
    "pod",
    [
        WrapperPod("Unknown"),
        WrapperPod("Running", deleting=True),
        WrapperPod("Pending"),
        WrapperPod(),
    ],
)
def test_quota_is_kept_until_each_pod_has_ended(pod: WrapperPod) -> None:
    for objects in ([FINISHED], [ComponentObject(uid="c-0")]):
        obj, _ = step(running_wrapper("Job"), pods=[SUCCEEDED_POD, pod], objects=objects)
        assert condition(obj, "QuotaReserved")["status"] == "True"


@pytest.mark.parametrize("kind", ["RayCluster", "RayService"])
def test_component_with_replaced_pods_does_not_succeed_when_they_end(kind: str) -> None:
    pod_template = {"spec": {"containers": [{"name": "main"}]}}
    cluster = {"headGroupSpec": {"template": pod_template}}
    spec = {"rayClusterConfig": cluster} if kind == "RayService" else cluster
    obj = running_component(apiVersion="ray.io/v1", kind=kind, spec=spec)
    obj, _ = step(obj, pods=[SUCCEEDED_POD])
    assert phase(obj) == Phase.RUNNING
    assert condition(obj, "QuotaReserved")["status"] == "True"


FINISHED = ComponentObject(uid="c-0", completed=True)


@pytest.mark.parametrize("left", [[], [FAILED_POD], [FAILED_POD, SUCCEEDED_POD]])
def test_job_that_reports_completion_is_not_run_again(left: list[WrapperPod]) -> None:
    obj, decision = step(
        running_wrapper("Job"), pods=left, objects=[FINISHED], now=seconds_later(1000)
    )
    assert phase(obj) == Phase.SUCCEEDED
    assert not decision.events
    assert (
        condition(obj, "QuotaReserved")["message"]
        == "All components with pods report that they have completed"
    )


def test_pods_of_a_completed_job_need_their_quota_until_they_end() -> None:
    template = {"template": {"spec": {"containers": [{"name": "main"}]}}}
    spec = {"pytorchReplicaSpecs": {"Master": template, "Worker": {**template, "replicas": 8}}}
    obj = running_component(apiVersion="kubeflow.org/v1", kind="PyTorchJob", spec=spec)
    for left, expected in (
        ([SUCCEEDED_POD, *[RUNNING_POD] * 8], Phase.RUNNING),
        ([SUCCEEDED_POD, PENDING_POD], Phase.RUNNING),
        ([SUCCEEDED_POD, FAILED_POD], Phase.SUCCEEDED),
    ):
        found, _ = step(obj, pods=left, objects=[FINISHED], now=seconds_later(1000))
        assert phase(found) == expected


def test_pods_of_completed_components_neither_fail_nor_replace_those_of_others() -> None:
    obj = running_wrapper("Job", "Job")
    objects = [FINISHED, ComponentObject(uid="c-1")]
    other = dataclasses.replace(RUNNING_POD, ancestor="c-1")
    for left in ([], [FAILED_POD], [SUCCEEDED_POD]):
        ready, _ = step(obj, pods=[*left, other], objects=objects)
        assert condition(ready, "PodsReady")["message"] == "1 pods running; 0 pods succeeded"
        assert condition(ready, UNHEALTHY)["status"] == "False"
        missing, _ = step(obj, pods=left, objects=objects)
        assert (phase(missing), condition(missing, "PodsReady")["status"]) == (
            Phase.RUNNING,
            "False",
        )
        done, _ = step(
            obj, pods=[*left, dataclasses.replace(SUCCEEDED_POD, ancestor="c-1")], objects=objects
        )
        assert phase(done) == Phase.SUCCEEDED
    failed, _ = step(obj, pods=[dataclasses.replace(FAILED_POD, ancestor="c-1")], objects=objects)
    assert condition(failed, UNHEALTHY)["reason"] == "FoundFailedPods"


def test_job_set_succeeds_with_its_last_pod() -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    replicated = {
        "name": "a",
        "replicas": 2,
        "template": {"spec": {"completions": 3, "template": template}},
    }
    obj = running_component(
        apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet", spec={"replicatedJobs": [replicated]}
    )
    for succeeded, expected in ((2, Phase.RUNNING), (5, Phase.RUNNING), (6, Phase.SUCCEEDED)):
        done, _ = step(obj, pods=[SUCCEEDED_POD] * succeeded)
        assert phase(done) == expected
    done, _ = step(
        obj, pods=[SUCCEEDED_POD], objects=[FINISHED]
    )  # its success policy may need fewer
    assert phase(done) == Phase.SUCCEEDED


def test_completed_ray_job_needs_its_quota_until_its_cluster_ends() -> None:
    pod_template = {"spec": {"containers": [{"name": "main"}]}}
    cluster = {
        "headGroupSpec": {"template": pod_template},
        "workerGroupSpecs": [{"template": pod_template}],
    }
    obj = running_component(apiVersion="ray.io/v1", kind="RayJob", spec={"rayClusterSpec": cluster})
    for left in ([RUNNING_POD, RUNNING_POD], [RUNNING_POD, FAILED_POD], [RUNNING_POD]):
        running, _ = step(obj, pods=left, objects=[FINISHED], now=seconds_later(1000))
        assert phase(running) == Phase.RUNNING
    done, _ = step(obj, pods=[SUCCEEDED_POD], objects=[FINISHED])
    assert phase(done) == Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("gvk", "status", "failed", "completed"),
    [
        (JOB, {"startTime": "2026-01-01T00:00:00Z"}, False, False),
        (JOB, {"conditions": [{"type": "Complete", "status": "True"}]}, False, True),
        (JOB, {"conditions": [{"type": "Complete", "status": "False"}]}, False, False),
        (JOB, {"conditions": [{"type": "Failed", "status": "True"}]}, True, False),
        (JOB_SET, {"conditions": [{"type": "Completed", "status": "True"}]}, False, True),
        (TRAIN_JOB, {"conditions": [{"type": "Complete", "status": "True"}]}, False, True),
        (TRAIN_JOB, {"conditions": [{"type": "Failed", "status": "True"}]}, True, False),
        (TRAIN_JOB, {"conditions": [{"type": "Suspended", "status": "True"}]}, False, False),
        (PYTORCH_JOB, {"conditions": [{"type": "Succeeded", "status": "True"}]}, False, True),
        (RAY_JOB, {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, False, False),
        (RAY_JOB, {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, False, True),
        (RAY_JOB, {"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"}, True, False),
        (RAY_JOB, {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}, True, False),
        (RAY_JOB, {"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}, False, False),
        (
            RAY_JOB._replace(version="v1alpha1"),
            {"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"},
            True,
            False,
        ),
        (RAY_CLUSTER, {"conditions": [{"type": "Failed", "status": "True"}]}, False, False),
        (
            JOB,
            {"conditions": ["Complete", 1, {"type": ["Failed"], "status": "True"}]},
            False,
            False,
        ),
        (JOB, "Complete", False, False),
        (RAY_JOB, None, False, False),
    ],
)
def test_result_is_what_the_own_controller_of_a_component_reports(
    gvk: GVK, status: Any, failed: bool, completed: bool
) -> None:
    entry = EntryDecoder(gvk).decode(
        orjson.dumps({"metadata": {"name": "x", "namespace": "n"}, "status": status})
    )
    for found in (
        _from_entry(entry, "", gvk),
        _from_object({"metadata": {}, "status": status}, "", gvk),
    ):
        assert (found.failed, found.completed) == (failed, completed)


@pytest.mark.parametrize(
    ("gvk", "status", "failure"),
    [
        (
            JOB,
            {
                "conditions": [
                    {
                        "type": "Failed",
                        "status": "True",
                        "reason": "DeadlineExceeded",
                        "message": "Job was active\x1b longer than specified deadline",
                    }
                ]
            },
            "DeadlineExceeded: Job was active\\x1b longer than specified deadline",
        ),
        (
            RAY_JOB,
            {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": ["no text"]},
            "AppFailed",
        ),
        (RAY_JOB, {"jobDeploymentStatus": "Failed"}, ""),
        (RAY_JOB, {"jobDeploymentStatus": "Running", "reason": "AppFailed"}, ""),
    ],
)
def test_failure_is_what_the_own_controller_of_a_component_reports(
    gvk: GVK, status: Any, failure: str
) -> None:
    found = _from_object({"metadata": {}, "status": status}, "", gvk)
    assert found.failure == failure


def test_page_of_differences_names_each_kind_that_reports_its_end() -> None:
    """L1: the Go operator also reads the failure of Jobs and PyTorchJobs."""
    page = Path(__file__).parents[4] / "docs" / "differences.md"
    (row,) = [line for line in page.read_text().splitlines() if "reports decides" in line]
    _, here, go, *_ = row.split("|")
    assert all(gvk.kind in here for gvk in _REPORTING)
    assert go.strip().startswith("the failure of a Job or PyTorchJob")


def test_appwrapper_succeeds_only_when_the_owners_of_listed_pods_are_known() -> None:
    obj = running_wrapper("Pod")
    pods = [SUCCEEDED_POD]
    running, _ = step(obj, pods=pods, knowledge=PodKnowledge.OWNERS_UNKNOWN)
    assert phase(running) == Phase.RUNNING
    succeeded, _ = step(obj, pods=pods, knowledge=PodKnowledge.LISTED)
    assert phase(succeeded) == Phase.SUCCEEDED


def test_pods_that_were_created_after_the_success_are_deleted_with_their_component() -> None:
    obj = queued(running_wrapper("Job"))
    obj, _ = step(obj, pods=[SUCCEEDED_POD])
    assert phase(obj) == Phase.SUCCEEDED
    kept, decision = step(obj, pods=[SUCCEEDED_POD])
    assert (phase(kept), decision.deletions) == (Phase.SUCCEEDED, [])
    foreign, decision = step(obj, pods=[RUNNING_POD], owned=False)
    assert (phase(foreign), decision.deletions) == (Phase.SUCCEEDED, [])
    revived, decision = step(obj, pods=[SUCCEEDED_POD, RUNNING_POD])
    assert [item.gvk for item in decision.deletions] == [JOB]
    assert [item.reason for item in decision.events] == ["PodsAfterSuccess"]
    again, decision = step(revived, pods=[SUCCEEDED_POD], objects=[ComponentObject(deleting=True)])
    assert (decision.events, condition(again, DELETING_RESOURCES)["status"]) == ([], "True")
    ended, _ = step(again, objects=[None])
    message = "Pods were created after the success, without quota"
    assert condition(ended, RESOURCES_DEPLOYED)["message"] == message


def test_known_kinds_are_known_in_each_version() -> None:
    """KubeRay's CRDs serve RayClusters also as v1alpha1."""
    obj = running_wrapper("Job")
    (component,) = obj["spec"]["components"]
    component["template"] |= {"apiVersion": "ray.io/v1alpha1", "kind": "RayCluster"}
    obj["status"]["componentStatus"][0] |= {"apiVersion": "ray.io/v1alpha1", "kind": "RayCluster"}
    waiting, _ = step(obj, pods=[RUNNING_POD], owned=False)
    assert condition(waiting, PODS_READY)["status"] == "False"
