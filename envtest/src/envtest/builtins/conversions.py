"""Conversion of built-in kinds that are stored in another version, or as objects of another group."""

from __future__ import annotations

from collections.abc import Sequence

from envtest.apimachinery.objects import Object
from envtest.builtins.autoscaler_versions import to_v1, to_v2
from envtest.builtins.autoscaling import behavior_defaults
from envtest.builtins.normalization import encode
from envtest.registry.resource import Converter, ResourceInfo

__all__ = ["converter_between", "has_converter"]

_EVENT_FIELDS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_TYPES = {
    ("v1", "Event"): "io.k8s.api.core.v1.Event",
    ("events.k8s.io/v1", "Event"): "io.k8s.api.events.v1.Event",
    (
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
    ): "io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler",
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
    ): "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
}


def has_converter(info: ResourceInfo) -> bool:
    """Return whether the versions of a resource have different fields."""
    return (info.api_version, info.kind) in _TYPES


def converter_between(info: ResourceInfo) -> Converter:
    """Return the converter of a resource that is stored in another version."""

    async def convert(objects: Sequence[Object], api_version: str) -> list[Object]:
        return [_converted(obj, api_version, info.kind) for obj in objects]

    return convert


def _converted(obj: Object, api_version: str, kind: str) -> Object:
    if obj.get("apiVersion") == api_version:
        return obj
    change = _event if kind == "Event" else _autoscaler
    new = change(obj, api_version)
    new["apiVersion"] = api_version
    new["kind"] = kind
    normalized: Object = encode(_TYPES[api_version, kind], new)
    return normalized


def _event(obj: Object, api_version: str) -> Object:
    old_names, new_names = zip(*_EVENT_FIELDS, strict=True)
    names = (
        dict(zip(new_names, old_names, strict=True))
        if api_version == "v1"
        else dict(zip(old_names, new_names, strict=True))
    )
    return {names.get(name, name): value for name, value in obj.items()}


def _autoscaler(obj: Object, api_version: str) -> Object:
    if api_version == "autoscaling/v1":
        return to_v1(obj)
    new = to_v2(obj)
    behavior = new["spec"].get("behavior")
    if behavior is not None:
        new["spec"]["behavior"] = behavior_defaults(behavior)
    return new
