"""Conversion of HorizontalPodAutoscalers between autoscaling/v1 and autoscaling/v2.

v1 has fields for CPU utilization only. Annotations contain everything else as JSON, so that a client of v1 preserves
it: metrics and their status in the form of v1's types, the conditions, and the behavior with the field names of
kube-apiserver's internal type. Both versions drop these annotations if a client sets them, v1 after it has read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from envtest.apimachinery.field_errors import go_json
from envtest.apimachinery.objects import Object
from envtest.builtins.normalization import decode

__all__ = [
    "SPEC_ANNOTATIONS",
    "STATUS_ANNOTATIONS",
    "drop_annotations",
    "has_annotations",
    "to_v1",
    "to_v2",
]

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_METRICS: Final = f"{_PREFIX}metrics"
_BEHAVIOR: Final = f"{_PREFIX}behavior"
_STATUSES: Final = f"{_PREFIX}current-metrics"
_CONDITIONS: Final = f"{_PREFIX}conditions"

SPEC_ANNOTATIONS: Final = (_METRICS, _BEHAVIOR)
STATUS_ANNOTATIONS: Final = (_STATUSES, _CONDITIONS)
"""The annotations of v1 with parts of v2's spec and status."""

_ANNOTATIONS: Final = frozenset(
    {
        *SPEC_ANNOTATIONS,
        *STATUS_ANNOTATIONS,
        *(f"{_PREFIX}scale-{way}-tolerance" for way in ("up", "down")),
    }
)
_DEFAULT_UTILIZATION: Final = 80
_TYPES: Final = "io.k8s.api.autoscaling.v2"

_Fields = tuple[tuple[str, str], ...]
_RESOURCE: Final[_Fields] = (
    ("name", "name"),
    ("targetAverageUtilization", "target.averageUtilization"),
    ("targetAverageValue", "target.averageValue"),
)
_SOURCES: Final[Mapping[str, _Fields]] = {
    "object": (
        ("target", "describedObject"),
        ("metricName", "metric.name"),
        ("targetValue!", "target.value"),
        ("selector", "metric.selector"),
        ("averageValue", "target.averageValue"),
    ),
    "pods": (
        ("metricName", "metric.name"),
        ("targetAverageValue!", "target.averageValue"),
        ("selector", "metric.selector"),
    ),
    "resource": _RESOURCE,
    "containerResource": (*_RESOURCE, ("container", "container")),
    "external": (
        ("metricName", "metric.name"),
        ("metricSelector", "metric.selector"),
        ("targetValue", "target.value"),
        ("targetAverageValue", "target.averageValue"),
    ),
}
"""The fields of v1's metric sources in their order, and their paths in v2.

``!`` marks quantities that v1 always has.
"""

_RESOURCE_STATUS: Final[_Fields] = (
    ("name", "name"),
    ("currentAverageUtilization", "current.averageUtilization"),
    ("currentAverageValue!", "current.averageValue"),
)
_SOURCE_STATUSES: Final[Mapping[str, _Fields]] = {
    "object": (
        ("target", "describedObject"),
        ("metricName", "metric.name"),
        ("currentValue!", "current.value"),
        ("selector", "metric.selector"),
        ("averageValue", "current.averageValue"),
    ),
    "pods": (
        ("metricName", "metric.name"),
        ("currentAverageValue!", "current.averageValue"),
        ("selector", "metric.selector"),
    ),
    "resource": _RESOURCE_STATUS,
    "containerResource": (*_RESOURCE_STATUS, ("container", "container")),
    "external": (
        ("metricName", "metric.name"),
        ("metricSelector", "metric.selector"),
        ("currentValue!", "current.value"),
        ("currentAverageValue", "current.averageValue"),
    ),
}
_CONDITION: Final = ("type", "status", "lastTransitionTime", "reason", "message")
_POLICY: Final = ("type", "value", "periodSeconds")
_SPEC: Final = ("scaleTargetRef", "minReplicas", "maxReplicas")
_STATUS: Final = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")


def has_annotations(obj: Object) -> bool:
    """Return whether an object has annotations that a conversion reads or drops."""
    return not _ANNOTATIONS.isdisjoint((obj.get("metadata") or {}).get("annotations") or ())


def drop_annotations(obj: Object) -> None:
    """Remove the annotations that only conversions set, in place."""
    if has_annotations(obj):
        annotations = obj["metadata"].pop("annotations")
        kept = {name: text for name, text in annotations.items() if name not in _ANNOTATIONS}
        if kept:
            obj["metadata"]["annotations"] = kept


