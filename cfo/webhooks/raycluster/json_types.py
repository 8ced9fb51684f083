"""Check that a RayCluster has the JSON types that the other modules of this package rely on.

API servers call mutating webhooks before they validate an object against its schema, so each field can have any type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import MAX_ERRORS, Path, type_invalid
from cfo.webhooks.raycluster.limits import count_errors
from cfo.webhooks.raycluster.pod_groups import HEAD_GROUP, WORKER_GROUPS

__all__ = ["has_json_types", "json_type_errors"]

_TYPES: Final[Mapping[type, str]] = {dict: "an object", list: "a list", str: "a string"}


def json_type_errors(cluster: Mapping[str, Any]) -> list[FieldError]:
    """Return an error for each field that this package reads and that has the wrong JSON type.

    If ``cluster`` exceeds a limit (:mod:`.limits`), return only the error for that.
    """
    return count_errors(cluster) or list(islice(_spec_errors(cluster.get("spec")), MAX_ERRORS + 1))


def has_json_types(cluster: Mapping[str, Any]) -> bool:
    """Return whether all fields that this package reads have the right JSON types, regardless of the limits."""
    return next(_spec_errors(cluster.get("spec")), None) is None


def _spec_errors(spec: object) -> Iterator[FieldError]:
    path = Path("spec")
    if not isinstance(spec, dict):
        yield from _check(dict, path, spec)
        return
    for name in ("tlsOptions", "authOptions"):
        yield from _check(dict, path.child(name), spec.get(name))
    head = spec.get("headGroupSpec")
    yield from _group_errors(HEAD_GROUP, head)
    if isinstance(head, dict):
        yield from _service_errors(HEAD_GROUP.child("headService"), head.get("headService"))
    yield from _list_errors(WORKER_GROUPS, spec.get("workerGroupSpecs"), _group_errors)


def _service_errors(path: Path, service: object) -> Iterator[FieldError]:
    yield from _check(dict, path, service)
    metadata = service.get("metadata") if isinstance(service, dict) else None
    yield from _check(dict, path.child("metadata"), metadata)
    if isinstance(metadata, dict):
        yield from _check(str, path.child("metadata", "name"), metadata.get("name"))


def _group_errors(path: Path, group: object) -> Iterator[FieldError]:
    for name in ("template", "spec"):
        yield from _check(dict, path, group)
        if not isinstance(group, dict):
            return
        path, group = path.child(name), group.get(name)
    yield from _check(dict, path, group)
    if not isinstance(group, dict):
        return
    yield from _check(str, path.child("serviceAccountName"), group.get("serviceAccountName"))
    yield from _list_errors(path.child("containers"), group.get("containers"), _container_errors)
    yield from _list_errors(path.child("initContainers"), group.get("initContainers"), _command_errors)
    yield from _list_errors(path.child("volumes"), group.get("volumes"), _volume_errors)


def _volume_errors(path: Path, volume: Object) -> Iterator[FieldError]:
    secret = volume.get("secret")
    yield from _check(dict, path.child("secret"), secret)
    if isinstance(secret, dict):
        yield from _check(str, path.child("secret", "secretName"), secret.get("secretName"))


def _container_errors(path: Path, container: Object) -> Iterator[FieldError]:
    for field in ("env", "volumeMounts", "ports"):
        yield from _list_errors(path.child(field), container.get(field))


def _command_errors(path: Path, container: Object) -> Iterator[FieldError]:
    command = container.get("command")
    yield from _check(list, path.child("command"), command)
    for at, word in enumerate(_list(command)):
        yield from _check(str, path.child("command").index(at), word, nullable=False)


def _list_errors(
    path: Path, value: object, item_errors: Callable[[Path, Any], Iterator[FieldError]] | None = None
) -> Iterator[FieldError]:
    """Check a list of objects, and the ``name`` of each of them if it has one."""
    yield from _check(list, path, value)
    for at, item in enumerate(_list(value)):
        if not isinstance(item, dict):
            yield from _check(dict, path.index(at), item, nullable=False)
            continue
        if not isinstance(item.get("name", ""), str):
            yield from _check(str, path.index(at).child("name"), item["name"], nullable=False)
        if item_errors is not None:
            yield from item_errors(path.index(at), item)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _check(expected: type, path: Path, value: object, *, nullable: bool = True) -> Iterator[FieldError]:
    if not isinstance(value, expected) and not (nullable and value is None):
        yield type_invalid(path, value, f"must be {_TYPES[expected]}")
