"""Validates ports, GPUs and volumes of pods: whether they are complete, without duplicates, and suit the settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cfo.api.inferencestack.engines import VLLM
from cfo.api.inferencestack.resolution import is_enabled
from cfo.runtime import FieldError
from cfo.runtime.objects import is_quantity, parse_quantity
from cfo.runtime.objects.field import Path, duplicate, invalid, not_supported, required

_MAX_DIGITS: Final = 9
_MAX_PORT: Final = 65535
_PORT_PROBLEM: Final = f"must be a port: an integer from 1 to {_MAX_PORT}"
_MAX_QUANTITY_LENGTH: Final = 20
_ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_SINGLE_NODE_MODES: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
_GPU_SUFFIX: Final = "/gpu"
_GPU_PREFIXES: Final = ("nvidia.com/mig-", "gpu.intel.com/")
"""The start of the names of GPU resources that do not end with :data:`_GPU_SUFFIX`."""

_DEFAULT_MAX_REPLICAS: Final = 4
_GATEWAY_MOUNTS: Final = ("/code/config.yaml",)
_APPLICATION_MOUNTS: Final = ("/code/config.yaml", "/code/models", "/dev/shm")  # noqa: S108 (paths in the container)
"""The paths at which the operator mounts its own volumes, so no mount of the user can have them."""


def as_integer(value: Any) -> int | None:
    """Return the integer that ``value`` means; ``None`` if it is not a non-negative integer of at most nine digits."""
    if isinstance(value, bool):
        return None
    text = str(value)
    if len(text) > _MAX_DIGITS or not text.isascii() or not text.isdigit():
        return None
    return int(text)


def port_errors(config: Mapping[str, Any], name: str, path: Path) -> Iterator[FieldError]:
    """Yield an error if the parameter ``name`` of a configuration is set and not a port."""
    value = config.get(name)
    if value is None:
        return
    number = as_integer(value)
    if number is None or not 0 < number <= _MAX_PORT:
        yield invalid(path.child(name), value, _PORT_PROBLEM)


def port_list_errors(
    ports: Iterable[Mapping[str, Any]] | None, field: str, path: Path
) -> Iterator[FieldError]:
    """Yield the errors in a list of ports. ``field`` has the number of a port: ``containerPort`` or ``port``."""
    seen: set[tuple[int, str]] = set()
    for index, port in enumerate(ports or ()):
        at = path.index(index).child(field)
        number = port.get(field)
        if number is None:
            yield required(at)
            continue
        if not 0 < number <= _MAX_PORT:
            yield invalid(at, number, _PORT_PROBLEM)
            continue
        key = (number, port.get("protocol") or "TCP")
        if key in seen:
            yield duplicate(at, number)
        seen.add(key)


def _gpu_limits(section: Mapping[str, Any]) -> dict[str, int]:
    """Return the limit of each GPU resource, such as ``nvidia.com/gpu``, ``amd.com/gpu``, or a MIG device.

    Limits that are not valid, or have an exponent, are left out.
    """
    limits = (section.get("resources") or {}).get("limits") or {}
    gpus = {}
    for resource, amount in limits.items():
        is_gpu = resource.endswith(_GPU_SUFFIX) or resource.startswith(_GPU_PREFIXES)
        if not is_gpu:
            continue
        text = str(amount)
        if len(text) > _MAX_QUANTITY_LENGTH or not is_quantity(text):
            continue
        # int() of a short quantity with an exponent can have any number of digits.
        if "e" not in text.lower():
            gpus[resource] = int(parse_quantity(text))
    return gpus


def gpu_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error if the model is spread over more GPUs than each pod has."""
    parallel = (section.get("readerConfig") or {}).get("tensorParallel")
    if parallel is None:
        return
    at = path.child("readerConfig", "tensorParallel")
    count = as_integer(parallel)
    if count is None or count < 1:
        yield invalid(at, parallel, "must be a positive integer")
        return
    gpus = _gpu_limits(section)
    total = sum(gpus.values())
    if gpus and count > total:
        resource = next(iter(gpus))
        detail = f"tensorParallel {count} needs {resource} {count}, limits give {total}"
        yield invalid(at, parallel, detail)


