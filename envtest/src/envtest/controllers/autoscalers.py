"""The controller of HorizontalPodAutoscalers, in a cluster without a metrics API.

It keeps the target between ``minReplicas`` and ``maxReplicas``. The conditions say that no metrics are available, with
the messages that kube-controller-manager has when no metrics server is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from envtest.apimachinery.errors import GroupResource, StatusError
from envtest.apimachinery.objects import NamespacedName, Object, set_condition
from envtest.controllers.controller import Controller
from envtest.handlers.scale import scale_of, set_replicas
from envtest.registry.resource import ResourceInfo
from envtest.storage import Change
from envtest.writes.server_core import Core

__all__ = ["Autoscalers"]

AUTOSCALERS: Final = GroupResource("autoscaling", "horizontalpodautoscalers")
ACTIVE: Final = "ScalingActive"
ABLE: Final = "AbleToScale"
LIMITED: Final = "ScalingLimited"

_Target = tuple[GroupResource, str, str]
_RESOURCE_API: Final = (
    "unable to fetch metrics from resource metrics API: the server could not find the requested resource "
    "(get pods.metrics.k8s.io)"
)
_CUSTOM_API: Final = (
    "unable to fetch metrics from custom metrics API: no custom metrics API "
    "(custom.metrics.k8s.io) registered"
)


class Autoscalers(Controller[NamespacedName]):
    """Reconciles HorizontalPodAutoscalers."""

    account = "horizontal-pod-autoscaler"

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._by_target: dict[_Target, set[NamespacedName]] = {}
        self._targets: dict[NamespacedName, _Target] = {}

    def enqueue_all(self) -> None:
        """Enqueue all autoscalers."""
        for record in self.client.records(AUTOSCALERS):
            self.queue.add(NamespacedName(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue an autoscaler that changed, and those whose target changed."""
        record = change.record
        if resource == AUTOSCALERS:
            self.queue.add(NamespacedName(record.namespace, record.name))
        if self._by_target:
            for key in self._by_target.get((resource, record.namespace, record.name), ()):
                self.queue.add(key)

    async def reconcile(self, key: NamespacedName) -> None:
        """Scale the target if it is out of bounds, and update the status."""
        autoscaler = await self.client.read(AUTOSCALERS, key.namespace, key.name)
        info = None if autoscaler is None else self._target_info(autoscaler)
        self._follow(key, autoscaler, info)
        if autoscaler is None or autoscaler["metadata"].get("deletionTimestamp"):
            return
        status = dict(autoscaler.get("status") or {})
        status["conditions"] = [dict(one) for one in status.get("conditions") or ()]
        try:
            target = await self._read_target(autoscaler, info)
        except StatusError as error:
            text = (
                f"the HPA controller was unable to get the target's current scale: {error.message}"
            )
            self._set(status, ABLE, "False", "FailedGetScale", text)
            await self._write(autoscaler, status)
            await self.events.warning(autoscaler, "FailedGetScale", error.message)
            return
        assert info is not None
        scale = scale_of(info, target)
        text = "the HPA controller was able to get the target's current scale"
        self._set(status, ABLE, "True", "SucceededGetScale", text)
        await self._scale(autoscaler, info, target, scale, status)
        await self._write(autoscaler, status)

    async def _scale(
        self,
        autoscaler: Object,
        info: ResourceInfo,
        target: Object,
        scale: Object,
        status: dict[str, Any],
    ) -> None:
        """Bring the target within its bounds, or report that the metrics are not available."""
        spec = autoscaler["spec"]
        current = int(scale["spec"].get("replicas") or 0)
        low = int(spec.get("minReplicas") or 1)
        high = int(spec["maxReplicas"])
        status["currentReplicas"] = current or None
        if current == 0:
            text = "scaling is disabled since the replica count of the target is zero"
            self._set(status, ACTIVE, "False", "ScalingDisabled", text)
            status["desiredReplicas"] = 0
        elif low <= current <= high:
            status.setdefault("desiredReplicas", 0)
            await self._report_metrics(autoscaler, scale, status)
        else:
            if current > high:
                bound = "above Spec.MaxReplicas"
                desired = high
            else:
                bound = "below Spec.MinReplicas"
                desired = low
            await self._rescale(
                autoscaler, info, target, desired, f"Current number of replicas {bound}", status
            )

    async def _rescale(
        self,
        autoscaler: Object,
        info: ResourceInfo,
        target: Object,
        desired: int,
        reason: str,
        status: dict[str, Any],
    ) -> None:
        metadata = target["metadata"]
        try:
            await self.client.modify(
                info.storage,
                metadata.get("namespace") or "",
                metadata["name"],
                lambda obj: set_replicas(info, obj, desired),
                uid=metadata["uid"],
            )
        except StatusError as error:
            text = f"the HPA controller was unable to update the target scale: {error.message}"
            self._set(status, ABLE, "False", "FailedUpdateScale", text)
            text = f"New size: {desired}; reason: {reason}; error: {error.message}"
            await self.events.warning(autoscaler, "FailedRescale", text)
            await self._write(autoscaler, status)
            raise
        text = f"the HPA controller was able to update the target scale to {desired}"
        self._set(status, ABLE, "True", "SucceededRescale", text)
        await self.events.normal(
            autoscaler, "SuccessfulRescale", f"New size: {desired}; reason: {reason}"
        )
        status |= {"desiredReplicas": desired, "lastScaleTime": self.client.now()}

    async def _report_metrics(
        self, autoscaler: Object, scale: Object, status: dict[str, Any]
    ) -> None:
        if not scale["status"].get("selector"):
            text = "the HPA target's scale is missing a selector"
            self._set(status, ACTIVE, "False", "InvalidSelector", text)
            await self.events.warning(autoscaler, "SelectorRequired", "selector is required")
            await self.events.warning(
                autoscaler, "FailedComputeMetricsReplicas", "selector is required"
            )
            return
        problems = unavailable_metrics(autoscaler)
        for problem in problems:
            await self.events.warning(autoscaler, problem.reason, problem.message)
        if problems:
            first = problems[0]
            text = f"the HPA was unable to compute the replica count: {first.message}"
            self._set(status, ACTIVE, "False", first.reason, text)
            count = len(problems)
            text = f"invalid metrics ({count} invalid out of {count}), first error is: {first.context}: {first.message}"
            await self.events.warning(autoscaler, "FailedComputeMetricsReplicas", text)

    def _set(
        self, status: dict[str, Any], kind: str, value: str, reason: str, message: str
    ) -> None:
        condition = {"type": kind, "status": value, "reason": reason, "message": message}
        set_condition(status["conditions"], condition, now=self.client.now())

    async def _write(self, autoscaler: Object, status: Mapping[str, Any]) -> None:
        metadata = autoscaler["metadata"]
        desired = {name: value for name, value in status.items() if value is not None}

        def change(obj: Object) -> bool:
            current = {
                name: value
                for name, value in (obj.get("status") or {}).items()
                if value is not None
            }
            if current == desired:
                return False
            obj["status"] = dict(desired)
            return True

        await self.client.modify(
            AUTOSCALERS,
            metadata["namespace"],
            metadata["name"],
            change,
            uid=metadata["uid"],
            subresource="status",
        )

    def _target_info(self, autoscaler: Object) -> ResourceInfo | None:
        """Return the resource of the target, if it is served and can be scaled."""
        reference = autoscaler["spec"].get("scaleTargetRef") or {}
        group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
        info = self.core.registry.by_kind(group, version, str(reference.get("kind") or ""))
        return info if info is not None and "scale" in info.subresources else None

    async def _read_target(self, autoscaler: Object, info: ResourceInfo | None) -> Object:
        """Return the target, in the version of :meth:`_target_info`. Raises StatusError if it cannot be scaled."""
        reference = autoscaler["spec"].get("scaleTargetRef") or {}
        if info is None:
            group = str(reference.get("apiVersion") or "").rpartition("/")[0]
            kind = str(reference.get("kind"))
            where = f'group "{group}"' if group else 'group ""'
            text = f'unable to determine resource for scale target reference: no matches for kind "{kind}" in {where}'
            raise StatusError(404, "NotFound", text)
        name = str(reference.get("name"))
        target = await self.client.read(info.storage, autoscaler["metadata"]["namespace"], name)
        if target is None:
            raise StatusError(404, "NotFound", f'{info.resource} "{name}" not found')
        return target

    def _follow(
        self, key: NamespacedName, autoscaler: Object | None, info: ResourceInfo | None
    ) -> None:
        """Remember the target of an autoscaler, so that its changes enqueue the autoscaler."""
        before = self._targets.pop(key, None)
        if before is not None:
            keys = self._by_target[before]
            keys.discard(key)
            if not keys:
                del self._by_target[before]
        if autoscaler is not None and info is not None:
            name = str((autoscaler["spec"].get("scaleTargetRef") or {}).get("name"))
            target = (info.storage, key.namespace, name)
            self._targets[key] = target
            self._by_target.setdefault(target, set()).add(key)


