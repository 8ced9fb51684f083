"""How many pods a job takes, and what they request: what the MiniCluster that is created for it requests.

An elastic job (with ``maxSize``) takes the quota for its maximum from the start, so that its cluster can be scaled at
any time by any client without exceeding the quota.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import localcontext
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson

from cfo.api.flux.facts import cluster_spec, resources_of
from cfo.controllers.flux.queue.model import Demand
from cfo.runtime.objects import parse_quantity

DEFAULT_DEADLINE: Final = 31_500_000.0
"""The deadline of MiniClusters that have none, in seconds: the default of upstream's schema."""

_MAX_AMOUNT: Final = 10**24
_MAX_LENGTH: Final = 64
"""The length up to which a quantity is read; a longer one counts as more than any quota."""

_ALWAYS_COUNTED: Final = ("cpu", "memory", "ephemeral-storage")
_MAX_RESOURCES: Final = 32
"""How many resources of a pod count. No node has more, so a pod that requests more runs nowhere."""
MAX_SHAPE: Final = 8192
"""The length of an encoded :class:`JobShape` above which its job is not queued, in bytes.

Shapes do not count in the budget of the cache. A container with requests and limits takes 100 bytes.
"""

_MAX_REMEMBERED: Final = 4096
"""The length up to which the demand of a job or pod is remembered, in bytes: at most 4 MiB together."""

_NO_REQUESTS: Final[Mapping[str, int]] = {}
_Quantities = dict[str, str | int | float]


class Resources(msgspec.Struct, gc=False, omit_defaults=True):
    """The resources of a container."""

    requests: _Quantities | None = None
    limits: _Quantities | None = None


