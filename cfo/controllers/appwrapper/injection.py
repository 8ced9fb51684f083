"""What is put into the pod templates of a component before it is created.

The queue's wishes (``podSetInfos``), the label by which pods are counted, the scheduler, and what keeps pods that want
a resource off nodes where it is marked. What the user wrote stays; where the queue wants something else under the
same name, that is a :class:`InjectionError`, since either choice would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cfo.api.appwrapper import PathError, object_at
from cfo.config import AppWrapperConfiguration, AutopilotConfiguration
from cfo.controllers.appwrapper.names import APPWRAPPER_LABEL
from cfo.runtime.objects import Object

__all__ = ["InjectionError", "inject", "wants_resource"]


class InjectionError(ValueError):
    """A component cannot be what the user and the queue want at once, or its pod sets lead nowhere."""


def inject(
    obj: Object,
    pod_sets: Iterable[Mapping[str, Any]],
    infos: Iterable[Mapping[str, Any]],
    wrapper_name: str,
    config: AppWrapperConfiguration,
) -> None:
    """Changes ``obj``, a component, for its creation. Raises :class:`InjectionError`."""
    obj["metadata"]["labels"] = {APPWRAPPER_LABEL: wrapper_name, **(obj["metadata"].get("labels") or {})}
    wanted = list(infos)
    for index, pod_set in enumerate(pod_sets):
        try:
            template = object_at(obj, pod_set.get("path") or "")
        except PathError as error:
            raise InjectionError(str(error)) from error
        if not isinstance(template.get("spec"), dict):
            raise InjectionError(f"content at {pod_set.get('path')} does not contain a spec")
        _inject_pod_template(template, wanted[index] if index < len(wanted) else {}, wrapper_name, config)


def _inject_pod_template(
    template: Object, info: Mapping[str, Any], wrapper_name: str, config: AppWrapperConfiguration
) -> None:
    metadata: Object = template.get("metadata") or {}
    template["metadata"] = metadata
    spec: Object = template["spec"]
    _merge(metadata, "annotations", info.get("annotations"))
    _merge(metadata, "labels", {APPWRAPPER_LABEL: wrapper_name, **(info.get("labels") or {})})
    _merge(spec, "nodeSelector", info.get("nodeSelector"))
    if tolerations := info.get("tolerations"):
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *tolerations]
    if gates := info.get("schedulingGates"):
        there: list[Object] = list(spec.get("schedulingGates") or ())
        names = {gate.get("name") for gate in there}
        spec["schedulingGates"] = there + [{"name": gate["name"]} for gate in gates if gate["name"] not in names]
    if config.scheduler_name and not spec.get("schedulerName"):
        spec["schedulerName"] = config.scheduler_name
    if config.autopilot.inject_anti_affinities:
        _avoid_marked_nodes(spec, config.autopilot)


def _merge(parent: Object, name: str, additions: Mapping[str, str] | None) -> None:
    if not additions:
        return
    there: Mapping[str, str] = parent.get(name) or {}
    for key, value in additions.items():
        if there.get(key, value) != value:
            raise InjectionError(
                f"conflict updating {name}: conflict for key={key}, value1={there[key]}, value2={value}"
            )
    parent[name] = {**there, **additions}


def wants_resource(spec: Mapping[str, Any], resource: str) -> bool:
    """Whether any container of a pod spec asks for some of ``resource``."""
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            resources = container.get("resources") or {}
            for amounts in (resources.get("limits"), resources.get("requests")):
                if str((amounts or {}).get(resource) or "0").strip("0.") != "":
                    return True
    return False


def _avoid_marked_nodes(spec: Object, config: AutopilotConfiguration) -> None:
    required: dict[str, list[str]] = {}
    preferred: dict[str, list[str]] = {}
    for resource, taints in config.resource_taints.items():
        if wants_resource(spec, resource):
            for taint in taints:
                values = preferred if taint.effect == "PreferNoSchedule" else required
                values.setdefault(taint.key, []).append(taint.value)
    if not required and not preferred:
        return
    affinity = _child(spec, "affinity")
    nodes = _child(affinity, "nodeAffinity")
    if required:
        selector = _child(nodes, "requiredDuringSchedulingIgnoredDuringExecution")
        # the terms are alternatives, so each must say it
        for term in selector.setdefault("nodeSelectorTerms", [{}]):
            term["matchExpressions"] = [*(term.get("matchExpressions") or ()), *_not_in(required)]
    if preferred:
        nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [
            *(nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or ()),
            {"weight": config.prefer_no_schedule_weight, "preference": {"matchExpressions": _not_in(preferred)}},
        ]


def _child(parent: Object, name: str) -> Object:
    """The object under ``name``, made where there is none."""
    child: Object = parent.get(name) or {}
    parent[name] = child
    return child


def _not_in(marks: Mapping[str, list[str]]) -> list[Object]:
    return [{"key": key, "operator": "NotIn", "values": list(values)} for key, values in marks.items()]
