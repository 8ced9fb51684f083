"""Converts objects between the version that a request names and the version that the store holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import orjson

from envtest.apimachinery.errors import plain_error
from envtest.apimachinery.objects import Object
from envtest.registry.resource import ResourceInfo
from envtest.registry.selectors import Selector
from envtest.schema.shaping import copy_json
from envtest.storage import Record
from envtest.storage.record import encode, record_of

__all__ = [
    "StoredForm",
    "after_storage",
    "encode_internal",
    "encode_records",
    "from_storage",
    "removed_version",
    "selectable_records",
    "to_storage",
]


_REVISION: Final = "resourceVersion"


def removed_version(api_version: str) -> str:
    """Return kube-apiserver's error of reading an object in a version that its CRD no longer has."""
    return f"request to convert CR from an invalid group/version: {api_version}"


def _is_direct(info: ResourceInfo, record: Record) -> bool:
    return info.api_version == info.storage_version and record.revision > info.read_through


async def from_storage(info: ResourceInfo, record: Record) -> Object:
    """Return the stored object in the version of ``info``, pruned and defaulted by the schema of that version."""
    obj = record.obj()
    if _is_direct(info, record):  # neither converted nor written under an older schema
        return obj
    return (await _converted(info, [obj]))[0]


async def _converted(info: ResourceInfo, objects: list[Object]) -> list[Object]:
    for obj in objects:
        if info.is_crd and obj["apiVersion"] not in info.versions:
            raise plain_error(removed_version(obj["apiVersion"]))
        info.strategy.restore(obj)
    if info.convert is not None:
        objects = await info.convert(objects, info.api_version)
    for obj in objects:
        obj["apiVersion"] = info.api_version
        obj["kind"] = info.kind
        info.strategy.decode_stored(obj)
    return objects


class StoredForm(msgspec.Struct, frozen=True):
    """An object as the store gets it.

    ``written`` is what kube-apiserver would write, encoded, if it differs from ``obj`` (see :class:`Record`).
    """

    obj: Object
    written: bytes | None = None


async def to_storage(info: ResourceInfo, obj: Object) -> StoredForm:
    """Return the object in the version in which it is stored."""
    if info.api_version == info.storage_version:
        return StoredForm(obj)
    if info.convert is not None:
        stored = (await info.convert([obj], info.storage_version))[0]
    else:  # strategy "None" of CRDs, and kinds whose versions have the same fields
        kind = info.storage_kind or info.kind
        stored = {**obj, "apiVersion": info.storage_version, "kind": kind}
    if not info.is_crd:
        return StoredForm(stored)
    # kube-apiserver prunes and defaults it by the schema of the stored version whenever it is read
    restored = copy_json(stored)
    info.strategy.restore(restored)
    if restored == stored:
        return StoredForm(restored)
    metadata = {name: value for name, value in stored["metadata"].items() if name != _REVISION}
    return StoredForm(restored, encode({**stored, "metadata": metadata}))


async def after_storage(info: ResourceInfo, obj: Object) -> Object:
    """Return what a dry run would return if it had stored an object: without fields that the stored version lacks."""
    if info.api_version == info.storage_version:
        return obj
    stored = await to_storage(info, obj)
    return (await _converted(info, [copy_json(stored.obj)]))[0]


async def encode_records(info: ResourceInfo, records: Sequence[Record]) -> list[bytes]:
    """Return the encoded objects in the version of ``info``: the stored bytes themselves whenever possible."""
    if info.api_version == info.storage_version and not info.read_through:
        return [record.data for record in records]
    out: list[bytes | None] = [
        record.data if _is_direct(info, record) else None for record in records
    ]
    stale = [index for index, data in enumerate(out) if data is None]
    converted = await _converted(info, [records[index].obj() for index in stale])
    for index, obj in zip(stale, converted, strict=True):
        out[index] = encode(obj)
    return [data for data in out if data is not None]


async def encode_internal(info: ResourceInfo, records: Sequence[Record]) -> list[bytes]:
    """Return the encoded objects from which kube-apiserver makes Tables and metadata: of its internal type.

    Only autoscalers differ from it, in v1: the stored version has the metrics in their order, and no annotations.
    """
    if info.kind == "HorizontalPodAutoscaler" and not info.is_crd:
        return [record.data for record in records]
    return await encode_records(info, records)


async def selectable_records(selector: Selector, records: Sequence[Record]) -> Sequence[Record]:
    """Return the records in the version whose fields the selector names, which a webhook may have to convert."""
    info = selector.converts
    if info is None:
        return records
    encoded = await encode_records(info, records)
    return [
        record if data is record.data else record_of(orjson.loads(data), record.revision)
        for record, data in zip(records, encoded, strict=True)
    ]
