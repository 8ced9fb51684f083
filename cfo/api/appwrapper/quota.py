"""The pods of a component that need quota, as they will run: with everything that KubeRay adds to them.

KubeRay adds an autoscaler to the head pod, and submits a RayJob with a Job or with a container of the head pod. None of
these is in a pod template of the component. Kueue's integrations for RayClusters, RayJobs and RayServices count them
(``common.go`` and ``rayjob_controller.go`` below ``pkg/controller/jobs`` in Kueue 0.19), its integration for
AppWrappers does not. The resources equal KubeRay 1.7's (``ray-operator/controllers/ray/common``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cfo.api.appwrapper.inference import RAY_SPECS, pod_sets_of, submits_in_own_pod
from cfo.api.appwrapper.paths import value_or_none
from cfo.api.appwrapper.podsets import (
    SUBMITTER_PATH,
    PodSetError,
    is_submitter,
    pod_template_at,
    pod_template_problems,
)
from cfo.runtime import Object, annotations_of, gvk_of
from cfo.runtime.objects import parse_quantity

_AUTOSCALER: Final = "autoscaler"
_SUBMITTER: Final = "ray-job-submitter"
_AUTOSCALER_RESOURCES: Final = {
    "limits": {"cpu": "500m", "memory": "512Mi"},
    "requests": {"cpu": "500m", "memory": "512Mi"},
}
_SUBMITTER_RESOURCES: Final = {
    "limits": {"cpu": "1", "memory": "1Gi"},
    "requests": {"cpu": "500m", "memory": "200Mi"},
}
_REDIS_CLEANUP: Final = {"cpu": "200m", "memory": "256Mi"}
"""The requests of the Job that deletes a cluster's state in Redis, which runs after the head pod has ended."""


class QuotaGroup(msgspec.Struct, frozen=True):
    """Pods that need quota: their pod set, and the complete pod template.

    ``position`` is the index of the pod set among those of the component. ``is_submitter``: the pod submits a RayJob;
    if no pod set of the component describes it, its position is after all of them.
    """

    pod_set: Mapping[str, Any]
    template: Object
    position: int
    is_submitter: bool = False


def pods_with_quota(component: Mapping[str, Any]) -> list[QuotaGroup]:
    """Return which pods of an AppWrapper's component need quota, ordered like its pod sets.

    The submitter of a RayJob is returned even if no pod set describes it. The templates are copies. Raises
    :class:`PodSetError` as :func:`~cfo.api.appwrapper.inference.pod_sets_of` does.
    """
    template: Object = component["template"]
    gvk = gvk_of(template)
    head = f"{RAY_SPECS[gvk]}.headGroupSpec.template" if gvk in RAY_SPECS else ""
    groups: list[QuotaGroup] = []
    for pod_set in pod_sets_of(component):
        found = copy.deepcopy(pod_template_at(template, pod_set["path"]))
        if head and pod_set["path"] == head:
            _add_to_head(template, found["spec"])
        groups.append(QuotaGroup(pod_set, found, len(groups), is_submitter(gvk, pod_set)))
    has_submitter = any(group.is_submitter for group in groups)
    if groups and submits_in_own_pod(template) and not has_submitter:
        pod_set = {"path": SUBMITTER_PATH, "replicas": 1}
        submitter = submitter_template(template)
        groups.append(QuotaGroup(pod_set, submitter, len(groups), is_submitter=True))
    return groups


def submitter_template(template: Object) -> Object:
    """Return a copy of the pod template with which KubeRay submits the RayJob ``template``; its default if unset.

    Raises :class:`PodSetError` if it is not a pod template.
    """
    if value_or_none(template, SUBMITTER_PATH) is not None:
        return copy.deepcopy(pod_template_at(template, SUBMITTER_PATH))
    head = pod_template_at(template, f"{RAY_SPECS[gvk_of(template)]}.headGroupSpec.template")
    first: Object = next(iter(head["spec"].get("containers") or ()), {})
    container: Object = {"name": _SUBMITTER}
    if first.get("image"):
        container["image"] = first["image"]
    container["resources"] = copy.deepcopy(_SUBMITTER_RESOURCES)
    return {"metadata": {}, "spec": {"containers": [container], "restartPolicy": "Never"}}


def check_added_pods(template: Object) -> None:
    """Raise :class:`PodSetError` if the resources of the containers that KubeRay adds to a component are invalid."""
    for where, container in _added_containers(template):
        problems = pod_template_problems({"containers": [container]})
        if problems:
            raise PodSetError(
                f"content at {where} not parseable as v1.ResourceRequirements: {problems}"
            )


def uncounted_additions(template: Object) -> list[str]:
    """Return descriptions of the pods and containers of a component that only :func:`pods_with_quota` counts.

    Programs that read the component's pod sets alone, such as Kueue's integration of AppWrappers, do not count them.
    """
    found = [
        f"container {container['name']} of the head pod"
        for _, container in _added_containers(template)
    ]
    if submits_in_own_pod(template) and value_or_none(template, SUBMITTER_PATH) is None:
        found.append(
            "default pod that submits the RayJob (set spec.submitterPodTemplate to have it counted)"
        )
    return found


def _added_containers(template: Object) -> Iterator[tuple[str, Object]]:
    """Yield the containers that KubeRay adds to the head pod, each with the path of the field that requests it."""
    cluster = RAY_SPECS.get(gvk_of(template))
    if cluster is None:
        return
    if value_or_none(template, f"{cluster}.enableInTreeAutoscaling") is True:
        where = f"{cluster}.autoscalerOptions.resources"
        resources = value_or_none(template, where)
        if resources is None:
            resources = _AUTOSCALER_RESOURCES
        yield where, {"name": _AUTOSCALER, "resources": resources}
    where = "template.spec.submissionMode"
    if gvk_of(template).kind == "RayJob" and value_or_none(template, where) == "SidecarMode":
        yield where, {"name": _SUBMITTER, "resources": _SUBMITTER_RESOURCES}


def _add_to_head(template: Object, spec: Object) -> None:
    """Add to the head pod's ``spec``, a copy, what KubeRay adds, and the requests of the cleanup of Redis."""
    containers: list[Object] = list(spec.get("containers") or ())
    if containers and _has_fault_tolerance(template):
        containers[0] = _with_requests(containers[0], _REDIS_CLEANUP)
    containers += (copy.deepcopy(container) for _, container in _added_containers(template))
    spec["containers"] = containers


def _has_fault_tolerance(template: Object) -> bool:
    """Return whether the state of the cluster is kept outside of the head pod (``IsGCSFaultToleranceEnabled``)."""
    options = value_or_none(template, f"{RAY_SPECS[gvk_of(template)]}.gcsFaultToleranceOptions")
    if options is not None:
        return True
    annotation = annotations_of(template).get("ray.io/ft-enabled")
    return str(annotation).lower() == "true"


def _with_requests(container: Object, minimum: Mapping[str, str]) -> Object:
    """Return ``container`` with requests of at least ``minimum``; invalid quantities are kept."""
    resources: Object = container.get("resources") or {}
    requests: Object = dict(resources.get("requests") or {})
    for name, amount in minimum.items():
        try:
            if parse_quantity(requests.get(name, "0")) < parse_quantity(amount):
                requests[name] = amount
        except ValueError:
            continue  # the API server rejects it
    return {**container, "resources": {**resources, "requests": requests}}
