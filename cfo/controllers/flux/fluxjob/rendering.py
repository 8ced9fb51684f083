"""The MiniCluster of a FluxJob: pure functions.

Its spec is that of :func:`~cfo.api.flux.facts.cluster_spec`, from which the queue also counts the demand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from cfo.api.flux.facts import cluster_spec, fixed_size, own_queue, queue_of, runners, size_of
from cfo.api.flux.names import MINICLUSTER, SUSPEND_ANNOTATION
from cfo.api.kueue import PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL
from cfo.runtime import Object, annotations_of, labels_of, name_of, namespace_of
from cfo.runtime.objects import new_object, set_controller_owner

SPEC_ANNOTATION: Final = "flux-framework.org/fluxjob-spec"
"""Annotation of a MiniCluster: the hash of the part of the FluxJob's spec that must not change after its admission."""

COMMAND_ANNOTATION: Final = "flux-framework.org/fluxjob-command"
"""Annotation of a MiniCluster: the hash of the FluxJob's command, which may change while there is none."""

_SIZE_ANNOTATION: Final = "flux-framework.org/fluxjob-size"
"""Annotation of an elastic MiniCluster: the size that the FluxJob had when it was last passed on."""

_MUTABLE: Final = frozenset(
    {"command", "priority", "priorityClassName", "suspend", "ttlSecondsAfterFinished"}
)


def desired_minicluster(job: Object, setup: Mapping[str, Any], kueue_queue: str = "") -> Object:
    """Return the MiniCluster of ``job`` as it is created, with the defaults of ``setup`` (a FluxSetup; may be empty).

    It is suspended until it is launched. With ``kueue_queue``, a LocalQueue of Kueue, Kueue decides when it starts.
    """
    spec = cluster_spec(job.get("spec") or {}, (setup.get("spec") or {}).get("mini-cluster") or {})
    annotations = {SPEC_ANNOTATION: _spec_hash(job), COMMAND_ANNOTATION: _command_hash(job)}
    if spec.get("maxSize"):
        annotations[_SIZE_ANNOTATION] = str(spec["size"])
    queue = own_queue(job) or kueue_queue
    if queue:
        labels = dict(spec.get("jobLabels") or {})
        priority_class = _kueue_priority_class(job)
        if priority_class:
            labels[PRIORITY_CLASS_LABEL] = priority_class
        labels[QUEUE_NAME_LABEL] = queue
        spec["jobLabels"] = labels
    else:
        spec["suspend"] = True
        annotations[SUSPEND_ANNOTATION] = "true"
    # with the labels of the job, so that the operator's label selector also selects the MiniCluster
    cluster = new_object(
        MINICLUSTER,
        name_of(job),
        namespace_of(job),
        labels=labels_of(job),
        annotations=annotations,
        spec=spec,
    )
    return set_controller_owner(cluster, job, block_owner_deletion=True)


def keep_seconds(job: Object, setup: Mapping[str, Any]) -> int:
    """Return how long the finished MiniCluster of ``job`` is kept, with its pods and their logs.

    That is as long as the template says, or else as long as the job itself is kept, or else the default of ``setup``.
    """
    return _given_seconds(job, setup) or 0


def keeps_failure(job: Object, setup: Mapping[str, Any]) -> bool:
    """Return whether nothing says when the finished MiniCluster of ``job`` is deleted, so that a failed one is kept."""
    template = (job.get("spec") or {}).get("template") or {}
    defaults = (setup.get("spec") or {}).get("mini-cluster") or {}
    is_unset = template.get("cleanup") is None and defaults.get("cleanup") is None
    return is_unset and _given_seconds(job, setup) is None


def _given_seconds(job: Object, setup: Mapping[str, Any]) -> int | None:
    spec = job.get("spec") or {}
    defaults = (setup.get("spec") or {}).get("mini-cluster") or {}
    for part in (spec.get("template") or {}, spec, defaults):
        seconds: int | None = part.get("ttlSecondsAfterFinished")
        if seconds is not None:
            return seconds
    return None


def has_command(cluster: Object) -> bool:
    """Return whether a MiniCluster runs a command, and does not only wait for users."""
    spec = cluster.get("spec") or {}
    containers = spec.get("containers") or []
    runner_indexes = runners(containers)
    if spec.get("interactive") or not runner_indexes:
        return False
    runner = containers[runner_indexes[0]]
    return bool(runner.get("command") or (runner.get("commands") or {}).get("script"))


def is_spec_outdated(job: Object, cluster: Object) -> bool:
    """Return whether the job's spec has changed since its MiniCluster was created, in a way that cannot be applied."""
    return annotations_of(cluster).get(SPEC_ANNOTATION) != _spec_hash(job)


def is_command_outdated(job: Object, cluster: Object) -> bool:
    """Return whether the job's command has changed since its MiniCluster was created."""
    return annotations_of(cluster).get(COMMAND_ANNOTATION) != _command_hash(job)


def size_patch(job: Object, cluster: Object) -> Object | None:
    """Return the patch that passes on a changed size of an elastic job; ``None`` if it has not changed.

    Only a change is passed on: the MiniCluster may also be scaled directly.
    """
    size = (job.get("spec") or {}).get("size")
    passed_on = annotations_of(cluster).get(_SIZE_ANNOTATION)
    if passed_on is None or size is None or str(size) == passed_on:
        return None
    return {"metadata": {"annotations": {_SIZE_ANNOTATION: str(size)}}, "spec": {"size": size}}


def restored_size(own: Mapping[str, Any], cluster: Object, default: int) -> int:
    """Return the size of the FluxJob with the spec ``own`` if its MiniCluster was made smaller; 0 if it was not.

    That of an elastic job never was. ``default``: see :func:`~cfo.api.flux.facts.fixed_size`.
    """
    size = fixed_size(own, default)
    return size if size_of(cluster.get("spec") or {}) < size else 0


def priority_patch(job: Object, cluster: Object, *, is_admitted: bool) -> Object | None:
    """Return the patch that passes on a changed priority class to Kueue; ``None`` if it has not changed.

    As Kueue permits for Jobs: a class can always be replaced, it can be added before the admission, and never removed.
    """
    labels = (cluster.get("spec") or {}).get("jobLabels") or {}
    before = labels.get(PRIORITY_CLASS_LABEL)
    wanted = _kueue_priority_class(job)
    is_changed = wanted not in ("", before)
    may_be_added = bool(before) or not is_admitted
    if not queue_of(cluster) or not is_changed or not may_be_added:
        return None
    return {"spec": {"jobLabels": {PRIORITY_CLASS_LABEL: wanted}}}


def _kueue_priority_class(job: Object) -> str:
    """Return the WorkloadPriorityClass of a job: that of its label, its template, or ``priorityClassName``."""
    spec = job.get("spec") or {}
    in_template = ((spec.get("template") or {}).get("jobLabels") or {}).get(PRIORITY_CLASS_LABEL)
    return str(
        labels_of(job).get(PRIORITY_CLASS_LABEL)
        or in_template
        or spec.get("priorityClassName")
        or ""
    )


def _spec_hash(job: Object) -> str:
    spec = {key: value for key, value in (job.get("spec") or {}).items() if key not in _MUTABLE}
    if (spec.get("template") or {}).get("maxSize"):
        spec.pop("size", None)
    return _hash(spec)


def _command_hash(job: Object) -> str:
    return _hash((job.get("spec") or {}).get("command") or "")


def _hash(value: object) -> str:
    encoded = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(encoded, digest_size=12).hexdigest()
