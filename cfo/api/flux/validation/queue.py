"""Rules for FluxJobs and FluxSetups: what they may contain, and what may change after an admission.

A job with the label of a Kueue queue is not counted in a FluxSetup's quota. So it must not get the
label while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from cfo.api.container_resources import fractional_byte_warnings, resource_errors
from cfo.api.flux.facts import controlling_job, is_suspended, is_true, own_queue, runners
from cfo.api.flux.names import ACTIVE, QUOTA_RESERVED, JobState, Queue
from cfo.api.flux.validation.minicluster import (
    MAX_SIZE,
    byte_warnings,
    cluster_name,
    flux_errors,
    ignored_fields,
    name_errors,
    pod_errors,
    size_errors,
    spec_errors,
)
from cfo.api.flux.validation.syntax import (
    between,
    checked_spec,
    dns_label,
    dns_subdomain,
    environment_errors,
    selector_errors,
)
from cfo.api.kueue import QUEUE_NAME_LABEL
from cfo.api.pod_numbers import pod_number_warnings
from cfo.api.reading import path as value_at
from cfo.runtime import FieldError, Object, key_of, labels_of, namespace_of
from cfo.runtime.objects import is_quantity
from cfo.runtime.objects.field import Path, forbidden, invalid, required

_SPEC: Final = Path("spec")
_ALWAYS_MUTABLE: Final = frozenset(
    {"priority", "priorityClassName", "suspend", "ttlSecondsAfterFinished"}
)
_IMMUTABLE: Final = "immutable once the FluxJob has been admitted; delete it and create another one"

_LABELS: Final = Path("metadata").child("labels").key(QUEUE_NAME_LABEL)
_JOB_LABELS: Final = Path("spec").child("jobLabels").key(QUEUE_NAME_LABEL)


@checked_spec
def validate_flux_job(obj: Object) -> Iterator[FieldError]:
    """Return the errors in a FluxJob, at most one more than are reported.

    The MiniCluster that results from it, with the defaults of its FluxSetup, must be validated in addition.
    """
    yield from name_errors(obj)
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    path = _SPEC.child("template")
    has_own_size = spec.get("size") is not None
    size = spec["size"] if has_own_size else template.get("size")
    size_path = path.child("size")
    for error in size_errors(template, path, size=size):
        if has_own_size and error.field == str(size_path):
            error = replace(error, field=str(_SPEC.child("size")))
        yield error
    yield from spec_errors(template, path, cluster_name(obj), partial=True)
    if template.get("suspend") is not None:
        yield forbidden(path.child("suspend"), "set spec.suspend instead")
    if spec.get("priorityClassName"):
        yield from dns_subdomain(_SPEC.child("priorityClassName"), spec["priorityClassName"])
        if spec.get("priority") is not None:
            yield forbidden(
                _SPEC.child("priority"), "must not be set together with priorityClassName"
            )
    yield from environment_errors(_SPEC.child("environment"), spec.get("environment") or {})
    yield from resource_errors(spec.get("resources") or {}, _SPEC.child("resources"))
    yield from _runner_errors(spec, template, path)


def _runner_errors(
    spec: Mapping[str, Any], template: Mapping[str, Any], path: Path
) -> Iterator[FieldError]:
    """Yield the conflicts of the job's own fields with the container of the template to which they are added."""
    containers = template.get("containers") or []
    for index in runners(containers)[:1]:
        at = path.child("containers").index(index)
        runner = containers[index]
        script = (runner.get("commands") or {}).get("script")
        if spec.get("command") and script:
            yield forbidden(
                at.child("commands", "script"), "must not be set together with spec.command"
            )
        variables = set(spec.get("environment") or {})
        secrets = set(runner.get("secrets") or {})
        for name in variables & secrets:
            yield forbidden(
                at.child("secrets").key(name), "must not be set together with spec.environment"
            )


def flux_job_warnings(obj: Object, setups: Iterable[Object]) -> list[str]:
    """Return a message for each field of a valid FluxJob without effect, fractions of bytes, and a huge size.

    Its priority has none if Kueue admits it. ``setups``: the FluxSetups of its namespace, and of the administrators'
    namespaces, which may select it.
    """
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    template_path = _SPEC.child("template")
    return [
        *pod_number_warnings("spec.size", spec.get("size")),
        *pod_number_warnings("spec.template.size", template.get("size")),
        *_priority_warnings(obj, setups),
        *ignored_fields(template, template_path),
        *fractional_byte_warnings(spec.get("resources"), _SPEC.child("resources")),
        *byte_warnings(template, template_path),
    ]


def _priority_warnings(obj: Object, setups: Iterable[Object]) -> list[str]:
    if (obj.get("spec") or {}).get("priority") is None:
        return []
    reason = "with a queue of Kueue"
    if not own_queue(obj):
        setup = _setup_with_kueue(namespace_of(obj), setups)
        if setup is None:
            return []
        reason = f"if Kueue admits the job, as FluxSetup {key_of(setup)} says"
    return [
        f"spec.priority: has no effect {reason}; name a WorkloadPriorityClass in priorityClassName"
    ]


