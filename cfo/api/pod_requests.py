"""What pods request of their nodes, in whole thousandths, and what they must request so that they use a quota.

Sums of whole numbers are exact and fast. All amounts and their number are bounded, because tenants write them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
import orjson

from cfo.api.quantity import format_quantity
from cfo.runtime.objects import parse_quantity

MAX_AMOUNT: Final = 10**24
_MAX_LENGTH: Final = 64
"""The length up to which a quantity is read; a longer one counts as more than any quota."""

_ALWAYS_COUNTED: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTED_BY_QUEUES: Final = frozenset({"cpu", "memory"})
_SUMMED: Final = frozenset({"cpu", "memory"})
"""The resources whose request of a pod is by default the sum of its containers'."""

_MAX_RESOURCES: Final = 32
"""How many resources of a pod count. No node has more, so a pod that requests more runs nowhere."""

_MAX_REMEMBERED: Final = 4096
"""The length up to which what something requests is remembered, in bytes: at most 4 MiB together."""

_SHARE: Final = 4
"""Pods use a quota of CPU and memory if they request one part in this number of what was admitted."""

_SLICE: Final = "/mig-"
"""What precedes the profile in the names of NVIDIA's slices of GPUs, such as ``nvidia.com/mig-1g.5gb``."""

_NO_REQUESTS: Final[Mapping[str, int]] = {}

Quantities = dict[str, str | int | float]

_T = TypeVar("_T")


class Resources(msgspec.Struct, gc=False, omit_defaults=True):
    """The resources of a container or pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerShape(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """The part of a container that determines what its pod requests."""

    resources: Resources | None = None
    restart_policy: str | None = None


class PodShape(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """The part of a pod's spec that determines what it requests."""

    containers: tuple[ContainerShape, ...] | None = None
    init_containers: tuple[ContainerShape, ...] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None


def requests_of_pod(pod: PodShape) -> Mapping[str, int]:
    """Return what the scheduler counts for a pod. The result is shared."""
    return remembered(_requests_of_encoded, msgspec.json.encode(pod))


def _requests_of_encoded(pod: bytes) -> Mapping[str, int]:
    return requests_of_spec(orjson.loads(pod)) or _NO_REQUESTS


