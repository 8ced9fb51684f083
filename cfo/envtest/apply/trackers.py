"""The tracker of each endpoint, made from the registry when it is first needed."""

from __future__ import annotations

from typing import Final

from cfo.envtest.apply.fieldset import FieldSet
from cfo.envtest.apply.manager import Tracker
from cfo.envtest.apply.types import ObjectType
from cfo.envtest.builtins.catalog import object_meta, schema_of
from cfo.envtest.registry import Registry, ResourceInfo

__all__ = ["Trackers", "reset_fields"]

_SCALE: Final = "io.k8s.api.autoscaling.v1.Scale"

_STATUS: Final = FieldSet.of(("f:status",))
_SPEC: Final = FieldSet.of(("f:spec",))
_ALL_BUT_STATUS: Final = FieldSet.of(("f:spec",), ("f:metadata",))
_KEPT_BY_STATUS: Final = {
    ("apps", "deployments"): FieldSet.of(("f:spec",), ("f:metadata", "f:labels")),
    ("apiextensions.k8s.io", "customresourcedefinitions"): FieldSet.of(("f:spec",), ("f:metadata",)),
    ("apiregistration.k8s.io", "apiservices"): FieldSet.of(("f:spec",), ("f:metadata",)),
    ("", "pods"): FieldSet.of(("f:spec",), ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")),
}


def reset_fields(info: ResourceInfo, subresource: str) -> FieldSet | None:
    """What an endpoint does not let through, as the strategies of the real server declare it."""
    if "status" not in info.subresources:
        return None
    if subresource == "status" and info.is_crd:
        return _ALL_BUT_STATUS
    if subresource == "status":
        return _KEPT_BY_STATUS.get((info.group, info.plural), _SPEC)
    return _STATUS if subresource == "" else None


class Trackers:
    """The trackers of all endpoints of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[tuple[str, str, str, str], tuple[ResourceInfo, Tracker]] = {}
        self._types: dict[tuple[str, str, str], tuple[ResourceInfo, ObjectType]] = {}
        self._scale: Tracker | None = None

    def of(self, info: ResourceInfo, subresource: str = "") -> Tracker:
        """The tracker of a resource, or of one of its subresources with the same body (``status``)."""
        key = (info.group, info.version, info.plural, subresource)
        made = self._made.get(key)
        if made is None or made[0] is not info:
            tracker = Tracker(
                self._type_of(info),
                info.api_version,
                info.kind,
                subresource=subresource,
                reset=reset_fields(info, subresource),
                types=lambda api_version: self._in_version(info, api_version),
            )
            made = self._made[key] = (info, tracker)
        return made[1]

    @property
    def scale(self) -> Tracker:
        """The tracker of ``scale`` subresources; see :mod:`cfo.envtest.apply.scale`."""
        if self._scale is None:
            kind = ObjectType.builtin(schema_of(_SCALE))
            self._scale = Tracker(kind, "autoscaling/v1", "Scale", subresource="scale")
        return self._scale

    def _in_version(self, info: ResourceInfo, api_version: str) -> ObjectType | None:
        group, _, version = api_version.rpartition("/")
        other = self._registry.by_kind(group, version, info.kind)
        return None if other is None else self._type_of(other)

    def _type_of(self, info: ResourceInfo) -> ObjectType:
        key = (info.group, info.version, info.kind)
        made = self._types.get(key)
        if made is None or made[0] is not info:
            if info.is_crd or info.schema is None:
                kind = ObjectType.custom(info.schema, object_meta())
            else:
                kind = ObjectType.builtin(info.schema)
            made = self._types[key] = (info, kind)
        return made[1]
