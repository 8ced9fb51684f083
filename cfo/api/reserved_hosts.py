"""Hosts that only RayClusters have: those of their dashboards and clients.

The operator creates Ingresses and routes for tenants, so a policy that exempts its user does not protect these hosts.
Webhooks refuse them in the objects from which the operator creates others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from cfo.runtime import FieldError, Rule
from cfo.runtime.objects.field import Path, forbidden

RESERVED_HOST_PREFIXES: Final = ("ray-dashboard-", "rayclient-")
"""The prefixes of the hosts of RayClusters."""

MAY_RESERVE: Final = Rule("codeflare.dev", "reservedhosts", "use")
"""The permission to write objects with reserved hosts, which only operators have.

No API serves this resource. The policy of the component ``reserved-hosts`` asks for it.
"""

_HOST_FIELDS: Final = frozenset({"host", "hosts", "hostname", "hostnames"})
"""The fields with hosts in Ingresses, all routes and Gateways, and in the virtual services of meshes."""

_CONTAINERS: Final = (dict, list, Mapping)
"""The types of values with values in them, those that JSON has first."""

_Place: TypeAlias = "tuple[_Place, str | int] | None"
"""The place of a value: that of the value which contains it, and the name or the index there.

A path is only created for an error, because most objects have none, and some have hundreds of thousands of values.
"""


def is_reserved(host: str) -> bool:
    """Return whether ``host`` has a prefix of the hosts of RayClusters."""
    return host.strip().lower().startswith(RESERVED_HOST_PREFIXES)


def reserved_host_errors(value: Any, path: Path) -> Iterator[FieldError]:
    """Yield an error for each reserved host in ``value``, at any level; the caller bounds its size and its levels."""
    waiting: list[tuple[Any, _Place]] = [(value, None)]
    while waiting:
        current, place = waiting.pop()
        if isinstance(current, Mapping):
            for name, child in current.items():
                if name in _HOST_FIELDS:
                    for reserved in _reserved(child, (place, name)):
                        yield _error(_path(path, reserved))
                if isinstance(child, _CONTAINERS):
                    waiting.append((child, (place, name)))
        elif isinstance(current, list):
            for index, child in enumerate(current):
                if isinstance(child, _CONTAINERS):
                    waiting.append((child, (place, index)))


def generated_host_errors(template: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error for a Route without a host whose subdomain or name would give it a reserved one on OpenShift."""
    metadata = template.get("metadata") or {}
    spec = template.get("spec") or {}
    is_route = str(template.get("apiVersion")).startswith("route.openshift.io/")
    if not is_route or not isinstance(spec, Mapping) or spec.get("host"):
        return
    subdomain = spec.get("subdomain")
    if isinstance(subdomain, str) and is_reserved(subdomain):
        yield _error(path.child("spec", "subdomain"))
    for field in ("name", "generateName"):
        name = metadata.get(field)
        if isinstance(name, str) and is_reserved(name):
            yield _error(path.child("metadata", field))


def _reserved(hosts: Any, place: _Place) -> Iterator[_Place]:
    """Yield the place of each reserved host in a field that contains a host or a list."""
    if isinstance(hosts, str) and is_reserved(hosts):
        yield place
    elif isinstance(hosts, list):
        for index, host in enumerate(hosts):
            if isinstance(host, str) and is_reserved(host):
                yield (place, index)


def _path(root: Path, place: _Place) -> Path:
    """Return the path of a place below ``root``."""
    steps: list[str | int] = []
    while place is not None:
        place, step = place
        steps.append(step)
    path = root
    for step in reversed(steps):
        path = path.index(step) if isinstance(step, int) else path.child(step)
    return path


def _error(path: Path) -> FieldError:
    prefixes = " and ".join(RESERVED_HOST_PREFIXES)
    return forbidden(path, f"the prefixes {prefixes} are reserved for the hosts of RayClusters")
