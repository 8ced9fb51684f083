"""The resources that a pod needs as a whole: their sum over its containers, its QoS class, and their defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from envtest.apimachinery.field_errors import FieldError, invalid, key
from envtest.apimachinery.objects import Object
from envtest.builtins.container_resources import is_pod_level, pod_requirement_errors
from envtest.builtins.resource_names import is_huge_page
from envtest.schema.quantity import Quantity, parse_quantity

__all__ = [
    "pod_resource_errors",
    "qos_class",
    "set_pod_resource_defaults",
    "set_resource_defaults",
    "total_resources",
]

_QOS_RESOURCES: Final = ("cpu", "memory")


def set_resource_defaults(resources: Object) -> None:
    """Request what is limited."""
    for name, value in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, value)


def set_pod_resource_defaults(spec: Object) -> None:
    """Complete the resources of the pod as a whole, if it has any, from those of its containers and from its limits."""
    resources = spec.get("resources")
    if not resources:
        return
    if resources.get("limits") or resources.get("requests"):
        for name, total in total_resources(spec, "limits").items():
            if is_huge_page(name):
                resources.setdefault("limits", {}).setdefault(name, str(total))
    limits = resources.get("limits")
    if not limits:
        return
    requests = resources.setdefault("requests", {})
    for name, total in total_resources(spec, "requests").items():
        if is_pod_level(name) and not is_huge_page(name):
            requests.setdefault(name, str(total))
    for name, limit in limits.items():
        if is_pod_level(name):
            requests.setdefault(name, limit)
    if not requests:
        del resources["requests"]


def pod_resource_errors(
    spec: Mapping[str, Any], path: str, claims: frozenset[str]
) -> Iterator[FieldError]:
    """Yield the errors of the resources of the pod as a whole: its containers must fit in."""
    resources = spec.get("resources")
    if resources is None:
        return
    yield from pod_requirement_errors(resources, path, claims)
    requests = resources.get("requests") or {}
    limits = resources.get("limits") or {}
    for name, total in total_resources(spec, "requests").items():
        if is_pod_level(name) and total.value > parse_quantity(requests.get(name, "0")).value:
            text = f"must be greater than or equal to aggregate container requests of {total}"
            yield invalid(key(f"{path}.requests", name), requests.get(name, "0"), text)
    for position, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and parse_quantity(limit).value > parse_quantity(limits[name]).value:
                field_path = f"{key(f'{path}.containers[{position}]', name)}.limits"
                yield invalid(
                    field_path, limit, f"must be less than or equal to pod limits of {limits[name]}"
                )


def total_resources(spec: Mapping[str, Any], part: str) -> dict[str, Quantity]:
    """Return the sum over all containers: those that run together, or more if an init container needs more.

    Init containers run one after the other; those with ``restartPolicy: Always`` keep running.
    """
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(total, _quantities(container, part))
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        needed = _quantities(container, part)
        if container.get("restartPolicy") == "Always":
            _add(total, needed)
            _add(sidecars, needed)
            needed = dict(sidecars)
        else:
            _add(needed, sidecars)
        _raise(peak, needed)
    _raise(total, peak)
    return total


def _quantities(container: Mapping[str, Any], part: str) -> dict[str, Quantity]:
    quantities = (container.get("resources") or {}).get(part) or {}
    return {name: parse_quantity(text) for name, text in quantities.items()}


def _add(total: dict[str, Quantity], more: Mapping[str, Quantity]) -> None:
    for name, quantity in more.items():
        known = total.get(name)
        total[name] = (
            quantity if known is None else Quantity(known.value + quantity.value, known.family)
        )


def _raise(total: dict[str, Quantity], other: Mapping[str, Quantity]) -> None:
    for name, quantity in other.items():
        if name not in total or quantity.value > total[name].value:
            total[name] = quantity


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return Guaranteed, Burstable or BestEffort, from the requests and limits of cpu and memory."""
    resources = spec.get("resources") or {}
    if resources.get("requests") or resources.get("limits"):
        sources = [resources]
    else:
        containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        sources = [container.get("resources") or {} for container in containers]
    requests: dict[str, Fraction] = {}
    limits: dict[str, Fraction] = {}
    guaranteed = True
    for source in sources:
        _count(requests, source.get("requests") or {})
        found = _count(limits, source.get("limits") or {})
        guaranteed = guaranteed and found == set(_QOS_RESOURCES)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _count(total: dict[str, Fraction], quantities: Mapping[str, str]) -> set[str]:
    """Add the quantities of cpu and memory that are not zero; return their names."""
    found = set()
    for name in _QOS_RESOURCES:
        value = parse_quantity(quantities.get(name, "0")).value
        if value > 0:
            total[name] = total.get(name, Fraction()) + value
            found.add(name)
    return found
