"""The pods of a component that need quota, as they will run: with everything that KubeRay adds to them.

KubeRay adds an autoscaler to the head pod, a collector of logs to all pods, and submits a RayJob with a Job or with a
container of the head pod. None of these is in a pod template of the component. Kueue's integrations for RayClusters,
RayJobs and RayServices count them, except for the collector (``common.go`` and ``rayjob_controller.go`` below
``pkg/controller/jobs`` in Kueue 0.19), its integration for AppWrappers does not. The resources equal KubeRay 1.7's
(``ray-operator/controllers/ray/common``).

Kubeflow Trainer sets the resources of the nodes of a TrainJob, whose pod templates are in no component.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cfo.api.appwrapper.inference import pod_sets_of, submits_in_own_pod
from cfo.api.appwrapper.kinds import RAY_SPECS, TRAIN_JOB, kind_of
from cfo.api.appwrapper.paths import value_or_none
from cfo.api.appwrapper.podsets import (
    SUBMITTER_PATH,
    PodSetError,
    is_submitter,
    pod_template_at,
    pod_template_problems,
)
from cfo.api.appwrapper.train_jobs import RESOURCES_PATH, trained_pod_spec
from cfo.api.container_resources import negative_errors, negative_pod_errors
from cfo.api.pod_requests import with_default_requests
from cfo.api.pod_templates import for_custom_resource
from cfo.api.reading import mapping
from cfo.runtime import FieldError, Object, annotations_of
from cfo.runtime.objects import copied, parse_quantity
from cfo.runtime.objects.field import Path

_AUTOSCALER: Final = "autoscaler"
_SUBMITTER: Final = "ray-job-submitter"
_COLLECTOR: Final = "ray-history-collector"
_AUTOSCALER_RESOURCES: Final = {
    "limits": {"cpu": "500m", "memory": "512Mi"},
    "requests": {"cpu": "500m", "memory": "512Mi"},
}
_SUBMITTER_RESOURCES: Final = {
    "limits": {"cpu": "1", "memory": "1Gi"},
    "requests": {"cpu": "500m", "memory": "200Mi"},
}
_COLLECTOR_RESOURCES: Final = {
    "limits": {"cpu": "200m", "memory": "256Mi"},
    "requests": {"cpu": "50m", "memory": "64Mi"},
}
_WAIT_FOR_GCS: Final = {
    "name": "wait-gcs-ready",
    "resources": {
        "limits": {"cpu": "200m", "memory": "256Mi"},
        "requests": {"cpu": "200m", "memory": "256Mi"},
    },
}
"""The init container of each worker that waits for the head. A pod needs the larger of this and its containers."""

_REDIS_CLEANUP: Final = {"cpu": "200m", "memory": "256Mi"}
"""The requests of the Job that deletes a cluster's state in Redis, which runs after the head pod has ended."""


class _Addition(msgspec.Struct, frozen=True):
    """A container that KubeRay adds to the head pod, or to all Ray pods (``in_workers``).

    ``path`` is the field of the component that requests it. ``is_chosen``: its user sets the resources.
    """

    path: str
    container: Object
    in_workers: bool = False
    is_chosen: bool = False

    @property
    def description(self) -> str:
        """The container and its pods, for messages."""
        pods = "each Ray pod" if self.in_workers else "the head pod"
        return f"container {self.container['name']} of {pods}"


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
    gvk = kind_of(template)
    groups: list[QuotaGroup] = []
    for pod_set in pod_sets_of(component):
        path = pod_set["path"]
        found = copied(pod_template_at(template, path))
        submits = is_submitter(gvk, pod_set)
        if gvk in RAY_SPECS and not submits:
            _add_to_ray_pod(template, found["spec"], is_head=_is_head(template, path))
        if gvk == TRAIN_JOB:
            found["spec"] = trained_pod_spec(template, path, found["spec"])
        found["spec"] = for_custom_resource(with_default_requests(found["spec"]))
        groups.append(QuotaGroup(pod_set, found, len(groups), submits))
    has_submitter = any(group.is_submitter for group in groups)
    if groups and submits_in_own_pod(template) and not has_submitter:
        pod_set = {"path": SUBMITTER_PATH, "replicas": 1}
        submitter = submitter_template(template)
        submitter["spec"] = for_custom_resource(with_default_requests(submitter["spec"]))
        groups.append(QuotaGroup(pod_set, submitter, len(groups), is_submitter=True))
    return groups


