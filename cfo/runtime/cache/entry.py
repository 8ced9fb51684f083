"""An object as the cache keeps it: its JSON, and hardly anything else.

List pages and watch lines come in as bytes and are never turned into Python objects as a whole.
``msgspec.Raw`` finds where an item begins and ends; ``managedFields`` are taken out, and the rest is kept as bytes of
its own (a ``Raw`` is a view that would keep its whole page alive). Who reads an object decodes it, and so owns what he
gets. Its metadata, which all who hear of a change look at, is decoded once for all of them, and let go when they have
been told: kept for every object, it would take more memory than small objects themselves.

The managedFields entries of the field managers that are ours stay beside the object, never in it: an
API server takes any managedFields that a client sends back as the truth. What one of our managers owns is the same for
all its objects, but for the uids of their owners: such entries are kept once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from sys import intern
from typing import Any, Final, Self

import msgspec
import orjson

from cfo.runtime.objects import GVK, NamespacedName, Object

__all__ = ["Entry", "EntryDecoder", "Meta", "OwnerReference", "version_number"]

_NONE: Final[Mapping[str, str]] = {}
_NO_RAW: Final = msgspec.Raw()
_MARK: Final = b"\1%d\2"
"""Stands for the uid of an owner; no JSON has these bytes."""


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An owner reference; see :func:`cfo.runtime.objects.owner_reference`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Meta(msgspec.Struct, gc=False):
    """The metadata, decoded. Shared by all who hear of a change: never change it."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    generation: int
    creation_timestamp: str
    deletion_timestamp: str | None
    labels: Mapping[str, str]
    finalizers: tuple[str, ...]
    owner_references: tuple[OwnerReference, ...]
    raw_annotations: msgspec.Raw

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations, which may be larger than all the rest: decoded at each call."""
        return (_annotations.decode(self.raw_annotations) if self.raw_annotations else None) or _NONE

    @property
    def is_deleting(self) -> bool:
        """Whether deletion was requested, so that only finalizers (or a grace period) keep the object."""
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference whose ``controller`` is true, or ``None``."""
        for reference in self.owner_references:
            if reference.controller:
                return reference
        return None


class _WireMeta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    annotations: msgspec.Raw = _NO_RAW
    managed_fields: msgspec.Raw = _NO_RAW


class _WireObject(msgspec.Struct, gc=False):
    metadata: _WireMeta


_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])
_wire_meta = msgspec.json.Decoder(_WireMeta)
_wire_object = msgspec.json.Decoder(_WireObject)
_annotations = msgspec.json.Decoder(dict[str, str] | None)
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


class _Manager(msgspec.Struct):
    manager: str = ""


_manager = msgspec.json.Decoder(_Manager)


def version_number(resource_version: str) -> int:
    """A resourceVersion as a number, 0 for one that cannot be compared.

    Those of one resource are ordered decimal numbers without leading zeros (KEP-5504); an aggregated API
    server may still use something else.
    """
    if resource_version.isdecimal() and resource_version.isascii() and resource_version[0] != "0":
        return int(resource_version)
    return 0


class Entry(msgspec.Struct, gc=False, eq=False):
    """One state of one object. Immutable; the next state is another entry.

    The garbage collector does not look at entries: however many there are, it takes no longer.
    """

    namespace: str
    name: str
    raw: bytes
    """The object's JSON, without managedFields."""
    version: int
    """The resourceVersion as a number; 0 when it is none."""
    _managers: bytes
    _meta: Meta | None

    @classmethod
    def of(cls, raw: bytes, meta: Meta, managers: bytes = b"") -> Self:
        """The entry of an object with this metadata."""
        version = version_number(meta.resource_version)
        return cls(intern(meta.namespace), meta.name, raw, version, _without_owners(managers, meta), meta)

    @property
    def key(self) -> NamespacedName:
        """The object's namespace and name."""
        return NamespacedName(self.namespace, self.name)

    @property
    def meta(self) -> Meta:
        """The metadata: decoded at each call, unless it is kept (see :meth:`keep_meta`)."""
        return self._meta or _meta_of(_wire_object.decode(self.raw).metadata)

    def keep_meta(self) -> None:
        """Keeps the metadata decoded, for those who are about to be told of the object. A new entry does so anyway."""
        self._meta = self.meta

    def drop_meta(self) -> None:
        """Decodes the metadata at each call from now on."""
        self._meta = None

    def object(self) -> Object:
        """The object, decoded anew at each call: the caller owns it."""
        decoded: Object = orjson.loads(self.raw)
        return decoded

    @property
    def annotations(self) -> Mapping[str, str]:
        """``metadata.annotations``, decoded at each call."""
        return self.meta.annotations

    @property
    def managers(self) -> tuple[Mapping[str, Any], ...]:
        """The managedFields entries of our own field managers, without their time, decoded at each call."""
        return tuple(orjson.loads(_with_owners(self._managers, self))) if self._managers else ()

    def __repr__(self) -> str:
        return f"Entry({self.key}, resourceVersion={self.meta.resource_version!r})"


