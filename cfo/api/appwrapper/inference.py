"""Infers the pod sets of components of well-known kinds.

Counts and annotations are the same as in the Go operator and Kueue, except for worker groups, which are counted as
KubeRay runs them (:class:`WorkerGroup`): what its autoscaler can add is counted from the beginning, because no queue is
asked again when a cluster grows. The Go operator does not infer pod sets of MPIJobs, LeaderWorkerSets and RayServices,
and for RayJob submitters.

TrainJobs of Kubeflow Trainer are not included (:mod:`.train_jobs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cfo.api.appwrapper.kinds import (
    JOB_SET,
    LEADER_WORKER_SET,
    MPI_JOBS,
    PYTORCH_JOB,
    RAY_JOB,
    RAY_SERVICE,
    RAY_SPECS,
    STATEFUL_SET,
    kind_of,
)
from cfo.api.appwrapper.paths import ROOT, value_or_none
from cfo.api.appwrapper.podsets import (
    MAX_POD_SETS,
    POD_INDEX_LABEL,
    SUB_GROUP_COUNT,
    SUB_GROUP_INDEX_LABEL,
    SUBMITTER_PATH,
    PodSetError,
    is_submitter,
    pod_template_at,
    replicas_of,
)
from cfo.api.reading import elements, mapping
from cfo.runtime import DEPLOYMENT, GVK, JOB, POD, Object
from cfo.runtime.objects.field import go_value

_NOT_INFERRED_BY_GO: Final = frozenset({RAY_SERVICE, LEADER_WORKER_SET, *MPI_JOBS})
"""Kinds for which the Go operator accepts any declared pod sets."""

_UPGRADES_IN_A_SECOND_CLUSTER: Final = ("NewCluster", "NewClusterWithIncrementalUpgrade")
"""The values of a RayService's ``upgradeStrategy.type`` with which two of its clusters run during an upgrade."""

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
    infer = _WELL_KNOWN.get(kind_of(template))
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

    A declared number that is less than the inferred one is replaced (:func:`undercounted_pod_sets`), because that many
    pods will run. Raises :class:`PodSetError` as :func:`infer_pod_sets` does, and for more declared ones than are
    allowed: each may refer to the same large template, and an AppWrapper may be older than the webhook.
    """
    declared: list[Object] = component.get("podSets") or []
    if len(declared) > MAX_POD_SETS:
        raise PodSetError(
            f"component contains {len(declared)} podspecs; at most {MAX_POD_SETS} are allowed"
        )
    if not declared:
        return infer_pod_sets(component["template"])
    numbers = undercounted_pod_sets(component["template"], declared)
    if not numbers:
        return declared
    return [_with_number(pod_set, numbers) for pod_set in declared]


def _with_number(pod_set: Object, numbers: Mapping[str, int]) -> Object:
    """Return ``pod_set`` with its number of pods in ``numbers``, which are by path, if it has one there."""
    number = numbers.get(pod_set.get("path") or "")
    if number is None:
        return pod_set
    return {**pod_set, "replicas": number}


def undercounted_pod_sets(
    template: Object, declared: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """Return, by path, the inferred numbers of pods of pod sets that are declared with fewer pods.

    Only those are returned that the Go operator accepts with the declared number: any of a kind whose pod sets it does
    not infer, and worker groups with their ``replicas``. Raises :class:`PodSetError` for an invalid count.
    """
    gvk = kind_of(template)
    if gvk not in RAY_SPECS and gvk not in _NOT_INFERRED_BY_GO:
        return {}
    inferred = {item["path"]: item["replicas"] for item in _WELL_KNOWN[gvk](template)}
    found: dict[str, int] = {}
    for pod_set in declared:
        path = pod_set.get("path") or ""
        number = inferred.get(path, 0)
        count = replicas_of(pod_set)
        if count >= number:
            continue
        group = path.removesuffix(".template")
        if gvk in _NOT_INFERRED_BY_GO or count == _replicas(template, f"{group}.replicas"):
            found[path] = number
    return found


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
    return _checked_count(value_or_none(template, path), path)


def _checked_count(value: Any, path: str) -> int | None:
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


class WorkerGroup(msgspec.Struct, frozen=True):
    """The numbers of pods of a worker group as KubeRay runs it. ``path`` is that of its pod template.

    ``most``: how many can run at a time. Without the autoscaler, these are ``replicas`` within ``minReplicas`` and
    ``maxReplicas``; with it, ``maxReplicas``. ``least``: how many run at least. Each replica has ``numOfHosts`` pods.
    """

    path: str
    least: int
    most: int


def _worker_groups(template: Object) -> Iterator[WorkerGroup]:
    cluster = RAY_SPECS[kind_of(template)]
    has_autoscaler = _has_autoscaler(template, cluster)
    clusters = _clusters_at_a_time(template)
    groups = elements(value_or_none(template, f"{cluster}.workerGroupSpecs"))
    paths = _items(template, f"{cluster}.workerGroupSpecs")
    for path, group in zip(paths, groups, strict=True):
        yield _worker_group(mapping(group), path, clusters, has_autoscaler=has_autoscaler)


def _worker_group(
    group: Mapping[str, Any], path: str, clusters: int, *, has_autoscaler: bool
) -> WorkerGroup:
    where = f"{path}.template"
    if group.get("suspend") is True:
        return WorkerGroup(where, 0, 0)
    replicas = _group_count(group, path, "replicas", 1)
    hosts = max(1, _group_count(group, path, "numOfHosts", 1))
    least = _group_count(group, path, "minReplicas", 0)
    most = _group_count(group, path, "maxReplicas", _MAX_COUNT)
    if not has_autoscaler:
        least = min(max(replicas, least), most)
        most = least
    pods = max(most, least) * hosts * clusters
    if most == _MAX_COUNT:
        pods = min(pods, _MAX_COUNT)
    return WorkerGroup(where, least * hosts, pods)


def _group_count(group: Mapping[str, Any], path: str, name: str, default: int) -> int:
    count = _checked_count(group.get(name), f"{path}.{name}")
    return default if count is None else count


def _has_autoscaler(template: Object, cluster: str) -> bool:
    return value_or_none(template, f"{cluster}.enableInTreeAutoscaling") is True


def _is_group_suspended(template: Object, group: str) -> bool:
    return value_or_none(template, f"{group}.suspend") is True


def _clusters_at_a_time(template: Object) -> int:
    """Return how many RayClusters of a component can run: two of a RayService that is upgraded in a second one."""
    if kind_of(template) != RAY_SERVICE:
        return 1
    strategy = value_or_none(template, "template.spec.upgradeStrategy.type")
    return 2 if strategy in _UPGRADES_IN_A_SECOND_CLUSTER else 1


def _ray(template: Object) -> Iterator[Object]:
    cluster = RAY_SPECS[kind_of(template)]
    yield _pod_set(f"{cluster}.headGroupSpec.template", _clusters_at_a_time(template))
    for group in _worker_groups(template):
        yield _pod_set(group.path, group.most)


def unlimited_worker_groups(template: Object) -> list[str]:
    """Return the paths of the worker groups to which Ray's autoscaler can add any number of pods.

    Raises :class:`PodSetError` as :func:`infer_pod_sets` does.
    """
    cluster = RAY_SPECS.get(kind_of(template), "")
    if not cluster or not _has_autoscaler(template, cluster):
        return []
    groups = _items(template, f"{cluster}.workerGroupSpecs")
    return [group for group in groups if _is_unlimited(template, group)]


def _is_unlimited(template: Object, group: str) -> bool:
    if _is_group_suspended(template, group):
        return False
    return _count(template, f"{group}.maxReplicas") in (None, _MAX_COUNT)


class PodNumbers(msgspec.Struct, frozen=True):
    """How many pods of a component must run so that it is ready, and how many may run at a time.

    The pod that submits a RayJob does not count. ``expected``: without pods that Ray's autoscaler may remove, or those
    of a second cluster of a RayService. ``admitted``: an AppWrapper that an earlier version accepted has recorded fewer
    pods than its autoscaler can add; these may run.
    """

    expected: int
    admitted: int


def pod_numbers(template: Object, pod_sets: Iterable[Mapping[str, Any]]) -> PodNumbers:
    """Return the numbers of pods of a component with the recorded ``pod_sets``.

    Raises :class:`PodSetError` as :func:`infer_pod_sets` does.
    """
    expected = 0
    admitted = 0
    for _, count, least, most in _numbers(template, pod_sets):
        expected += min(count, least)
        admitted += max(count, most)
    return PodNumbers(expected, admitted)


def expected_pods(
    template: Object, pod_sets: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[str, int]]:
    """Yield the path of each recorded pod set, without submitters, and the number of its pods that must run.

    Raises :class:`PodSetError` as :func:`infer_pod_sets` does.
    """
    for path, count, least, _ in _numbers(template, pod_sets):
        yield path, min(count, least)


def _numbers(
    template: Object, pod_sets: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[str, int, int, int]]:
    """Yield path and recorded, least and greatest number of pods of each pod set, without submitters."""
    gvk = kind_of(template)
    groups: dict[str, WorkerGroup] = {}
    head = ""
    clusters = 1
    if gvk in RAY_SPECS:
        head = f"{RAY_SPECS[gvk]}.headGroupSpec.template"
        clusters = _clusters_at_a_time(template)
        groups = {group.path: group for group in _worker_groups(template)}
    for pod_set in pod_sets:
        if is_submitter(gvk, pod_set):
            continue
        count = replicas_of(pod_set)
        path = pod_set.get("path") or ""
        group = groups.get(path)
        if head and path == head:
            yield path, count, 1, clusters
        elif group is not None:
            yield path, count, group.least, group.most
        else:
            yield path, count, count, count


def completions_of(template: Object) -> int:
    """Return how many pods of a Job or JobSet succeed until it is complete; 0 for other kinds, or if that is not known.

    Raises :class:`PodSetError` as :func:`infer_pod_sets` does.
    """
    if kind_of(template) == JOB:
        return _count(template, "template.spec.completions") or 0
    if kind_of(template) != JOB_SET:
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
    return kind_of(template) == RAY_JOB and mode in (None, "", "K8sJobMode")


def _ray_job(template: Object) -> Iterator[Object]:
    yield from _ray(template)
    # Without this field, no path refers to a pod template; `cfo.api.appwrapper.quota` counts the default submitter.
    if submits_in_own_pod(template) and value_or_none(template, SUBMITTER_PATH) is not None:
        yield _pod_set(SUBMITTER_PATH, 1)


_WELL_KNOWN: Final[Mapping[GVK, Callable[[Object], Iterator[Object]]]] = {
    POD: _pod,
    DEPLOYMENT: _scaled,
    STATEFUL_SET: _scaled,
    JOB: _job,
    JOB_SET: _job_set,
    PYTORCH_JOB: _kubeflow_job("pytorchReplicaSpecs", "Master", "Worker"),
    **dict.fromkeys(MPI_JOBS, _kubeflow_job("mpiReplicaSpecs", "Launcher", "Worker")),
    LEADER_WORKER_SET: _leader_worker_set,
    **dict.fromkeys(RAY_SPECS, _ray),
    RAY_JOB: _ray_job,
}

INFERRED_KINDS: Final = frozenset(_WELL_KNOWN)
"""The kinds whose pod sets are inferred."""