class MetricProblem(NamedTuple):
    """Why a metric is not available: the reason, the message, and how the controller introduces the message."""

    reason: str
    message: str
    context: str


def unavailable_metrics(autoscaler: Object) -> list[MetricProblem]:
    """Return the problem of each metric of an autoscaler (version v2)."""
    return [
        _problem(metric, autoscaler["metadata"]["namespace"])
        for metric in autoscaler["spec"].get("metrics") or ()
    ]


def _problem(metric: Mapping[str, Any], namespace: str) -> MetricProblem:
    match metric.get("type"):
        case "Resource":
            name, text = _resource(metric.get("resource") or {})
            return MetricProblem(
                "FailedGetResourceMetric", text, f"failed to get {name} resource metric value"
            )
        case "ContainerResource":
            name, text = _resource(metric.get("containerResource") or {})
            return MetricProblem(
                "FailedGetContainerResourceMetric",
                text,
                f"failed to get {name} container metric value",
            )
        case "Pods":
            name = ((metric.get("pods") or {}).get("metric") or {}).get("name", "")
            text = f"unable to get metric {name}: {_CUSTOM_API}"
            return MetricProblem("FailedGetPodsMetric", text, "failed to get pods metric value")
        case "Object":
            source = metric.get("object") or {}
            described = source.get("describedObject") or {}
            name = (source.get("metric") or {}).get("name", "")
            where = f"{described.get('kind', '')} on {namespace} {described.get('name', '')}"
            text = f"unable to get metric {name}: {where}/{_CUSTOM_API}"
            return MetricProblem("FailedGetObjectMetric", text, "failed to get object metric value")
    name = ((metric.get("external") or {}).get("metric") or {}).get("name", "")
    text = (
        f"unable to get external metric {namespace}/{name}/nil: unable to fetch metrics from external metrics API: "
        f"the server could not find the requested resource (get {name}.external.metrics.k8s.io)"
    )
    return MetricProblem(
        "FailedGetExternalMetric", text, f"failed to get {name} external metric value"
    )


def _resource(source: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of a resource, and why its usage is not known."""
    name = source.get("name", "")
    kind = (
        "usage" if (source.get("target") or {}).get("averageValue") is not None else "utilization"
    )
    return (
        name,
        f"failed to get {name} {kind}: unable to get metrics for resource {name}: {_RESOURCE_API}",
    )