def required_pod_spec(template: Object, path: str) -> Object:
    """Return the spec of the pod template at ``path``, with the containers whose resources its user lets KubeRay add.

    It is not to be changed. Raises :class:`PodSetError` if there is no pod template.
    """
    spec: Object = pod_template_at(template, path)["spec"]
    if kind_of(template) not in RAY_SPECS:
        return spec
    is_head = _is_head(template, path)
    additions = _additions_to(template, is_head=is_head)
    chosen = [addition.container for addition in additions if addition.is_chosen]
    required = {**spec, "containers": [*(spec.get("containers") or ()), *chosen]}
    if (spec.get("resources") or {}).get("limits"):
        # The requests of all containers, also those that KubeRay adds, are by default the pod's.
        complete = dict(spec)
        _add_to_ray_pod(template, complete, is_head=is_head)
        required["resources"] = with_default_requests(complete)["resources"]
    return required


def _is_head(template: Object, path: str) -> bool:
    return path == f"{RAY_SPECS[kind_of(template)]}.headGroupSpec.template"


def submitter_template(template: Object) -> Object:
    """Return a copy of the pod template with which KubeRay submits the RayJob ``template``; its default if unset.

    Raises :class:`PodSetError` if it is not a pod template.
    """
    if value_or_none(template, SUBMITTER_PATH) is not None:
        return copied(pod_template_at(template, SUBMITTER_PATH))
    head = pod_template_at(template, f"{RAY_SPECS[kind_of(template)]}.headGroupSpec.template")
    first: Object = next(iter(head["spec"].get("containers") or ()), {})
    container: Object = {"name": _SUBMITTER}
    if first.get("image"):
        container["image"] = first["image"]
    container["resources"] = copied(_SUBMITTER_RESOURCES)
    return {"metadata": {}, "spec": {"containers": [container], "restartPolicy": "Never"}}


def check_added_pods(template: Object) -> None:
    """Raise :class:`PodSetError` if the resources that KubeRay or Kubeflow Trainer sets are invalid."""
    for path, resources in _added_resources(template):
        problems = pod_template_problems({"containers": [{"resources": resources}]})
        if problems:
            raise PodSetError(
                f"content at {path} not parseable as v1.ResourceRequirements: {problems}"
            )


