"""Facts that controllers and validation share: what conditions say, and what the MiniCluster of a FluxJob contains.

Its spec is the job's template, completed with the defaults of the FluxSetup. The job's own fields replace those of the
template; those of a container apply to the one that runs Flux.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cfo.api.flux.names import DEFAULT_IMAGE, FLUX_JOB, SUSPEND_ANNOTATION
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.reading import items, path
from cfo.runtime import Object, find_condition, labels_of

FOLLOWED_FIELDS: Final = frozenset(
    {
        "backoffLimit",
        "cleanup",
        "deadlineSeconds",
        "jobLabels",
        "maxSize",
        "minSize",
        "size",
        "suspend",
        "ttlSecondsAfterFinished",
    }
)
"""The fields of a MiniCluster's spec that an existing Job follows, or that do not concern it."""

_JOB_FIELDS: Final = ("size", "tasks", "deadlineSeconds", "backoffLimit")
_CONTAINER_FIELDS: Final = ("command", "workingDir", "resources")


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition ``kind`` of an object exists and is true."""
    return _condition(obj, kind).get("status") == "True"


def is_false(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition ``kind`` of an object exists and is false."""
    return _condition(obj, kind).get("status") == "False"


def message_of(obj: Mapping[str, Any], kind: str) -> str:
    """Return the message of the condition ``kind`` of an object; empty if there is none."""
    return str(_condition(obj, kind).get("message") or "")


def _condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    # In a direct call of a webhook, the status of the old object has any type.
    return find_condition(items(path(obj, "status", "conditions")), kind) or {}


def controlling_job(cluster: Mapping[str, Any]) -> Any:
    """Return the uid of the FluxJob that controls a MiniCluster; ``None`` if none does. Fields can have any type."""
    for owner in items(path(cluster, "metadata", "ownerReferences")):
        if owner.get("controller") and owner.get("kind") == FLUX_JOB.kind:
            return owner.get("uid")
    return None


def size_of(spec: Mapping[str, Any]) -> int:
    """Return the ``size`` in the spec of a MiniCluster, which is 1 if it is not set."""
    size = spec.get("size")
    return 1 if size is None else int(size)


def needed_brokers(spec: Mapping[str, Any]) -> int:
    """Return the number of ready brokers with which the command of a MiniCluster with this spec starts."""
    return int(spec.get("minSize") or 0) or size_of(spec)


def queue_of(cluster: Mapping[str, Any]) -> str:
    """Return the LocalQueue of Kueue that decides when a MiniCluster's Job starts; empty if there is none."""
    labels = (cluster.get("spec") or {}).get("jobLabels") or {}
    return str(labels.get(QUEUE_NAME_LABEL) or "")


def is_suspended(cluster: Mapping[str, Any]) -> bool:
    """Return whether a MiniCluster, whose fields can have any type, is suspended."""
    suspend = path(cluster, "spec", "suspend")
    if suspend is None:  # the CRD of the Go operator has no such field
        return bool(path(cluster, "metadata", "annotations", SUSPEND_ANNOTATION) == "true")
    return bool(suspend)


def own_queue(job: Object) -> str:
    """Return the LocalQueue of Kueue that a FluxJob, or its template, names; empty if there is none."""
    queue = labels_of(job).get(QUEUE_NAME_LABEL)
    if queue:
        return queue
    template = (job.get("spec") or {}).get("template") or {}
    return queue_of({"spec": template})


def resources_of(container: Mapping[str, Any]) -> Object:
    """Return limits and requests of a container; quantities may be numbers in the spec, and are strings in pods."""
    given = container.get("resources") or {}
    resources: Object = {}
    for kind in ("limits", "requests"):
        if given.get(kind):
            resources[kind] = {name: str(amount) for name, amount in given[kind].items()}
    return resources


def runners(containers: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the indexes of the containers that run Flux: a single container, or those with ``runFlux``.

    Exactly one does in a valid MiniCluster.
    """
    if len(containers) == 1:
        return [0]
    return [index for index, container in enumerate(containers) if container.get("runFlux")]


def is_runner(container: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether ``container``, one of ``containers``, runs Flux."""
    return len(containers) == 1 or bool(container.get("runFlux"))


def fixed_size(own: Mapping[str, Any], default: int) -> int:
    """Return the size of a FluxJob with the spec ``own``; 0 if it is elastic.

    ``default`` is the size of jobs that have none, in the FluxSetup; may be 0.
    """
    template: Mapping[str, Any] = own.get("template") or {}
    if template.get("maxSize"):
        return 0
    return int(own.get("size") or template.get("size") or default or 1)


def admitted_size(own: Mapping[str, Any], default: int) -> int:
    """Return for how many pods a FluxJob with the spec ``own`` is admitted, without its service pod.

    ``default``: see :func:`fixed_size`.
    """
    template: Mapping[str, Any] = own.get("template") or {}
    return int(template.get("maxSize") or 0) or fixed_size(own, default)


def deadline_of(own: Mapping[str, Any]) -> int:
    """Return the ``deadlineSeconds`` in the spec ``own`` of a FluxJob; 0 if it has none."""
    template: Mapping[str, Any] = own.get("template") or {}
    return int(own.get("deadlineSeconds") or template.get("deadlineSeconds") or 0)


def cluster_spec(own: Mapping[str, Any], defaults: Mapping[str, Any]) -> Object:
    """Return the spec of the MiniCluster of a FluxJob with the spec ``own``.

    ``defaults`` are ``spec.mini-cluster`` of the FluxSetup; may be empty. The result shares what is nested with both.
    """
    template: Mapping[str, Any] = own.get("template") or {}
    shared = {key: defaults[key] for key in ("flux", "pod") if defaults.get(key)}
    spec = _merged(shared, template)
    for key in ("suspend", "cleanup", "ttlSecondsAfterFinished"):
        spec.pop(key, None)  # the FluxJob's controller decides about these
    # The image contains Flux, unless the template or the FluxSetup says how it gets it.
    spec["flux"] = {"container": {"disable": True}, **(spec.get("flux") or {})}
    spec |= {key: own[key] for key in _JOB_FIELDS if own.get(key) is not None}
    spec["size"] = spec.get("size") or defaults.get("size") or 1
    containers: list[Object] = [dict(container) for container in spec.get("containers") or [{}]]
    spec["containers"] = containers
    for index in runners(containers)[:1]:
        runner = containers[index]
        image = own.get("image") or runner.get("image") or defaults.get("image")
        runner["image"] = image or DEFAULT_IMAGE
        runner |= {key: own[key] for key in _CONTAINER_FIELDS if own.get(key)}
        environment = own.get("environment")
        if environment:
            runner["environment"] = {**(runner.get("environment") or {}), **environment}
    return spec


def _merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> Object:
    """Return ``values``, completed by ``defaults``; maps are merged, everything else is replaced."""
    result: Object = dict(defaults)
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merged(result[key], value)
        elif value is not None:
            result[key] = value
    return result
