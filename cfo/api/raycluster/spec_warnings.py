"""What KubeRay accepts in the spec of a RayCluster, and then does not do as it was written.

Webhooks warn of all of it. What cannot work at all is a problem in the summary, too, because not every cluster calls
webhooks.

KubeRay's CRD accepts any integers. Its controller runs ``replicas`` limited to the range from ``minReplicas`` (default
0) to ``maxReplicas`` (default unlimited) workers (``GetWorkerGroupDesiredReplicas``). It finds the pods of a worker
group by the group's name, so groups with one name delete and count each other's pods; only KubeRay's optional webhook
refuses them. The group's name is a label of its pods, and a part of their names (``PodName``), for which the API server
has rules that the CRD lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

import msgspec

from cfo.api.container_resources import fractional_byte_warnings, resource_errors
from cfo.api.pod_numbers import pod_number_warnings
from cfo.api.raycluster.ports import PROXY_PORT_NAME, ports_of, unserved_ports
from cfo.api.reading import elements, mapping, path, text
from cfo.runtime import Object
from cfo.runtime.objects import is_dns_label, is_label_value
from cfo.runtime.objects.field import Path

_MAX_WARNINGS: Final = 10
_MAX_SHOWN: Final = 80
_MAX_ERROR: Final = 300
_RESOURCES: Final = Path("resources")
_POD_PREFIX_LIMIT: Final = 50
"""KubeRay cuts the names of RayCluster and group, with a dash between them, to this length in the names of pods."""


class SpecProblem(msgspec.Struct, frozen=True):
    """What cannot work in the spec of a RayCluster, with the path of the field, and what to change."""

    message: str
    remedy: str


def spec_warnings(cluster: Object, old: Object | None = None) -> list[str]:
    """Return the warnings about the spec of ``cluster``, at most 10, except those that ``old`` also has."""
    known = set(_all_warnings(old)) if old is not None else set()
    new = (warning for warning in _all_warnings(cluster) if warning not in known)
    return list(islice(new, _MAX_WARNINGS))


def _all_warnings(cluster: Object) -> Iterator[str]:
    yield from warnings_without_requests(cluster)
    refused = "; ".join(ports_of(cluster).refused)
    if refused:
        yield f"spec.headGroupSpec: {refused}. The operator's NetworkPolicies open no such port"
    for where, spec in _pod_specs(cluster):
        yield from request_warnings(spec, where)


def warnings_without_requests(cluster: Object) -> Iterator[str]:
    """Yield the warnings about ``cluster`` except those about requests; its values can have any type."""
    for problem in spec_problems(cluster):
        yield problem.message
    yield from adjusted_replicas(cluster)
    for where, group in _worker_groups(cluster):
        yield from pod_number_warnings(f"{where}.replicas", group.get("replicas"))


def adjusted_replicas(cluster: Object) -> Iterator[str]:
    """Yield the worker groups of which KubeRay runs another number of workers than ``replicas``."""
    for where, group in _worker_groups(cluster):
        for adjustment in _adjustments(group):
            yield f"{where}: {adjustment}"


def spec_problems(cluster: Object) -> Iterator[SpecProblem]:
    """Yield what cannot work in the spec of ``cluster``, also if no webhook has validated it."""
    yield from _shared_group_names(cluster)
    for where, group in _worker_groups(cluster):
        for message in _group_name_problems(cluster, group):
            yield SpecProblem(f"{where}.groupName: {message}", "choose another groupName")
        for problem in _range_problems(group):
            yield SpecProblem(f"{where}: {problem.message}", problem.remedy)
    yield from _port_problems(cluster)


def _worker_groups(cluster: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and the value of each worker group that is an object."""
    for index, group in enumerate(elements(path(cluster, "spec", "workerGroupSpecs"))):
        if isinstance(group, Mapping):
            yield f"spec.workerGroupSpecs[{index}]", group


def _shared_group_names(cluster: Object) -> Iterator[SpecProblem]:
    """Yield a problem for each worker group with the name of an earlier one: KubeRay mixes their pods up."""
    first: dict[str, str] = {}
    for where, group in _worker_groups(cluster):
        name = group.get("groupName")
        if isinstance(name, str) and first.setdefault(name, where) != where:
            yield SpecProblem(
                f"{where}.groupName: {text(name, 63)!r} is also the name of {first[name].removeprefix('spec.')}, and "
                "KubeRay takes the pods of both for one group",
                "give one of them another groupName",
            )


