"""The pod sets of a component: inferred for well-known kinds, declared for all others.

A pod set is a plain object as in the API: ``path`` (see :mod:`.paths`), ``replicas`` (default 1) and annotations for
topology-aware scheduling. Counts and annotations are the same as in the Go operator and Kueue, with two exceptions that
follow KubeRay: a worker group has ``numOfHosts`` pods for each replica, and none while it is suspended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from cfo.api.appwrapper.paths import ROOT, PathError, object_at, value_at
from cfo.api.appwrapper.pod_spec import pod_spec_problems
from cfo.api.raycluster.kinds import RAY_CLUSTER
from cfo.runtime import DEPLOYMENT, GVK, JOB, POD, Object, gvk_of
from cfo.runtime.field import go_value

__all__ = [
    "MAX_POD_SETS",
    "POD_INDEX_LABEL",
    "SUB_GROUP_COUNT",
    "SUB_GROUP_INDEX_LABEL",
    "PodSetError",
    "expected_pods",
    "infer_pod_sets",
    "pod_set_mismatches",
    "pod_sets_of",
    "pod_template_at",
    "replicas_of",
]

MAX_POD_SETS: Final = 8
"""The maximum number of pod sets in a Workload of Kueue."""

POD_INDEX_LABEL: Final = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
SUB_GROUP_INDEX_LABEL: Final = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
SUB_GROUP_COUNT: Final = "workload.codeflare.dev.appwrapper/tas-sub-group-count"

_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_REPLICA_INDEX = "training.kubeflow.org/replica-index"

_MAX_COUNT = 2**31 - 1
_MAX_ITEMS: Final = 20
"""The maximum number of worker groups or replicated jobs whose templates are read."""
_MAX_SHOWN_PROBLEMS = 20
_MAX_SHOWN_CHARACTERS = 64


class PodSetError(ValueError):
    """The pod sets of a component cannot be determined; the message contains the path and the reason."""


def infer_pod_sets(template: Object) -> list[Object]:
    """Infer the pod sets of a component's object if its kind is well known; return none for other kinds.

    Raises :class:`PodSetError` if an object of a well-known kind lacks its pod templates, or has an invalid count.
    """
    infer = _WELL_KNOWN.get(gvk_of(template))
    pod_sets = list(infer(template)) if infer is not None else []
    for pod_set in pod_sets:
        try:
            pod_template_at(template, pod_set["path"])
        except PodSetError as error:
            raise PodSetError(f"{pod_set['path']} does not refer to a v1.PodSpecTemplate: {error}") from error
    return pod_sets


def pod_sets_of(component: Mapping[str, Any]) -> list[Object]:
    """Return the pod sets of a component of an AppWrapper: the declared ones, or else the inferred ones.

    Raises :class:`PodSetError` as :func:`infer_pod_sets` does.
    """
    return component.get("podSets") or infer_pod_sets(component["template"])


def replicas_of(pod_set: Mapping[str, Any]) -> int:
    """Return the number of pods of a pod set."""
    replicas = pod_set.get("replicas")
    return 1 if replicas is None else int(replicas)


def expected_pods(pod_sets: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of pods of all ``pod_sets``."""
    return sum(replicas_of(pod_set) for pod_set in pod_sets)


def pod_template_at(template: Object, path: str) -> Object:
    """Return the pod template (or Pod) at ``path`` in a component's object, not a copy.

    Raises :class:`PodSetError` if it does not exist, its spec is not a v1.PodSpec, or its labels or annotations are not
    maps of strings.
    """
    try:
        found = object_at(template, path)
    except PathError as error:
        raise PodSetError(str(error)) from error
    spec = found.get("spec")
    if not isinstance(spec, dict):
        raise PodSetError(f"content at {path} does not contain a spec")
    problems = list(pod_spec_problems(spec))
    if problems:
        more = len(problems) - _MAX_SHOWN_PROBLEMS
        rest = [f"and {more} more"] if more > 0 else []
        text = ", ".join([*problems[:_MAX_SHOWN_PROBLEMS], *rest])
        raise PodSetError(f"content at {path}.spec not parseable as a v1.PodSpec: strict decoding error: {text}")
    metadata = found.get("metadata")
    if not isinstance(metadata, dict | None):
        raise PodSetError(f"content at {path}.metadata is not an object")
    for name in ("labels", "annotations"):
        values = (metadata or {}).get(name)
        if values is not None and not _is_string_map(values):
            raise PodSetError(f"content at {path}.metadata.{name} is not a map of strings")
    return found


