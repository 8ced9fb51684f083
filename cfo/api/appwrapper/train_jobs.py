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

from cfo.api.appwrapper.paths import value_or_none
from cfo.api.appwrapper.podsets import replicas_of
from cfo.runtime import GVK, Object, gvk_of

TRAIN_JOB: Final = GVK("trainer.kubeflow.org", "v1alpha1", "TrainJob")

RESOURCES_PATH: Final = "template.spec.trainer.resourcesPerNode"
"""The resources of each training node."""

_NODES_PATH: Final = "template.spec.trainer.numNodes"
_PATCH_SUFFIX: Final = ".template.spec.template"
_INITIALIZERS: Final = frozenset({"dataset-initializer", "model-initializer"})
_NO_POD_SETS: Final = (
    "the pod templates of a TrainJob are in its training runtime, so the queue needs a pod set for each replicated "
    "job, with the path of a pod template in spec.runtimePatches"
)
_NO_RESOURCES: Final = (
    "the queue must know the resources of each node, otherwise those of the training runtime"
)
_NODE: Final = "node"
"""The name of the container that Trainer gives the resources of a training node."""


def trained_pod_spec(template: Object, path: str, spec: Mapping[str, Any]) -> Object:
    """Return the pod spec at ``path`` of a TrainJob with the container, and the resources, that its pods have."""
    job = _replicated_job(template, path)
    containers: list[Object] = list(spec.get("containers") or ()) or [{"name": job or _NODE}]
    resources = value_or_none(template, RESOURCES_PATH)
    if resources is not None and job not in _INITIALIZERS:
        names = [container.get("name") for container in containers]
        index = names.index(_NODE) if _NODE in names else 0
        containers[index] = {**containers[index], "resources": resources}
    return {**spec, "containers": containers}


def unknown_to_queue(
    template: Object, declared: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """Yield what a queue must know about a component that is a TrainJob: the path of a field, and the reason.

    A path that begins with ``template`` is one of the TrainJob, any other one of the component.
    """
    if gvk_of(template) != TRAIN_JOB:
        return
    pod_sets = list(declared)
    if not pod_sets:
        yield "podSets", _NO_POD_SETS
        return
    if value_or_none(template, RESOURCES_PATH) is None:
        yield RESOURCES_PATH, _NO_RESOURCES
    nodes = value_or_none(template, _NODES_PATH)
    trained = [each for each in pod_sets if not _is_initializer(template, each.get("path") or "")]
    pods = sum(map(replicas_of, trained))
    if isinstance(nodes, int) and pods < nodes:
        yield "podSets", f"{_NODES_PATH} is {nodes}, but the pod sets have {pods} training pods"


def _is_initializer(template: Object, path: str) -> bool:
    return _replicated_job(template, path) in _INITIALIZERS


def _replicated_job(template: Object, path: str) -> str:
    """Return the name of the replicated job whose pod template is patched at ``path``; empty if that is not known."""
    name = value_or_none(template, f"{path.removesuffix(_PATCH_SUFFIX)}.name")
    return name if isinstance(name, str) else ""
