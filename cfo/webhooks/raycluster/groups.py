"""The groups of a RayCluster, each with its pod template: the head, and the workers.

Mutating webhooks see an object before its schema is checked, so anything may stand anywhere: :func:`shape_errors` says
whether the rest of this package can read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cfo.runtime.objects import Object
from cfo.runtime.webhook.field import FieldError, Path, type_invalid
from cfo.webhooks.raycluster.parts import PodSpec

__all__ = ["Group", "groups_of", "shape_errors"]

_HEAD = Path("spec", "headGroupSpec")
_WORKERS = Path("spec", "workerGroupSpecs")


@dataclass(frozen=True, slots=True)
class Group:
    """One group. ``name`` is empty for the head; ``pod`` is the pod spec of its template."""

    path: Path
    name: str
    is_head: bool
    pod: PodSpec

    @property
    def pod_path(self) -> Path:
        """The path of :attr:`pod`."""
        return self.path.child("template", "spec")

    def counterpart(self, others: list[Group]) -> Group | None:
        """The same group in another state of the cluster."""
        return next((other for other in others if (other.is_head, other.name) == (self.is_head, self.name)), None)


def groups_of(cluster: Mapping[str, Any]) -> list[Group]:
    """The groups of ``cluster``, the head first, with the pod specs that are in it."""
    return list(_groups(cluster.get("spec") or {}))


def _groups(spec: Mapping[str, Any]) -> Iterator[Group]:
    yield Group(_HEAD, "", True, _pod(spec.get("headGroupSpec")))
    for at, group in enumerate(spec.get("workerGroupSpecs") or ()):
        yield Group(_WORKERS.index(at), str(group.get("groupName") or f"#{at}"), False, _pod(group))


def _pod(group: Mapping[str, Any] | None) -> PodSpec:
    pod: PodSpec = ((group or {}).get("template") or {}).get("spec") or {}
    return pod


def shape_errors(cluster: Mapping[str, Any]) -> list[FieldError]:
    """What has not the JSON type that a RayCluster has there, as far as this package looks at it."""
    return list(_spec_errors(cluster.get("spec")))


def _spec_errors(spec: object) -> Iterator[FieldError]:
    path = Path("spec")
    if not isinstance(spec, dict):
        yield from _not_an_object(path, spec)
        return
    for name in ("tlsOptions", "authOptions"):
        yield from _not_an_object(path.child(name), spec.get(name))
    yield from _group_errors(_HEAD, spec.get("headGroupSpec"))
    workers = spec.get("workerGroupSpecs")
    yield from _not_a_list(_WORKERS, workers)
    for at, group in enumerate(workers if isinstance(workers, list) else ()):
        if isinstance(group, dict):
            yield from _group_errors(_WORKERS.index(at), group)


def _group_errors(path: Path, group: object) -> Iterator[FieldError]:
    for name in ("template", "spec"):
        yield from _not_an_object(path, group)
        if not isinstance(group, dict):
            return
        path, group = path.child(name), group.get(name)
    yield from _not_an_object(path, group)
    if not isinstance(group, dict):
        return
    for field in ("containers", "initContainers", "volumes"):
        yield from _not_a_list(path.child(field), group.get(field))
    for at, volume in enumerate(_objects(group.get("volumes"))):
        yield from _not_an_object(path.child("volumes").index(at).child("secret"), volume.get("secret"))
    for at, container in enumerate(_objects(group.get("containers"))):
        for field in ("env", "volumeMounts"):
            yield from _not_a_list(path.child("containers").index(at).child(field), container.get(field))


def _objects(value: object) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _not_an_object(path: Path, value: object) -> Iterator[FieldError]:
    if value is not None and not isinstance(value, dict):
        yield type_invalid(path, value, "must be an object")


def _not_a_list(path: Path, value: object) -> Iterator[FieldError]:
    if value is None:
        return
    if not isinstance(value, list):
        yield type_invalid(path, value, "must be a list of objects")
        return
    for at, item in enumerate(value):
        if not isinstance(item, dict):
            yield type_invalid(path.index(at), item, "must be an object")
