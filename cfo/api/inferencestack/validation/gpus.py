"""Whether the GPUs of an application's pods suit the configuration of its reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cfo.api.inferencestack.validation.integers import as_integer
from cfo.api.quantity import is_quantity, parse_quantity
from cfo.runtime import FieldError
from cfo.runtime.objects.field import Path, invalid

__all__ = ["gpu_errors", "gpu_warnings"]

_MAX_QUANTITY_LENGTH = 20


def _gpu_limits(section: Mapping[str, Any]) -> dict[str, int]:
    """Return the limit of each GPU resource: ``nvidia.com/gpu``, ``amd.com/gpu``, or a MIG device."""
    limits = (section.get("resources") or {}).get("limits") or {}
    gpus = {}
    for resource, amount in limits.items():
        is_gpu = resource.endswith("/gpu") or resource.startswith(("nvidia.com/mig-", "gpu.intel.com/"))
        text = str(amount)
        if is_gpu and len(text) <= _MAX_QUANTITY_LENGTH and is_quantity(text) and "e" not in text.lower():
            gpus[resource] = int(parse_quantity(text))
    return gpus


def gpu_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error if the model is spread over more GPUs than the pods have."""
    parallel = (section.get("readerConfig") or {}).get("tensorParallel")
    if parallel is None:
        return
    at = path.child("readerConfig", "tensorParallel")
    count = as_integer(parallel)
    if count is None or count < 1:
        yield invalid(at, parallel, "must be a positive integer")
        return
    gpus = _gpu_limits(section)
    if gpus and count > sum(gpus.values()):
        resource = next(iter(gpus))
        yield invalid(
            at, parallel, f"tensorParallel {count} needs {resource} {count}, limits give {sum(gpus.values())}"
        )


def gpu_warnings(section: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Yield warnings about GPUs that are missing, or that no model uses."""
    reader = section.get("readerConfig") or {}
    gpus = _gpu_limits(section)
    if reader.get("device") == "cuda" and not sum(gpus.values()):
        yield (
            f"{path}.resources.limits: no GPU, but readerConfig.device is cuda: the pods can be scheduled to nodes "
            "without a free GPU; set a limit such as nvidia.com/gpu: 1"
        )
    used = as_integer(reader.get("tensorParallel", 1)) or 1
    if sum(gpus.values()) > used and section.get("engine") != "external":
        yield (
            f"{path}.readerConfig.tensorParallel: {used}, but the limits give {sum(gpus.values())} GPUs: "
            f"{sum(gpus.values()) - used} of them stay idle"
        )
