"""Adds, finds, restores and removes entries of a pod template.

Entries are identified by name, and added as copies. An entry with the name of an addition is replaced at its position;
everything else keeps its value and position. Adding is therefore idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import msgspec

from cfo.api.raycluster.cluster import PROXY_CONTAINERS
from cfo.api.reading import text
from cfo.runtime import Object
from cfo.runtime.objects import copied

PodSpec: TypeAlias = dict[str, Any]

_MISSING: Final = object()
_MAX_STEPS: Final = 5
_MAX_STEP: Final = 63
"""The maximum numbers of steps in a path, and of characters in a step."""


def ray_container_index(pod: Mapping[str, Any]) -> int | None:
    """Return the index of the container that runs Ray: the first container, as in KubeRay, ignoring proxies."""
    containers: Sequence[Object] = pod.get("containers") or ()
    for at, container in enumerate(containers):
        if container.get("name") not in PROXY_CONTAINERS:
            return at
    return None


def are_equal_entries(one: Object, other: Object) -> bool:
    """Return whether both entries are equal, apart from an empty ``resources``, which Go adds to every container."""
    return one == other or _without_empty_resources(one) == _without_empty_resources(other)


def first_difference(one: Object, other: Object) -> str:
    """Return the path of the first field in which unequal entries differ, of at most five steps: ``env[0].value``."""
    left: Any = _without_empty_resources(one)
    right: Any = _without_empty_resources(other)
    steps: list[str] = []
    while len(steps) < _MAX_STEPS:
        if isinstance(left, dict) and isinstance(right, dict):
            fields = dict.fromkeys([*right, *left])
            key = next(key for key in fields if not _are_equal_fields(left, right, key))
            steps.append(f".{text(key, _MAX_STEP)}")
            left, right = left.get(key), right.get(key)
        elif isinstance(left, list) and isinstance(right, list):
            pairs = enumerate(zip_longest(left, right, fillvalue=_MISSING))
            position, left, right = next((at, *pair) for at, pair in pairs if pair[0] != pair[1])
            steps.append(f"[{position}]")
        else:
            break
    return "".join(steps).removeprefix(".")


def _are_equal_fields(one: Object, other: Object, key: str) -> bool:
    return (key in one) == (key in other) and one.get(key) == other.get(key)


def _without_empty_resources(item: Object) -> Object:
    return {key: value for key, value in item.items() if not (key == "resources" and not value)}


class PodChange(msgspec.Struct, frozen=True):
    """The entries of one field of a pod template that were changed. ``field`` is a path relative to the pod spec.

    ``names`` are the entries that were replaced or removed, ``missing`` those that did not exist and were added.
    """

    field: str
    names: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class PodAdditions(msgspec.Struct, frozen=True, kw_only=True):
    """The entries that one feature adds to one pod template; ``env`` and ``mounts`` belong to the Ray container."""

    containers: tuple[Object, ...] = ()
    init_containers: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    env: tuple[Object, ...] = ()
    mounts: tuple[Object, ...] = ()
    service_account: str = ""

    def were_added_to(self, pod: Mapping[str, Any]) -> bool:
        """Return whether any version of the operator has added these entries to ``pod``.

        Decided by the names of the containers and the Secrets of the volumes.
        """
        expected_secrets = _secrets(self.volumes) - {None}
        return (
            _names(self.containers) <= _names(pod.get("containers"))
            and _names(self.init_containers) <= _names(pod.get("initContainers"))
            and expected_secrets <= _secrets(pod.get("volumes"))
        )

    def found_in(self, pod: Mapping[str, Any]) -> PodAdditions:
        """Return the entries of ``pod`` with the same names; those that do not exist are left out."""
        at = ray_container_index(pod)
        ray: Mapping[str, Any] = pod["containers"][at] if at is not None else {}
        service_account = ""
        if self.service_account:
            service_account = str(pod.get("serviceAccountName") or "")
        return PodAdditions(
            containers=_with_same(_name, self.containers, pod.get("containers")),
            init_containers=_with_same(_name, self.init_containers, pod.get("initContainers")),
            volumes=_with_same(_name, self.volumes, pod.get("volumes")),
            env=_with_same(_name, self.env, ray.get("env")),
            mounts=_with_same(mount_key, self.mounts, ray.get("volumeMounts")),
            service_account=service_account,
        )

    def add_to(self, pod: PodSpec, former: PodAdditions | None = None) -> list[PodChange]:
        """Add these entries to ``pod``, and return which other entries were replaced and which were missing.

        Entries that equal those in ``former`` were not written by the user; replacing them is not a change.
        """
        former = former or PodAdditions()
        changes = [
            _add(pod, "containers", self.containers, _upsert, former.containers),
            _add(pod, "volumes", self.volumes, _upsert, former.volumes),
        ]
        at = ray_container_index(pod)
        if at is not None and (self.env or self.mounts):
            ray = pod["containers"][at]
            path = f"containers[{at}]."
            changes += [
                _add(ray, "env", self.env, _upsert, former.env, path),
                _add(ray, "volumeMounts", self.mounts, _upsert_mount, former.mounts, path),
            ]
        changes.append(
            _add(pod, "initContainers", self.init_containers, _upsert, former.init_containers)
        )
        current = str(pod.get("serviceAccountName") or "")
        if self.service_account and current != self.service_account:
            pod["serviceAccountName"] = self.service_account
            if current:
                change = PodChange("serviceAccountName", names=(current,))
            else:
                change = PodChange("serviceAccountName", missing=(self.service_account,))
            changes.append(change)
        return [change for change in changes if change.names or change.missing]

    def remove_from(self, pod: PodSpec) -> list[PodChange]:
        """Remove the entries that equal these from ``pod``, and return which ones were removed."""
        changes = [
            _remove(pod, "containers", self.containers),
            _remove(pod, "volumes", self.volumes),
            _remove(pod, "initContainers", self.init_containers),
        ]
        at = ray_container_index(pod)
        if at is not None:
            ray = pod["containers"][at]
            path = f"containers[{at}]."
            changes += [
                _remove(ray, "env", self.env, path),
                _remove(ray, "volumeMounts", self.mounts, path),
            ]
        if self.service_account and pod.get("serviceAccountName") == self.service_account:
            del pod["serviceAccountName"]
            changes.append(PodChange("serviceAccountName", (self.service_account,)))
        return [change for change in changes if change.names]


class _Upsert(Enum):
    """The result of writing one entry into a list."""

    ADDED = auto()
    """The list had no such entry."""
    EXPECTED = auto()
    """The list had this entry, or the one that the operator injected before."""
    REPLACED = auto()
    """The list had a different entry, or several entries, which were replaced."""


_UpsertFunction: TypeAlias = Callable[[list[Object], Object, Sequence[Object]], _Upsert]


def _names(items: Iterable[Object] | None) -> set[Any]:
    return {_name(item) for item in items or ()}


def _name(item: Object) -> Any:
    return item.get("name")


def _secrets(volumes: Iterable[Object] | None) -> set[Any]:
    """Return the names of the Secrets that ``volumes`` contain, and ``None`` if one has another source."""
    return {(volume.get("secret") or {}).get("secretName") for volume in volumes or ()}


def _with_same(
    key: Callable[[Object], Any], additions: Iterable[Object], items: Iterable[Object] | None
) -> tuple[Object, ...]:
    """Return, for each addition, the first item with the same ``key``, if there is one."""
    found = {key(item): item for item in reversed(list(items or ()))}
    return tuple(found[key(addition)] for addition in additions if key(addition) in found)


def mount_key(mount: Object) -> tuple[Any, str]:
    """Return the volume and the path of ``mount``; two mounts of one volume at one path are the same mount."""
    return mount.get("name"), _path(mount)


def _path(mount: Object) -> str:
    return str(mount.get("mountPath") or "").rstrip("/")


def _add(
    owner: Object,
    field: str,
    additions: Sequence[Object],
    upsert: _UpsertFunction,
    former: Sequence[Object],
    path: str = "",
) -> PodChange:
    items = list(owner.get(field) or ())
    results = {str(addition["name"]): upsert(items, addition, former) for addition in additions}
    if items != (owner.get(field) or []):
        owner[field] = items
    replaced = tuple(name for name, result in results.items() if result is _Upsert.REPLACED)
    added = tuple(name for name, result in results.items() if result is _Upsert.ADDED)
    return PodChange(f"{path}{field}", names=replaced, missing=added)


def _upsert(items: list[Object], addition: Object, former: Sequence[Object]) -> _Upsert:
    """Replace the item that has the name of ``addition`` in its place, or append ``addition``."""
    name = addition["name"]
    places = [at for at, item in enumerate(items) if item.get("name") == name]
    if not places:
        items.append(copied(addition))
        return _Upsert.ADDED
    first = places[0]
    has_others = len(places) > 1
    current = items[first]
    is_expected = are_equal_entries(current, addition)
    if not is_expected:
        items[first] = copied(addition)
    # Of several environment variables of one name the last wins, so the others are removed.
    if has_others:
        items[first + 1 :] = [item for item in items[first + 1 :] if item.get("name") != name]
        return _Upsert.REPLACED
    if is_expected or _is_one_of(current, former):
        return _Upsert.EXPECTED
    return _Upsert.REPLACED


def _upsert_mount(items: list[Object], addition: Object, former: Sequence[Object]) -> _Upsert:
    """Like :func:`_upsert`, but a volume may have several mounts, and only one of them can have the path."""
    place = _place_of_mount(items, addition)
    if place is None:
        items.append(copied(addition))
        return _Upsert.ADDED
    result = _Upsert.EXPECTED
    current = items[place]
    if not are_equal_entries(current, addition):
        items[place] = copied(addition)
        if not _is_one_of(current, former):
            result = _Upsert.REPLACED
    path = _path(addition)
    kept = [item for at, item in enumerate(items) if at == place or _path(item) != path]
    if len(kept) < len(items):
        items[:] = kept
        result = _Upsert.REPLACED
    return result


def _place_of_mount(items: Sequence[Object], addition: Object) -> int | None:
    """Return the index of the mount that ``addition`` replaces; ``None`` if there is none.

    This is an equal mount, else one of the same volume at the same path, else one of the volume, else one at the path.
    """
    key = mount_key(addition)
    volume, path = key
    matches: tuple[Callable[[Object], bool], ...] = (
        lambda item: are_equal_entries(item, addition),
        lambda item: mount_key(item) == key,
        lambda item: bool(item.get("name") == volume),
        lambda item: _path(item) == path,
    )
    for is_match in matches:
        for at, item in enumerate(items):
            if is_match(item):
                return at
    return None


def _is_one_of(entry: Object, entries: Iterable[Object]) -> bool:
    return any(are_equal_entries(entry, other) for other in entries)


def _remove(owner: Object, field: str, additions: Sequence[Object], path: str = "") -> PodChange:
    items: list[Object] = owner.get(field) or []
    removed: list[Object] = []
    kept: list[Object] = []
    for item in items:
        if _is_one_of(item, additions):
            removed.append(item)
        else:
            kept.append(item)
    if removed:
        # Kubernetes requires the field ``containers``, also if it is empty.
        if kept or field == "containers":
            owner[field] = kept
        else:
            del owner[field]
    return PodChange(f"{path}{field}", names=tuple(str(item["name"]) for item in removed))
