"""Infers the pod sets of components of well-known kinds.

Counts and annotations are the same as in the Go operator and Kueue, with two exceptions that follow KubeRay: a worker
group has ``numOfHosts`` pods for each replica, and none while it is suspended. The Go operator does not infer pod sets
of MPIJobs, LeaderWorkerSets and RayServices, and for RayJob submitters.

TrainJobs of Kubeflow Trainer are not included: their pod templates are in the training runtime, not in the TrainJob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cfo.api.appwrapper.paths import ROOT, value_or_none
from cfo.api.appwrapper.podsets import (
    MAX_POD_SETS,
    POD_INDEX_LABEL,
    RAY_JOB,
    SUB_GROUP_COUNT,
    SUB_GROUP_INDEX_LABEL,
    SUBMITTER_PATH,
    PodSetError,
    pod_template_at,
)
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime import DEPLOYMENT, GVK, JOB, POD, Object, gvk_of
from cfo.runtime.objects.field import go_value

RAY_SPECS: Final[Mapping[GVK, str]] = {
    RAY_CLUSTER: "template.spec",
    RAY_JOB: "template.spec.rayClusterSpec",
    GVK("ray.io", "v1", "RayService"): "template.spec.rayClusterConfig",
}
"""The paths of the RayClusterSpecs in components of Ray's kinds."""

EMBEDDED_KINDS: Final = dict.fromkeys(RAY_SPECS, RAY_CLUSTER)
"""The kinds of objects, created from components, that have their own webhook."""

RAY_RESOURCES: Final = ("rayclusters", "rayjobs", "rayservices")
"""The resources of Ray's kinds in RBAC rules."""

MPI_JOBS: Final = (GVK("kubeflow.org", "v2beta1", "MPIJob"), GVK("kubeflow.org", "v1", "MPIJob"))
"""The MPIJobs of the MPI operator, and those of the training operator."""

JOB_SET: Final = GVK("jobset.x-k8s.io", "v1alpha2", "JobSet")
PYTORCH_JOB: Final = GVK("kubeflow.org", "v1", "PyTorchJob")

_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"

_MAX_COUNT: Final = 2**31 - 1
_MAX_ITEMS: Final = 20
"""The maximum number of worker groups or replicated jobs whose templates are read."""

_MAX_SHOWN_CHARACTERS: Final = 64


def infer_pod_sets(template: Object) -> list[Object]:
    """Infer the pod sets of a component's object if its kind is well known; return none for other kinds.

    Raises :class:`PodSetError` if an object of a well-known kind lacks its pod templates, or has an invalid count.
    """
    infer = _WELL_KNOWN.get(gvk_of(template))
    pod_sets = list(infer(template)) if infer is not None else []
    for pod_set in pod_sets:
        path = pod_set["path"]
        try:
            pod_template_at(template, path)
        except PodSetError as error:
            message = f"{path} does not refer to a v1.PodSpecTemplate: {error}"
            raise PodSetError(message) from error
    return pod_sets


def pod_sets_of(component: Mapping[str, Any]) -> list[Object]:
    """Return the pod sets of a component of an AppWrapper: the declared ones, or else the inferred ones.

    Raises :class:`PodSetError` as :func:`infer_pod_sets` does, and for more declared ones than are allowed: each may
    refer to the same large template, and an AppWrapper may be older than the webhook.
    """
    declared: list[Object] = component.get("podSets") or []
    if len(declared) > MAX_POD_SETS:
        raise PodSetError(
            f"component contains {len(declared)} podspecs; at most {MAX_POD_SETS} are allowed"
        )
    return declared or infer_pod_sets(component["template"])


def _pod_set(path: str, replicas: int, **annotations: str) -> Object:
    if replicas > _MAX_COUNT:
        raise PodSetError(
            f"at path position '{path}' {replicas} pods; at most {_MAX_COUNT} are allowed"
        )
    pod_set: Object = {"path": path, "replicas": replicas}
    if annotations:
        pod_set["annotations"] = annotations
    return pod_set


def _count(template: Object, path: str) -> int | None:
    """Return the number at ``path``, or ``None`` if it is not set."""
    value = value_or_none(template, path)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise PodSetError(f"at path position '{path}' non-int value {_shown(value)}")
    if not 0 <= value <= _MAX_COUNT:
        raise PodSetError(
            f"at path position '{path}' value {value} is not between 0 and {_MAX_COUNT}"
        )
    return value


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "(a list)"
    if isinstance(value, dict):
        return "(an object)"
    text = value if isinstance(value, str) else go_value(value)
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[:_MAX_SHOWN_CHARACTERS]}..."


def _replicas(template: Object, path: str) -> int:
    count = _count(template, path)
    return 1 if count is None else count


def _items(template: Object, path: str) -> Iterator[str]:
    """Yield the paths of the items of the list at ``path``, if it exists."""
    items = value_or_none(template, path)
    if not isinstance(items, list):
        return
    if len(items) > _MAX_ITEMS:
        raise PodSetError(
            f"at path position '{path}' {len(items)} items; at most {_MAX_ITEMS} are allowed"
        )
    for index in range(len(items)):
        yield f"{path}[{index}]"


def _pod(template: Object) -> Iterator[Object]:
    yield _pod_set(ROOT, 1)


def _scaled(template: Object) -> Iterator[Object]:
    yield _pod_set("template.spec.template", _replicas(template, "template.spec.replicas"))


def _parallel(template: Object, spec: str) -> int:
    """Return the number of pods that a JobSpec runs at a time."""
    parallelism = _replicas(template, f"{spec}.parallelism")
    completions = _count(template, f"{spec}.completions")
    if completions is None:
        return parallelism
    return min(parallelism, completions)


