"""The groups of a RayCluster, each with its pod template: the head, and the workers.

Mutating webhooks see an object before its schema is checked, so anything may stand anywhere: :func:`shape_errors` says
whether the rest of this package can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cfo.runtime.field import FieldError, Path, type_invalid
from cfo.runtime.objects import Object
from cfo.webhooks.raycluster.parts import PodSpec

__all__ = ["Group", "groups_of", "shape_errors"]

_HEAD = Path("spec", "headGroupSpec")
_WORKERS = Path("spec", "workerGroupSpecs")
_TYPES: Final[Mapping[type, str]] = {dict: "an object", list: "a list", str: "a string"}


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
        yield from _not(dict, path, spec)
        return
    for name in ("tlsOptions", "authOptions"):
        yield from _not(dict, path.child(name), spec.get(name))
    head = spec.get("headGroupSpec")
    yield from _group_errors(_HEAD, head)
    if isinstance(head, dict):
        yield from _service_errors(_HEAD.child("headService"), head.get("headService"))
    yield from _entry_errors(_WORKERS, spec.get("workerGroupSpecs"), _group_errors)


def _service_errors(path: Path, service: object) -> Iterator[FieldError]:
    yield from _not(dict, path, service)
    metadata = service.get("metadata") if isinstance(service, dict) else None
    yield from _not(dict, path.child("metadata"), metadata)
    if isinstance(metadata, dict):
        yield from _not(str, path.child("metadata", "name"), metadata.get("name"))


def _group_errors(path: Path, group: object) -> Iterator[FieldError]:
    for name in ("template", "spec"):
        yield from _not(dict, path, group)
        if not isinstance(group, dict):
            return
        path, group = path.child(name), group.get(name)
    yield from _not(dict, path, group)
    if not isinstance(group, dict):
        return
    yield from _not(str, path.child("serviceAccountName"), group.get("serviceAccountName"))
    yield from _entry_errors(path.child("containers"), group.get("containers"), _container_errors)
    yield from _entry_errors(path.child("initContainers"), group.get("initContainers"), _command_errors)
    yield from _entry_errors(path.child("volumes"), group.get("volumes"), _volume_errors)


def _volume_errors(path: Path, volume: Object) -> Iterator[FieldError]:
    secret = volume.get("secret")
    yield from _not(dict, path.child("secret"), secret)
    if isinstance(secret, dict):
        yield from _not(str, path.child("secret", "secretName"), secret.get("secretName"))


def _container_errors(path: Path, container: Object) -> Iterator[FieldError]:
    for field in ("env", "volumeMounts"):
        yield from _entry_errors(path.child(field), container.get(field))


def _command_errors(path: Path, container: Object) -> Iterator[FieldError]:
    command = container.get("command")
    yield from _not(list, path.child("command"), command)
    for at, word in enumerate(_list(command)):
        yield from _not(str, path.child("command").index(at), word, nothing_is_fine=False)


def _entry_errors(
    path: Path, value: object, more: Callable[[Path, Any], Iterator[FieldError]] | None = None
) -> Iterator[FieldError]:
    """What is wrong with a list of objects, and with what may be the name of one."""
    yield from _not(list, path, value)
    for at, item in enumerate(_list(value)):
        if not isinstance(item, dict):
            yield from _not(dict, path.index(at), item, nothing_is_fine=False)
            continue
        if not isinstance(item.get("name", ""), str):
            yield from _not(str, path.index(at).child("name"), item["name"], nothing_is_fine=False)
        if more is not None:
            yield from more(path.index(at), item)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _not(wanted: type, path: Path, value: object, *, nothing_is_fine: bool = True) -> Iterator[FieldError]:
    if not isinstance(value, wanted) and not (nothing_is_fine and value is None):
        yield type_invalid(path, value, f"must be {_TYPES[wanted]}")
