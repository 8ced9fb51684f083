"""Removes what a webhook of the Go operator or of this one injected into the pod templates of a RayCluster.

An entry is removed only if it equals what one of the two operators injects, apart from its image, which the
installation chooses. If an entry with an injected name differs, or something else uses an injected volume, no entry of
that feature is removed from the group, and the difference is reported: the entry may be the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

from cfo.runtime import Object
from cfo.webhooks.raycluster.certificate_command import CA_DIRECTORY, CA_KEY_DIRECTORY, certificate_command
from cfo.webhooks.raycluster.mtls import mtls_additions
from cfo.webhooks.raycluster.oauth_proxy import proxy_additions
from cfo.webhooks.raycluster.pod_additions import PodAdditions, ray_container_index
from cfo.webhooks.raycluster.pod_groups import PodGroup, pod_groups_of

__all__ = ["MTLS", "OAUTH_PROXY", "Cleaning", "clean"]

_IGNORED: Final = ("image",)
_OWN_ARGUMENT: Final = "--openshift-sar="
"""The argument of the OAuth proxy that the Go operator does not set."""

_CERTIFICATE_NAME: Final = re.compile(r"DNS\.(\d+) = ([a-z0-9][-.a-z0-9]*)(?=\\n|\")")
_NODE_NAMES: Final = 4
"""The number of names in each certificate before those of the head."""

_LISTS: Final = (
    ("containers", "containers"),
    ("initContainers", "init_containers"),
    ("volumes", "volumes"),
    ("env", "env"),
    ("volumeMounts", "mounts"),
)


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The result of :func:`clean`.

    ``cluster`` is the RayCluster without the injected entries. ``features`` (``OAuth proxy``, ``mTLS``) were found in
    it. ``removed``, ``differing`` and ``foreign`` describe entries by their group, field and name: ``differing`` ones
    were injected and then changed, ``foreign`` ones only have an injected name.
    """

    cluster: Object
    features: frozenset[str] = frozenset()
    removed: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


OAUTH_PROXY: Final = "OAuth proxy"
MTLS: Final = "mTLS"


def clean(cluster: Object) -> Cleaning:
    """Return ``cluster`` without the injected entries; ``cluster`` itself is not modified.

    The fields that this function reads must have the right JSON types.
    """
    result = deepcopy(cluster)
    features: set[str] = set()
    removed: list[str] = []
    differing: list[str] = []
    foreign: list[str] = []
    for group in pod_groups_of(result):
        for feature, additions in _known_additions(result, group):
            found = additions[0].found_in(group.pod)
            if not any(variant.were_added_to(group.pod) for variant in additions):
                foreign += (f"{_title(group)}: {name}" for name in _partial_entries(additions[0], found))
                continue
            features.add(feature)
            outcome = _remove(group.pod, found, additions)
            if outcome.differing:
                differing += (f"{_title(group)}: {name}" for name in outcome.differing)
            else:
                removed += (f"{_title(group)}: {name}" for name in outcome.removed)
    return Cleaning(result, frozenset(features), tuple(removed), tuple(differing), tuple(foreign))


def _title(group: PodGroup) -> str:
    return "head" if group.is_head else f"group {group.name}"


def _known_additions(cluster: Object, group: PodGroup) -> Iterator[tuple[str, tuple[PodAdditions, ...]]]:
    """Yield each feature with what this operator and the Go operator inject for it into ``group``."""
    if group.is_head:
        proxy = proxy_additions(cluster, "")
        yield OAUTH_PROXY, (proxy, _mapped(proxy, _without_own_argument))
    own = mtls_additions(cluster, "", "", is_head=group.is_head)
    container = _named(group.pod.get("initContainers"), str(own.init_containers[0]["name"]))
    command = certificate_command(_names_in(container))
    own = _mapped(own, lambda item: {**item, "command": command})
    yield MTLS, (own, _as_go_operator(own))


def _mapped(additions: PodAdditions, function: Callable[[Object], Object]) -> PodAdditions:
    return replace(
        additions,
        containers=tuple(map(function, additions.containers)),
        init_containers=tuple(map(function, additions.init_containers)),
    )