def _job(template: Object) -> Iterator[Object]:
    yield _pod_set(
        "template.spec.template",
        _parallel(template, "template.spec"),
        **{POD_INDEX_LABEL: _COMPLETION_INDEX},
    )


def _job_set(template: Object) -> Iterator[Object]:
    for job in _items(template, "template.spec.replicatedJobs"):
        replicas = _replicas(template, f"{job}.replicas")
        annotations = {
            POD_INDEX_LABEL: _COMPLETION_INDEX,
            SUB_GROUP_INDEX_LABEL: _JOB_INDEX,
            SUB_GROUP_COUNT: str(replicas),
        }
        spec = f"{job}.template.spec"
        yield _pod_set(f"{spec}.template", replicas * _parallel(template, spec), **annotations)


def _kubeflow_job(replica_specs: str, *roles: str) -> Callable[[Object], Iterator[Object]]:
    def infer(template: Object) -> Iterator[Object]:
        for role in roles:
            group = f"template.spec.{replica_specs}.{role}"
            if value_or_none(template, group) is not None:
                replicas = _replicas(template, f"{group}.replicas")
                yield _pod_set(f"{group}.template", replicas, **{POD_INDEX_LABEL: _REPLICA_INDEX})

    return infer


def _leader_worker_set(template: Object) -> Iterator[Object]:
    """Each replica is a group of ``size`` pods, of which one is the leader if there is a leader template."""
    groups = _replicas(template, "template.spec.replicas")
    path = "template.spec.leaderWorkerTemplate"
    size = _replicas(template, f"{path}.size")
    if value_or_none(template, f"{path}.leaderTemplate") is not None:
        yield _pod_set(f"{path}.leaderTemplate", groups)
        yield _pod_set(f"{path}.workerTemplate", groups * max(size - 1, 0))
        return
    annotations = {
        POD_INDEX_LABEL: _WORKER_INDEX,
        SUB_GROUP_INDEX_LABEL: _GROUP_INDEX,
        SUB_GROUP_COUNT: str(groups),
    }
    yield _pod_set(f"{path}.workerTemplate", groups * size, **annotations)


def _ray(template: Object) -> Iterator[Object]:
    cluster = RAY_SPECS[gvk_of(template)]
    yield _pod_set(f"{cluster}.headGroupSpec.template", 1)
    for group in _items(template, f"{cluster}.workerGroupSpecs"):
        pods = _replicas(template, f"{group}.replicas") * _hosts(template, group)
        if _is_group_suspended(template, group):
            pods = 0
        yield _pod_set(f"{group}.template", pods)


def _hosts(template: Object, group: str) -> int:
    """Return how many pods each replica of a worker group has."""
    return max(1, _replicas(template, f"{group}.numOfHosts"))


def _is_group_suspended(template: Object, group: str) -> bool:
    return value_or_none(template, f"{group}.suspend") is True


def removable_pods(template: Object) -> int:
    """Return how many pods Ray's autoscaler may remove: those above ``minReplicas`` of each group, where it runs.

    Raises :class:`PodSetError` as :func:`infer_pod_sets` does.
    """
    cluster = RAY_SPECS.get(gvk_of(template), "")
    if not cluster or value_or_none(template, f"{cluster}.enableInTreeAutoscaling") is not True:
        return 0
    removable = 0
    for group in _items(template, f"{cluster}.workerGroupSpecs"):
        if _is_group_suspended(template, group):
            continue
        replicas = _replicas(template, f"{group}.replicas")
        least = _count(template, f"{group}.minReplicas") or 0
        removable += max(replicas - least, 0) * _hosts(template, group)
    return removable


def completions_of(template: Object) -> int:
    """Return how many pods of a Job or JobSet succeed until it is complete; 0 for other kinds, or if that is not known.

    Raises :class:`PodSetError` as :func:`infer_pod_sets` does.
    """
    if gvk_of(template) == JOB:
        return _count(template, "template.spec.completions") or 0
    if gvk_of(template) != JOB_SET:
        return 0
    total = 0
    for job in _items(template, "template.spec.replicatedJobs"):
        spec = f"{job}.template.spec"
        replicas = _replicas(template, f"{job}.replicas")
        parallel = _parallel(template, spec)
        completions = _count(template, f"{spec}.completions") or 0
        total += replicas * max(parallel, completions)
    return total


def submits_in_own_pod(template: Object) -> bool:
    """Return whether a component is a RayJob that KubeRay submits to its own RayCluster with a Job."""
    mode = value_or_none(template, "template.spec.submissionMode")
    return gvk_of(template) == RAY_JOB and mode in (None, "", "K8sJobMode")


def _ray_job(template: Object) -> Iterator[Object]:
    yield from _ray(template)
    # Without this field, no path refers to a pod template; `cfo.api.appwrapper.quota` counts the default submitter.
    if submits_in_own_pod(template) and value_or_none(template, SUBMITTER_PATH) is not None:
        yield _pod_set(SUBMITTER_PATH, 1)


_WELL_KNOWN: Final[Mapping[GVK, Callable[[Object], Iterator[Object]]]] = {
    POD: _pod,
    DEPLOYMENT: _scaled,
    GVK("apps", "v1", "StatefulSet"): _scaled,
    JOB: _job,
    JOB_SET: _job_set,
    PYTORCH_JOB: _kubeflow_job("pytorchReplicaSpecs", "Master", "Worker"),
    **dict.fromkeys(MPI_JOBS, _kubeflow_job("mpiReplicaSpecs", "Launcher", "Worker")),
    GVK("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"): _leader_worker_set,
    **dict.fromkeys(RAY_SPECS, _ray),
    RAY_JOB: _ray_job,
}
