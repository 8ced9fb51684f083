"""The tracker of each endpoint, made from the registry when it is first needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import orjson

from envtest.apply.fieldset import FieldSet
from envtest.apply.manager import Tracker
from envtest.apply.types import ObjectType
from envtest.apply.updater import Convert, Inconvertible, Unconverted
from envtest.builtins.catalog import object_meta, schema_of
from envtest.errors import StatusError
from envtest.objects import Object
from envtest.registry import Converter, Registry, ResourceInfo

__all__ = ["Trackers", "reset_fields"]

_SCALE: Final = "io.k8s.api.autoscaling.v1.Scale"

REMEMBERED: Final = 64
"""How many conversions are remembered for each endpoint."""

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


def _converter(info: ResourceInfo) -> Convert | None:
    """How objects are converted for comparison with what managers of other versions own.

    Custom resources without a webhook only change their ``apiVersion`` here: nothing is pruned, so that what the other
    version does not know is noticed (as the real server does).
    """
    if info.convert is None or (info.is_crd and not info.converts_by_webhook):
        return None
    return _Conversions(info.convert).convert


class _Conversions:
    """Remembers what an asynchronous converter made of the objects of late."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._done: OrderedDict[bytes, Object | str] = OrderedDict()

    def convert(self, obj: Mapping[str, Any], api_version: str) -> Mapping[str, Any]:
        """The object in ``api_version``. Raises Unconverted if that has to be found out first, and Inconvertible."""
        key = orjson.dumps([api_version, obj])
        found = self._done.get(key)
        if found is None:
            raise Unconverted(lambda: self._convert(key, orjson.loads(orjson.dumps(obj)), api_version))
        if isinstance(found, str):
            raise Inconvertible(found)
        return found

    async def _convert(self, key: bytes, obj: Object, api_version: str) -> None:
        try:
            self._done[key] = (await self._converter([obj], api_version))[0]
        except StatusError as error:
            self._done[key] = error.message
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)


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
                convert=_converter(info),
            )
            made = self._made[key] = (info, tracker)
        return made[1]

    @property
    def scale(self) -> Tracker:
        """The tracker of ``scale`` subresources; see :mod:`envtest.apply.scale`."""
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
