"""TrainJobs of Kubeflow Trainer: which pod templates their pod sets refer to, and what their pods need.

The pod templates are in the training runtime, outside of the AppWrapper, and a TrainJob can only patch them
(``spec.runtimePatches``): for each replicated job its labels, node selector, tolerations and scheduling gates, but
neither resources nor the scheduler. So pod sets are declared, with the paths of patches. The resources of the training
nodes are in ``spec.trainer``; those of the initializers, which download data and models, are the runtime's.

Source: ``trainjob_types.go`` and the JobSet plugin of Kubeflow Trainer 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cfo.api.appwrapper.kinds import TRAIN_JOB, kind_of
from cfo.api.appwrapper.paths import value_or_none
from cfo.api.appwrapper.podsets import replicas_of
from cfo.api.reading import mapping
from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import OMIT, Path, invalid, required

RESOURCES_PATH: Final = "template.spec.trainer.resourcesPerNode"
"""The resources of each training node."""

_NODES_PATH: Final = "template.spec.trainer.numNodes"
_PATCH_SUFFIX: Final = ".template.spec.template"
_INITIALIZERS: Final = frozenset({"dataset-initializer", "model-initializer"})
_CONTAINERS: Final = ("containers", "initContainers")
_RESOURCES: Final = frozenset({"resources", "overhead"})
"""The fields of a pod that request resources, in addition to those of its containers."""

_ADMINISTRATORS_RUNTIME: Final = {
    "apiGroup": TRAIN_JOB.group,
    "kind": "ClusterTrainingRuntime",
}
"""The values, which are also the defaults, of the fields of ``spec.runtimeRef``."""

_NO_POD_SETS: Final = (
    "the pod templates of a TrainJob are in its training runtime, so the queue needs a pod set for each replicated "
    "job, with the path of a pod template in spec.runtimePatches"
)
_NO_NODES: Final = "the queue must know the number of nodes, otherwise that of the training runtime"
_NO_RESOURCES: Final = (
    "the queue must know requests or limits of each node, otherwise those of the training runtime"
)
_NODE: Final = "node"
"""The replicated job with the training nodes, and the container that Trainer gives their resources."""


def trained_pod_spec(template: Object, path: str, spec: Mapping[str, Any]) -> Object:
    """Return the pod spec at ``path`` of a TrainJob with the container, and the resources, that its pods have."""
    job = _replicated_job(template, path)
    # Patches cannot change resources, so what they request is never used.
    patched = {
        field: list(map(_without_resources, spec[field]))
        for field in _CONTAINERS
        if spec.get(field)
    }
    containers: list[Object] = patched.get("containers") or [{"name": job or _NODE}]
    resources = value_or_none(template, RESOURCES_PATH)
    if resources is not None and job not in _INITIALIZERS:
        names = [container.get("name") for container in containers]
        index = names.index(_NODE) if _NODE in names else 0
        containers[index] = {**containers[index], "resources": resources}
    rest = {field: value for field, value in spec.items() if field not in _RESOURCES}
    return {**rest, **patched, "containers": containers}


def _without_resources(container: Object) -> Object:
    return {field: value for field, value in container.items() if field != "resources"}


def requested_nodes(template: Object, pod_sets: Iterable[Mapping[str, Any]]) -> tuple[int, Object]:
    """Return how many nodes a TrainJob has, and a pod spec with what each node requests.

    These are at least as many as its queue has admitted for its nodes. With MPI, the launcher can be one of them.
    """
    nodes = value_or_none(template, _NODES_PATH)
    resources = mapping(value_or_none(template, RESOURCES_PATH))
    admitted = 0
    for pod_set in pod_sets:
        if _replicated_job(template, pod_set.get("path") or "") == _NODE:
            admitted += replicas_of(pod_set)
    number = max(nodes if isinstance(nodes, int) else 1, admitted)
    return number, {"containers": [{"resources": resources}]}


def queue_errors(component: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error for everything that a queue must know about a component that is a TrainJob, at ``path``."""
    template: Object = component["template"]
    if kind_of(template) != TRAIN_JOB:
        return
    yield from _runtime_errors(template, path)
    pod_sets_path = path.child("podSets")
    pod_sets = component.get("podSets") or []
    if not pod_sets:
        yield required(pod_sets_path, _NO_POD_SETS)
        return
    if not _has_resources(template):
        yield required(path.child(RESOURCES_PATH), _NO_RESOURCES)
    nodes = value_or_none(template, _NODES_PATH)
    if nodes is None:
        yield required(path.child(_NODES_PATH), _NO_NODES)
        return
    trained = [each for each in pod_sets if not _is_initializer(template, each.get("path") or "")]
    pods = sum(map(replicas_of, trained))
    if isinstance(nodes, int) and pods < nodes:
        detail = f"{_NODES_PATH} is {nodes}, but the pod sets have {pods} training pods"
        yield required(pod_sets_path, detail)
    others = [
        each for each in trained if _replicated_job(template, each.get("path") or "") != _NODE
    ]
    other_pods = sum(map(replicas_of, others))
    if isinstance(nodes, int) and other_pods > max(nodes, 1):
        # Each is counted as a node, and nothing shows whether it requests as much.
        detail = f"{_NODES_PATH} is {nodes}, but pod sets of other replicated jobs than node have {other_pods} pods"
        yield invalid(pod_sets_path, OMIT, detail)


def _runtime_errors(template: Object, path: Path) -> Iterator[FieldError]:
    """Yield the errors in the reference of a TrainJob to a training runtime that users cannot write.

    A runtime can have replicated jobs of which no pod set of the AppWrapper knows, so a user's own one would run pods
    that no queue has admitted.
    """
    for name, allowed in _ADMINISTRATORS_RUNTIME.items():
        field = f"template.spec.runtimeRef.{name}"
        value = value_or_none(template, field)
        if value is None or value == allowed:
            continue
        detail = (
            f"must be {allowed} in a queue, which does not count all pods of a runtime of users"
        )
        yield invalid(path.child(field), value, detail)


def _has_resources(template: Object) -> bool:
    """Return whether the TrainJob replaces the resources that its training runtime gives the nodes."""
    resources = mapping(value_or_none(template, RESOURCES_PATH))
    return bool(resources.get("requests") or resources.get("limits"))


def _is_initializer(template: Object, path: str) -> bool:
    return _replicated_job(template, path) in _INITIALIZERS


def _replicated_job(template: Object, path: str) -> str:
    """Return the name of the replicated job whose pod template is patched at ``path``; empty if that is not known."""
    name = value_or_none(template, f"{path.removesuffix(_PATCH_SUFFIX)}.name")
    return name if isinstance(name, str) else ""
