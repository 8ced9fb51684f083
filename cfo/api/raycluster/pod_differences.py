"""How a pod differs from the template from which KubeRay would create it now: pods keep the spec of their creation.

Only what the template sets is compared. What is only in the pod says nothing about its age: the API server adds
defaults, KubeRay and this operator add containers, variables and volumes, and so do webhooks of other projects. Known
rewritings of what the template sets are not reported either. A removed field is therefore only found where its former
value cannot come from elsewhere, as in the command of the Ray container.

Source: ``BuildPod`` in ``pod.go`` of KubeRay 1.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from cfo.api.quantity import canonical_quantity
from cfo.api.raycluster.cluster import ADDED_CONTAINERS
from cfo.api.reading import MAX_ITEMS, items, mapping, path, text
from cfo.runtime import annotations_of, labels_of

HEAD_GROUP: Final = "headgroup"
GROUP_LABEL: Final = "ray.io/group"
"""The label of pods with the name of their group, and its value for the head. Source: KubeRay."""

_OVERWRITE: Final = "ray.io/overwrite-container-cmd"
"""The annotation with which KubeRay leaves the command of the Ray container as it is."""
_START_COMMAND: Final = "KUBERAY_GEN_RAY_START_CMD"
"""The variable of the Ray container with the ``ray start`` that KubeRay has generated."""
_LIMIT_COMMAND: Final = "ulimit -n "
"""What KubeRay runs before it."""
_CHANGED_PARAMETERS: Final = frozenset({"address", "block", "labels", "no-monitor", "resources"})
"""The parameters of ``ray start`` whose values KubeRay itself changes."""

_ADJUSTED: Final = "autopilot.gke.io/resource-adjustment"
"""The annotation of pods whose resources GKE Autopilot has changed."""
_REWRITTEN_PROBES: Final = "/app-health/"
"""The path of probes that Istio sends through its agent; it leaves commands as they are."""
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = ("httpGet", "tcpSocket", "grpc")

_MAX_LEVELS: Final = 8
"""Values below these levels are not compared; no field of a pod has more."""


def groups_of(cluster: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the groups of the RayCluster by name, of which each has a pod template."""
    spec = mapping(cluster.get("spec"))
    groups = {HEAD_GROUP: mapping(spec.get("headGroupSpec"))}
    for group in items(spec.get("workerGroupSpecs")):
        groups[text(group.get("groupName"), 63)] = group
    return groups


def is_replaced_by_kuberay(cluster: Mapping[str, Any]) -> bool:
    """Return whether KubeRay replaces all pods when the spec changes."""
    return bool(path(cluster, "spec", "upgradeStrategy", "type") == "Recreate")


def differences(
    cluster: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]],
    pod: Mapping[str, Any],
) -> list[str]:
    """Return which fields of the pod have values of an older spec; nothing if its group does not exist any more.

    ``groups``: those of ``cluster`` (see :func:`groups_of`).
    """
    group = groups.get(labels_of(pod).get(GROUP_LABEL, ""))
    if group is None or path(cluster, "metadata", "generation") == 1:
        return []  # a spec of the first generation was never changed
    return list(_differences(cluster, group, pod))


def has_other_image(
    groups: Mapping[str, Mapping[str, Any]], pod: Mapping[str, Any], container: str
) -> bool:
    """Return whether a container of the pod has another image than the template, also if only the registry differs."""
    group = groups.get(labels_of(pod).get(GROUP_LABEL, ""))
    for field in ("initContainers", "containers"):
        wanted = _by_name(path(group, "template", "spec", field)).get(container)
        if wanted is not None:
            found = _by_name(path(pod, "spec", field)).get(container, {})
            return bool(wanted.get("image") != found.get("image"))
    return False


def _differences(
    cluster: Mapping[str, Any], group: Mapping[str, Any], pod: Mapping[str, Any]
) -> Iterator[str]:
    template = mapping(group.get("template"))
    wanted = mapping(template.get("spec"))
    actual = mapping(pod.get("spec"))
    if not _covers(actual.get("nodeSelector"), wanted.get("nodeSelector")):
        yield "nodeSelector"
    if not _tolerations(wanted) <= _tolerations(actual):
        yield "tolerations"
    volumes = _by_name(actual.get("volumes"))
    for name, volume in _by_name(wanted.get("volumes")).items():
        if not _covers(volumes.get(name), volume):
            yield f"volume {name}"
    ray = text(next(iter(items(wanted.get("containers"))), {}).get("name"), 63)
    is_adjusted = _ADJUSTED in annotations_of(pod)
    for field in ("initContainers", "containers"):
        found = _by_name(actual.get(field))
        for name, container in _by_name(wanted.get(field)).items():
            if name in ADDED_CONTAINERS:
                continue
            if name not in found:
                yield f"container {name}"
                continue
            for changed in _container_differences(container, found[name], is_adjusted):
                yield f"{changed} of container {name}"
            if field == "containers" and name == ray:
                is_overwritten = _overwrites_command(cluster, template)
                yield from _ray_differences(group, container, found[name], is_overwritten)
            elif not _runs_same(container, found[name]):
                yield f"command of container {name}"


