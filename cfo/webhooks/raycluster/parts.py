"""What is injected into a pod template, and how: put in, found again, put back, taken out.

Everything is known by its name, and goes in as a copy. What has the name of an injected part gives way to it, in its
place; all else stays as it is, and where it is. So to inject twice is to inject once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cfo.runtime.objects import Object

__all__ = ["PROXY_CONTAINER", "Change", "Parts", "PodSpec", "is_mount", "ray_container", "same"]

PodSpec: TypeAlias = dict[str, Any]

PROXY_CONTAINER: Final = "oauth-proxy"


def ray_container(pod: Mapping[str, Any]) -> int | None:
    """Where the container stands that runs Ray: the first, as KubeRay has it, that is not called like the proxy."""
    containers: Sequence[Object] = pod.get("containers") or ()
    return next((at for at, item in enumerate(containers) if item.get("name") != PROXY_CONTAINER), None)


def same(one: Object, other: Object) -> bool:
    """Whether both say the same. Go writes an empty ``resources`` into every container, which says nothing."""
    return one == other or _meant(one) == _meant(other)


def _meant(item: Object) -> Object:
    return {key: value for key, value in item.items() if not (key == "resources" and not value)}


@dataclass(frozen=True, slots=True)
class Change:
    """Entries of a template that are now as injected and were not: ``field`` below the pod spec, and their names.

    ``absent`` are those that were not there at all.
    """

    field: str
    names: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The entries that one concern has in one pod template; ``env`` and ``mounts`` are those of the Ray container."""

    containers: tuple[Object, ...] = ()
    init_containers: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    env: tuple[Object, ...] = ()
    mounts: tuple[Object, ...] = ()
    service_account: str = ""

    def are_in(self, pod: Mapping[str, Any]) -> bool:
        """Whether parts like these were injected into ``pod``, by whatever version: the containers by their names, and
        the Secrets behind the volumes."""
        secrets = {_secret_of(item) for item in pod.get("volumes") or ()}
        return (
            _names(self.containers) <= _names(pod.get("containers"))
            and _names(self.init_containers) <= _names(pod.get("initContainers"))
            and {_secret_of(item) for item in self.volumes} - {None} <= secrets
        )

    def found_in(self, pod: Mapping[str, Any]) -> Parts:
        """The same parts as they are in ``pod``; those that are not there are left out."""
        at = ray_container(pod)
        ray: Mapping[str, Any] = pod["containers"][at] if at is not None else {}
        return Parts(
            containers=_named_like(self.containers, pod.get("containers")),
            init_containers=_named_like(self.init_containers, pod.get("initContainers")),
            volumes=_named_like(self.volumes, pod.get("volumes")),
            env=_named_like(self.env, ray.get("env")),
            mounts=tuple(
                item for part in self.mounts for item in ray.get("volumeMounts") or () if is_mount(part, item)
            ),
            service_account=str(pod.get("serviceAccountName") or "") if self.service_account else "",
        )

    def put_into(self, pod: PodSpec, before: Parts | None = None) -> list[Change]:
        """Makes ``pod`` have these parts, and tells what somebody else had there.

        With ``before``, what is as in there was nobody's doing, and is not told.
        """
        changes = [
            _put(pod, "containers", self.containers, _upsert, before.containers if before else ()),
            _put(pod, "volumes", self.volumes, _upsert, before.volumes if before else ()),
        ]
        at = ray_container(pod)
        if at is not None and (self.env or self.mounts):
            ray, path = pod["containers"][at], f"containers[{at}]."
            changes += [
                _put(ray, "env", self.env, _upsert, before.env if before else (), path),
                _put(ray, "volumeMounts", self.mounts, _upsert_mount, before.mounts if before else (), path),
            ]
        known = before.init_containers if before else ()
        changes.append(_put(pod, "initContainers", self.init_containers, _upsert, known))
        current = str(pod.get("serviceAccountName") or "")
        if self.service_account and current != self.service_account:
            pod["serviceAccountName"] = self.service_account
            names, absent = ((current,), ()) if current else ((), (self.service_account,))
            changes.append(Change("serviceAccountName", names, absent))
        return [change for change in changes if change.names or change.absent]

    def take_out_of(self, pod: PodSpec) -> list[Change]:
        """Takes out of ``pod`` what is exactly as these parts, and tells what that was."""
        changes = [
            _take(pod, "containers", self.containers),
            _take(pod, "volumes", self.volumes),
            _take(pod, "initContainers", self.init_containers),
        ]
        at = ray_container(pod)
        if at is not None:
            ray, path = pod["containers"][at], f"containers[{at}]."
            changes += [_take(ray, "env", self.env, path), _take(ray, "volumeMounts", self.mounts, path)]
        if self.service_account and pod.get("serviceAccountName") == self.service_account:
            del pod["serviceAccountName"]
            changes.append(Change("serviceAccountName", (self.service_account,)))
        return [change for change in changes if change.names]


