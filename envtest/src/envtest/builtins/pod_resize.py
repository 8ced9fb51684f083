"""The subresources of pods that change one part of the spec: ``resize`` and ``ephemeralcontainers``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from envtest.apimachinery.field_errors import FieldError, forbidden, invalid
from envtest.apimachinery.objects import Object
from envtest.builtins.go_rendering import difference
from envtest.builtins.pod_resources import qos_class
from envtest.schema.quantity import parse_quantity
from envtest.schema.shaping import copy_json

__all__ = [
    "ephemeral_container_change_errors",
    "keep_ephemeral_containers",
    "keep_resources",
    "resize_errors",
]

_MIRROR: Final = "kubernetes.io/config.mirror"
_KINDS: Final = ("containers", "initContainers")
_RESIZABLE: Final = ("cpu", "memory")
_METADATA: Final = (
    "deletionTimestamp",
    "generation",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
)


def _keep_rest(new: Object, old: Object) -> None:
    """Restore the status and most metadata, which these subresources do not change."""
    new["status"] = copy_json(old["status"])
    for name in _METADATA:
        _restore(new["metadata"], old["metadata"], name)


def _restore(new: Object, old: Mapping[str, Any], name: str) -> None:
    if name in old:
        new[name] = copy_json(old[name])
    else:
        new.pop(name, None)


def keep_ephemeral_containers(new: Object, old: Object) -> None:
    """Restore everything except the ephemeral containers, in place."""
    containers = new["spec"].get("ephemeralContainers")
    new["spec"] = copy_json(old["spec"])
    new["spec"].pop("ephemeralContainers", None)
    if containers:
        new["spec"]["ephemeralContainers"] = containers
    _keep_rest(new, old)


def keep_resources(new: Object, old: Object) -> None:
    """Restore everything except resources and resize policies, in place, unless containers are added or renamed.

    Validation rejects the latter.
    """
    wanted = new["spec"]
    if any(_names(wanted, kind) != _names(old["spec"], kind) for kind in _KINDS):
        return
    spec = copy_json(old["spec"])
    for kind in _KINDS:
        for container, changed in zip(spec.get(kind) or (), wanted.get(kind) or (), strict=True):
            for name in ("resources", "resizePolicy"):
                _restore(container, changed, name)
    _restore(spec, wanted, "resources")
    new["spec"] = spec
    _keep_rest(new, old)


def _names(spec: Mapping[str, Any], kind: str) -> list[str]:
    return [container.get("name") or "" for container in spec.get(kind) or ()]


def ephemeral_container_change_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of an update of the ephemeral containers, which can only be added."""
    if _MIRROR in (old["metadata"].get("annotations") or {}):
        yield forbidden("[]", "static pods do not support ephemeral containers")
        return
    containers = {
        each.get("name") or "": each for each in new["spec"].get("ephemeralContainers") or ()
    }
    for previous in old["spec"].get("ephemeralContainers") or ():
        name = previous.get("name") or ""
        current = containers.get(name)
        if current is None:
            text = f'existing ephemeral containers "{name}" may not be removed\n'
            yield forbidden("spec.ephemeralContainers", text)
        elif current != previous:
            text = f'existing ephemeral containers "{name}" may not be changed\n{difference(previous, current)}'
            yield forbidden("spec.ephemeralContainers", text)


def resize_errors(new: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of a resize: only cpu and memory may change, and neither may be removed."""
    if _MIRROR in (old["metadata"].get("annotations") or {}):
        yield forbidden("[]", "static pods cannot be resized")
        return
    if (old["spec"].get("os") or {}).get("name") == "windows":
        yield forbidden("[]", "windows pods cannot be resized")
        return
    mismatches = list(_membership_errors(new["spec"], old["spec"]))
    if mismatches:
        yield from mismatches
        return
    previous_class = (old.get("status") or {}).get("qosClass") or qos_class(old["spec"])
    if qos_class(new["spec"]) != previous_class:
        yield invalid(
            "spec", previous_class, "Pod QOS Class may not change as a result of resizing"
        )
    if not _node_supports_resize(old):
        yield forbidden("spec", "Pod running on node without support for resize")
    yield from _requirement_errors(new["spec"], old["spec"], "spec.resources")
    for kind in _KINDS:
        for position, (container, previous) in enumerate(_pairs(new["spec"], old["spec"], kind)):
            if kind == "containers" or previous.get("restartPolicy") == "Always":
                yield from _requirement_errors(
                    container, previous, f"spec.{kind}[{position}].resources"
                )
    for container, previous in _pairs(new["spec"], old["spec"], "containers"):
        if _without_resizable(container) != _without_resizable(previous):
            yield forbidden("spec", "only cpu and memory resources are mutable")
    for container, previous in _pairs(new["spec"], old["spec"], "initContainers"):
        if container.get("restartPolicy") == "Always":
            if _without_resizable(container) != _without_resizable(previous):
                yield forbidden(
                    "spec", "only cpu and memory resources for sidecar containers are mutable"
                )
        elif container != previous:
            yield forbidden("spec", "resources for non-sidecar init containers are immutable")


def _pairs(new: Object, old: Object, kind: str) -> Iterator[tuple[Object, Object]]:
    return zip(new.get(kind) or (), old.get(kind) or (), strict=True)


def _membership_errors(new: Object, old: Object) -> Iterator[FieldError]:
    for kind in _KINDS:
        before = _names(old, kind)
        after = _names(new, kind)
        if len(before) != len(after):
            yield forbidden(f"spec.{kind}", f"{kind} may not be added or removed on resize")
        elif before != after:
            yield forbidden(f"spec.{kind}", f"{kind} may not be renamed or reordered on resize")


def _node_supports_resize(pod: Object) -> bool:
    """Return whether the kubelet reports the resources of running containers, as it does if it can resize them."""
    statuses: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or ()
    for status in statuses:
        if (status.get("state") or {}).get("running") is not None:
            return status.get("resources") is not None
    return True


def _requirement_errors(
    new: Mapping[str, Any], old: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    for part in ("requests", "limits"):
        before = _part(old, part)
        after = _part(new, part)
        if not before.keys() <= after.keys():
            yield forbidden(f"{path}.{part}", f"resource {part} cannot be removed")


def _part(owner: Mapping[str, Any], part: str) -> Mapping[str, str]:
    quantities: Mapping[str, str] = (owner.get("resources") or {}).get(part) or {}
    return quantities


def _without_resizable(container: Mapping[str, Any]) -> Object:
    """Return a container without its cpu and memory, with other quantities as values that can be compared."""
    resources = container.get("resources") or {}
    rest: Object = {}
    for part in ("limits", "requests"):
        rest[part] = {
            name: parse_quantity(text).value
            for name, text in _part(container, part).items()
            if name not in _RESIZABLE
        }
    return {**container, "resources": {**resources, **rest}, "resizePolicy": None}