def negative_request_errors(component: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error for each negative quantity that the pods of the component at ``path`` would request.

    Its pod sets must have been checked.
    """
    template: Object = component["template"]
    for pod_set in pod_sets_of(component):
        where = f"{pod_set['path']}.spec"
        yield from negative_pod_errors(mapping(value_or_none(template, where)), path.child(where))
    for where, resources in _added_resources(template):
        yield from negative_errors(resources, path.child(where))


def _added_resources(template: Object) -> Iterator[tuple[str, Any]]:
    """Yield the resources that KubeRay or Kubeflow Trainer sets, each with the path of the field that causes it."""
    for addition in _additions(template):
        yield addition.path, addition.container["resources"]
    if kind_of(template) == TRAIN_JOB:
        yield RESOURCES_PATH, value_or_none(template, RESOURCES_PATH)


def uncounted_additions(template: Object) -> list[str]:
    """Return descriptions of the pods and containers of a component that only :func:`pods_with_quota` counts.

    Programs that read the component's pod sets alone, such as Kueue's integration of AppWrappers, do not count them.
    """
    found = [addition.description for addition in _additions(template)]
    if submits_in_own_pod(template) and value_or_none(template, SUBMITTER_PATH) is None:
        found.append(
            "default pod that submits the RayJob (set spec.submitterPodTemplate to have it counted)"
        )
    if kind_of(template) == TRAIN_JOB and value_or_none(template, RESOURCES_PATH) is not None:
        found.append("spec.trainer.resourcesPerNode of the TrainJob")
    return found


def _additions(template: Object) -> Iterator[_Addition]:
    """Yield the containers that KubeRay adds to the pods of a component."""
    cluster = RAY_SPECS.get(kind_of(template))
    if cluster is None:
        return
    if value_or_none(template, f"{cluster}.enableInTreeAutoscaling") is True:
        where = f"{cluster}.autoscalerOptions.resources"
        yield _with_resources_at(template, where, _AUTOSCALER, _AUTOSCALER_RESOURCES)
    where = "template.spec.submissionMode"
    if kind_of(template).kind == "RayJob" and value_or_none(template, where) == "SidecarMode":
        yield _Addition(where, {"name": _SUBMITTER, "resources": _SUBMITTER_RESOURCES})
    options = f"{cluster}.historyServerOptions.collectorOptions"
    if value_or_none(template, options) is not None:
        where = f"{options}.resources"
        yield _with_resources_at(template, where, _COLLECTOR, _COLLECTOR_RESOURCES, in_workers=True)


def _with_resources_at(
    template: Object, path: str, name: str, default: Object, *, in_workers: bool = False
) -> _Addition:
    """Return a container with the resources at ``path``, which users set, or else KubeRay's default."""
    resources = value_or_none(template, path)
    is_chosen = resources is not None
    container = {"name": name, "resources": resources if is_chosen else default}
    return _Addition(path, container, in_workers, is_chosen)


def _add_to_ray_pod(template: Object, spec: Object, *, is_head: bool) -> None:
    """Add to a Ray pod's ``spec``, a copy, what KubeRay adds, and to the head the requests of the cleanup of Redis."""
    init_containers: list[Object] = list(spec.get("initContainers") or ())
    if not is_head and not _has_name(init_containers, _WAIT_FOR_GCS["name"]):
        # A user who writes it has turned off that KubeRay adds it.
        spec["initContainers"] = [*init_containers, copied(_WAIT_FOR_GCS)]
    containers: list[Object] = list(spec.get("containers") or ())
    if is_head and containers and _has_fault_tolerance(template):
        containers[0] = _with_requests(containers[0], _REDIS_CLEANUP)
    additions = _additions_to(template, is_head=is_head)
    containers += [copied(each.container) for each in additions]
    spec["containers"] = containers


def _has_name(containers: Iterable[Mapping[str, Any]], name: object) -> bool:
    return any(container.get("name") == name for container in containers)


def _additions_to(template: Object, *, is_head: bool) -> list[_Addition]:
    return [each for each in _additions(template) if is_head or each.in_workers]


def _has_fault_tolerance(template: Object) -> bool:
    """Return whether the state of the cluster is kept outside of the head pod (``IsGCSFaultToleranceEnabled``)."""
    options = value_or_none(template, f"{RAY_SPECS[kind_of(template)]}.gcsFaultToleranceOptions")
    if options is not None:
        return True
    annotation = annotations_of(template).get("ray.io/ft-enabled")
    return str(annotation).lower() == "true"


def _with_requests(container: Object, minimum: Mapping[str, str]) -> Object:
    """Return ``container`` with requests of at least ``minimum``; invalid quantities are kept.

    What a container with a limit does not request is the limit (API servers set that), which can be larger.
    """
    resources: Object = container.get("resources") or {}
    requests: Object = dict(resources.get("requests") or {})
    requested = {**(resources.get("limits") or {}), **requests}
    for name, amount in minimum.items():
        try:
            if parse_quantity(requested.get(name, "0")) < parse_quantity(amount):
                requests[name] = amount
        except ValueError:
            continue  # the API server rejects it
    return {**container, "resources": {**resources, "requests": requests}}
