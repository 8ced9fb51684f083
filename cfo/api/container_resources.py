"""The rules of API servers for requests and limits of a container, so that no pod template is refused later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.reading import mapping
from cfo.runtime import FieldError
from cfo.runtime.objects import is_host_name, is_label_value, is_quantity, parse_quantity
from cfo.runtime.objects.field import Path, invalid, required

_WITHOUT_DOMAIN: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES: Final = "hugepages-"
_NAME_RULE: Final = (
    "must be cpu, memory, ephemeral-storage or hugepages-SIZE, or the name of a device with its domain, such as "
    "nvidia.com/gpu"
)


def resource_errors(resources: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error for each resource with an unknown name, and for each request that its limit forbids.

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


def _is_overcommit_allowed(name: str) -> bool:
    is_native = "/" not in name or "kubernetes.io/" in name
    return is_native and not name.startswith(_HUGE_PAGES)


def _is_resource_name(name: str) -> bool:
    """Return whether a container can request a resource with this name."""
    domain, slash, device = name.partition("/")
    if slash:
        return is_host_name(domain) and is_label_value(device)
    return name in _WITHOUT_DOMAIN or name.startswith(_HUGE_PAGES)
