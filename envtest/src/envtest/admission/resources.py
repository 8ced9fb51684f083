"""The resource requests and limits of a pod, as quotas and limit ranges count them.

Follows ``k8s.io/component-helpers/resource``: containers run in parallel, init containers one after another unless they
are sidecars (``restartPolicy: Always``), and the overhead of the runtime class is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from envtest.apimachinery.objects import Object
from envtest.schema.quantity import Quantity, parse_quantity

__all__ = ["Quantities", "add", "format_quantities", "parse_quantities", "pod_resources"]

Quantities = dict[str, Quantity]


def parse_quantities(texts: Mapping[str, Any] | None) -> Quantities:
    """Parse a ``ResourceList``."""
    return {name: parse_quantity(str(text)) for name, text in (texts or {}).items()}


def add(left: Quantities, right: Mapping[str, Quantity]) -> Quantities:
    """Return the sum; a resource that is only on one side keeps its value."""
    total = dict(left)
    for name, quantity in right.items():
        known = total.get(name)
        if known is None or known.value == 0:  # zero takes the format of what is added
            total[name] = quantity
        else:
            total[name] = Quantity(known.value + quantity.value, known.family)
    return total


def _largest(each: Iterable[Mapping[str, Quantity]]) -> Quantities:
    largest: Quantities = {}
    for resources in each:
        for name, quantity in resources.items():
            if name not in largest or quantity.value > largest[name].value:
                largest[name] = quantity
    return largest


def pod_resources(pod: Object, which: Literal["requests", "limits"]) -> Quantities:
    """Return the requests or limits of the whole pod."""
    spec = pod.get("spec") or {}
    running: Quantities = {}
    for container in spec.get("containers") or ():
        running = add(running, _of(container, which))
    sidecars: Quantities = {}
    starting: list[Quantities] = []
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars = add(sidecars, _of(container, which))
            starting.append(sidecars)
        else:
            starting.append(add(sidecars, _of(container, which)))
    total = _largest([add(running, sidecars), *starting])
    overhead = parse_quantities(spec.get("overhead"))
    if which == "limits":  # a resource without a limit stays unlimited
        overhead = {name: quantity for name, quantity in overhead.items() if name in total}
    return add(total, overhead)


def _of(container: Mapping[str, Any], which: str) -> Quantities:
    return parse_quantities((container.get("resources") or {}).get(which))


def format_quantities(resources: Mapping[str, Quantity]) -> dict[str, str]:
    """Return a ``ResourceList``, sorted by name."""
    return {name: str(resources[name]) for name in sorted(resources)}