def _without_own_argument(container: Object) -> Object:
    return {**container, "args": [word for word in container["args"] if not word.startswith(_OWN_ARGUMENT)]}


def _as_go_operator(own: PodAdditions) -> PodAdditions:
    """Return the mTLS entries of the Go operator: one volume has the CA's certificate and its key."""
    key_volumes = {
        mount["name"]
        for item in own.init_containers
        for mount in item["volumeMounts"]
        if mount["mountPath"] == CA_KEY_DIRECTORY
    }

    def container(item: Object) -> Object:
        script = str(item["command"][-1])
        script = script.replace(f"cp {CA_DIRECTORY}/ca.crt .", f"cp {CA_DIRECTORY}/* .")
        script = script.replace(f"-CAkey {CA_KEY_DIRECTORY}/ca.key", "-CAkey ca.key")
        mounts = [mount for mount in item["volumeMounts"] if mount["name"] not in key_volumes]
        return {**item, "command": [*item["command"][:-1], script], "volumeMounts": mounts}

    volumes = tuple(
        {**item, "secret": {"secretName": item["secret"]["secretName"]}} if "secret" in item else item
        for item in own.volumes
        if item["name"] not in key_volumes
    )
    return replace(_mapped(own, container), volumes=volumes)


def _names_in(container: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the head in a certificate command; they depend on the domain when it was injected."""
    words = (container or {}).get("command") or [""]
    return [name for number, name in _CERTIFICATE_NAME.findall(str(words[-1])) if int(number) > _NODE_NAMES]


def _named(items: Iterable[Object] | None, name: str) -> Object | None:
    return next((item for item in items or () if item.get("name") == name), None)


@dataclass(frozen=True, slots=True)
class _Removal:
    removed: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()


def _remove(pod: Object, found: PodAdditions, variants: Sequence[PodAdditions]) -> _Removal:
    """Remove ``found`` from ``pod``, unless an entry differs from all ``variants`` or is used by something else."""
    differing = [
        f"{field} {item['name']} differs from the injected one"
        for field, attribute in _LISTS
        for item in getattr(found, attribute)
        if not any(_is_variant(item, other) for variant in variants for other in getattr(variant, attribute))
    ]
    account = found.service_account if found.service_account == variants[0].service_account else ""
    cleaned = deepcopy(pod)
    changes = replace(found, service_account=account).remove_from(cleaned)
    differing += _left_over(cleaned, variants[0])
    if differing:
        return _Removal(differing=tuple(differing))
    pod.clear()
    pod.update(cleaned)
    return _Removal(removed=tuple(f"{change.field} {', '.join(change.names)}" for change in changes))


def _is_variant(item: Object, other: Object) -> bool:
    return item.get("name") == other.get("name") and _normalized(item) == _normalized(other)


def _normalized(item: Object) -> Object:
    return {key: value for key, value in item.items() if key not in _IGNORED and (key != "resources" or value)}


def _left_over(pod: Mapping[str, Any], additions: PodAdditions) -> Iterator[str]:
    """Yield entries that use what was removed, and further entries with the same names."""
    left = additions.found_in(pod)
    for field, attribute in _LISTS:
        for item in getattr(left, attribute):
            yield f"{field} {item['name']} is duplicated"
    volumes = {item["name"] for item in additions.volumes} - {item.get("name") for item in pod.get("volumes") or ()}
    variables = {item["name"] for item in additions.env}
    for container in (*(pod.get("containers") or ()), *(pod.get("initContainers") or ())):
        for mount in container.get("volumeMounts") or ():
            if mount.get("name") in volumes:
                yield f"container {container.get('name')} mounts the injected volume {mount['name']}"
    at = ray_container_index(pod)
    if at is None:
        return
    ray = pod["containers"][at]
    text = str((ray.get("command"), ray.get("args"), ray.get("env")))
    for name in sorted(variables):
        if f"$({name})" in text:
            yield f"container {ray.get('name')} uses the injected variable {name}"


def _partial_entries(additions: PodAdditions, found: PodAdditions) -> Iterator[str]:
    """Yield containers with injected names in a pod template into which the feature was not injected."""
    for field, attribute in _LISTS[:2]:
        for item in getattr(found, attribute):
            yield f"{field} {item['name']} exists, but its volumes were not injected"
