"""Whether the volumes of an application or the gateway are complete and have different names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.inferencestack.resolution import is_enabled
from cfo.api.quantity import is_quantity, parse_quantity
from cfo.runtime import FieldError
from cfo.runtime.objects.field import Path, duplicate, invalid, not_supported, required

__all__ = ["volume_errors", "volume_warnings"]

_ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_SINGLE_NODE: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
_MAX_QUANTITY_LENGTH: Final = 20
_GATEWAY_MOUNTS: Final = ("/code/config.yaml",)
_APPLICATION_MOUNTS: Final = ("/code/config.yaml", "/code/models", "/dev/shm")  # noqa: S108 (paths in the container)


def volume_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the volumes of ``section``, with its models volume or cache."""
    names = {"config"}
    cache = section.get("cache")
    if cache is not None:
        names |= {"dshm", "models"}
        yield from _cache_errors(cache, path.child("cache"))
    elif "modelsVolume" in section:
        names.add("dshm")
        yield from _key_errors(section["modelsVolume"], "name", path.child("modelsVolume"), names)
        if not any(value is not None for key, value in section["modelsVolume"].items() if key != "name"):
            yield required(path.child("modelsVolume"), "must have a source, such as emptyDir or persistentVolumeClaim")
    for index, volume in enumerate(section.get("volumes") or ()):
        yield from _key_errors(volume, "name", path.child("volumes").index(index), names)
    paths = set(_APPLICATION_MOUNTS if cache is not None or "modelsVolume" in section else _GATEWAY_MOUNTS)
    for index, mount in enumerate(section.get("volumeMounts") or ()):
        yield from _key_errors(mount, "mountPath", path.child("volumeMounts").index(index), paths)


def _key_errors(item: Mapping[str, Any], key: str, path: Path, seen: set[str]) -> Iterator[FieldError]:
    """Yield an error if the field ``key`` of a list item is not set, or is in ``seen``, to which it is added."""
    value = item.get(key)
    if not value:
        yield required(path.child(key))
    elif value in seen:
        yield duplicate(path.child(key), value)
    else:
        seen.add(value)


def _cache_errors(cache: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    size = cache.get("size")
    text = str(size)
    if size is None:
        yield required(path.child("size"))
    elif len(text) > _MAX_QUANTITY_LENGTH or not is_quantity(text) or parse_quantity(text) <= 0:
        yield invalid(path.child("size"), size, "must be a positive quantity such as 50Gi")
    for index, mode in enumerate(cache.get("accessModes") or ()):
        if mode not in _ACCESS_MODES:
            yield not_supported(path.child("accessModes").index(index), mode, _ACCESS_MODES)


def volume_warnings(section: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Yield warnings about volumes that can make pods fail or wait."""
    empty = (section.get("modelsVolume") or {}).get("emptyDir")
    limits = (section.get("resources") or {}).get("limits") or {}
    if empty and empty.get("medium") == "Memory" and "memory" not in limits and not empty.get("sizeLimit"):
        yield (
            f"{path}.modelsVolume: the model is in memory, and without sizeLimit or resources.limits.memory it "
            "can use all memory of the node"
        )
    cache = section.get("cache")
    if cache and set(cache.get("accessModes") or ["ReadWriteOnce"]) <= _SINGLE_NODE and _can_have_replicas(section):
        yield (
            f"{path}.cache.accessModes: the volume can be mounted on one node only, but the application can have "
            "several replicas"
        )


def _can_have_replicas(section: Mapping[str, Any]) -> bool:
    scaling = section.get("scaling") or {}
    count = (
        (scaling.get("spec") or {}).get("maxReplicaCount", 4) if is_enabled(scaling) else section.get("replicaCount")
    )
    return isinstance(count, int) and count > 1
