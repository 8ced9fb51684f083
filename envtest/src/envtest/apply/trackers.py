"""The tracker of each endpoint, created from the registry on first use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import orjson

from envtest.apimachinery.errors import StatusError
from envtest.apimachinery.objects import Object
from envtest.apply.fieldset import FieldSet
from envtest.apply.manager import Tracker
from envtest.apply.schema_types import ObjectType
from envtest.apply.updater import ConversionFailed, ConversionPending, Convert
from envtest.builtins.catalog import object_meta
from envtest.builtins.normalization import DecodeError
from envtest.registry.registry import Registry
from envtest.registry.resource import Converter, ResourceInfo

__all__ = ["Trackers", "reset_fields"]

_SCALE: Final = "io.k8s.api.autoscaling.v1.Scale"

CACHED_CONVERSIONS: Final = 64
"""The number of conversions that are cached for each endpoint."""

_STATUS: Final = FieldSet.of(("f:status",))
_SPEC: Final = FieldSet.of(("f:spec",))
_SPEC_AND_STATUS: Final = FieldSet.of(("f:spec",), ("f:status",))
_SPEC_AND_METADATA: Final = FieldSet.of(("f:spec",), ("f:metadata",))
_APPROVAL_RESETS: Final = FieldSet.of(("f:spec",), ("f:status", "f:certificate"))
_STATUS_RESETS: Final = {
    ("certificates.k8s.io", "certificatesigningrequests"): FieldSet.of(
        ("f:spec",), ("f:status", "f:conditions")
    ),
    ("apps", "deployments"): FieldSet.of(("f:spec",), ("f:metadata", "f:labels")),
    **dict.fromkeys(
        (
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("apiregistration.k8s.io", "apiservices"),
            ("flowcontrol.apiserver.k8s.io", "flowschemas"),
            ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
            ("networking.k8s.io", "servicecidrs"),
            ("resource.k8s.io", "devicetaintrules"),
            ("resource.k8s.io", "resourceclaims"),
            ("storage.k8s.io", "volumeattachments"),
        ),
        _SPEC_AND_METADATA,
    ),
    ("", "pods"): FieldSet.of(
        ("f:spec",), ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")
    ),
}


def reset_fields(info: ResourceInfo, subresource: str) -> FieldSet | None:
    """Return the fields that an endpoint ignores, as the strategies in kube-apiserver declare them."""
    if "status" not in info.subresources:
        return None
    if subresource == "status" and info.is_crd:
        return _SPEC_AND_METADATA
    if subresource == "status":
        return _STATUS_RESETS.get((info.group, info.plural), _SPEC)
    if (info.group, subresource) == ("certificates.k8s.io", "approval"):
        return _APPROVAL_RESETS
    if (info.group, subresource) == ("certificates.k8s.io", ""):
        return _SPEC_AND_STATUS
    return _STATUS if subresource == "" else None


def _converter(info: ResourceInfo) -> Convert | None:
    """Return the conversion of objects for comparison with fields that managers own in other versions.

    Custom resources without a conversion webhook only change their ``apiVersion``: nothing is pruned, so that fields
    which the other version does not have are detected, as in kube-apiserver.
    """
    if info.convert is None or (info.is_crd and not info.converts_by_webhook):
        return None
    return _ConversionCache(info.convert).convert


class _ConversionCache:
    """Caches the latest results of an asynchronous converter."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._results: OrderedDict[bytes, Object | str] = OrderedDict()

    def convert(self, obj: Mapping[str, Any], api_version: str) -> Mapping[str, Any]:
        """Return the object in ``api_version``.

        Raises ConversionPending when it has to be converted first, and ConversionFailed.
        """
        key = orjson.dumps([api_version, obj])
        found = self._results.get(key)
        if found is None:
            raise ConversionPending(
                lambda: self._convert(key, orjson.loads(orjson.dumps(obj)), api_version)
            )
        if isinstance(found, str):
            raise ConversionFailed(found)
        return found

    async def _convert(self, key: bytes, obj: Object, api_version: str) -> None:
        try:
            self._results[key] = (await self._converter([obj], api_version))[0]
        except StatusError as error:
            self._results[key] = error.message
        except DecodeError as error:
            source = f"{obj.get('apiVersion')}, Kind={obj.get('kind')}"
            self._results[key] = (
                f"unable to convert unstructured object to {source}: {error.converted}"
            )
        if len(self._results) > CACHED_CONVERSIONS:
            self._results.popitem(last=False)


