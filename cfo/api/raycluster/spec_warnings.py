"""Warnings about the spec of a RayCluster: what KubeRay accepts, and then does not do as it was written.

KubeRay's CRD accepts any integers. Its controller runs ``replicas`` limited to the range from ``minReplicas`` (default
0) to ``maxReplicas`` (default unlimited) workers (``GetWorkerGroupDesiredReplicas``). It finds the pods of a worker
group by the group's name, so groups with one name delete and count each other's pods; only KubeRay's optional webhook
refuses them. The group's name is a label of its pods, and a part of their names (``PodName``), for which the API server
has rules that the CRD lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from cfo.api.reading import elements, mapping, path, text
from cfo.runtime import Object
from cfo.runtime.objects import is_dns_label, is_label_value

_MAX_WARNINGS: Final = 10
_MAX_SHOWN: Final = 80
_POD_PREFIX_LIMIT: Final = 50
"""KubeRay cuts the names of RayCluster and group, with a dash between them, to this length in the names of pods."""


def spec_warnings(cluster: Object, old: Object | None = None) -> list[str]:
    """Return the warnings about the worker groups of ``cluster``, at most 10, except those that ``old`` also has."""
    known = set(_all_warnings(old)) if old is not None else set()
    new = (warning for warning in _all_warnings(cluster) if warning not in known)
    return list(islice(new, _MAX_WARNINGS))


def _all_warnings(cluster: Object) -> Iterator[str]:
    """Yield the warnings about ``cluster``; no webhook may have validated it, so values can have any type."""
    spec = cluster.get("spec")
    if not isinstance(spec, Mapping):
        return
    groups = spec.get("workerGroupSpecs")
    if not isinstance(groups, list):
        return
    for message in shared_group_names(cluster):
        yield f"{message}; use another name"
    for index, group in enumerate(groups):
        if not isinstance(group, Mapping):
            continue
        where = f"spec.workerGroupSpecs[{index}]"
        for problem in _group_name_problems(cluster, group):
            yield f"{where}.groupName: {problem}"
        for problem in _problems(group):
            yield f"{where}: {problem}"


def shared_group_names(cluster: Object) -> Iterator[str]:
    """Yield, for each worker group of ``cluster`` with the name of an earlier one, that KubeRay mixes their pods up."""
    first: dict[str, int] = {}
    for index, group in enumerate(elements(path(cluster, "spec", "workerGroupSpecs"))):
        name = mapping(group).get("groupName")
        if isinstance(name, str) and first.setdefault(name, index) != index:
            yield (
                f"spec.workerGroupSpecs[{index}].groupName: {text(name, 63)!r} is also the name of "
                f"workerGroupSpecs[{first[name]}], and KubeRay takes the pods of both for one group"
            )


def _group_name_problems(cluster: Object, group: Mapping[str, Any]) -> Iterator[str]:
    """Yield that the API server refuses the pods of a worker group because of its name."""
    name = group.get("groupName")
    if not isinstance(name, str) or not name:
        return
    if not is_label_value(name):
        yield (
            f"{_shown(name)} ({len(name)} characters) becomes a label of the pods, which the API server will refuse: "
            "must be at most 63 letters, digits, '-' and '.', with a letter or digit at both ends"
        )
        return
    prefix = f"{path(cluster, 'metadata', 'name') or ''}-{name}".lstrip("-")
    pod_name = f"{prefix[:_POD_PREFIX_LIMIT].lower()}-worker-x"
    if not all(map(is_dns_label, pod_name.split("."))):
        yield (
            f"{_shown(name)} becomes a part of the names of pods, which the API server will refuse: must be letters, "
            "digits and '-', and single '.' between letters or digits"
        )


def _shown(name: str) -> str:
    return repr(text(name, _MAX_SHOWN))


def _problems(group: Mapping[str, Any]) -> Iterator[str]:
    replicas = _integer(group.get("replicas"))
    least = _integer(group.get("minReplicas"))
    most = _integer(group.get("maxReplicas"))
    for name, value in (("minReplicas", least), ("maxReplicas", most)):
        if value is not None and value < 0:
            yield f"{name} is negative: {value}"
    lower = max(least or 0, 0)
    if most is not None and most >= 0 and lower > most:
        yield f"minReplicas ({lower}) is greater than maxReplicas ({most})"
    elif replicas is not None and replicas < lower:
        yield f"replicas is {replicas}, but KubeRay runs minReplicas: {lower}"
    elif replicas is not None and most is not None and replicas > most >= 0:
        yield f"replicas is {replicas}, but KubeRay runs maxReplicas: {most}"


def _integer(value: object) -> int | None:
    """Return ``value`` if it is an integer, else ``None``; in Python, a bool is one as well."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value