class EntryDecoder:
    """Makes entries of the items of lists, the objects of watch lines and the answers to writes.

    ``gvk`` is put back into items that do not say what they are (those of built-in lists do not, those of
    metadata-only lists call themselves ``PartialObjectMetadata``); ``field_managers`` are those whose
    managedFields entries are kept; with ``metadata_only`` everything but the metadata is dropped.
    """

    def __init__(self, gvk: GVK, *, field_managers: Collection[str] = (), metadata_only: bool = False) -> None:
        self._api_version = msgspec.Raw(_encode(gvk.api_version))
        self._kind = msgspec.Raw(_encode(gvk.kind))
        self._field_managers = frozenset(field_managers)
        self._quoted_managers = [_encode(manager) for manager in field_managers]
        self._metadata_only = metadata_only

    def decode(self, raw: bytes | msgspec.Raw) -> Entry:
        """The entry of one object; keeps no reference to ``raw``.

        Raises :class:`msgspec.DecodeError` when it is not an object with sound metadata.
        """
        parts = _parts.decode(raw)
        raw_metadata = parts.get("metadata")
        if raw_metadata is None:
            raise msgspec.ValidationError("Object missing required field `metadata`")
        wire = _wire_meta.decode(raw_metadata)
        if not wire.name:
            raise msgspec.ValidationError("Object missing required field `name` - at `$.metadata`")
        managers = b""
        rewritten = False
        if wire.managed_fields is not _NO_RAW:
            metadata = _parts.decode(raw_metadata)
            managers = self._own_managers(metadata.pop("managedFields"))
            parts["metadata"] = msgspec.Raw(_encode(metadata))
            rewritten = True
        if self._metadata_only:
            parts = {"apiVersion": self._api_version, "kind": self._kind, "metadata": parts["metadata"]}
            rewritten = True
        elif "kind" not in parts or "apiVersion" not in parts:
            parts = {"apiVersion": self._api_version, "kind": self._kind, **parts}
            rewritten = True
        meta = _meta_of(wire)
        # the encoder's bytes keep the room that it had in reserve, up to half as much again
        kept = bytes(memoryview(_encode(parts))) if rewritten else bytes(raw)
        return Entry.of(kept, meta, managers)

    def _own_managers(self, managed_fields: msgspec.Raw) -> bytes:
        view = bytes(managed_fields)
        if not any(manager in view for manager in self._quoted_managers):
            return b""
        own = [
            {field: value for field, value in _parts.decode(entry).items() if field != "time"}
            for entry in _raw_list.decode(view)
            if _manager.decode(entry).manager in self._field_managers
        ]
        return _encode(own) if own else b""


def _meta_of(wire: _WireMeta) -> Meta:
    return Meta(
        wire.name,
        wire.namespace or "",
        wire.uid,
        wire.resource_version,
        wire.generation or 0,
        wire.creation_timestamp or "",
        wire.deletion_timestamp,
        wire.labels or _NONE,
        wire.finalizers or (),
        wire.owner_references or (),
        wire.annotations,
    )


# An apply owns the references to the object's owners, and a reference is named by the uid in it.


def _without_owners(managers: bytes, meta: Meta) -> bytes:
    """``managers`` with marks for the owners' uids; the same bytes where they are equal."""
    if not managers:
        return managers
    for number, reference in enumerate(meta.owner_references):
        if reference.uid:
            managers = managers.replace(reference.uid.encode(), _MARK % number)
    return _shared(managers)


def _with_owners(managers: bytes, entry: Entry) -> bytes:
    """The reverse of :func:`_without_owners`."""
    if _MARK[:1] not in managers:
        return managers
    for number, reference in reversed(list(enumerate(entry.meta.owner_references))):
        managers = managers.replace(_MARK % number, reference.uid.encode())
    return managers


@lru_cache(maxsize=1024)
def _shared(text: bytes) -> bytes:
    return text
