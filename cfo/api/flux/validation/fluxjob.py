"""Rules for FluxJobs: what one may contain, and what may change after its admission."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from cfo.api.flux.conditions import is_true
from cfo.api.flux.containers import runners
from cfo.api.flux.names import QUOTA_RESERVED, State
from cfo.api.flux.validation.minicluster import cluster_name, name_errors, size_errors, spec_errors
from cfo.api.flux.validation.syntax import count_errors, dns_subdomain, environment_errors
from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import MAX_ERRORS, Path, forbidden

__all__ = ["flux_job_update_errors", "validate_flux_job"]

_SPEC: Final = Path("spec")
_ALWAYS_MUTABLE: Final = frozenset({"priority", "priorityClassName", "suspend", "ttlSecondsAfterFinished"})
_IMMUTABLE: Final = "immutable once the FluxJob has been admitted; delete it and create another one"


def validate_flux_job(obj: Object) -> list[FieldError]:
    """Return the errors in a FluxJob, at most one more than are reported.

    The MiniCluster that results from it, with the defaults of its FluxSetup, must be validated in addition.
    """
    return count_errors(_SPEC, obj.get("spec") or {}) or list(islice(_errors(obj), MAX_ERRORS + 1))


def _errors(obj: Object) -> Iterator[FieldError]:
    yield from name_errors(obj)
    spec = obj.get("spec") or {}
    template, path = spec.get("template") or {}, _SPEC.child("template")
    own_size = spec.get("size") is not None
    size = spec.get("size") if own_size else template.get("size")
    size_path = _SPEC if own_size else path
    for error in size_errors(template, path, size=size):
        yield error._replace(field=str(size_path.child("size"))) if error.field == str(path.child("size")) else error
    yield from spec_errors(template, path, cluster_name(obj), partial=True)
    if template.get("suspend") is not None:
        yield forbidden(path.child("suspend"), "set spec.suspend instead")
    if spec.get("priorityClassName"):
        yield from dns_subdomain(_SPEC.child("priorityClassName"), spec["priorityClassName"])
        if spec.get("priority") is not None:
            yield forbidden(_SPEC.child("priority"), "must not be set together with priorityClassName")
    yield from environment_errors(_SPEC.child("environment"), spec.get("environment") or {})
    yield from _runner_errors(spec, template, path)


def _runner_errors(spec: Mapping[str, Any], template: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the conflicts of the job's own fields with the container of the template to which they are added."""
    containers = template.get("containers") or []
    for index in runners(containers)[:1]:
        at = path.child("containers").index(index)
        if spec.get("command") and (containers[index].get("commands") or {}).get("script"):
            yield forbidden(at.child("commands", "script"), "must not be set together with spec.command")
        for name in set(spec.get("environment") or {}) & set(containers[index].get("secrets") or {}):
            yield forbidden(at.child("secrets").key(name), "must not be set together with spec.environment")


def flux_job_update_errors(old: Object, new: Object) -> list[FieldError]:
    """Return an error for each field that may not change any more from ``old``, with its status, to ``new``.

    Everything may change while the job waits. Once it has been admitted, only its priority, suspend and TTL may change,
    and its command while its MiniCluster is ready for one. The size of an elastic job (``template.maxSize``) may change
    until it finishes.
    """
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if not (is_true(old, QUOTA_RESERVED) or is_true(old, State.FINISHED)):
        return []
    mutable = set(_ALWAYS_MUTABLE)
    if not is_true(old, State.FINISHED):
        if is_true(old, State.READY):
            mutable.add("command")
        if (before.get("template") or {}).get("maxSize"):
            mutable.add("size")
    changed = [name for name in sorted({*before, *after} - mutable) if before.get(name) != after.get(name)]
    return [forbidden(_SPEC.child(name), _IMMUTABLE) for name in changed]
