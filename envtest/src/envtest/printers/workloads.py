"""Rows of what runs pods: Deployments and their kin, Jobs, autoscalers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from envtest.objects import Object
from envtest.printers.columns import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
    Column,
    Printer,
    age,
    containers_and_images,
    labels_text,
    selector_text,
    since,
)

__all__ = ["WORKLOADS"]

_SELECTOR: Final = Column(
    "Selector", "The labels of the pods that belong to the object; it must match those of the pod template.", priority=1
)
_READY: Final = Column("Ready", "Number of the pod with ready state")


def _head(obj: Object, now: datetime) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    metadata = obj["metadata"]
    return (
        metadata.get("name", ""),
        age(metadata.get("creationTimestamp"), now),
        obj.get("spec") or {},
        obj.get("status") or {},
    )


def _deployment(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
    return [
        name,
        f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        old,
        *containers_and_images(spec.get("template")),
        selector_text(spec.get("selector")),
    ]


def _replica_set(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
    selector = spec.get("selector")
    return [
        name,
        spec.get("replicas") or 0,
        status.get("replicas") or 0,
        status.get("readyReplicas") or 0,
        old,
        *containers_and_images(spec.get("template")),
        labels_text(selector) if obj.get("kind") == "ReplicationController" else selector_text(selector),
    ]


def _stateful_set(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
    ready = f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}"
    return [name, ready, old, *containers_and_images(spec.get("template"))]


def _daemon_set(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
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
        old,
        *containers_and_images(template),
        selector_text(spec.get("selector")),
    ]


def _job_status(obj: Object, status: Mapping[str, Any]) -> str:
    true = {one.get("type") for one in status.get("conditions") or () if one.get("status") == "True"}
    for kind, text in (("Complete", "Complete"), ("Failed", "Failed")):
        if kind in true:
            return text
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind, text in (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget")):
        if kind in true:
            return text
    return "SuccessCriteriaMet" if "SuccessCriteriaMet" in true else "Running"


def _job(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
    succeeded = status.get("succeeded") or 0
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        parallelism = spec.get("parallelism") or 0
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    duration = ""
    if started := status.get("startTime"):
        end = status.get("completionTime")
        duration = since(datetime.fromisoformat(started), datetime.fromisoformat(end) if end else now)
    return [
        name,
        _job_status(obj, status),
        completions,
        duration,
        old,
        *containers_and_images(spec.get("template")),
        selector_text(spec.get("selector")),
    ]


def _cron_job(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
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
        old,
        *containers_and_images(job.get("template")),
        selector_text(job.get("selector")),
    ]


def _target_text(metric: Mapping[str, Any] | None, current: Mapping[str, Any] | None, kind: str) -> str:
    """``cpu: 40%/80%``, what is over what should be."""
    metric, current = metric or {}, current or {}
    target, now = metric.get("target") or {}, current.get("current") or {}
    if target.get("averageUtilization") is not None:
        one = f"{now['averageUtilization']}%" if now.get("averageUtilization") is not None else "<unknown>"
        text = f"{one}/{target['averageUtilization']}%"
    elif target.get("averageValue") is not None:
        average = " (avg)" if kind in ("External", "Object") else ""
        text = f"{now.get('averageValue') or '<unknown>'}/{target['averageValue']}{average}"
    else:
        text = f"{now.get('value') or '<unknown>'}/{target.get('value', '<auto>')}"
    return f"{metric['name']}: {text}" if kind in ("Resource", "ContainerResource") else text


_SOURCES: Final = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


def _autoscaler(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
    reference = spec.get("scaleTargetRef") or {}
    currents = status.get("currentMetrics") or []
    targets = []
    for index, metric in enumerate(spec.get("metrics") or ()):
        kind = metric.get("type", "")
        source = _SOURCES.get(kind, "")
        current = currents[index].get(source) if index < len(currents) else None
        targets.append(_target_text(metric.get(source), current, kind))
    most = 2
    text = ", ".join(targets[:most]) or NONE
    if len(targets) > most:
        text += f" + {len(targets) - most} more..."
    return [
        name,
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        text,
        str(spec["minReplicas"]) if spec.get("minReplicas") is not None else "<unset>",
        spec.get("maxReplicas") or 0,
        status.get("currentReplicas") or 0,
        old,
    ]


def _budget(obj: Object, now: datetime) -> list[Any]:
    name, old, spec, status = _head(obj, now)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    return [
        name,
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        status.get("disruptionsAllowed") or 0,
        old,
    ]


def _revision(obj: Object, now: datetime) -> list[Any]:
    metadata = obj["metadata"]
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    group = owner["apiVersion"].rpartition("/")[0] if owner else ""
    controller = NONE
    if owner:
        controller = (
            f"{owner['kind'].lower()}.{group}/{owner['name']}" if group else f"{owner['kind'].lower()}/{owner['name']}"
        )
    return [metadata.get("name", ""), controller, obj.get("revision") or 0, age(metadata.get("creationTimestamp"), now)]


_REPLICA_SET_COLUMNS: Final = (
    NAME,
    Column(
        "Desired",
        "How many pods there should be; one when nothing is said, and zero is different from that.",
        "integer",
    ),
    Column(
        "Current", "How many pods there are at present, whether they are ready yet or not, as last observed.", "integer"
    ),
    Column("Ready", "How many of the pods have the condition Ready, by the count of their controller.", "integer"),
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
            Column("Up-to-date", "How many of the pods were made from the pod template as it is at present."),
            Column("Available", "How many of the pods have been ready for as long as minReadySeconds demands."),
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
                "How many nodes should run the daemon pod, by the selectors and tolerations of it.",
                "integer",
            ),
            Column("Current", "How many nodes run at least one daemon pod and are supposed to run it.", "integer"),
            Column("Ready", "How many nodes have at least one daemon pod with a condition Ready.", "integer"),
            Column("Up-to-date", "How many nodes run a daemon pod made from the present pod template.", "integer"),
            Column("Available", "How many nodes have a daemon pod that was ready for minReadySeconds.", "integer"),
            Column("Node Selector", "The labels that a node must have for the daemon pod to be placed on it."),
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
            Column("Completions", "How many pods have reached the phase Succeeded, of as many as the job asks for."),
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
            Column("Schedule", "When jobs are started, in the format of Cron: minute, hour, day, month, weekday."),
            Column("Timezone", "The time zone in which the schedule is read, by default that of the controller."),
            Column(
                "Suspend", "Whether no more jobs are started for now; those that run already are left alone.", "boolean"
            ),
            Column("Active", "A list of pointers to currently running jobs.", "integer"),
            Column("Last Schedule", "When a job was last started successfully by this schedule; ages go from then."),
            AGE,
            CONTAINERS,
            IMAGES,
            _SELECTOR,
        ),
        _cron_job,
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): (
        (
            NAME,
            Column("Reference", "The object whose scale subresource is read and written by the autoscaler."),
            Column("Targets", "What is measured and what it should be; the largest wish of all metrics is followed."),
            Column("MinPods", "The lower limit for the number of replicas to which the autoscaler can scale down."),
            Column("MaxPods", "The upper limit for the number of replicas to which the autoscaler can scale up."),
            Column("Replicas", "How many replicas there were when the autoscaler last looked at them."),
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
                "How many pods may be disrupted now without breaking the budget, as reckoned.",
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
            Column("Revision", "The number of the revision of the state that is kept in the object's data."),
            AGE,
        ),
        _revision,
    ),
}