_Upsert: TypeAlias = Callable[[list[Object], Object, Sequence[Object]], bool | None]


def _names(items: Iterable[Object] | None) -> set[Any]:
    return {item.get("name") for item in items or ()}


def _named_like(parts: Iterable[Object], items: Iterable[Object] | None) -> tuple[Object, ...]:
    found = {item.get("name"): item for item in reversed(list(items or ()))}
    return tuple(found[part["name"]] for part in parts if part["name"] in found)


def _secret_of(volume: Object) -> Any:
    return (volume.get("secret") or {}).get("secretName")


def is_mount(part: Object, item: Object) -> bool:
    """Whether ``item`` mounts the same volume at the same path as ``part``."""
    return bool(item.get("name") == part["name"] and _path(item) == _path(part))


def _path(mount: Object) -> str:
    return str(mount.get("mountPath") or "").rstrip("/")


def _put(
    owner: Object, field: str, parts: Sequence[Object], upsert: _Upsert, before: Sequence[Object], path: str = ""
) -> Change:
    items = list(owner.get(field) or ())
    outcomes = {str(part["name"]): upsert(items, part, before) for part in parts}
    if items != (owner.get(field) or []):
        owner[field] = items
    return Change(
        f"{path}{field}",
        tuple(name for name, gave_way in outcomes.items() if gave_way),
        tuple(name for name, gave_way in outcomes.items() if gave_way is None),
    )


def _upsert(items: list[Object], part: Object, before: Sequence[Object]) -> bool | None:
    """Puts ``part`` in the place of what has its name, else at the end. Tells whether something other than what was
    there before gave way; ``None`` when there was nothing."""
    places = [at for at, item in enumerate(items) if item.get("name") == part["name"]]
    if not places:
        items.append(deepcopy(part))
        return None
    first, *others = places
    gave_way = bool(others) or not any(same(items[first], item) for item in (part, *before))
    if not same(items[first], part):
        items[first] = deepcopy(part)
    for at in reversed(others):  # the last of several environment variables of one name counts, so none may stay
        del items[at]
    return gave_way


def _upsert_mount(items: list[Object], part: Object, before: Sequence[Object]) -> bool | None:
    """As :func:`_upsert`, but a volume may be mounted more than once, and a path can hold only one."""
    place = next((at for at, item in enumerate(items) if same(item, part)), None)
    outcome: bool | None = False
    if place is None:
        place = next((at for at, item in enumerate(items) if is_mount(part, item)), None)
        if place is None:
            place = next((at for at, item in enumerate(items) if item.get("name") == part["name"]), None)
        if place is None:
            place = next((at for at, item in enumerate(items) if _path(item) == _path(part)), None)
        if place is None:
            items.append(deepcopy(part))
            return None
        outcome = not any(same(items[place], item) for item in before)
        items[place] = deepcopy(part)
    for at in reversed(range(len(items))):
        if at != place and _path(items[at]) == _path(part):
            del items[at]
            outcome = True
    return outcome


def _take(owner: Object, field: str, parts: Sequence[Object], path: str = "") -> Change:
    items: list[Object] = owner.get(field) or []
    taken = [item for item in items if any(same(item, part) for part in parts)]
    kept = [item for item in items if item not in taken]
    if taken and (kept or field == "containers"):
        owner[field] = kept
    elif taken:
        del owner[field]
    return Change(f"{path}{field}", tuple(str(item["name"]) for item in taken))