def to_v1(obj: Object) -> Object:
    """Return an object of v2 in v1; it is not normalized."""
    spec = obj.get("spec") or {}
    status = obj.get("status") or {}
    metrics = spec.get("metrics") or ()
    current_metrics = status.get("currentMetrics") or ()
    new_spec = _picked(spec, _SPEC)
    new_status = _picked(status, _STATUS)
    cpu = next((each for each in metrics if _is_cpu(each)), None)
    if cpu is not None:
        target = _utilization(cpu, "target")
        if target is not None:
            new_spec["targetCPUUtilizationPercentage"] = target
    for each in current_metrics:
        if _is_cpu(each):
            current = _utilization(each, "current")
            if current is not None:
                new_status["currentCPUUtilizationPercentage"] = current
    texts = {
        _METRICS: [
            _old_metric(each, _SOURCES)
            for each in metrics
            if not (_is_cpu(each) and _utilization(each, "target") is not None)
        ],
        _STATUSES: [_old_metric(each, _SOURCE_STATUSES) for each in current_metrics],
        _CONDITIONS: [_picked(each, _CONDITION) for each in status.get("conditions") or ()],
    }
    kept = {name: go_json(value, sort_keys=False) for name, value in texts.items() if value}
    if spec.get("behavior") is not None:
        kept[_BEHAVIOR] = go_json(_internal_behavior(spec["behavior"]), sort_keys=False)
    new = {
        **obj,
        "metadata": dict(obj.get("metadata") or {}),
        "spec": new_spec,
        "status": new_status,
    }
    drop_annotations(new)
    if kept:
        new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), **kept}
    return new


def to_v2(obj: Object) -> Object:
    """Return an object of v1 in v2, with the data of well-formed annotations; it is not normalized."""
    spec = obj.get("spec") or {}
    status = obj.get("status") or {}
    texts = (obj.get("metadata") or {}).get("annotations") or {}
    metrics = (
        _parsed(texts.get(_METRICS), lambda items: [_new_metric(each) for each in _items(items)])
        or []
    )
    target = spec.get("targetCPUUtilizationPercentage")
    if target is None and not metrics:
        target = _DEFAULT_UTILIZATION
    if target is not None:
        metrics.append(_cpu_metric("target", {"type": "Utilization", "averageUtilization": target}))
    new_spec = {**_picked(spec, _SPEC), "metrics": metrics}
    new_status = _picked(status, _STATUS)
    behavior = _parsed(texts.get(_BEHAVIOR), _behavior)
    if behavior:
        new_spec["behavior"] = behavior
    statuses = _parsed(
        texts.get(_STATUSES), lambda items: [_new_metric_status(each) for each in _items(items)]
    )
    if statuses is not None:
        new_status["currentMetrics"] = statuses
    elif status.get("currentCPUUtilizationPercentage") is not None:
        current = status["currentCPUUtilizationPercentage"]
        new_status["currentMetrics"] = [_cpu_metric("current", {"averageUtilization": current})]
    conditions = _parsed(
        texts.get(_CONDITIONS), lambda items: [_condition(each) for each in _items(items)]
    )
    if conditions:
        new_status["conditions"] = conditions
    new = {
        **obj,
        "metadata": dict(obj.get("metadata") or {}),
        "spec": new_spec,
        "status": new_status,
    }
    drop_annotations(new)
    return new


def _picked(value: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value[name] for name in names if name in value}


def _is_cpu(metric: Mapping[str, Any]) -> bool:
    return metric.get("type") == "Resource" and (metric.get("resource") or {}).get("name") == "cpu"


def _utilization(metric: Mapping[str, Any], part: str) -> Any:
    return (metric["resource"].get(part) or {}).get("averageUtilization")


def _cpu_metric(part: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", part: value}}


# --- From v2 ----------------------------------------------------------------------------------------------------------


def _old_metric(metric: Mapping[str, Any], sources: Mapping[str, _Fields]) -> dict[str, Any]:
    """Return a metric, or its status, in the form of v1, with the fields in the order of Go's types."""
    old: dict[str, Any] = {"type": metric.get("type") or ""}
    for source, fields in sources.items():
        value = metric.get(source)
        if value is not None:
            old[source] = _old_source(value, fields)
    return old


def _old_source(source: Mapping[str, Any], fields: _Fields) -> dict[str, Any]:
    old = {}
    for name, path in fields:
        value: Any = source
        for step in path.split("."):
            value = (value or {}).get(step)
        if value is None and name.endswith("!"):
            value = "0"
        if value is not None:
            old[name.rstrip("!")] = _ORDERED[path](value) if path in _ORDERED else value
    return old


def _ordered_selector(selector: Mapping[str, Any]) -> dict[str, Any]:
    ordered: dict[str, Any] = {}
    if selector.get("matchLabels"):
        ordered["matchLabels"] = dict(sorted(selector["matchLabels"].items()))
    if selector.get("matchExpressions"):
        ordered["matchExpressions"] = [
            _picked(each, ("key", "operator", "values")) for each in selector["matchExpressions"]
        ]
    return ordered


_ORDERED: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "describedObject": lambda reference: _picked(reference, ("kind", "name", "apiVersion")),
    "metric.selector": _ordered_selector,
}


