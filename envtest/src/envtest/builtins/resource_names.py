"""Validation of the names of resources that containers request, and that quotas and limit ranges bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from envtest.apimachinery.field_errors import FieldError, invalid
from envtest.apimachinery.name_rules import qualified_name
from envtest.schema.quantity import is_integer, parse_quantity

__all__ = [
    "container_resource_errors",
    "is_extended",
    "is_huge_page",
    "is_overcommit_allowed",
    "is_standard_for_quota",
    "quantity_errors",
    "quota_resource_errors",
    "resource_name_errors",
]

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTED: Final = frozenset(
    [
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    ]
)
_QUOTA: Final = frozenset(
    {
        *_COUNTED,
        *_COMPUTE,
        *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _COMPUTE),
        "requests.storage",
    }
)


def is_huge_page(name: str) -> bool:
    """Return whether a resource is memory in huge pages of the size that its name contains."""
    return name.startswith("hugepages-")


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_overcommit_allowed(name: str) -> bool:
    """Return whether containers can request less of a resource than their limit."""
    return is_native(name) and not is_huge_page(name)


def is_standard_for_quota(name: str) -> bool:
    """Return whether a ResourceQuota may limit a resource with this name, which has no domain."""
    return name in _QUOTA or is_huge_page(name.removeprefix("requests."))


def is_extended(name: str) -> bool:
    """Return whether a resource is of another domain than Kubernetes, as devices are; these are counted in integers."""
    return not (
        is_native(name) or name.startswith("requests.") or qualified_name(f"requests.{name}")
    )


def resource_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a name that must be a qualified name, and standard without a domain."""
    problems = qualified_name(name)
    for problem in problems:
        yield invalid(path, name, problem)
    if not problems and "/" not in name and not (is_standard_for_quota(name) or name == "storage"):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def quota_resource_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a name in a ResourceQuota."""
    yield from resource_name_errors(name, path)
    if "/" not in name and not is_standard_for_quota(name):
        yield invalid(path, name, "must be a standard resource for quota")


def container_resource_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a name that limits a container."""
    yield from resource_name_errors(name, path)
    if "/" not in name:
        if name not in _COMPUTE and not is_huge_page(name):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def quantity_errors(name: str, quantity: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a quantity, which must not be negative, and of a counted resource an integer."""
    value = parse_quantity(quantity).value
    if value < 0:
        yield invalid(path, quantity, "must be greater than or equal to 0")
    if (name in _COUNTED or is_extended(name)) and not is_integer(quantity):
        yield invalid(path, quantity, "must be an integer")