class Trackers:
    """The trackers of all endpoints of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._trackers: dict[tuple[str, str, str, str], tuple[ResourceInfo, Tracker]] = {}
        self._types: dict[tuple[str, str, str], tuple[ResourceInfo, ObjectType]] = {}
        self._bodies: dict[tuple[str, str, str], ObjectType | None] = {}
        self._scale: Tracker | None = None

    def of(self, info: ResourceInfo, subresource: str = "") -> Tracker:
        """Return the tracker of a resource, or of a subresource with the same body (``status``)."""
        key = (info.group, info.version, info.plural, subresource)
        cached = self._trackers.get(key)
        if cached is None or cached[0] is not info:
            tracker = Tracker(
                self.type_of(info),
                info.api_version,
                info.kind,
                subresource=subresource,
                reset=reset_fields(info, subresource),
                reset_versions=() if info.is_crd else self._versions(info),
                types=lambda api_version: self._in_version(info, api_version),
                convert=_converter(info),
            )
            cached = (info, tracker)
            self._trackers[key] = cached
        return cached[1]

    def fork(self, registry: Registry) -> Trackers:
        """Return the trackers of a copy of the registry; compiled types are shared."""
        copy = Trackers(registry)
        copy._types = dict(self._types)
        return copy

    @property
    def scale(self) -> Tracker:
        """The tracker of ``scale`` subresources; see :mod:`envtest.apply.scale_ownership`."""
        if self._scale is None:
            self._scale = Tracker(
                ObjectType.builtin(_SCALE), "autoscaling/v1", "Scale", subresource="scale"
            )
        return self._scale

    def _versions(self, info: ResourceInfo) -> list[str]:
        """Return all versions of a built-in kind: an endpoint ignores its fields in each of them."""
        return [
            each.api_version
            for each in self._registry
            if (each.group, each.kind) == (info.group, info.kind)
        ]

    def _in_version(self, info: ResourceInfo, api_version: str) -> ObjectType | None:
        """Return the type of another version, or ``None`` if it is not served: its managers are dropped.

        Raises ConversionFailed for a version that the CRD no longer has.
        """
        group, _, version = api_version.rpartition("/")
        other = self._registry.by_kind(group, version, info.kind)
        if other is None and info.is_crd and api_version not in info.versions:
            raise ConversionFailed(
                f"request to convert CR to an invalid group/version: {api_version}"
            )
        return None if other is None else self.type_of(other)

    def type_of(self, info: ResourceInfo) -> ObjectType:
        """Return the type of the objects of a resource."""
        key = (info.group, info.version, info.kind)
        cached = self._types.get(key)
        if cached is None or cached[0] is not info:
            if info.is_crd or info.schema is None:
                kind = ObjectType.custom(info.schema, object_meta())
            else:
                kind = ObjectType.builtin(info.schema.ref)
            cached = (info, kind)
            self._types[key] = cached
        return cached[1]

    def body_type_of(self, info: ResourceInfo, subresource: str) -> ObjectType | None:
        """Return the type of the body of requests to a subresource; ``None`` when its kind has no schema."""
        body = info.subresources.get(subresource)
        if body is None or body.kind in ("", info.kind):
            return self.type_of(info)
        if body.version:
            group = body.group
            version = body.version
        else:
            group = info.group
            version = info.version
        key = (group, version, body.kind)
        if key not in self._bodies:
            name = f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{body.kind}"
            try:
                self._bodies[key] = ObjectType.builtin(name)
            except KeyError:
                self._bodies[key] = None
        return self._bodies[key]
