"""Removes what the Go operator's webhook or this one injected into a RayCluster's pod templates.

An entry is removed only if it equals what one of the two operators injects, apart from its image, which the
installation chooses. If an entry with an injected name differs, or something else uses an injected volume, no entry of
that feature is removed from the group, and the difference is reported: the entry may be the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import replace

from cfo.api.raycluster.cluster import PodGroup
from cfo.api.raycluster.facts import RayClusterFacts
from cfo.config.kuberay import KubeRayConfiguration
from cfo.runtime import Object
from cfo.runtime.objects import copied
from cfo.webhooks.raycluster.injection_plan import MTLS, OAUTH, Injection, InjectionSettings
from cfo.webhooks.raycluster.mtls import CA_DIRECTORY, CA_KEY_DIRECTORY, signing_command
from cfo.webhooks.raycluster.pod_additions import PodAdditions, mount_key, ray_container_index

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

    ``cluster`` is the RayCluster without the injected entries. ``features`` are the names of those found in it.
    ``removed`` and ``differing`` describe entries by their group, field and name: ``differing`` ones were injected and
    then changed.
    """

    cluster: Object
    features: frozenset[str] = frozenset()
    removed: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()


def known_settings(config: KubeRayConfiguration) -> tuple[InjectionSettings, ...]:
    """Return settings of the webhook with which entries may have been injected while the operator had ``config``."""
    usual = InjectionSettings(
        version="", oauth=True, mtls=True, ingress_domain=config.ingress_domain or ""
    )
    return (
        usual,
        replace(usual, authentication=config.authentication),
        replace(usual, requests_certificates=True),
    )


DEFAULT_SETTINGS: Final = known_settings(KubeRayConfiguration())


def clean(cluster: Object, settings: Sequence[InjectionSettings] = DEFAULT_SETTINGS) -> Cleaning:
    """Return ``cluster`` without the injected entries; ``cluster`` itself is not modified.

    ``settings`` are those with which entries may have been injected. The fields that this function reads must have the
    right JSON types.
    """
    result = copied(cluster)
    features: set[str] = set()
    removed: list[str] = []
    differing: list[str] = []
    facts = RayClusterFacts(result)
    for group in facts.groups:
        for feature in (OAUTH, MTLS):
            known = _known_additions(facts, group, feature, settings)
            variants = [variant for variant in known if variant.were_added_to(group.pod)]
            if not variants:
                continue
            features.add(feature.name)
            removed_here, differing_here = _remove(group.pod, variants)
            removed += [f"{_title(group)}: {name}" for name in removed_here]
            differing += [f"{_title(group)}: {name}" for name in differing_here]
    return Cleaning(result, frozenset(features), tuple(removed), tuple(differing))


def _title(group: PodGroup) -> str:
    return "head" if group.is_head else f"group {group.name}"


def _known_additions(
    facts: RayClusterFacts,
    group: PodGroup,
    feature: Injection,
    settings: Iterable[InjectionSettings],
) -> Iterator[PodAdditions]:
    """Yield what this operator, with each of ``settings``, and the Go operator inject for ``feature``."""
    for each in settings:
        additions = feature.additions(facts, group, each)
        if additions is not None:
            own = _with_found_names(additions, group.pod)
            yield own
            yield _as_go_operator(own)


def _with_found_names(additions: PodAdditions, pod: Mapping[str, Any]) -> PodAdditions:
    """Replace the names of the head in the certificate command by those in ``pod``: they depend on a former domain."""

    def container(item: Object) -> Object:
        if CA_KEY_DIRECTORY not in str(item["command"]):
            return item
        found = _names_in(_named(pod.get("initContainers"), str(item["name"])))
        return {**item, "command": signing_command(found)}

    return replace(additions, init_containers=tuple(map(container, additions.init_containers)))


def _union(variants: Sequence[PodAdditions]) -> PodAdditions:
    """Return additions with each name in ``variants``."""

    def merged(
        attribute: str, key_of: Callable[[Object], object] = itemgetter("name")
    ) -> tuple[Object, ...]:
        found: dict[object, Object] = {}
        for variant in variants:
            for item in getattr(variant, attribute):
                found[key_of(item)] = item
        return tuple(found.values())

    return PodAdditions(
        containers=merged("containers"),
        init_containers=merged("init_containers"),
        volumes=merged("volumes"),
        env=merged("env"),
        mounts=merged("mounts", mount_key),
        service_account=next((variant.service_account for variant in variants), ""),
    )