def _port_problems(cluster: Object) -> Iterator[SpecProblem]:
    """Yield the ports of the head on which Ray listens, and which KubeRay's Service of the head does not have.

    KubeRay copies the ports of the Service from the Ray container, whatever the start parameters say. Users reach a
    dashboard with a proxy in the pod through the proxy's own Service.
    """
    for port in unserved_ports(cluster):
        if port.name == "dashboard" and _has_proxy(cluster):
            continue
        yield SpecProblem(
            f"spec.headGroupSpec.rayStartParams.{port.parameter}: Ray listens on {port.number}, but the Ray container "
            f"has no port {port.name} with this number, so KubeRay's Service of the head does not reach it",
            f"add the port {port.name} with containerPort {port.number} to the first container of the head, or remove "
            f"{port.parameter}, and create the RayCluster again",
        )


def _has_proxy(cluster: Object) -> bool:
    containers = elements(path(cluster, "spec", "headGroupSpec", "template", "spec", "containers"))
    return any(mapping(each).get("name") == PROXY_PORT_NAME for each in containers)


def refused_requests(cluster: Object) -> Iterator[str]:
    """Yield which requests of ``cluster`` their limits forbid, as :func:`request_warnings`, without what follows."""
    for where, spec in _pod_specs(cluster):
        for at, resources in _resources_in(spec, where):
            yield from _refused(resources, at)


def _pod_specs(cluster: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and value of each pod spec: that of the head, and those of worker groups."""
    head = ("spec.headGroupSpec", mapping(path(cluster, "spec", "headGroupSpec")))
    for where, group in chain([head], _worker_groups(cluster)):
        yield f"{where}.template.spec", mapping(path(group, "template", "spec"))


def request_warnings(spec: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield which requests in the pod spec ``spec`` at ``where`` their limits forbid, and fractions of bytes.

    The API server will refuse the former pods, unless another webhook changes them, and warns of the latter.
    """
    for at, resources in _resources_in(spec, where):
        for problem in _refused(resources, at):
            yield f"{problem}; the API server will refuse the pods"
        for warning in fractional_byte_warnings(resources, _RESOURCES):
            yield f"{at}.{warning}"


def _resources_in(spec: Mapping[str, Any], where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path of each container of a pod spec that has resources, and the resources."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(elements(spec.get(field))):
            resources = mapping(container).get("resources")
            if resources:
                yield f"{where}.{field}[{index}]", mapping(resources)


def _refused(resources: Mapping[str, Any], at: str) -> Iterator[str]:
    for error in resource_errors(resources, _RESOURCES):
        yield text(f"{at}.{error}", _MAX_ERROR)


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


def _range_problems(group: Mapping[str, Any]) -> Iterator[SpecProblem]:
    least = _integer(group.get("minReplicas"))
    most = _integer(group.get("maxReplicas"))
    for name, value in (("minReplicas", least), ("maxReplicas", most)):
        if value is not None and value < 0:
            yield SpecProblem(f"{name} is negative: {value}", f"set {name} to 0 or more")
    if least is not None and most is not None and least > most >= 0:
        yield SpecProblem(
            f"minReplicas ({least}) is greater than maxReplicas ({most})",
            "lower minReplicas, or raise maxReplicas",
        )


def _adjustments(group: Mapping[str, Any]) -> Iterator[str]:
    """Yield that KubeRay runs another number of workers than ``replicas``, if the range allows any."""
    replicas = _integer(group.get("replicas"))
    least = max(_integer(group.get("minReplicas")) or 0, 0)
    most = _integer(group.get("maxReplicas"))
    if replicas is None or (most is not None and least > most >= 0):
        return
    if replicas < least:
        yield f"replicas is {replicas}, but KubeRay runs minReplicas: {least}"
    elif most is not None and replicas > most >= 0:
        yield f"replicas is {replicas}, but KubeRay runs maxReplicas: {most}"


def _integer(value: object) -> int | None:
    """Return ``value`` if it is an integer, else ``None``; in Python, a bool is one as well."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value