class _Container(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    resources: Resources | None = None
    run_flux: bool | None = None
    restart_policy: str | None = None


class _Flux(msgspec.Struct, gc=False, omit_defaults=True):
    container: _Container | None = None


class _Pod(msgspec.Struct, gc=False, omit_defaults=True):
    resources: _Quantities | None = None


Containers = tuple[_Container, ...]


class ClusterShape(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """The part of a MiniCluster's spec, or of a FluxJob's template, that matters to the queue."""

    size: int | None = None
    max_size: int | None = None
    deadline_seconds: int | None = None
    suspend: bool | None = None
    job_labels: dict[str, str] | None = None
    containers: Containers | None = None
    services: Containers | None = None
    flux: _Flux | None = None
    pod: _Pod | None = None


class JobShape(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """The part of a FluxJob's spec that determines its demand."""

    size: int | None = None
    resources: Resources | None = None
    template: ClusterShape | None = None


class PodShape(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """The part of a pod's spec that determines what it requests."""

    containers: Containers | None = None
    init_containers: Containers | None = None
    overhead: _Quantities | None = None
    resources: Resources | None = None


def shape_of_job(size: int | None, resources: Resources | None, template: ClusterShape) -> JobShape:
    """Return the shape of a FluxJob with these fields, without what does not change its demand."""
    shape = ClusterShape(
        size=template.size,
        max_size=template.max_size,
        containers=template.containers,
        services=template.services,
        flux=template.flux,
        pod=template.pod,
    )
    return JobShape(size=size, resources=resources, template=shape)


def shape_of_pods(size: int | None, template: ClusterShape) -> JobShape:
    """Return a shape for a FluxJob that only has the number of its pods."""
    services = (_Container(),) if template.services else None
    shape = ClusterShape(size=template.size, max_size=template.max_size, services=services)
    return JobShape(size=size, template=shape)


def shape_of_defaults(defaults: Mapping[str, Any]) -> bytes:
    """Return what the queue needs from ``defaults``, the ``spec.mini-cluster`` in a FluxSetup, encoded.

    Raises :class:`ValueError` for a value of another type, or if it takes more than :data:`MAX_SHAPE` bytes.
    """
    fields = {name: defaults[name] for name in ("flux", "pod", "size") if name in defaults}
    shape = msgspec.json.encode(msgspec.convert(fields, ClusterShape))
    if len(shape) > MAX_SHAPE:
        raise ValueError(f"the resources take {len(shape)} bytes: must be at most {MAX_SHAPE}")
    return shape


def demand_of_job(shape: bytes, defaults: bytes) -> Demand:
    """Return what the MiniCluster of a FluxJob demands.

    ``shape`` is an encoded :class:`JobShape`, and ``defaults`` are ``spec.mini-cluster`` of its FluxSetup, encoded.
    """
    return _cached(_demand_of_job, shape, defaults)


def _demand_of_job(shape: bytes, defaults: bytes) -> Demand:
    return demand_of_cluster(cluster_spec(orjson.loads(shape), orjson.loads(defaults)))


def minimum_of_pods(shape: bytes, defaults: bytes, counted: Iterable[str]) -> Mapping[str, int]:
    """Return what each pod of a FluxJob must request of the ``counted`` resources at least, in thousandths.

    Webhooks, LimitRanges and autoscalers may change the requests of CPU and memory, so half of them is enough: pods
    then hold at most twice the quota that they take of nodes. Nothing changes the number of devices.
    """
    requests = _cached(_requests_of_pods, shape, defaults).resources
    minimum = {}
    for name in counted:
        amount = requests.get(name, 0)
        is_device = "/" in name
        if amount:
            minimum[name] = amount if is_device else (amount + 1) // 2
    return minimum


def _requests_of_pods(shape: bytes, defaults: bytes) -> Demand:
    spec = cluster_spec(orjson.loads(shape), orjson.loads(defaults))
    return Demand(1, _requests_of_pod(spec))


def _requests_of_pod(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return what each pod of a MiniCluster with this spec requests."""
    view = (spec.get("flux") or {}).get("container") or {}
    overhead = (spec.get("pod") or {}).get("resources") or {}
    return _requests(spec.get("containers") or (), (view,), overhead)


def _cached(compute: Callable[..., Demand], *encoded: bytes) -> Demand:
    """Return the demand of something ``encoded``, of which many are equal; large ones are not remembered."""
    if sum(map(len, encoded)) > _MAX_REMEMBERED:
        return compute(*encoded)
    return _remembered(compute, *encoded)


@lru_cache(maxsize=1024)
def _remembered(compute: Callable[..., Demand], *encoded: bytes) -> Demand:
    return compute(*encoded)


def demand_of_cluster(spec: Mapping[str, Any]) -> Demand:
    """Return what the pods of a MiniCluster with this spec, or with its ``maxSize``, and its service pod demand."""
    pods = max(spec.get("size") or 1, spec.get("maxSize") or 0)
    total = {name: amount * pods for name, amount in _requests_of_pod(spec).items()}
    services = spec.get("services")
    if services:
        pods += 1
        add_to(total, _requests(services))
    return Demand(pods, total or _NO_REQUESTS)


def demand_of_pod(pod: PodShape) -> Demand:
    """Return what one pod demands."""
    return _cached(_demand_of_pod, msgspec.json.encode(pod))


def _demand_of_pod(pod: bytes) -> Demand:
    spec = orjson.loads(pod)
    requests = _requests(
        spec.get("containers") or (), spec.get("initContainers") or (), spec.get("overhead") or {}
    )
    for name, amount in _requests((spec,)).items():
        requests[name] = max(requests.get(name, 0), amount)
    return Demand(1, requests or _NO_REQUESTS)


def _requests(
    containers: Iterable[Mapping[str, Any]],
    init_containers: Iterable[Mapping[str, Any]] = (),
    overhead: Mapping[str, str | float] = _NO_REQUESTS,
) -> dict[str, int]:
    """Return what the scheduler counts for a pod: an init container counts if it requests more than the others."""
    counted: set[str] = set(_ALWAYS_COUNTED)

    def limited(amounts: Mapping[str, int]) -> dict[str, int]:
        """Return the resources that count: only the first ones, because their number multiplies the work."""
        found = {}
        for name, amount in amounts.items():
            if amount and (name in counted or len(counted) < _MAX_RESOURCES):
                counted.add(name)
                found[name] = amount
        return found

    total: dict[str, int] = {}
    for container in containers:
        add_to(total, limited(_requests_of(container)))
    running: dict[str, int] = {}  # the init containers that run on
    largest: dict[str, int] = {}
    for container in init_containers:
        requests = limited(_requests_of(container))
        if container.get("restartPolicy") == "Always":
            add_to(running, requests)
            add_to(total, requests)
            requests = {}
        for name in running.keys() | requests.keys():
            largest[name] = max(largest.get(name, 0), running.get(name, 0) + requests.get(name, 0))
    for name, amount in largest.items():
        total[name] = max(total.get(name, 0), amount)
    add_to(total, limited(amounts_of(overhead)))
    return total


def _requests_of(container: Mapping[str, Any]) -> dict[str, int]:
    """Return the requests; a limit without a request is the request, as the API server defaults it."""
    resources = resources_of(container)
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    return amounts_of({**limits, **requests})


def add_to(total: dict[str, int], amounts: Mapping[str, int], sign: int = 1) -> None:
    """Add ``amounts`` to ``total``, or subtract them with ``sign`` -1; names without an amount are removed."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount
        if not total[name]:
            del total[name]


def replace_part(total: Demand, old: Demand, new: Demand) -> Demand:
    """Return the sum ``total`` after one of its parts has changed from ``old`` to ``new``."""
    if old is new or old == new:
        return total
    pods = total.pods - old.pods + new.pods
    if not total.resources and not old.resources and not new.resources:
        return Demand(pods)
    resources = dict(total.resources)
    add_to(resources, old.resources, -1)
    add_to(resources, new.resources)
    return Demand(pods, resources)


def amounts_of(quantities: Mapping[str, str | float]) -> dict[str, int]:
    """Return quantities in thousandths, rounded up and limited; one that cannot be read exceeds any quota."""
    return {name: _amount(str(quantity)) for name, quantity in quantities.items()}


def _amount(quantity: str) -> int:
    return _MAX_AMOUNT if len(quantity) > _MAX_LENGTH else _short_amount(quantity)


@lru_cache(maxsize=1024)
def _short_amount(quantity: str) -> int:
    try:
        with localcontext(prec=2 * _MAX_LENGTH):
            value = parse_quantity(quantity) * 1000
    except (ArithmeticError, ValueError):  # an exponent with very many digits, or no quantity
        return _MAX_AMOUNT
    # Compared before it is converted: a short quantity may have millions of digits as a number.
    if value <= 0:
        return 0
    if value >= _MAX_AMOUNT:
        return _MAX_AMOUNT
    return math.ceil(value)