def _container_differences(
    wanted: Mapping[str, Any], actual: Mapping[str, Any], is_adjusted: bool
) -> Iterator[str]:
    if _image_name(wanted.get("image")) != _image_name(actual.get("image")):
        yield "image"
    if not is_adjusted and not _covers(actual.get("resources"), wanted.get("resources")):
        yield "resources"
    variables: dict[str, list[Mapping[str, Any]]] = {}
    for variable in items(actual.get("env")):
        variables.setdefault(text(variable.get("name"), 253), []).append(variable)
    for name, variable in _by_name(wanted.get("env")).items():
        # KubeRay adds its own values after those of the template
        if not any(_covers(each, variable) for each in variables.get(name, ())):
            yield f"variable {name}"
    mounts = {text(each.get("mountPath")): each for each in items(actual.get("volumeMounts"))}
    for mount in items(wanted.get("volumeMounts")):
        if not _covers(mounts.get(text(mount.get("mountPath"))), mount):
            yield f"volume mount {text(mount.get('mountPath'), 80)}"
    for probe in _PROBES:
        if not _has_probe(wanted.get(probe), actual.get(probe)):
            yield probe


def _image_name(image: Any) -> str:
    """Return the name and tag of an image: webhooks change the registry, or add a digest."""
    without_digest, _, _ = text(image).partition("@")
    return without_digest.rpartition("/")[2].removesuffix(":latest")


def _has_probe(wanted: Any, actual: Any) -> bool:
    expected = dict(mapping(wanted))
    if text(path(actual, "httpGet", "path")).startswith(_REWRITTEN_PROBES):
        for handler in _HANDLERS:
            expected.pop(handler, None)
    return _covers(actual, expected)


def _overwrites_command(cluster: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    """Return whether KubeRay leaves the command of the Ray container as it is."""
    values = (annotations_of(cluster).get(_OVERWRITE), annotations_of(template).get(_OVERWRITE))
    return any(text(value).lower() == "true" for value in values)


def _ray_differences(
    group: Mapping[str, Any],
    wanted: Mapping[str, Any],
    actual: Mapping[str, Any],
    is_overwritten: bool,
) -> Iterator[str]:
    """Yield in what the command of the Ray container differs: KubeRay adds ``ray start`` to that of the template."""
    name = text(wanted.get("name"), 63)
    own = _words([*_strings(wanted.get("command")), *_strings(wanted.get("args"))])
    start = _words([path(_by_name(actual.get("env")).get(_START_COMMAND), "value")])
    if is_overwritten or "ray start" in own:
        if not _runs_same(wanted, actual):
            yield f"command of container {name}"
        return
    if not start:
        if own not in _words([*_strings(actual.get("command")), *_strings(actual.get("args"))]):
            yield f"command of container {name}"
        return
    before, _, _ = _words(_strings(actual.get("args"))[-1:]).partition(start)
    rest = before.removeprefix(own).lstrip(" &;")
    if not before.startswith(own) or not (not rest or rest.startswith(_LIMIT_COMMAND)):
        yield f"command of container {name}"
    flags = dict(word[2:].split("=", 1) for word in start.split(" ") if _is_flag(word))
    for parameter, value in islice(mapping(group.get("rayStartParams")).items(), MAX_ITEMS):
        if parameter in _CHANGED_PARAMETERS or not text(value).isalnum():
            continue
        if flags.get(parameter, value) != value:
            yield f"rayStartParams {text(parameter, 63)}"


def _is_flag(word: str) -> bool:
    return word.startswith("--") and "=" in word


def _runs_same(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    """Return whether a container runs the command of the template, also with another program before it."""
    own = [*_strings(wanted.get("command")), *_strings(wanted.get("args"))]
    found = [*_strings(actual.get("command")), *_strings(actual.get("args"))]
    return not own or found[-len(own) :] == own


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _words(parts: Sequence[Any]) -> str:
    """Return strings as one, with single spaces."""
    joined = " ".join(part for part in parts if isinstance(part, str))
    return " ".join(joined.split())


def _tolerations(pod: Mapping[str, Any]) -> set[tuple[str, ...]]:
    fields = ("key", "operator", "value", "effect", "tolerationSeconds")
    return {
        tuple(text(each.get(field) or ("Equal" if field == "operator" else "")) for field in fields)
        for each in items(pod.get("tolerations"))
    }


def _by_name(value: Any) -> dict[str, Mapping[str, Any]]:
    """Return the objects of a list by their name; of several with one name, the last."""
    return {text(item.get("name"), 253): item for item in items(value)}


def _covers(actual: Any, wanted: Any, levels: int = _MAX_LEVELS) -> bool:
    """Return whether ``actual`` has all that ``wanted`` sets; a value that is empty or 0 sets nothing."""
    if not wanted or levels == 0:
        return True
    if isinstance(wanted, dict):
        found = mapping(actual)
        return all(_covers(found.get(key), value, levels - 1) for key, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(actual, list) or len(actual) != len(wanted):
            return False
        return all(map(_covers, actual, wanted, [levels - 1] * len(wanted)))
    return bool(_canonical(actual) == _canonical(wanted))


def _canonical(value: Any) -> Any:
    """Return a value as the API server stores it if it is a quantity."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return canonical_quantity(value)
    return value
