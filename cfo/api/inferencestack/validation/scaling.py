"""Whether the autoscaling of an application can work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.inferencestack.resolution import is_enabled
from cfo.runtime import FieldError
from cfo.runtime.objects.field import Path, forbidden, invalid, not_supported, required

__all__ = ["scaling_errors"]

_COUNTS: Final = {"minReplicaCount": 0, "maxReplicaCount": 1, "idleReplicaCount": 0}
"""The counts in the spec of a ScaledObject, and the minimum of each."""
_MAX_COUNT: Final = 2**31 - 1


def scaling_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the scaling of an application, if it is enabled."""
    scaling: Mapping[str, Any] = section.get("scaling") or {}
    path = path.child("scaling")
    kind = scaling.get("type")
    if kind is not None and kind not in ("KEDA", "HPA"):
        yield not_supported(path.child("type"), kind, ("KEDA", "HPA"))
        return
    if not is_enabled(scaling):
        return
    spec: Mapping[str, Any] = scaling.get("spec") or {}
    errors = list(_count_errors(spec, path.child("spec")))
    yield from errors
    if not errors:
        yield from _range_errors(spec, path.child("spec"), kind)
    if "scaleTargetRef" in spec:
        yield forbidden(path.child("spec", "scaleTargetRef"), "the target is the Deployment of the application")
    if kind == "HPA":
        if not scaling.get("metrics"):
            yield required(path.child("metrics"), "a HorizontalPodAutoscaler needs at least one metric")
    elif not spec.get("triggers"):
        yield from _trigger_errors(section, path)


def _trigger_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in the generated trigger of KEDA."""
    target: Mapping[str, Any] = section["scaling"].get("metricTarget") or {}
    name, value = target.get("name"), target.get("value")
    if name is not None and name != "consumerGroupSize":
        yield not_supported(path.child("metricTarget", "name"), name, ("consumerGroupSize",))
    if value is not None and value < 1:
        yield invalid(path.child("metricTarget", "value"), value, "must be at least 1")
    if not (section.get("readerConfig") or {}).get("consumerGroup"):
        at = Path(str(path).removesuffix(".scaling")).child("readerConfig", "consumerGroup")
        yield required(at, "KEDA scales by the queue of the consumer group")


def _count_errors(spec: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    for name, minimum in _COUNTS.items():
        value = spec.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= _MAX_COUNT:
            shown = value if isinstance(value, str | int | float) else str(type(value).__name__)
            yield invalid(path.child(name), shown, f"must be an integer of at least {minimum}")


def _range_errors(spec: Mapping[str, Any], path: Path, kind: str | None) -> Iterator[FieldError]:
    low, high = spec.get("minReplicaCount"), spec.get("maxReplicaCount")
    if low is not None and high is not None and low > high:
        yield invalid(path.child("minReplicaCount"), low, f"minReplicaCount {low} exceeds maxReplicaCount {high}")
    if kind == "HPA" and low == 0:
        yield invalid(path.child("minReplicaCount"), low, "a HorizontalPodAutoscaler cannot scale to zero; use KEDA")
    idle = spec.get("idleReplicaCount")
    if idle is not None and low is not None and idle >= low:
        yield invalid(path.child("idleReplicaCount"), idle, f"must be less than minReplicaCount {low}")
