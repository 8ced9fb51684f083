"""What a pod asks for, as quotas and limit ranges count it.

As ``k8s.io/component-helpers/resource``: containers run side by side, init containers one after the other unless they
stay (``restartPolicy: Always``), and the overhead of the runtime class comes on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from envtest.objects import Object
from envtest.schema.quantity import Quantity, parse_quantity

__all__ = ["Quantities", "add", "pod_resources", "quantities", "written"]

Quantities = dict[str, Quantity]


def quantities(texts: Mapping[str, Any] | None) -> Quantities:
    """Reads a ``ResourceList``."""
    return {name: parse_quantity(str(text)) for name, text in (texts or {}).items()}


def add(left: Quantities, right: Mapping[str, Quantity]) -> Quantities:
    """The sums; what only one has stays as it is."""
    total = dict(left)
    for name, quantity in right.items():
        known = total.get(name)
        total[name] = quantity if known is None else Quantity(known.value + quantity.value, known.family)
    return total


def _largest(each: Iterable[Mapping[str, Quantity]]) -> Quantities:
    largest: Quantities = {}
    for resources in each:
        for name, quantity in resources.items():
            if name not in largest or quantity.value > largest[name].value:
                largest[name] = quantity
    return largest


def pod_resources(pod: Object, which: Literal["requests", "limits"]) -> Quantities:
    """The whole pod's requests or limits."""
    spec = pod.get("spec") or {}
    running: Quantities = {}
    for container in spec.get("containers") or ():
        running = add(running, _of(container, which))
    staying: Quantities = {}
    starting: list[Quantities] = []
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            staying = add(staying, _of(container, which))
            starting.append(staying)
        else:
            starting.append(add(staying, _of(container, which)))
    total = _largest([add(running, staying), *starting])
    overhead = quantities(spec.get("overhead"))
    if which == "limits":  # what is not limited stays so
        overhead = {name: quantity for name, quantity in overhead.items() if name in total}
    return add(total, overhead)


def _of(container: Mapping[str, Any], which: str) -> Quantities:
    return quantities((container.get("resources") or {}).get(which))


def written(resources: Mapping[str, Quantity]) -> dict[str, str]:
    """A ``ResourceList``, sorted by name."""
    return {name: str(resources[name]) for name in sorted(resources)}