def _as_go_operator(own: PodAdditions) -> PodAdditions:
    """Return the entries as the Go operator injects them.

    Its proxy lets every user in who can log in, and one volume has the CA's certificate and its key.
    """
    key_volumes = set()
    for item in own.init_containers:
        for mount in item["volumeMounts"]:
            if mount["mountPath"] == CA_KEY_DIRECTORY:
                key_volumes.add(mount["name"])

    def container(item: Object) -> Object:
        arguments = [word for word in item["args"] if not word.startswith(_OWN_ARGUMENT)]
        return {**item, "args": arguments}

    def init_container(item: Object) -> Object:
        script = str(item["command"][-1])
        script = script.replace(f"cp {CA_DIRECTORY}/ca.crt .", f"cp {CA_DIRECTORY}/* .")
        script = script.replace(f"-CAkey {CA_KEY_DIRECTORY}/ca.key", "-CAkey ca.key")
        mounts = [mount for mount in item["volumeMounts"] if mount["name"] not in key_volumes]
        return {**item, "command": [*item["command"][:-1], script], "volumeMounts": mounts}

    def volume(item: Object) -> Object:
        if "secret" not in item:
            return item
        return {**item, "secret": {"secretName": item["secret"]["secretName"]}}

    volumes = [volume(item) for item in own.volumes if item["name"] not in key_volumes]
    return replace(
        own,
        containers=tuple(map(container, own.containers)),
        init_containers=tuple(map(init_container, own.init_containers)),
        volumes=tuple(volumes),
    )


def _names_in(container: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the head in a certificate command; they depend on the domain when it was injected."""
    words = (container or {}).get("command") or [""]
    return [
        name
        for number, name in _CERTIFICATE_NAME.findall(str(words[-1]))
        if int(number) > _NODE_NAMES
    ]


def _named(items: Iterable[Object] | None, name: str) -> Object | None:
    return next((item for item in items or () if item.get("name") == name), None)


def _remove(pod: Object, variants: Sequence[PodAdditions]) -> tuple[list[str], list[str]]:
    """Remove the entries of ``variants`` from ``pod``, unless one differs from all, or something else uses one.

    Returns the removed and the differing entries, of which one is empty.
    """
    expected = _union(variants)
    found = expected.found_in(pod)
    differing: list[str] = []
    for field, attribute in _LISTS:
        items = getattr(found, attribute)
        names = [item["name"] for item in items if not _is_injected(item, attribute, variants)]
        differing += [f"{field} {name} differs from the injected one" for name in names]
    account = found.service_account
    if account != expected.service_account:
        account = ""
    cleaned = copied(pod)
    changes = replace(found, service_account=account).remove_from(cleaned)
    differing += _left_over(cleaned, expected)
    if differing:
        return [], differing
    pod.clear()
    pod.update(cleaned)
    return [f"{change.field} {', '.join(change.names)}" for change in changes], []


def _is_injected(item: Object, attribute: str, variants: Iterable[PodAdditions]) -> bool:
    """Return whether one of ``variants`` has an equal entry in ``attribute``, apart from its image."""
    wanted = _normalized(item)
    for variant in variants:
        for other in getattr(variant, attribute):
            if _normalized(other) == wanted:
                return True
    return False


def _normalized(item: Object) -> Object:
    result = {key: value for key, value in item.items() if key != "image"}
    if not result.get("resources", True):
        del result["resources"]
    return result


def _left_over(pod: Mapping[str, Any], additions: PodAdditions) -> Iterator[str]:
    """Yield entries that use what was removed, and further entries with the same names."""
    left = additions.found_in(pod)
    for field, attribute in _LISTS:
        for item in getattr(left, attribute):
            yield f"{field} {item['name']} is duplicated"
    remaining = {item.get("name") for item in pod.get("volumes") or ()}
    volumes = {item["name"] for item in additions.volumes} - remaining
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