def _internal_behavior(behavior: Mapping[str, Any]) -> dict[str, Any]:
    return {go_name: _internal_rules(behavior.get(name)) for name, go_name in _DIRECTIONS}


def _internal_rules(rules: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if rules is None:
        return None
    policies = rules.get("policies")
    return {
        "StabilizationWindowSeconds": rules.get("stabilizationWindowSeconds"),
        "SelectPolicy": rules.get("selectPolicy"),
        "Policies": policies
        and [{name[0].upper() + name[1:]: each[name] for name in _POLICY} for each in policies],
        "Tolerance": rules.get("tolerance"),
    }


_DIRECTIONS: Final = (("scaleUp", "ScaleUp"), ("scaleDown", "ScaleDown"))


# --- From v1 ----------------------------------------------------------------------------------------------------------


def _parsed(text: Any, read: Callable[[Any], Any]) -> Any:
    """Return what ``read`` returns for the value in an annotation; ``None`` if it is absent or malformed."""
    if not isinstance(text, str):
        return None
    try:
        return read(orjson.loads(text))
    except (ValueError, TypeError):
        return None


def _items(value: Any) -> Sequence[Any]:
    """Return a list. Raises TypeError for anything else but null."""
    if value is not None and not isinstance(value, list):
        raise TypeError(f"a list is expected, not {type(value).__name__}")
    return value or ()


def _fields_of(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the known fields of a JSON object; Go's decoder ignores the case of their names.

    Raises TypeError unless ``value`` is an object or null.
    """
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"an object is expected, not {type(value).__name__}")
    known = {name.lower(): name for name in names}
    fields = ((known.get(name.lower()), item) for name, item in (value or {}).items())
    return {name: item for name, item in fields if name is not None and item is not None}


def _decoded(type_name: str, value: Any) -> Any:
    """Return a value of a type of v2 in kube-apiserver's form. Raises DecodeError if it does not fit."""
    decoded, _ = decode(f"{_TYPES}.{type_name}", value)
    return decoded


def _new_source(value: Any, fields: _Fields) -> dict[str, Any]:
    old = _fields_of(value, (name.rstrip("!") for name, _ in fields))
    new: dict[str, Any] = {}
    for name, path in fields:
        item = old.get(name.rstrip("!"), "0" if name.endswith("!") else None)
        if item is not None:
            part, _, field = path.partition(".")
            if field:
                new.setdefault(part, {})[field] = item
            else:
                new[part] = item
    return new


def _new_metric(value: Any) -> dict[str, Any]:
    old = _fields_of(value, ("type", *_SOURCES))
    new: dict[str, Any] = {"type": old.get("type")}
    for source in _SOURCES.keys() & old.keys():
        new[source] = _new_source(old[source], _SOURCES[source])
        target = new[source].setdefault("target", {})
        target["type"] = _target_type(source, target)
    decoded: dict[str, Any] = _decoded("MetricSpec", new)
    return decoded


def _target_type(source: str, target: Mapping[str, Any]) -> str:
    if source.endswith("esource"):
        return "AverageValue" if target.get("averageUtilization") is None else "Utilization"
    is_average = (
        target.get("averageValue") is not None
        if source == "object"
        else target.get("value") is None
    )
    return "AverageValue" if is_average else "Value"


def _new_metric_status(value: Any) -> dict[str, Any]:
    old = _fields_of(value, ("type", *_SOURCE_STATUSES))
    new: dict[str, Any] = {"type": old.get("type")}
    for source in _SOURCE_STATUSES.keys() & old.keys():
        new[source] = _new_source(old[source], _SOURCE_STATUSES[source])
    decoded: dict[str, Any] = _decoded("MetricStatus", new)
    return decoded


def _condition(value: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = _decoded(
        "HorizontalPodAutoscalerCondition", _fields_of(value, _CONDITION)
    )
    return decoded


def _behavior(value: Any) -> dict[str, Any]:
    new = _fields_of(value, (name for name, _ in _DIRECTIONS))
    for name, rules in new.items():
        fields = _fields_of(
            rules, ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
        )
        if "policies" in fields:
            fields["policies"] = [_fields_of(each, _POLICY) for each in _items(fields["policies"])]
        new[name] = fields
    decoded: dict[str, Any] = _decoded("HorizontalPodAutoscalerBehavior", new)
    return decoded