def requests_of_spec(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return what the scheduler counts for a pod with this spec, with its own ``resources`` and ``overhead``."""
    requests = requests_of_containers(
        spec.get("containers") or (), spec.get("initContainers") or (), spec.get("overhead") or {}
    )
    if spec.get("resources"):
        of_pod = {"resources": {"requests": _requests_of_pod(spec)}}
        for name, amount in requests_of_containers((of_pod,)).items():
            requests[name] = max(requests.get(name, 0), amount)
    return requests


def with_default_requests(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod with the requests that the API server sets for limits without requests.

    Kueue counts a LimitRange's requests for such limits, although the API server does not (Kueue 0.19,
    ``AdjustResources``). ``spec`` is not changed.
    """
    found = dict(spec)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            found[field] = list(map(_with_default_requests, spec[field]))
    resources = spec.get("resources") or {}
    if resources.get("limits"):
        found["resources"] = {**resources, "requests": _requests_of_pod(spec)}
    return found


def _with_default_requests(container: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    if not resources.get("limits"):
        return container
    return {**container, "resources": {**resources, "requests": _quantities_of(container)}}


def _requests_of_pod(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requests of a pod itself, as the API server defaults them (``defaultPodRequests``).

    A limit of CPU or memory is the request only if no container requests that; otherwise their sum is.
    """
    resources = spec.get("resources") or {}
    requests = dict(resources.get("requests") or {})
    containers = spec.get("containers") or ()
    init_containers = spec.get("initContainers") or ()
    requested: set[str] = set()
    for container in (*containers, *init_containers):
        requested.update(_quantities_of(container))
    sums = requests_of_containers(containers, init_containers)
    for name, limit in (resources.get("limits") or {}).items():
        is_sum = name in requested and name in _SUMMED
        requests.setdefault(name, format_amount(sums.get(name, 0)) if is_sum else limit)
    return requests


def requests_of_containers(
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
    return amounts_of(_quantities_of(container))


def _quantities_of(container: Mapping[str, Any]) -> Quantities:
    """Return the requests; a limit without a request is the request, as the API server defaults it."""
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    return {**limits, **requests}


def least_requests(requests: Mapping[str, int], counted: Container[str]) -> dict[str, int]:
    """Return what each of the pods that were admitted with ``requests`` must request at least of ``counted``.

    Webhooks, LimitRanges and autoscalers may change the requests of CPU and memory, so a quarter of them is enough:
    clusters that are overcommitted often lower requests of CPU to that. Pods then hold at most four times the quota
    that they take of nodes. Nothing changes the number of devices.
    """
    least = {}
    for name, amount in requests.items():
        if amount and name in counted:
            least[name] = amount if is_device(name) else -(-amount // _SHARE)
    return least


def counts_in_queues(resource: str) -> bool:
    """Return whether pods must request what a queue has admitted of a resource: CPU, memory and all devices.

    Only administrators know which ones a queue counts.
    """
    return resource in _COUNTED_BY_QUEUES or is_device(resource)


def is_device(resource: str) -> bool:
    """Return whether a resource is a device, such as ``nvidia.com/gpu``."""
    return "/" in resource


def requested_of(requests: Mapping[str, int], resource: str) -> int:
    """Return how much of a resource, as the user names it, is among ``requests`` of a pod.

    The webhook of the Dynamic Accelerator Slicer renames slices: ``nvidia.com/mig-1g.5gb`` to ``mig.das.com/1g.5gb``.
    """
    amount = requests.get(resource, 0)
    if amount or _SLICE not in resource:
        return amount
    profile = resource.rpartition(_SLICE)[2]
    return sum(amount for name, amount in requests.items() if name.endswith(f"/{profile}"))


def has_requests(requests: Mapping[str, int], least: Mapping[str, int]) -> bool:
    """Return whether a pod with ``requests`` requests at least ``least``."""
    return all(requested_of(requests, name) >= amount for name, amount in least.items())


def remembered(compute: Callable[..., _T], *encoded: bytes) -> _T:
    """Return what ``compute`` returns for something ``encoded``, of which many are equal.

    What is large is not remembered.
    """
    if sum(map(len, encoded)) > _MAX_REMEMBERED:
        return compute(*encoded)
    result: _T = _remembered(compute, *encoded)
    return result


@lru_cache(maxsize=1024)
def _remembered(compute: Callable[..., Any], *encoded: bytes) -> Any:
    return compute(*encoded)


def add_to(total: dict[str, int], amounts: Mapping[str, int], sign: int = 1) -> None:
    """Add ``amounts`` to ``total``, or subtract them with ``sign`` -1; names without an amount are removed."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount
        if not total[name]:
            del total[name]


def amounts_of(quantities: Mapping[str, str | float | None]) -> dict[str, int]:
    """Return quantities in thousandths, rounded up and limited; one that cannot be read exceeds any quota.

    API servers read null as 0.
    """
    return {
        name: 0 if quantity is None else _amount(str(quantity))
        for name, quantity in quantities.items()
    }


def format_amount(amount: int) -> str:
    """Return an amount in thousandths as a quantity."""
    return format_quantity(Decimal(amount) / 1000)


def _amount(quantity: str) -> int:
    return MAX_AMOUNT if len(quantity) > _MAX_LENGTH else _short_amount(quantity)


@lru_cache(maxsize=1024)
def _short_amount(quantity: str) -> int:
    try:
        with localcontext(prec=2 * _MAX_LENGTH):
            value = parse_quantity(quantity) * 1000
    except (ArithmeticError, ValueError):  # an exponent with very many digits, or no quantity
        return MAX_AMOUNT
    # Compared before it is converted: a short quantity may have millions of digits as a number.
    if value <= 0:
        return 0
    if value >= MAX_AMOUNT:
        return MAX_AMOUNT
    return math.ceil(value)
