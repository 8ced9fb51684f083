"""Validation of the resources that containers, and pods as a whole, request: limits, requests and device claims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    key,
    not_found,
    not_supported,
    required,
)
from envtest.apimachinery.name_rules import dns_label
from envtest.builtins.resource_names import (
    container_resource_errors,
    is_huge_page,
    is_overcommit_allowed,
    quantity_errors,
)
from envtest.schema.quantity import QuantityError, parse_quantity

__all__ = ["container_requirement_errors", "is_pod_level", "pod_requirement_errors"]

_QOS_RESOURCES: Final = ("cpu", "memory")
_POD_LEVEL: Final = ("cpu", "hugepages-", "memory")


def container_requirement_errors(
    resources: Mapping[str, Any], path: str, claims: Collection[str] = ()
) -> Iterator[FieldError]:
    """Yield the errors of the resources of a container; ``claims`` are the names of the pod's resource claims."""
    yield from _requirement_errors(resources, path, claims, container_resource_errors)


def pod_requirement_errors(
    resources: Mapping[str, Any], path: str, claims: Collection[str]
) -> Iterator[FieldError]:
    """Yield the errors of the resources of a pod as a whole, without those that depend on its containers."""
    if resources.get("claims"):
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    yield from _requirement_errors(resources, path, claims, _pod_level_name_errors)


def is_pod_level(name: str) -> bool:
    """Return whether a resource can be requested for a pod as a whole."""
    return name in _QOS_RESOURCES or is_huge_page(name)


def _pod_level_name_errors(name: str, path: str) -> Iterator[FieldError]:
    if not is_pod_level(name):
        yield not_supported(path, name, _POD_LEVEL)


def _requirement_errors(
    resources: Mapping[str, Any],
    path: str,
    claims: Collection[str],
    name_errors: Callable[[str, str], Iterator[FieldError]],
) -> Iterator[FieldError]:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for kind, quantities in (("limits", limits), ("requests", requests)):
        for name, quantity in quantities.items():
            field_path = key(f"{path}.{kind}", name)
            yield from name_errors(name, field_path)
            yield from quantity_errors(name, quantity, field_path)
            if is_huge_page(name) and not _is_multiple(quantity, name.removeprefix("hugepages-")):
                yield invalid(
                    field_path, quantity, f"{quantity} is not positive integer multiple of {name}"
                )
    for name, quantity in requests.items():
        if name in limits:
            yield from _above_limit_errors(name, quantity, limits[name], path)
        elif not is_overcommit_allowed(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    names = limits.keys() | requests.keys()
    if any(map(is_huge_page, names)) and names.isdisjoint(_QOS_RESOURCES):
        yield forbidden(path, "HugePages require cpu or memory")
    yield from _claim_errors(resources.get("claims") or (), f"{path}.claims", claims)


def _above_limit_errors(name: str, request: str, limit: str, path: str) -> Iterator[FieldError]:
    requested = parse_quantity(request).value
    allowed = parse_quantity(limit).value
    if requested != allowed and not is_overcommit_allowed(name):
        yield invalid(f"{path}.requests", request, f"must be equal to {name} limit of {limit}")
    elif requested > allowed:
        yield invalid(
            f"{path}.requests", request, f"must be less than or equal to {name} limit of {limit}"
        )


def _is_multiple(quantity: str, page: str) -> bool:
    try:
        size = parse_quantity(page).value
    except QuantityError:
        return False
    return size > 0 and size.denominator == 1 and parse_quantity(quantity).value % size == 0


def _claim_errors(
    claims: Sequence[Mapping[str, Any]], path: str, known: Collection[str]
) -> Iterator[FieldError]:
    """Yield the errors of references to the claims of the pod: each claim, or request of a claim, is used once."""
    whole: set[str] = set()
    partial: set[str] = set()
    entries: set[str] = set()
    for position, claim in enumerate(claims):
        field_path = f"{path}[{position}]"
        name = claim.get("name") or ""
        request = claim.get("request") or ""
        if not name:
            yield required(field_path)
            continue
        if name in whole:
            yield duplicate(field_path, name)
        elif request:
            for problem in dns_label(request):
                yield invalid(f"{field_path}.request", request, problem)
            if f"{name}/{request}" in entries:
                yield duplicate(field_path, f"{name}/{request}")
            entries.add(f"{name}/{request}")
            partial.add(name)
        else:
            if name in partial:
                yield duplicate(field_path, name)
            whole.add(name)
        if name not in known:
            rest = f": {', '.join(sorted(known))}" if known else " which is empty"
            text = f"must be one of the names in pod.spec.resourceClaims{rest}"
            yield not_found(field_path, name)._replace(detail=text)
