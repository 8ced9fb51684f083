"""Tables of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, autoscalers and disruption budgets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from envtest.apimachinery.objects import Object
from envtest.builtins.autoscaler_versions import to_v2
from envtest.printers.columns import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
    Column,
    Printer,
    age,
    common_fields,
    containers_and_images,
    labels_text,
    selector_text,
    since,
)

__all__ = ["WORKLOADS"]

_SELECTOR: Final = Column(
    "Selector",
    "The label selector of the pods of this object; it must match the labels of the pod template.",
    priority=1,
)
_READY: Final = Column("Ready", "Number of the pod with ready state")


def _deployment(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, status = common_fields(obj, now)
    return [
        name,
        f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        object_age,
        *containers_and_images(spec.get("template")),
        selector_text(spec.get("selector")),
    ]


def _replica_set(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, status = common_fields(obj, now)
    selector = spec.get("selector")
    return [
        name,
        spec.get("replicas") or 0,
        status.get("replicas") or 0,
        status.get("readyReplicas") or 0,
        object_age,
        *containers_and_images(spec.get("template")),
        labels_text(selector)
        if obj.get("kind") == "ReplicationController"
        else selector_text(selector),
    ]


def _stateful_set(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, status = common_fields(obj, now)
    ready = f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}"
    return [name, ready, object_age, *containers_and_images(spec.get("template"))]


def _daemon_set(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, status = common_fields(obj, now)
    template = spec.get("template") or {}
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name,
        *(status.get(count) or 0 for count in counts),
        labels_text((template.get("spec") or {}).get("nodeSelector")),
        object_age,
        *containers_and_images(template),
        selector_text(spec.get("selector")),
    ]


def _job_status(obj: Object, status: Mapping[str, Any]) -> str:
    true = {
        one.get("type") for one in status.get("conditions") or () if one.get("status") == "True"
    }
    for kind, text in (("Complete", "Complete"), ("Failed", "Failed")):
        if kind in true:
            return text
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind, text in (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget")):
        if kind in true:
            return text
    return "SuccessCriteriaMet" if "SuccessCriteriaMet" in true else "Running"


def _scale(obj: Object, now: datetime) -> list[Any]:
    replicas = [(obj.get(part) or {}).get("replicas") or 0 for part in ("spec", "status")]
    return [
        obj["metadata"].get("name", ""),
        *replicas,
        age(obj["metadata"].get("creationTimestamp"), now),
    ]


def _job(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, status = common_fields(obj, now)
    succeeded = status.get("succeeded") or 0
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        parallelism = spec.get("parallelism") or 0
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    duration = ""
    started = status.get("startTime")
    if started:
        end = status.get("completionTime")
        finished = datetime.fromisoformat(end) if end else now
        duration = since(datetime.fromisoformat(started), finished)
    return [
        name,
        _job_status(obj, status),
        completions,
        duration,
        object_age,
        *containers_and_images(spec.get("template")),
        selector_text(spec.get("selector")),
    ]


def _cron_job(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, status = common_fields(obj, now)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    last = status.get("lastScheduleTime")
    suspend = spec.get("suspend")
    return [
        name,
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        "<unset>" if suspend is None else str(suspend).capitalize(),
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        object_age,
        *containers_and_images(job.get("template")),
        selector_text(job.get("selector")),
    ]


def _target_text(
    metric: Mapping[str, Any] | None, current: Mapping[str, Any] | None, kind: str
) -> str:
    """Format the current and the target value of a metric as ``cpu: 40%/80%``."""
    metric = metric or {}
    current = current or {}
    target = metric.get("target") or {}
    now = current.get("current") or {}
    if target.get("averageUtilization") is not None:
        current_text = (
            f"{now['averageUtilization']}%"
            if now.get("averageUtilization") is not None
            else "<unknown>"
        )
        text = f"{current_text}/{target['averageUtilization']}%"
    elif target.get("averageValue") is not None:
        average = " (avg)" if kind in ("External", "Object") else ""
        text = f"{now.get('averageValue') or '<unknown>'}/{target['averageValue']}{average}"
    else:
        text = f"{now.get('value') or '<unknown>'}/{target.get('value', '<auto>')}"
    return f"{metric['name']}: {text}" if kind in ("Resource", "ContainerResource") else text


_METRIC_FIELDS: Final = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


def _autoscaler(obj: Object, now: datetime) -> list[Any]:
    if obj.get("apiVersion") == "autoscaling/v1":
        obj = to_v2(obj)
    name, object_age, spec, status = common_fields(obj, now)
    reference = spec.get("scaleTargetRef") or {}
    current_metrics = status.get("currentMetrics") or []
    targets = []
    for index, metric in enumerate(spec.get("metrics") or ()):
        kind = metric.get("type", "")
        source = _METRIC_FIELDS.get(kind, "")
        current = current_metrics[index].get(source) if index < len(current_metrics) else None
        targets.append(_target_text(metric.get(source), current, kind))
    max_count = 2
    text = ", ".join(targets[:max_count]) or NONE
    if len(targets) > max_count:
        text += f" + {len(targets) - max_count} more..."
    return [
        name,
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        text,
        str(spec["minReplicas"]) if spec.get("minReplicas") is not None else "<unset>",
        spec.get("maxReplicas") or 0,
        status.get("currentReplicas") or 0,
        object_age,
    ]


def _budget(obj: Object, now: datetime) -> list[Any]:
    name, object_age, spec, status = common_fields(obj, now)
    min_available = spec.get("minAvailable")
    max_count = spec.get("maxUnavailable")
    return [
        name,
        "N/A" if min_available is None else str(min_available),
        "N/A" if max_count is None else str(max_count),
        status.get("disruptionsAllowed") or 0,
        object_age,
    ]


def _revision(obj: Object, now: datetime) -> list[Any]:
    metadata = obj["metadata"]
    owner = next(
        (one for one in metadata.get("ownerReferences") or () if one.get("controller")), None
    )
    group = owner["apiVersion"].rpartition("/")[0] if owner else ""
    controller = NONE
    if owner:
        controller = (
            f"{owner['kind'].lower()}.{group}/{owner['name']}"
            if group
            else f"{owner['kind'].lower()}/{owner['name']}"
        )
    return [
        metadata.get("name", ""),
        controller,
        obj.get("revision") or 0,
        age(metadata.get("creationTimestamp"), now),
    ]


_REPLICA_SET_COLUMNS: Final = (
    NAME,
    Column(
        "Desired",
        "The number of desired pods; defaults to one, and may explicitly be set to zero.",
        "integer",
    ),
    Column(
        "Current",
        "The most recently observed number of pods, whether they are ready or not.",
        "integer",
    ),
    Column(
        "Ready",
        "The number of pods with a Ready condition, as reported by the controller.",
        "integer",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    _SELECTOR,
)

WORKLOADS: Final[dict[tuple[str, str], Printer]] = {
    ("apps", "Deployment"): (
        (
            NAME,
            _READY,
            Column(
                "Up-to-date", "The number of pods that were created from the current pod template."
            ),
            Column(
                "Available", "The number of pods that have been ready for at least minReadySeconds."
            ),
            AGE,
            CONTAINERS,
            IMAGES,
            _SELECTOR,
        ),
        _deployment,
    ),
    ("apps", "ReplicaSet"): (_REPLICA_SET_COLUMNS, _replica_set),
    ("", "ReplicationController"): (_REPLICA_SET_COLUMNS, _replica_set),
    ("apps", "StatefulSet"): ((NAME, _READY, AGE, CONTAINERS, IMAGES), _stateful_set),
    ("apps", "DaemonSet"): (
        (
            NAME,
            Column(
                "Desired",
                "The number of nodes that should run the daemon pod, by its selectors and tolerations.",
                "integer",
            ),
            Column(
                "Current",
                "The number of nodes that run at least one daemon pod and should run it.",
                "integer",
            ),
            Column(
                "Ready",
                "The number of nodes with at least one daemon pod that has a Ready condition.",
                "integer",
            ),
            Column(
                "Up-to-date",
                "The number of nodes that run a daemon pod of the current pod template.",
                "integer",
            ),
            Column(
                "Available",
                "The number of nodes with a daemon pod that has been ready for minReadySeconds.",
                "integer",
            ),
            Column(
                "Node Selector",
                "The labels that a node must have for the daemon pod to be scheduled to it.",
            ),
            AGE,
            CONTAINERS,
            IMAGES,
            _SELECTOR,
        ),
        _daemon_set,
    ),
    ("batch", "Job"): (
        (
            NAME,
            Column("Status", "Status of the job."),
            Column(
                "Completions",
                "The number of pods that reached the phase Succeeded, out of the desired number.",
            ),
            Column("Duration", "Time required to complete the job."),
            AGE,
            CONTAINERS,
            IMAGES,
            _SELECTOR,
        ),
        _job,
    ),
    ("batch", "CronJob"): (
        (
            NAME,
            Column(
                "Schedule",
                "The schedule in Cron format: minute, hour, day of month, month and day of week.",
            ),
            Column(
                "Timezone",
                "The time zone of the schedule; defaults to the time zone of kube-controller-manager.",
            ),
            Column(
                "Suspend",
                "Whether no new jobs are started; jobs that already run are not affected.",
                "boolean",
            ),
            Column("Active", "A list of pointers to currently running jobs.", "integer"),
            Column(
                "Last Schedule",
                "The time since the last job of this schedule was successfully scheduled.",
            ),
            AGE,
            CONTAINERS,
            IMAGES,
            _SELECTOR,
        ),
        _cron_job,
    ),
    ("autoscaling", "Scale"): (
        (
            Column("Name", NAME.description),
            Column(
                "Desired",
                "The number of pods that are desired; see spec.replicas of this scale.",
                "integer",
            ),
            Column(
                "Available",
                "The number of pods that are observed; see status.replicas of this scale.",
                "integer",
            ),
            AGE,
        ),
        _scale,
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): (
        (
            NAME,
            Column(
                "Reference", "The object whose scale subresource the autoscaler reads and writes."
            ),
            Column(
                "Targets",
                "Current and target values of all metrics; the one that demands most replicas applies.",
            ),
            Column(
                "MinPods",
                "The lower limit for the number of replicas to which the autoscaler can scale down.",
            ),
            Column(
                "MaxPods",
                "The upper limit for the number of replicas to which the autoscaler can scale up.",
            ),
            Column(
                "Replicas", "The number of replicas that the autoscaler observed most recently."
            ),
            AGE,
        ),
        _autoscaler,
    ),
    ("policy", "PodDisruptionBudget"): (
        (
            NAME,
            Column("Min Available", "The minimum number of pods that must be available."),
            Column("Max Unavailable", "The maximum number of pods that may be unavailable."),
            Column(
                "Allowed Disruptions",
                "The number of pods that may currently be disrupted without violating the budget.",
                "integer",
            ),
            AGE,
        ),
        _budget,
    ),
    ("apps", "ControllerRevision"): (
        (
            NAME,
            Column("Controller", "Controller of the object"),
            Column(
                "Revision",
                "The number of the revision whose state is stored in the data of this object.",
            ),
            AGE,
        ),
        _revision,
    ),
}
