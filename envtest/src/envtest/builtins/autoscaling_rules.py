"""Validation of the metrics and the scaling behavior of HorizontalPodAutoscalers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from envtest.apimachinery.field_errors import (
    FieldError,
    Verbatim,
    forbidden,
    go_json,
    invalid,
    not_supported,
    required,
)
from envtest.apimachinery.name_rules import dns_label, path_segment
from envtest.builtins.resource_names import container_resource_errors
from envtest.schema.quantity import parse_quantity

__all__ = ["api_version_errors", "metric_errors", "reference_errors", "scaling_rule_errors"]

_METRICS: Final = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_SELECT_POLICIES: Final = ("Disabled", "Max", "Min")
_POLICY_TYPES: Final = ("Percent", "Pods")
_MAX_WINDOW: Final = 3600
_MAX_PERIOD: Final = 1800
"""Maximum seconds of a stabilization window, and of a scaling policy's period."""


def reference_errors(reference: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the kind and the name of a reference to another object."""
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        if not value:
            yield required(f"{path}.{name}")
        else:
            for problem in path_segment(value):
                yield invalid(f"{path}.{name}", value, problem)


def api_version_errors(
    reference: Mapping[str, Any], path: str, *, needs_group: bool
) -> Iterator[FieldError]:
    """Yield an error if the API version of a reference has several slashes, or no group although it needs one."""
    version = reference.get("apiVersion") or ""
    if version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif needs_group and not version.rpartition("/")[0]:
        yield invalid(f"{path}.apiVersion", version, "apiVersion must specify API group")


def metric_errors(
    metric: Mapping[str, Any], path: str, *, any_api_version: bool = False
) -> Iterator[FieldError]:
    """Yield the errors of one metric: it has the source that its type names, and no other.

    ``any_api_version`` allows an invalid API version of the object that the metric describes.
    """
    kind = metric.get("type") or ""
    present = [
        source
        for source in ("object", "external", "pods", "resource", "containerResource")
        if source in metric
    ]
    expected = _METRICS.get(kind)
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    if expected is None:
        yield not_supported(f"{path}.type", kind, tuple(_METRICS))
    for source in present[:1]:
        yield from _source_errors(
            source, metric[source], f"{path}.{source}", any_api_version=any_api_version
        )
    if expected is None:  # kube-apiserver reports it twice
        yield not_supported(f"{path}.type", kind, tuple(_METRICS))
    elif expected not in present:
        yield required(
            f"{path}.{expected}", "must populate information for the given metric source"
        )
    if len(present) > 1:
        for other in present:
            if other != expected:
                yield forbidden(f"{path}.{other}", "must populate the given metric source only")


def _source_errors(
    source: str, value: Mapping[str, Any], path: str, *, any_api_version: bool
) -> Iterator[FieldError]:
    target = value.get("target") or {}
    if source in ("resource", "containerResource"):
        if not value.get("name"):
            yield required(f"{path}.name", "must specify a resource name")
        if source == "containerResource":
            yield from _container_errors(value, path)
        yield from _target_errors(target, f"{path}.target")
        yield from _utilization_errors(target, f"{path}.target")
        return
    if source == "object":
        described = value.get("describedObject") or {}
        yield from reference_errors(described, f"{path}.describedObject")
        if not any_api_version:
            yield from api_version_errors(described, f"{path}.describedObject", needs_group=False)
    name = (value.get("metric") or {}).get("name") or ""
    if not name:
        yield required(f"{path}.metric.name", "must specify a metric name")
    else:
        for problem in path_segment(name):
            yield invalid(f"{path}.metric.name", name, problem)
    yield from _target_errors(target, f"{path}.target")
    total = target.get("value")
    average = target.get("averageValue")
    if source == "pods":
        if average is None or parse_quantity(average).value <= 0:
            yield required(
                f"{path}.target.averageValue", "must specify a positive target averageValue"
            )
        return
    if total is None and average is None:
        options = (
            "a target value or averageValue"
            if source == "object"
            else "a target value for metric or a per-pod target"
        )
        yield required(f"{path}.target.averageValue", f"must set either {options}")
    if source == "external" and total is not None and average is not None:
        text = "may not set both a target value for metric and a per-pod target"
        yield forbidden(f"{path}.target.value", text)


def _container_errors(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of a container metric: of the container and the resource."""
    container = source.get("container") or ""
    if not container:
        yield required(f"{path}.container", "must specify a container")
    else:
        for problem in dns_label(container):
            yield invalid(f"{path}.container", container, problem)
    name = source.get("name") or ""
    if name:
        yield from container_resource_errors(name, f"{path}.name")


def _target_errors(target: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = target.get("type") or ""
    if not kind:
        yield required(f"{path}.type", "must specify a metric target type")
    if kind not in ("Utilization", "Value", "AverageValue"):
        shown = Verbatim(go_json(kind))
        yield invalid(f"{path}.type", shown, "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        if target.get(name) is not None and parse_quantity(target[name]).value <= 0:
            yield invalid(f"{path}.{name}", target[name], "must be positive")
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        yield invalid(f"{path}.averageUtilization", utilization, "must be greater than 0")


def _utilization_errors(target: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the target of a resource metric: a utilization or an average value."""
    utilization = target.get("averageUtilization")
    average = target.get("averageValue")
    if utilization is None and average is None:
        text = "must set either a target raw value or a target utilization"
        yield required(f"{path}.averageUtilization", text)
    elif utilization is not None and average is not None:
        text = "may not set both a target raw value and a target utilization"
        yield forbidden(f"{path}.averageValue", text)


def scaling_rule_errors(rules: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of the behavior in one direction: the window, and the policies."""
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        yield invalid(
            f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero"
        )
    if window is not None and window > _MAX_WINDOW:
        yield invalid(
            f"{path}.stabilizationWindowSeconds",
            window,
            f"must be less than or equal to {_MAX_WINDOW}",
        )
    select = rules.get("selectPolicy")
    if select is not None and select not in _SELECT_POLICIES:
        yield not_supported(f"{path}.selectPolicy", select, _SELECT_POLICIES)
    if not rules.get("policies"):
        yield required(f"{path}.policies", "must specify at least one Policy")
    for position, policy in enumerate(rules.get("policies") or ()):
        yield from _policy_errors(policy, f"{path}.policies[{position}]")


def _policy_errors(policy: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = policy.get("type") or ""
    value = policy.get("value") or 0
    period = policy.get("periodSeconds") or 0
    if kind not in _POLICY_TYPES:
        yield not_supported(f"{path}.type", kind, _POLICY_TYPES)
    if value <= 0:
        yield invalid(f"{path}.value", value, "must be greater than zero")
    if period <= 0:
        yield invalid(f"{path}.periodSeconds", period, "must be greater than zero")
    if period > _MAX_PERIOD:
        yield invalid(
            f"{path}.periodSeconds", period, f"must be less than or equal to {_MAX_PERIOD}"
        )
