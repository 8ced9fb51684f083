"""The autoscaler of an application: a ScaledObject of KEDA, or a HorizontalPodAutoscaler.

KEDA asks the gateway, which is an external scaler of type ``external-push``, how many requests are queued in the
application's consumer group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfo.api.inferencestack.kinds import HORIZONTAL_POD_AUTOSCALER, SCALED_OBJECT
from cfo.api.inferencestack.names import APPLICATION_PREFIX, GATEWAY_INTERNAL_PORT
from cfo.api.inferencestack.resolution import ResolvedStack, is_enabled
from cfo.api.quantity import canonical_quantity
from cfo.controllers.inferencestack.rendering.metadata import new_object
from cfo.runtime import DEPLOYMENT, GVK, Object

__all__ = ["autoscaler", "autoscaler_kind"]

_METRIC_SOURCES = ("containerResource", "external", "object", "pods", "resource")


def autoscaler_kind(section: Mapping[str, Any]) -> GVK | None:
    """Return the kind of an application's autoscaler; ``None`` if its scaling is not enabled."""
    scaling: Mapping[str, Any] = section.get("scaling") or {}
    if not is_enabled(scaling):
        return None
    return HORIZONTAL_POD_AUTOSCALER if scaling.get("type") == "HPA" else SCALED_OBJECT


def autoscaler(stack: ResolvedStack, application: str) -> Object:
    """Return the autoscaler of an application whose scaling is enabled."""
    section = stack.applications[application]
    scaling: Mapping[str, Any] = section["scaling"]
    kind = autoscaler_kind(section) or SCALED_OBJECT
    name = stack.names.application(application)
    target = {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind, "name": name}
    spec = _scaled_object(stack, section, target) if kind == SCALED_OBJECT else _horizontal(scaling, target)
    return new_object(stack, kind, name, f"{APPLICATION_PREFIX}{application}", scaling.get("annotations"), spec=spec)


def _scaled_object(stack: ResolvedStack, section: Mapping[str, Any], target: Object) -> Object:
    scaling: Mapping[str, Any] = section["scaling"]
    group = (section.get("readerConfig") or {}).get("consumerGroup")
    value = (scaling.get("metricTarget") or {}).get("value", 10)
    host = f"{stack.names.gateway}.{stack.namespace}.svc.cluster.local"
    trigger = {
        "type": "external-push",
        "metadata": {"scalerAddress": f"{host}:{GATEWAY_INTERNAL_PORT}", f"target_{group}": str(value)},
    }
    spec = {key: item for key, item in (scaling.get("spec") or {}).items() if key != "metricTarget"}
    return {**spec, "triggers": spec.get("triggers") or [trigger], "scaleTargetRef": target}


def _horizontal(scaling: Mapping[str, Any], target: Object) -> Object:
    limits: Mapping[str, Any] = scaling.get("spec") or {}
    spec: Object = {
        "scaleTargetRef": target,
        "minReplicas": max(1, limits.get("minReplicaCount", 1)),
        "maxReplicas": limits.get("maxReplicaCount", 4),
        "metrics": [_metric(metric) for metric in scaling.get("metrics") or ()],
    }
    if scaling.get("behavior"):
        spec["behavior"] = scaling["behavior"]
    return spec


def _metric(metric: Mapping[str, Any]) -> Object:
    """Return a metric with canonical quantities."""
    result = dict(metric)
    for source in _METRIC_SOURCES:
        if isinstance(value := result.get(source), Mapping) and isinstance(target := value.get("target"), Mapping):
            quantities = {
                key: canonical_quantity(target[key]) for key in ("averageValue", "value") if target.get(key) is not None
            }
            result[source] = {**value, "target": {**target, **quantities}}
    return result
