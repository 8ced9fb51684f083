"""Rules for FluxSetups."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from cfo.api.flux.names import Queue
from cfo.api.flux.validation.minicluster import MAX_SIZE
from cfo.api.flux.validation.options import flux_errors, pod_errors
from cfo.api.flux.validation.syntax import between, count_errors, dns_label, dns_subdomain, selector_errors
from cfo.api.quantity import is_quantity
from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import MAX_ERRORS, Path, invalid, required

__all__ = ["validate_flux_setup"]

_SPEC: Final = Path("spec")


def validate_flux_setup(obj: Object) -> list[FieldError]:
    """Return the errors in a FluxSetup, at most one more than are reported."""
    return count_errors(_SPEC, obj.get("spec") or {}) or list(islice(_errors(obj), MAX_ERRORS + 1))


def _errors(obj: Object) -> Iterator[FieldError]:
    spec = obj.get("spec") or {}
    defaults, path = spec.get("mini-cluster") or {}, _SPEC.child("mini-cluster")
    yield from between(path.child("size"), defaults.get("size"), 1, MAX_SIZE)
    yield from flux_errors(defaults.get("flux") or {}, path.child("flux"))
    yield from pod_errors(defaults.get("pod") or {}, path.child("pod"))
    yield from selector_errors(_SPEC.child("namespaceSelector"), spec.get("namespaceSelector"))
    queue, local_queue = spec.get("queue"), (spec.get("kueue") or {}).get("localQueue")
    at = _SPEC.child("kueue", "localQueue")
    if local_queue:
        yield from dns_subdomain(at, local_queue)
    elif queue == Queue.KUEUE:
        yield required(at, "must be set if queue is Kueue")
    for name, quantity in (spec.get("resources") or {}).items():
        if not is_quantity(str(quantity)) or str(quantity).startswith("-"):
            yield invalid(_SPEC.child("resources").key(name), quantity, "must be a quantity such as 500m, 2 or 4Gi")
    for namespace in spec.get("weights") or {}:
        yield from dns_label(_SPEC.child("weights"), namespace)