def gpu_warnings(section: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Yield warnings about GPUs that are missing, or that no model uses."""
    reader = section.get("readerConfig") or {}
    total = sum(_gpu_limits(section).values())
    if reader.get("device") == "cuda" and not total:
        yield (
            f"{path}.resources.limits: no GPU, but readerConfig.device is cuda: the pods can be scheduled to nodes "
            "without a free GPU; set a limit such as nvidia.com/gpu: 1"
        )
    if reader.get("device") == "cpu" and section.get("engine") == VLLM.name and total:
        yield f"{path}.readerConfig.device: cpu, so the image of vLLM for CPUs is used, and no GPU of the limits"
    used = as_integer(reader.get("tensorParallel", 1)) or 1
    if total > used and section.get("engine") != "external":
        yield (
            f"{path}.readerConfig.tensorParallel: {used}, but the limits give {total} GPUs: "
            f"{total - used} of them stay idle"
        )


def volume_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the volumes and mounts of ``section``, including its cache or models volume."""
    names = {"config"}  # the operator's own volumes
    cache = section.get("cache")
    if cache is not None:
        names |= {"dshm", "models"}
        yield from _cache_errors(cache, path.child("cache"))
    elif "modelsVolume" in section:
        names.add("dshm")
        volume = section["modelsVolume"]
        at = path.child("modelsVolume")
        yield from unique_errors(volume, "name", at, names)
        sources = [value for key, value in volume.items() if key != "name" and value is not None]
        if not sources:
            yield required(at, "must have a source, such as emptyDir or persistentVolumeClaim")
    for index, volume in enumerate(section.get("volumes") or ()):
        yield from unique_errors(volume, "name", path.child("volumes").index(index), names)
    paths = set(_GATEWAY_MOUNTS)
    if cache is not None or "modelsVolume" in section:
        paths = set(_APPLICATION_MOUNTS)
    for index, mount in enumerate(section.get("volumeMounts") or ()):
        yield from unique_errors(mount, "mountPath", path.child("volumeMounts").index(index), paths)


def unique_errors(
    item: Mapping[str, Any], key: str, path: Path, seen: set[str]
) -> Iterator[FieldError]:
    """Yield an error if the field ``key`` of a list item is not set, or if ``seen`` already has its value.

    A new value is added to ``seen``.
    """
    value = item.get(key)
    if not value:
        yield required(path.child(key))
    elif value in seen:
        yield duplicate(path.child(key), value)
    else:
        seen.add(value)


def _cache_errors(cache: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    size = cache.get("size")
    if size is None:
        yield required(path.child("size"))
    elif not _is_positive_quantity(str(size)):
        yield invalid(path.child("size"), size, "must be a positive quantity such as 50Gi")
    for index, mode in enumerate(cache.get("accessModes") or ()):
        if mode not in _ACCESS_MODES:
            yield not_supported(path.child("accessModes").index(index), mode, _ACCESS_MODES)


def _is_positive_quantity(text: str) -> bool:
    if len(text) > _MAX_QUANTITY_LENGTH or not is_quantity(text):
        return False
    return parse_quantity(text) > 0


def volume_warnings(section: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Yield warnings about volumes that can make pods fail or wait."""
    empty = (section.get("modelsVolume") or {}).get("emptyDir") or {}
    limits = (section.get("resources") or {}).get("limits") or {}
    is_in_memory = empty.get("medium") == "Memory"
    if is_in_memory and "memory" not in limits and not empty.get("sizeLimit"):
        yield (
            f"{path}.modelsVolume: the model is in memory, and without sizeLimit or resources.limits.memory it "
            "can use all memory of the node"
        )
    cache = section.get("cache")
    if not cache:
        return
    modes = set(cache.get("accessModes") or ["ReadWriteOnce"])
    if modes <= _SINGLE_NODE_MODES and _can_have_replicas(section):
        yield (
            f"{path}.cache.accessModes: the volume can be mounted on one node only, but the application can have "
            "several replicas"
        )


def _can_have_replicas(section: Mapping[str, Any]) -> bool:
    """Return whether an application can have more than one replica."""
    scaling = section.get("scaling") or {}
    if is_enabled(scaling):
        count = (scaling.get("spec") or {}).get("maxReplicaCount", _DEFAULT_MAX_REPLICAS)
    else:
        count = section.get("replicaCount")
    return isinstance(count, int) and count > 1
