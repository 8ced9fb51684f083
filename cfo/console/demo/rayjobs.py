"""A fake RayJob controller of KubeRay for the embedded control plane.

It creates the RayCluster of a RayJob and, when that is ready, the Job that submits the entrypoint, whose pod
:mod:`cfo.console.demo.job_pods` ends: the RayJob ends as this Job does. It deletes both when the RayJob is suspended,
and the RayCluster if ``shutdownAfterJobFinishes`` is true. A RayJob with another ``submissionMode`` than ``K8sJobMode``
does not end, and there are no retries, deadlines or deletion rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cfo.api.appwrapper.kinds import RAY_JOB
from cfo.api.appwrapper.quota import submitter_template
from cfo.api.raycluster.cluster import POD_CLUSTER_LABEL
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.api.reading import path
from cfo.console.demo.raycluster_nodes import runs_here
from cfo.runtime import (
    GVK,
    JOB,
    AlreadyExists,
    Builder,
    Client,
    Clock,
    EventRecorder,
    Forbidden,
    Invalid,
    Manager,
    NamespacedName,
    Object,
    Request,
    Result,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    rfc3339,
    uid_of,
)
from cfo.runtime.objects import copied, parse_time, set_controller_owner
from cfo.summaries.conditions import conditions_of, is_true

_KIND_LABEL: Final = "ray.io/originated-from-crd"
_NAME_LABEL: Final = "ray.io/originated-from-cr-name"
_ENDED: Final = ("Complete", "Failed")
_MAX_NAME: Final = 47
_RETRY_SECONDS: Final = 3.0


def setup(manager: Manager) -> None:
    """Add the fake controller of RayJobs to ``manager``."""
    reconciler = _RayJobReconciler(
        manager.client.with_field_manager("cfo-demo"),
        manager.events("fake-rayjob"),
        manager.clock,
    )
    (
        Builder(manager, "fake-rayjob")
        .for_(RAY_JOB)
        .owns(RAY_CLUSTER)
        .owns(JOB, label_selector=f"{_KIND_LABEL}={RAY_JOB.kind}")
        .complete(reconciler)
    )


class _RayJobReconciler:
    def __init__(self, client: Client, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock

    async def reconcile(self, request: Request) -> Result:
        job = await self._client.get(RAY_JOB, request)
        if job is None or is_deleting(job) or not runs_here(job):
            return Result()
        state = path(job, "status", "jobDeploymentStatus")
        if state in _ENDED:
            return await self._clean_up(job)
        problem = validation_error(job)
        if problem:
            await self._report(
                job,
                jobDeploymentStatus="ValidationFailed",
                reason="ValidationFailed",
                message=problem,
            )
            return Result()
        if job["spec"].get("suspend"):
            await self._delete(JOB, key_of(job))
            await self._delete(RAY_CLUSTER, cluster_key(job))
            await self._report(
                job, jobDeploymentStatus="Suspended", jobStatus="", rayClusterName="", jobId=""
            )
            return Result()
        return await self._run(job)

    async def _run(self, job: Object) -> Result:
        """Take the next step towards the end of a RayJob that is not suspended."""
        cluster = await self._client.get(RAY_CLUSTER, cluster_key(job))
        if cluster is None:
            await self._create_cluster(job)
        elif is_deleting(cluster):  # before the RayJob was resumed
            return Result(requeue_after=_RETRY_SECONDS)
        submitter = await self._client.get(JOB, key_of(job))
        if submitter is None and is_ready(cluster) and mode_of(job) == "K8sJobMode":
            submitter = await self._client.create(submitter_of(job, cluster))
        status = status_of(job, cluster, submitter)
        state = status["jobDeploymentStatus"]
        now = rfc3339(self._clock.now())
        if not path(job, "status", "startTime"):
            status["startTime"] = now
        if state in _ENDED:
            status["endTime"] = now
        await self._report(job, **status)
        return Result(requeue_after=_RETRY_SECONDS if state == "Initializing" else 0.0)

    async def _create_cluster(self, job: Object) -> None:
        """Create the RayCluster of a RayJob, unless another one was selected; report if the API server refuses it."""
        if job["spec"].get("clusterSelector"):
            return
        try:
            await self._client.create(cluster_of(job))
        except (AlreadyExists, Forbidden, Invalid) as error:
            message = f"Failed to create RayCluster {cluster_key(job)}: {error.message}"
            self._recorder.event(job, "Warning", "FailedToCreateRayCluster", message)

    async def _clean_up(self, job: Object) -> Result:
        """Delete the RayCluster of a RayJob that has ended, if this is requested, when its time to live is over."""
        spec = job["spec"]
        if not spec.get("shutdownAfterJobFinishes") or spec.get("clusterSelector"):
            return Result()
        age = (self._clock.now() - parse_time(job["status"]["endTime"])).total_seconds()
        remaining = (spec.get("ttlSecondsAfterFinished") or 0) - age
        if remaining > 0:
            return Result(requeue_after=remaining)
        await self._delete(RAY_CLUSTER, cluster_key(job))
        return Result()

    async def _delete(self, gvk: GVK, key: NamespacedName) -> None:
        obj = await self._client.get(gvk, key)
        if obj is not None and not is_deleting(obj):
            await self._client.delete(gvk, key, uid=uid_of(obj), propagation_policy="Background")

    async def _report(self, job: Object, **status: str) -> None:
        before = job.get("status") or {}
        if any(before.get(field, "") != value for field, value in status.items()):
            await self._client.patch_object(job, {"status": status}, subresource="status")


def validation_error(job: Mapping[str, Any]) -> str:
    """Return why KubeRay does not accept a RayJob; empty if it does."""
    spec = job["spec"]
    if len(name_of(job)) > _MAX_NAME:
        return f"RayJob name should be no more than {_MAX_NAME} characters"
    if spec.get("suspend") and not spec.get("shutdownAfterJobFinishes"):
        return "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended"
    if spec.get("suspend") and spec.get("clusterSelector"):
        return "the ClusterSelector mode doesn't support the suspend operation"
    if not spec.get("rayClusterSpec") and not spec.get("clusterSelector"):
        return "one of RayClusterSpec or ClusterSelector must be set"
    return ""


def mode_of(job: Mapping[str, Any]) -> str:
    """Return how the entrypoint of a RayJob is submitted."""
    return str(job["spec"].get("submissionMode") or "K8sJobMode")


def cluster_key(job: Mapping[str, Any]) -> NamespacedName:
    """Return the RayCluster in which a RayJob runs: the one that it selects, or its own."""
    selector = job["spec"].get("clusterSelector") or {}
    own = f"{name_of(job)}-{uid_of(job)[:5]}"
    return NamespacedName(namespace_of(job), selector.get(POD_CLUSTER_LABEL, own))


def is_ready(cluster: Mapping[str, Any] | None) -> bool:
    """Return whether all pods of a RayCluster are ready."""
    return bool(path(cluster, "status", "state") == "ready")


def cluster_of(job: Object) -> Object:
    """Return the RayCluster that is created for a RayJob, whose labels and annotations it has."""
    metadata = job["metadata"]
    cluster = {
        "apiVersion": RAY_CLUSTER.api_version,
        "kind": RAY_CLUSTER.kind,
        "metadata": {
            "name": cluster_key(job).name,
            "namespace": namespace_of(job),
            "labels": {**(metadata.get("labels") or {}), **_labels_of(job)},
            "annotations": dict(metadata.get("annotations") or {}),
        },
        "spec": copied(job["spec"]["rayClusterSpec"]),
    }
    return set_controller_owner(cluster, job)


def submitter_of(job: Object, cluster: Mapping[str, Any] | None) -> Object:
    """Return the Job that submits the entrypoint of a RayJob; it fails with its first pod, as the entrypoint does."""
    spec = {**job["spec"], "rayClusterSpec": path(cluster, "spec")}
    template = submitter_template({**job, "spec": spec})
    container = template["spec"]["containers"][0]
    container.setdefault("command", ["ray", "job", "submit", "--"])
    container.setdefault("args", [job["spec"].get("entrypoint") or ""])
    template["spec"].setdefault("restartPolicy", "Never")
    submitter = {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": name_of(job),
            "namespace": namespace_of(job),
            "labels": _labels_of(job),
        },
        "spec": {"backoffLimit": 0, "template": template},
    }
    return set_controller_owner(submitter, job)


def _labels_of(job: Mapping[str, Any]) -> dict[str, str]:
    return {_KIND_LABEL: RAY_JOB.kind, _NAME_LABEL: name_of(job)}


def status_of(
    job: Mapping[str, Any], cluster: Mapping[str, Any] | None, submitter: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the status of a RayJob that is not suspended, with its RayCluster and its Job if they exist."""
    name = cluster_key(job).name
    status = {"rayClusterName": name, "jobId": name, "jobDeploymentStatus": "Initializing"}
    if submitter is None and not is_ready(cluster):
        return status
    if mode_of(job) == "InteractiveMode":
        return {**status, "jobDeploymentStatus": "Waiting"}
    conditions = conditions_of(submitter or {})
    if is_true(conditions, "Complete"):
        return {**status, "jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    if is_true(conditions, "Failed"):
        failure = {"reason": "AppFailed", "message": "The entrypoint failed."}
        return {**status, "jobDeploymentStatus": "Failed", "jobStatus": "FAILED", **failure}
    return {**status, "jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
