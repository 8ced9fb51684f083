"""Injects settings into the pod templates of a component before it is created.

These are the queue's requirements (``podSetInfos``), the label that is used to count pods, the scheduler, and node
affinities that keep pods that request a resource off nodes on which it is marked. Settings of the user are kept; if the
queue requires a different value for the same key, an :class:`InjectionError` is raised, because both values would be
wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cfo.api.appwrapper import (
    RAY_JOB,
    SUBMITTER_PATH,
    PodSetError,
    is_submitter,
    pod_template_at,
    submitter_template,
)
from cfo.api.appwrapper.names import APPWRAPPER_LABEL
from cfo.api.quantity import is_zero
from cfo.config import AppWrapperConfiguration, AutopilotConfiguration
from cfo.runtime import Object, gvk_of

_SUBMITTER_FIELD: Final = SUBMITTER_PATH.rpartition(".")[2]


class InjectionError(ValueError):
    """The user's and the queue's settings of a component conflict, or a pod set does not refer to a pod template."""


def inject(
    obj: Object,
    pod_sets: Iterable[Mapping[str, Any]],
    infos: Iterable[Mapping[str, Any]],
    wrapper_name: str,
    config: AppWrapperConfiguration,
) -> None:
    """Inject the settings into ``obj``, the object of a component. Raises :class:`InjectionError`."""
    obj["metadata"]["labels"] = {APPWRAPPER_LABEL: wrapper_name, **(obj["metadata"].get("labels") or {})}
    pod_set_infos = list(infos)
    sets = list(pod_sets)
    gvk = gvk_of(obj)
    try:
        if len(pod_set_infos) == len(sets) + 1 and gvk == RAY_JOB:  # the last one is for a submitter without a pod set
            obj["spec"][_SUBMITTER_FIELD] = submitter_template(obj)
            sets.append({"path": SUBMITTER_PATH})
        for index, pod_set in enumerate(sets):
            template = pod_template_at(obj, pod_set.get("path") or "")
            info = pod_set_infos[index] if index < len(pod_set_infos) else {}
            # A failed submitter is replaced by its Job, so it must not count as a failed pod of the AppWrapper.
            label = {} if is_submitter(gvk, pod_set) else {APPWRAPPER_LABEL: wrapper_name}
            _inject_pod_template(template, info, label, config)
    except PodSetError as error:  # only if the AppWrapper was created without admission
        raise InjectionError(str(error)) from error


def _inject_pod_template(
    template: Object, info: Mapping[str, Any], label: Mapping[str, str], config: AppWrapperConfiguration
) -> None:
    metadata: Object = template.get("metadata") or {}
    template["metadata"] = metadata
    spec: Object = template["spec"]
    _merge(metadata, "annotations", info.get("annotations"))
    _merge(metadata, "labels", {**label, **(info.get("labels") or {})})
    _merge(spec, "nodeSelector", info.get("nodeSelector"))
    if tolerations := info.get("tolerations"):
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *tolerations]
    if gates := info.get("schedulingGates"):
        existing: list[Object] = list(spec.get("schedulingGates") or ())
        names = {gate.get("name") for gate in existing}
        spec["schedulingGates"] = existing + [{"name": gate["name"]} for gate in gates if gate["name"] not in names]
    if config.scheduler_name and not spec.get("schedulerName"):
        spec["schedulerName"] = config.scheduler_name
    if config.autopilot.inject_anti_affinities:
        _avoid_marked_nodes(spec, config.autopilot)


def _merge(parent: Object, name: str, additions: Mapping[str, str] | None) -> None:
    if not additions:
        return
    existing: Mapping[str, str] = parent.get(name) or {}
    for key, value in additions.items():
        if existing.get(key, value) != value:
            raise InjectionError(
                f"conflict updating {name}: conflict for key={key}, value1={existing[key]}, value2={value}"
            )
    parent[name] = {**existing, **additions}


def requests_resource(spec: Mapping[str, Any], resource: str) -> bool:
    """Return whether any container of a pod spec requests ``resource``, or has a limit for it, other than zero."""
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            resources = container.get("resources") or {}
            for amounts in (resources.get("limits"), resources.get("requests")):
                if not is_zero((amounts or {}).get(resource) or "0"):
                    return True
    return False


def _avoid_marked_nodes(spec: Object, config: AutopilotConfiguration) -> None:
    required: dict[str, list[str]] = {}
    preferred: dict[str, list[str]] = {}
    for resource, taints in config.resource_taints.items():
        if requests_resource(spec, resource):
            for taint in taints:
                values = preferred if taint.effect == "PreferNoSchedule" else required
                values.setdefault(taint.key, []).append(taint.value)
    if not required and not preferred:
        return
    affinity = _child(spec, "affinity")
    nodes = _child(affinity, "nodeAffinity")
    if required:
        selector = _child(nodes, "requiredDuringSchedulingIgnoredDuringExecution")
        # The terms are alternatives, so the expressions must be in each of them.
        for term in selector.setdefault("nodeSelectorTerms", [{}]):
            term["matchExpressions"] = [*(term.get("matchExpressions") or ()), *_not_in(required)]
    if preferred:
        nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [
            *(nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or ()),
            {"weight": config.prefer_no_schedule_weight, "preference": {"matchExpressions": _not_in(preferred)}},
        ]


def _child(parent: Object, name: str) -> Object:
    """Return the object in the field ``name``, created if it does not exist."""
    child: Object = parent.get(name) or {}
    parent[name] = child
    return child


def _not_in(values_by_key: Mapping[str, list[str]]) -> list[Object]:
    return [{"key": key, "operator": "NotIn", "values": list(values)} for key, values in values_by_key.items()]
