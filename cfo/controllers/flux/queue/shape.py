"""How many pods a job takes, and what they request: what the MiniCluster that is created for it requests.

An elastic job (with ``maxSize``) takes the quota for its maximum from the start, so that its cluster can be scaled at
any time by any client without exceeding the quota.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

import msgspec
import orjson

from cfo.api.flux.facts import cluster_spec, fixed_size
from cfo.api.pod_requests import (
    ContainerShape,
    PodShape,
    Quantities,
    Resources,
    add_to,
    has_requests,
    least_requests,
    remembered,
    requests_of_containers,
    requests_of_spec,
)
from cfo.controllers.flux.queue.model import Demand

DEFAULT_DEADLINE: Final = 31_500_000.0
"""The deadline of MiniClusters that have none, in seconds: the default of upstream's schema."""

MAX_SHAPE: Final = 8192
"""The length of an encoded :class:`JobShape` above which its job is not queued, in bytes.

Shapes do not count in the budget of the cache. A container with requests and limits takes 100 bytes.
"""

_NO_REQUESTS: Final[Mapping[str, int]] = {}


class _Container(ContainerShape, gc=False, omit_defaults=True, rename="camel"):
    run_flux: bool | None = None


class _Flux(msgspec.Struct, gc=False, omit_defaults=True):
    container: _Container | None = None


class _Pod(msgspec.Struct, gc=False, omit_defaults=True):
    resources: Quantities | None = None


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
    return remembered(_demand_of_job, shape, defaults)


def _demand_of_job(shape: bytes, defaults: bytes) -> Demand:
    return demand_of_cluster(cluster_spec(orjson.loads(shape), orjson.loads(defaults)))


class NeededPods(msgspec.Struct, frozen=True, gc=False):
    """The pods that prove that a FluxJob uses its quota: ``size`` pods of its Job, and a service pod.

    ``size`` is 0 if it is elastic. ``pod`` and ``service`` are what each requests at least, in thousandths; ``service``
    is ``None`` without services.
    """

    size: int = 0
    pod: Mapping[str, int] = {}
    service: Mapping[str, int] | None = None

    @property
    def has_large_service(self) -> bool:
        """Whether the service pod requests more than a pod of the Job."""
        return self.service is not None and not has_requests(self.pod, self.service)


def needed_pods(shape: bytes, defaults: bytes, counted: Container[str]) -> NeededPods:
    """Return the pods that a FluxJob must have, with what they must request of the ``counted`` resources."""
    full = remembered(_full_pods, shape, defaults)
    pod = least_requests(full.pod, counted) or _NO_REQUESTS
    service = least_requests(full.service, counted) if full.service is not None else None
    return NeededPods(full.size, pod, service)


def _full_pods(shape: bytes, defaults: bytes) -> NeededPods:
    """Return the pods of a FluxJob with all that they request."""
    own = orjson.loads(shape)
    given = orjson.loads(defaults)
    spec = cluster_spec(own, given)
    return NeededPods(
        size=fixed_size(own, given.get("size") or 0),
        pod=_requests_of_pod(spec),
        service=_requests_of_service_pod(spec),
    )


def _requests_of_service_pod(spec: Mapping[str, Any]) -> dict[str, int] | None:
    """Return what the service pod of a MiniCluster with this spec requests; ``None`` if it has none."""
    services = spec.get("services")
    return requests_of_containers(services) if services else None


def _requests_of_pod(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return what each pod of a MiniCluster with this spec requests."""
    view = (spec.get("flux") or {}).get("container") or {}
    overhead = (spec.get("pod") or {}).get("resources") or {}
    return requests_of_containers(spec.get("containers") or (), (view,), overhead)


def demand_of_cluster(spec: Mapping[str, Any]) -> Demand:
    """Return what the pods of a MiniCluster with this spec, or with its ``maxSize``, and its service pod demand.

    Without validation, sizes can be negative. They count as 1, or other jobs would get more than the quota.
    """
    pods = max(spec.get("size") or 1, spec.get("maxSize") or 0, 1)
    total = {name: amount * pods for name, amount in _requests_of_pod(spec).items()}
    service = _requests_of_service_pod(spec)
    if service is not None:
        pods += 1
        add_to(total, service)
    return Demand(pods, total or _NO_REQUESTS)


def demand_of_pod(pod: PodShape) -> Demand:
    """Return what one pod demands."""
    return remembered(_demand_of_pod, msgspec.json.encode(pod))


def _demand_of_pod(pod: bytes) -> Demand:
    return Demand(1, requests_of_spec(orjson.loads(pod)) or _NO_REQUESTS)


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
