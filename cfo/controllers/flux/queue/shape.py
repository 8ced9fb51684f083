"""How many pods a job takes, and what they request: read from FluxJobs and from MiniClusters.

An elastic job (with ``maxSize``) takes the quota for its maximum from the start, so that its cluster can be scaled at
any time by any client without exceeding the quota.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from cfo.controllers.flux.queue.model import Demand
from cfo.runtime.objects import is_quantity, parse_quantity

DEFAULT_DEADLINE: Final = 31_500_000.0
"""The deadline of MiniClusters that have none, in seconds: the default of upstream's schema."""

_MAX_AMOUNT: Final = 10**24
_NO_REQUESTS: Final[Mapping[str, int]] = {}


class Resources(msgspec.Struct, gc=False):
    """The resources of a container."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, gc=False):
    resources: Resources | None = None


class _Flux(msgspec.Struct, gc=False):
    container: _Container | None = None


Containers = tuple[_Container, ...]


class ClusterShape(msgspec.Struct, gc=False, rename="camel"):
    """The part of a MiniCluster's spec, or of a FluxJob's template, that determines its demand."""

    size: int | None = None
    max_size: int | None = None
    deadline_seconds: int | None = None
    cleanup: bool | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool | None = None
    job_labels: dict[str, str] | None = None
    containers: Containers | None = None
    services: Containers | None = None
    flux: _Flux | None = None


def demand_of(shape: ClusterShape, size: int, own: Resources | None = None) -> Demand:
    """Return what a cluster of ``size`` pods, or of its ``maxSize``, demands with its service pod.

    ``own`` are the resources of the job itself, which replace those of the container that runs its command, the first
    one. As in the scheduler, the init container counts if it requests more than the other containers together.
    """
    pods = max(size, shape.max_size or 0, 0)
    containers = [container.resources for container in shape.containers or ()] or [None]
    if own is not None:
        containers[0] = own
    requests = _sum(containers)
    if shape.flux is not None and shape.flux.container is not None:
        for name, amount in amounts_of(_requests(shape.flux.container.resources)).items():
            requests[name] = max(requests.get(name, 0), amount)
    total = {name: amount * pods for name, amount in requests.items()}
    if shape.services:
        pods += 1
        for name, amount in _sum([container.resources for container in shape.services]).items():
            total[name] = total.get(name, 0) + amount
    return Demand(pods, total or _NO_REQUESTS)


def amounts_of(quantities: Mapping[str, str | float]) -> dict[str, int]:
    """Return quantities in thousandths, rounded up and limited; those that are not valid are omitted."""
    return {name: _amount(quantity) for name, quantity in quantities.items() if is_quantity(str(quantity))}


def _amount(quantity: str | float) -> int:
    try:
        value = parse_quantity(quantity)
    except ArithmeticError:  # an exponent with very many digits
        return _MAX_AMOUNT
    # Compared before it is converted: a short quantity may have millions of digits as a number.
    return 0 if value <= 0 else _MAX_AMOUNT if value >= _MAX_AMOUNT else math.ceil(value * 1000)


def _requests(resources: Resources | None) -> Mapping[str, str | float]:
    """Return the requests; a limit without a request is the request, as the API server defaults it."""
    if resources is None:
        return {}
    return {**(resources.limits or {}), **(resources.requests or {})}


def _sum(containers: list[Resources | None]) -> dict[str, int]:
    total: dict[str, int] = {}
    for resources in containers:
        for name, amount in amounts_of(_requests(resources)).items():
            total[name] = total.get(name, 0) + amount
    return total