def _setup_with_kueue(namespace: str, setups: Iterable[Object]) -> Object | None:
    """Return the first FluxSetup that lets Kueue admit the jobs of ``namespace``.

    An active one in the namespace itself takes precedence over those that select namespaces.
    """
    active = [setup for setup in setups if is_true(setup, ACTIVE)]
    candidates = [setup for setup in active if namespace_of(setup) == namespace]
    if not candidates:
        candidates = [setup for setup in active if _selects_namespaces(setup)]
    for setup in candidates:
        if (setup.get("spec") or {}).get("queue") == Queue.KUEUE:
            return setup
    return None


def _selects_namespaces(setup: Object) -> bool:
    return (setup.get("spec") or {}).get("namespaceSelector") is not None


def flux_job_update_errors(old: Object, new: Object) -> list[FieldError]:
    """Return an error for each field that may not change any more from ``old``, with its status, to ``new``.

    Everything may change while the job waits. Once it has been admitted, only its priority, suspend and TTL may change,
    and its command while its MiniCluster is ready for one. The size of an elastic job (``template.maxSize``) may change
    until it finishes. The label of a queue of Kueue may not change.
    """
    if not is_true(old, QUOTA_RESERVED) and not is_true(old, JobState.FINISHED):
        return []
    before = old.get("spec") or {}
    after = new.get("spec") or {}
    mutable = set(_ALWAYS_MUTABLE)
    if not is_true(old, JobState.FINISHED):
        if is_true(old, JobState.READY):
            mutable.add("command")
        if (before.get("template") or {}).get("maxSize"):
            mutable.add("size")
    immutable = sorted({*before, *after} - mutable)
    changed = [_SPEC.child(name) for name in immutable if before.get(name) != after.get(name)]
    if labels_of(old).get(QUEUE_NAME_LABEL) != labels_of(new).get(QUEUE_NAME_LABEL):
        changed.insert(0, _LABELS)
    return [forbidden(path, _IMMUTABLE) for path in changed]


@checked_spec
def validate_flux_setup(obj: Object) -> Iterator[FieldError]:
    """Return the errors in a FluxSetup, at most one more than are reported."""
    spec = obj.get("spec") or {}
    defaults = spec.get("mini-cluster") or {}
    path = _SPEC.child("mini-cluster")
    yield from between(path.child("size"), defaults.get("size"), 1, MAX_SIZE)
    yield from flux_errors(defaults.get("flux") or {}, path.child("flux"))
    yield from pod_errors(defaults.get("pod") or {}, path.child("pod"))
    yield from selector_errors(_SPEC.child("namespaceSelector"), spec.get("namespaceSelector"))
    local_queue = (spec.get("kueue") or {}).get("localQueue")
    at = _SPEC.child("kueue", "localQueue")
    if local_queue:
        yield from dns_subdomain(at, local_queue)
    elif spec.get("queue") == Queue.KUEUE:
        yield required(at, "must be set if queue is Kueue")
    for name, quantity in (spec.get("resources") or {}).items():
        amount = str(quantity)
        if not is_quantity(amount) or amount.startswith("-"):
            at = _SPEC.child("resources").key(name)
            yield invalid(at, quantity, "must be a quantity such as 500m, 2 or 4Gi")
    for namespace in spec.get("weights") or {}:
        yield from dns_label(_SPEC.child("weights"), namespace)


def minicluster_queue_errors(old: Object, new: Object) -> list[FieldError]:
    """Return an error if the label in ``jobLabels`` of a MiniCluster changes while its Job may have pods.

    It may change before the controller has seen the MiniCluster, and while its Job is suspended; but not if it belongs
    to a FluxJob, which is in one queue only.
    """
    if _job_label(old) == _job_label(new) or is_idle_minicluster(old):
        return []
    return [forbidden(_JOB_LABELS, "immutable while the Job of the MiniCluster is not suspended")]


def is_idle_minicluster(cluster: Object) -> bool:
    """Return whether the Job of a MiniCluster that belongs to no FluxJob does not exist yet, or is suspended.

    Its fields can have any type.
    """
    if controlling_job(cluster):
        return False
    has_been_seen = bool(value_at(cluster, "status", "conditions"))
    return not has_been_seen or is_true(cluster, JobState.WAITING)


def runs_without_kueue(cluster: Object) -> bool:
    """Return whether a MiniCluster, whose fields can have any type, is not suspended and in no queue of Kueue."""
    queue = value_at(cluster, "spec", "jobLabels", QUEUE_NAME_LABEL)
    return not queue and not is_suspended(cluster)


def _job_label(cluster: Object) -> Any:
    return ((cluster.get("spec") or {}).get("jobLabels") or {}).get(QUEUE_NAME_LABEL)
