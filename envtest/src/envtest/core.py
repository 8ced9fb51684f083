"""What the handlers work with: the store, the registry and the parts that judge requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from envtest.apply.trackers import Trackers
from envtest.auth.reviews import Reviews
from envtest.auth.tokens import ServiceAccountTokens
from envtest.context import RequestContext
from envtest.objects import Object
from envtest.registry import Registry, ResourceInfo
from envtest.storage import Record, Store
from envtest.storage.record import encode

__all__ = ["Admission", "Core", "from_storage", "present", "to_storage"]


class Admission(Protocol):
    """The admission chain. Both raise StatusError to refuse; warnings go into the context."""

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None) -> Object:
        """Returns the object to go on with. For DELETE ``obj`` is empty and ``old`` what is deleted."""

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Allows or refuses the finished object."""


class NoAdmission:
    """Allows everything, changes nothing."""

    async def mutate(self, ctx: RequestContext, obj: Object, old: Object | None) -> Object:
        """Returns ``obj``."""
        return obj

    async def validate(self, ctx: RequestContext, obj: Object, old: Object | None) -> None:
        """Allows it."""


@dataclass(slots=True)
class Core:
    """The state of a control plane that requests read and change."""

    store: Store = field(default_factory=Store)
    registry: Registry = field(default_factory=Registry)
    admission: Admission = field(default_factory=NoAdmission)
    token_key: bytes | None = None
    """The key (PEM) that signs service account tokens; without it one is made."""
    trackers: Trackers = field(init=False)
    tokens: ServiceAccountTokens = field(init=False)
    reviews: Reviews = field(init=False)

    def __post_init__(self) -> None:
        self.trackers = Trackers(self.registry)
        self.tokens = ServiceAccountTokens(self.store, key=self.token_key)


def _is_direct(info: ResourceInfo, record: Record) -> bool:
    return info.api_version == info.storage_version and record.revision > info.read_through


async def from_storage(info: ResourceInfo, record: Record) -> Object:
    """The stored object in the version of ``info``, pruned and defaulted as that version's schema says."""
    obj = record.obj()
    if _is_direct(info, record):
        return obj
    return (await _converted(info, [obj]))[0]


async def _converted(info: ResourceInfo, objects: list[Object]) -> list[Object]:
    for obj in objects:
        info.strategy.restore(obj)
    if info.convert is not None:
        objects = await info.convert(objects, info.api_version)
    for obj in objects:
        obj["apiVersion"] = info.api_version
        obj["kind"] = info.kind
        info.strategy.decode_stored(obj)
    return objects


async def to_storage(info: ResourceInfo, obj: Object) -> Object:
    """The object in the version it is stored in."""
    if info.api_version == info.storage_version:
        return obj
    if info.convert is not None:
        return (await info.convert([obj], info.storage_version))[0]
    return {**obj, "apiVersion": info.storage_version, "kind": info.storage_kind or info.kind}


async def present(info: ResourceInfo, records: Sequence[Record]) -> list[bytes]:
    """The encoded objects in the version of ``info``: the stored bytes themselves wherever that is possible."""
    if info.api_version == info.storage_version and not info.read_through:
        return [record.data for record in records]
    out: list[bytes | None] = [record.data if _is_direct(info, record) else None for record in records]
    stale = [index for index, data in enumerate(out) if data is None]
    converted = await _converted(info, [records[index].obj() for index in stale])
    for index, obj in zip(stale, converted, strict=True):
        out[index] = encode(obj)
    return [data for data in out if data is not None]
