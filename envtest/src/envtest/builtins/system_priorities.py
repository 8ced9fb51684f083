"""The PriorityClasses that every control plane has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from envtest.apimachinery.objects import Object

__all__ = ["SYSTEM_PRIORITIES", "system_priority_classes"]

SYSTEM_PRIORITIES: Final = {
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
}
"""Name to value and description."""


def system_priority_classes() -> Iterator[Object]:
    """Yield the classes as a client would create them."""
    for name, (value, description) in SYSTEM_PRIORITIES.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
        }
