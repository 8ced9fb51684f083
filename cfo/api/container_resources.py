"""The rules of API servers for requests and limits of a container, so that no pod template is refused later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.quantity import canonical_quantity
from cfo.api.reading import elements, mapping, text
from cfo.runtime import FieldError
from cfo.runtime.objects import is_host_name, is_label_value, is_quantity, parse_quantity
from cfo.runtime.objects.field import Path, invalid, required

_WITHOUT_DOMAIN: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES: Final = "hugepages-"
_BYTES: Final = ("memory", "ephemeral-storage")
_IN_FRACTIONS: Final = frozenset(".-mun")
"""Characters of which each quantity that is not a whole number has one."""

_MAX_NAME: Final = 317
"""The maximum length of the name of a resource: that of a domain, ``/``, and that of a label."""

_NOT_NEGATIVE: Final = "must be greater than or equal to 0"

_NAME_RULE: Final = (
    "must be cpu, memory, ephemeral-storage or hugepages-SIZE, or the name of a device with its domain, such as "
    "nvidia.com/gpu"
)


def resource_errors(resources: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error for each unknown name of a resource, negative quantity, and request that its limit forbids.

    Devices, such as GPUs, and huge pages need a limit that equals the request. Quantities that are not valid are left
    to the schema.
    """
    limits = mapping(resources.get("limits"))
    requests = mapping(resources.get("requests"))
    wrong: set[str] = set()
    for field, names in (("limits", limits), ("requests", requests)):
        for name in names:
            if not _is_resource_name(name):
                wrong.add(name)
                yield invalid(path.child(field), name, _NAME_RULE)
        yield from negative_quantity_errors(names, path.child(field))
    for name, request in requests.items():
        if name in wrong:
            continue
        limit = limits.get(name)
        if limit is None:
            if not _is_overcommit_allowed(name):
                detail = "Limit must be set for non overcommitable resources"
                yield required(path.child("limits"), detail)
            continue
        if request == limit:
            continue  # the usual case needs no parsing
        if not is_quantity(str(request)) or not is_quantity(str(limit)):
            continue
        requested = parse_quantity(request)
        allowed = parse_quantity(limit)
        at = path.child("requests")
        if requested != allowed and not _is_overcommit_allowed(name):
            yield invalid(at, str(request), f"must be equal to {name} limit of {limit}")
        elif requested > allowed:
            detail = f"must be less than or equal to {name} limit of {limit}"
            yield invalid(at, str(request), detail)


def negative_pod_errors(spec: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error for each negative limit, request and overhead in the pod spec at ``path``.

    Its fields can have any type. A queue that adds up negative ones would admit other pods beyond its quota.
    """
    for field in ("initContainers", "containers"):
        for index, container in enumerate(elements(spec.get(field))):
            resources = mapping(container).get("resources")
            yield from negative_errors(resources, path.child(field).index(index).child("resources"))
    yield from negative_errors(spec.get("resources"), path.child("resources"))
    yield from negative_quantity_errors(spec.get("overhead"), path.child("overhead"))


def negative_errors(resources: Any, path: Path) -> Iterator[FieldError]:
    """Yield an error for each negative limit and request in ``resources``, which can have any type."""
    for field in ("limits", "requests"):
        yield from negative_quantity_errors(mapping(resources).get(field), path.child(field))


def negative_quantity_errors(quantities: Any, path: Path) -> Iterator[FieldError]:
    """Yield an error for each of the ``quantities`` by name that is below 0; they can have any type."""
    for name, quantity in mapping(quantities).items():
        written = str(quantity)
        if not written.startswith("-"):
            continue  # the usual case needs no parsing
        # API servers accept longer numbers than this operator reads, so only a zero is allowed.
        if not is_quantity(written) or parse_quantity(written) != 0:
            yield invalid(path.key(text(name, _MAX_NAME)), written, _NOT_NEGATIVE)


def fractional_byte_warnings(resources: Any, path: Path) -> Iterator[str]:
    """Yield the API server's warning of each limit and request that is not a whole number of bytes.

    ``resources`` are those of a container, and can have any type. ``8m`` of memory are 8 thousandths of a byte: the API
    server accepts that, and no process can run with it. Values that are not quantities are left to the schema.
    """
    for field, name, quantity in _fractions_of_bytes(resources):
        value = canonical_quantity(quantity)
        at = path.child(field).key(name)
        yield f'{at}: fractional byte value "{value}" is invalid, must be an integer'


def container_byte_warnings(containers: Any, path: Path) -> Iterator[str]:
    """Yield :func:`fractional_byte_warnings` of each container in a list, which can have any type."""
    for index, container in enumerate(elements(containers)):
        resources = mapping(container).get("resources")
        if any(_fractions_of_bytes(resources)):
            yield from fractional_byte_warnings(resources, path.index(index).child("resources"))


def _fractions_of_bytes(resources: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the field, name and value of each quantity that is not a whole number of bytes."""
    for field in ("limits", "requests"):
        quantities = mapping(mapping(resources).get(field))
        for name in _BYTES:
            quantity = quantities.get(name)
            if isinstance(quantity, str) and _is_fraction(quantity):
                yield field, name, quantity


def _is_fraction(quantity: str) -> bool:
    """Return whether ``quantity`` is valid, and not a whole number."""
    if _IN_FRACTIONS.isdisjoint(quantity) or not is_quantity(quantity):
        return False  # the usual case needs no parsing
    value = parse_quantity(quantity)
    return value != value.to_integral_value()


def _is_overcommit_allowed(name: str) -> bool:
    is_native = "/" not in name or "kubernetes.io/" in name
    return is_native and not name.startswith(_HUGE_PAGES)


def _is_resource_name(name: str) -> bool:
    """Return whether a container can request a resource with this name."""
    domain, slash, device = name.partition("/")
    if slash:
        return is_host_name(domain) and is_label_value(device)
    return name in _WITHOUT_DOMAIN or name.startswith(_HUGE_PAGES)