def _is_string_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def pod_set_mismatches(declared: Iterable[Mapping[str, Any]], inferred: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the errors in declared pod sets: duplicate paths, or differences from the inferred pod sets."""
    declared, inferred = list(declared), list(inferred)
    if not declared:
        return
    by_path: dict[str, Mapping[str, Any]] = {}
    for pod_set in declared:
        path = pod_set.get("path") or ""
        if path in by_path:
            yield f"multiple DeclaredPodSets with path '{path}'"
            return
        by_path[path] = pod_set
    if not inferred:
        return
    if len(declared) != len(inferred):
        yield f"DeclaredPodSet count {len(declared)} differs from inferred count {len(inferred)}"
        return
    for pod_set in inferred:
        path = pod_set["path"]
        if path not in by_path:
            yield f"PodSet with path '{path}' is missing"
        elif (count := replicas_of(by_path[path])) != replicas_of(pod_set):
            yield (
                f"replica count {count} differs from inferred count {replicas_of(pod_set)} "
                f"for PodSet at path position '{path}'"
            )


def _pod_set(path: str, replicas: int, **annotations: str) -> Object:
    if replicas > _MAX_COUNT:
        raise PodSetError(f"at path position '{path}' {replicas} pods; at most {_MAX_COUNT} are allowed")
    pod_set: Object = {"path": path, "replicas": replicas}
    return {**pod_set, "annotations": annotations} if annotations else pod_set


def _value_or_none(template: Object, path: str) -> Any:
    """Return the value at ``path``, or ``None`` if it does not exist."""
    try:
        return value_at(template, path)
    except PathError:
        return None


def _count(template: Object, path: str) -> int | None:
    """Return the number at ``path``, or ``None`` if it is not set."""
    value = _value_or_none(template, path)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise PodSetError(f"at path position '{path}' non-int value {_shown(value)}")
    if not 0 <= value <= _MAX_COUNT:
        raise PodSetError(f"at path position '{path}' value {value} is not between 0 and {_MAX_COUNT}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "(a list)" if isinstance(value, list) else "(an object)"
    text = value if isinstance(value, str) else go_value(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}..."


def _replicas(template: Object, path: str) -> int:
    count = _count(template, path)
    return 1 if count is None else count


def _items(template: Object, path: str) -> Iterator[str]:
    """Yield the paths of the items of the list at ``path``, if it exists."""
    items = _value_or_none(template, path)
    if isinstance(items, list):
        if len(items) > _MAX_ITEMS:
            raise PodSetError(f"at path position '{path}' {len(items)} items; at most {_MAX_ITEMS} are allowed")
        yield from (f"{path}[{index}]" for index in range(len(items)))


def _pod(template: Object) -> Iterator[Object]:
    yield _pod_set(ROOT, 1)


def _scaled(template: Object) -> Iterator[Object]:
    yield _pod_set("template.spec.template", _replicas(template, "template.spec.replicas"))


def _parallel(template: Object, spec: str) -> int:
    """Return the number of pods that a JobSpec runs at a time."""
    parallelism, completions = _replicas(template, f"{spec}.parallelism"), _count(template, f"{spec}.completions")
    return parallelism if completions is None else min(parallelism, completions)


def _job(template: Object) -> Iterator[Object]:
    yield _pod_set(
        "template.spec.template", _parallel(template, "template.spec"), **{POD_INDEX_LABEL: _COMPLETION_INDEX}
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


def _pytorch_job(template: Object) -> Iterator[Object]:
    for role in ("Master", "Worker"):
        group = f"template.spec.pytorchReplicaSpecs.{role}"
        if _value_or_none(template, group) is not None:
            replicas = _replicas(template, f"{group}.replicas")
            yield _pod_set(f"{group}.template", replicas, **{POD_INDEX_LABEL: _REPLICA_INDEX})


def _ray(cluster: str) -> Callable[[Object], Iterator[Object]]:
    def infer(template: Object) -> Iterator[Object]:
        yield _pod_set(f"{cluster}.headGroupSpec.template", 1)
        for group in _items(template, f"{cluster}.workerGroupSpecs"):
            hosts = max(1, _replicas(template, f"{group}.numOfHosts"))
            replicas = _replicas(template, f"{group}.replicas") * hosts
            suspended = _value_or_none(template, f"{group}.suspend") is True
            yield _pod_set(f"{group}.template", 0 if suspended else replicas)

    return infer


_WELL_KNOWN: Final[Mapping[GVK, Callable[[Object], Iterator[Object]]]] = {
    POD: _pod,
    DEPLOYMENT: _scaled,
    GVK("apps", "v1", "StatefulSet"): _scaled,
    JOB: _job,
    GVK("jobset.x-k8s.io", "v1alpha2", "JobSet"): _job_set,
    GVK("kubeflow.org", "v1", "PyTorchJob"): _pytorch_job,
    RAY_CLUSTER: _ray("template.spec"),
    GVK("ray.io", "v1", "RayJob"): _ray("template.spec.rayClusterSpec"),
}
