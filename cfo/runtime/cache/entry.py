"""A cached object: its JSON and little else.

List pages and watch lines arrive as bytes and are never decoded into Python objects as a whole. ``msgspec.Raw`` finds
the start and end of each item. ``managedFields`` are removed, and the rest is copied into a separate bytes object (a
``Raw`` is a view that would keep its whole page in memory). Each read decodes a fresh copy, so callers own the result.
The metadata, which every event handler needs, and the start and end of each top-level field are decoded once for all
handlers and dropped after they have run: keeping them for every object would take more memory than small objects
themselves.

The managedFields entries of our own field managers are stored separately from the object, never in it: an API server
trusts any managedFields that a client sends. One of our managers owns the same fields in all its objects. The entries
differ only in the uids of the owners, and in the object's name where it identifies a list element (a container). With
placeholders for both, they are equal and stored once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from sys import intern
from typing import Any, Final, Self, TypeAlias

import msgspec
import orjson

from cfo.runtime.objects.unstructured import (
    GVK,
    MAX_OWNER_PART,
    MAX_UID,
    NamespacedName,
    Object,
    owner_part,
)
from cfo.runtime.process.large_objects import admit
from cfo.runtime.process.nested_json import MAX_LEVELS, UnreadableObject

Parts: TypeAlias = dict[str, msgspec.Raw]
"""The JSON of each top-level field of an object."""

_Fields: TypeAlias = Mapping[str, "_Fields"]
"""The fields to keep by name, each with those below it; none below: all of the field."""

_NO_STRINGS: Final[Mapping[str, str]] = {}
_NO_RAW: Final = msgspec.Raw()
_NO_PARTS: Final[Parts] = {}

_UID_PLACEHOLDER: Final = b"\1%d\2"
"""Replaces an owner's uid and its escaped quotes: shorter than any uid, of bytes that JSON never contains."""

_NAME_PLACEHOLDER: Final = b"\3"
"""Replaces the object's name and its escaped quotes, where a list element is identified by this name."""

_MAX_OWNERS: Final = 8

_MAX_MANAGERS_BYTES: Final = 64 << 10
"""Larger entries of field managers are not stored, because any client can write as our manager; applies are sent."""

_MAX_SHARED_BYTES: Final = 8 << 10

MAX_METADATA_BYTES: Final = 64 << 10
"""How much metadata, without annotations, an object in a store may have.

It is decoded for each event and by each reader of an entry, and users can write any number of owner references, labels
and finalizers."""

ENTRY_BYTES: Final = 300
"""The bytes that an entry takes in addition to its JSON: the record, its name, and its place in a dictionary."""

_MAX_OWNER_BYTES: Final = 2 << 10
"""A longer owner reference is not kept in an identity: any client can write any strings into it."""


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An owner reference; see :func:`cfo.runtime.objects.unstructured.owner_reference`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    def limited(self) -> OwnerReference:
        """Return the reference with strings that are cut (:func:`cfo.runtime.objects.unstructured.owner_part`)."""
        longest = max(len(self.api_version), len(self.kind), len(self.name))
        if longest <= MAX_OWNER_PART and len(self.uid) <= MAX_UID:
            return self
        return OwnerReference(
            owner_part("apiVersion", self.api_version),
            owner_part("kind", self.kind),
            owner_part("name", self.name),
            owner_part("uid", self.uid),
            self.controller,
            self.block_owner_deletion,
        )


class Meta(msgspec.Struct, gc=False):
    """The decoded metadata. All event handlers share it: do not modify it."""

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
        """The annotations; decoded on each access, because they may be larger than all other metadata."""
        if not self.raw_annotations:
            return _NO_STRINGS
        return _annotations.decode(self.raw_annotations) or _NO_STRINGS

    @property
    def is_deleting(self) -> bool:
        """Whether deletion was requested, so that only finalizers or a grace period delay it."""
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference whose ``controller`` is true, with strings that are cut, or ``None``."""
        for reference in self.owner_references:
            if reference.controller:
                return reference.limited()
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


_METADATA: Final = b',"metadata":'
"""What is before the metadata. In a string, the quotes would be escaped."""

_split = msgspec.json.Decoder(Parts).decode
_wire_meta = msgspec.json.Decoder(_WireMeta)
_annotations = msgspec.json.Decoder(dict[str, str] | None)
_encode = msgspec.json.Encoder().encode


@lru_cache
def _field(name: str) -> msgspec.json.Decoder[Any]:
    """Return the decoder of an object of which only the field ``name`` is read."""
    fields = [("value", msgspec.Raw, _NO_RAW)]
    struct = msgspec.defstruct("Field", fields, rename={"value": name}, gc=False)
    return msgspec.json.Decoder(struct)


class _Manager(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """An entry of managedFields, without its time."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    subresource: str = ""
    fields_type: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=_NO_RAW, name="fieldsV1")


_managers = msgspec.json.Decoder(list[_Manager])


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number, or 0 if it cannot be compared.

    The resourceVersions of one resource are ordered decimal numbers without leading zeros (KEP-5504); an aggregated API
    server may still use another format.
    """
    if resource_version.isdecimal() and resource_version.isascii() and resource_version[0] != "0":
        return int(resource_version)
    return 0


class Entry(msgspec.Struct, gc=False, eq=False):
    """One state of one object; the next state is another entry.

    The garbage collector does not track entries, so its run time does not grow with the cache.
    """

    namespace: str
    name: str
    raw: bytes
    """The object's JSON, without managedFields."""
    version: int
    """The resourceVersion as a number; 0 if it is not a number."""
    _managers: bytes
    _metadata_bytes: int
    """The length of the metadata in ``raw``, where it follows apiVersion and kind; 0 if that is not known."""
    _meta: Meta | None
    _parts: Parts | None
    """``None`` unless they are kept; empty until they are decoded."""

    @classmethod
    def of(cls, raw: bytes, meta: Meta, managers: bytes = b"", parts: Parts | None = None) -> Self:
        """Return the entry of an object with this metadata."""
        version = version_number(meta.resource_version)
        stored_managers = _without_identity(managers, meta)
        length = len(memoryview(parts["metadata"])) if parts is not None else 0
        namespace = intern(meta.namespace)
        return cls(namespace, meta.name, raw, version, stored_managers, length, meta, parts)

    @property
    def key(self) -> NamespacedName:
        """The object's namespace and name."""
        return NamespacedName(self.namespace, self.name)

    @property
    def size(self) -> int:
        """The bytes that the entry takes in memory, without its place in indexes."""
        return ENTRY_BYTES + len(self.raw) + len(self._managers)

    @property
    def meta(self) -> Meta:
        """The metadata, decoded on each access unless it is kept (see :meth:`keep_meta`)."""
        if self._meta is not None:
            return self._meta
        meta = _meta_of(_wire_meta.decode(self.part("metadata")))
        if self._parts is not None:
            self._meta = meta
        return meta

    @property
    def metadata_bytes(self) -> int:
        """The bytes of the metadata that :attr:`meta` decodes: without managedFields and annotations."""
        return len(memoryview(self.part("metadata"))) - len(memoryview(self.meta.raw_annotations))

    def part(self, field: str) -> msgspec.Raw:
        """Return the JSON of a top-level field; empty if it is missing."""
        if self._parts is None and field == "metadata" and self._metadata_bytes:
            start = self.raw.index(_METADATA) + len(_METADATA)
            return msgspec.Raw(self.raw[start : start + self._metadata_bytes])
        if self._parts is None:
            value: msgspec.Raw = _field(field).decode(self.raw).value
            return value
        if not self._parts:
            self._parts = _split(self.raw)
        return self._parts.get(field, _NO_RAW)

    def keep_meta(self) -> None:
        """Keep metadata and parts from the next access on, for the event handlers that run next.

        A new entry starts with them.
        """
        if self._parts is None:
            self._parts = _NO_PARTS

    def drop_meta(self) -> None:
        """Drop the decoded metadata and parts; from now on they are decoded on each access."""
        self._meta = None
        self._parts = None

    def object(self) -> Object:
        """Return a freshly decoded copy, owned by the caller.

        Raises :class:`~cfo.runtime.process.large_objects.RoomTaken` in a reconcile that has decoded too much.
        """
        admit(self.raw)
        decoded: Object = orjson.loads(self.raw)
        return decoded

    def metadata_object(self) -> Object:
        """Return a copy of the object that has only apiVersion, kind and metadata."""
        return {
            field: orjson.loads(memoryview(self.part(field)))
            for field in ("apiVersion", "kind", "metadata")
        }

    @property
    def annotations(self) -> Mapping[str, str]:
        """``metadata.annotations``, decoded on each access."""
        return self.meta.annotations

    @property
    def managers(self) -> tuple[Mapping[str, Any], ...]:
        """The managedFields entries of our own field managers, without their time, decoded on each access."""
        if not self._managers:
            return ()
        return tuple(orjson.loads(_with_identity(self._managers, self)))

    def __repr__(self) -> str:
        return f"Entry({self.key}, resourceVersion={self.meta.resource_version!r})"


class EntryDecoder:
    """Decodes list items, the objects in watch lines and responses to writes into entries.

    ``gvk`` is added to items without apiVersion and kind (items of built-in lists have none, and items of metadata-only
    lists have the kind ``PartialObjectMetadata``). ``field_managers`` are the managers whose managedFields entries are
    stored. With ``metadata_only`` everything except the metadata is dropped. With ``fields``, dotted paths as
    ``spec.parallelism``, everything except the metadata and these fields is dropped.
    """

    def __init__(
        self,
        gvk: GVK,
        *,
        field_managers: Collection[str] = (),
        metadata_only: bool = False,
        fields: Collection[str] = (),
    ) -> None:
        self._api_version = msgspec.Raw(_encode(gvk.api_version))
        self._kind = msgspec.Raw(_encode(gvk.kind))
        self._field_managers = frozenset(field_managers)
        self._quoted_managers = [_encode(manager) for manager in field_managers]
        self._metadata_only = metadata_only
        self._fields: _Fields | None = None
        if fields:
            self._fields = _fields_of(("apiVersion", "kind", "metadata", *fields))

    def decode(self, content: bytes | msgspec.Raw | Parts) -> Entry:
        """Return the entry of one object.

        The entry keeps the parts, and with them the buffer that they refer to, until :meth:`Entry.drop_meta`. If
        ``content`` is a dict, managedFields are removed from it. Raises :class:`msgspec.DecodeError` if ``content`` is
        not an object with valid metadata, and :class:`RecursionError` or :class:`.UnreadableObject` if it is nested too
        deeply for readers, or is not valid Unicode.
        """
        parts = content if isinstance(content, dict) else _split(content)
        raw_metadata = parts.get("metadata")
        if raw_metadata is None:
            raise msgspec.ValidationError("Object missing required field `metadata`")
        wire = _wire_meta.decode(raw_metadata)
        if not wire.name:
            raise msgspec.ValidationError("Object missing required field `name` - at `$.metadata`")
        managers = b""
        if wire.managed_fields is not _NO_RAW:
            metadata = _split(raw_metadata)
            managers = self._own_managers(metadata.pop("managedFields"))
            parts["metadata"] = msgspec.Raw(_encode(metadata))

        if self._metadata_only:
            parts = {
                "apiVersion": self._api_version,
                "kind": self._kind,
                "metadata": parts["metadata"],
            }
        else:
            # In this order, so that the metadata is found in a large object without reading the rest.
            parts = {
                "apiVersion": self._api_version,
                "kind": self._kind,
                "metadata": parts["metadata"],
                **parts,
            }
        if self._fields is not None:
            parts = _selected(parts, self._fields)
        # Copied because the encoder's result keeps its spare capacity, up to half the size of the JSON.
        raw = bytes(memoryview(_encode(parts)))
        entry = Entry.of(raw, _meta_of(wire), managers, parts)
        _require_unicode(raw)
        # No reader gets an object with more metadata, so the check, which decodes it, is not needed.
        if len(raw) > 2 * MAX_LEVELS and entry.metadata_bytes <= MAX_METADATA_BYTES:
            _require_readable(raw)
        return entry

    def _own_managers(self, managed_fields: msgspec.Raw) -> bytes:
        encoded = bytes(managed_fields)
        if not any(manager in encoded for manager in self._quoted_managers):
            return b""  # most objects of other clients: not decoded
        own = [
            entry for entry in _managers.decode(encoded) if entry.manager in self._field_managers
        ]
        if not own:
            return b""
        managers = _encode(own)
        if len(managers) > _MAX_MANAGERS_BYTES:
            return b""
        return managers


def _require_readable(raw: bytes) -> None:
    """Raise :class:`.UnreadableObject` for an object that is nested too deeply for :meth:`Entry.object`.

    The decoder of the metadata, which skips all other fields, accepts more levels since Python 3.12. One such object
    would fail each reader of a list with it.
    """
    openings = raw.count(b"{") + raw.count(b"[")
    if openings <= MAX_LEVELS:
        return
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UnreadableObject(str(error)) from None


def _require_unicode(raw: bytes) -> None:
    """Raise :class:`.UnreadableObject` for bytes that are not UTF-8, which msgspec does not check in what it skips."""
    if raw.isascii():
        return
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise UnreadableObject(str(error)) from None


def _fields_of(paths: Iterable[str]) -> _Fields:
    """Return the fields of dotted paths by their first name; one without fields below it is kept as a whole."""
    below: dict[str, list[str]] = {}
    for path in paths:
        name, _, rest = path.partition(".")
        below.setdefault(name, []).append(rest)
    fields: dict[str, _Fields] = {}
    for name, rests in below.items():
        if "" in rests:
            fields[name] = {}
        else:
            fields[name] = _fields_of(rests)
    return fields


def _selected(parts: Parts, fields: _Fields) -> Parts:
    """Return those of ``parts`` that ``fields`` has, in the order of ``parts``."""
    selected: Parts = {}
    for name, part in parts.items():
        below = fields.get(name)
        if below is None:
            continue
        selected[name] = part
        if below:
            with suppress(msgspec.ValidationError):  # it is not an object, and kept as it is
                selected[name] = msgspec.Raw(_encode(_selected(_split(part), below)))
    return selected


class _IdentityMeta(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str
    creation_timestamp: str
    owner_references: list[OwnerReference] = []


def identity_of(entry: Entry) -> Entry:
    """Return an entry that has only the name, uid, version, creation time and controller of an object.

    A controller whose reference is very long is not kept, so that the object looks like one without a controller.
    """
    meta = entry.meta
    controller = meta.controller
    owners: list[OwnerReference] = []
    if controller is not None and len(_encode(controller)) <= _MAX_OWNER_BYTES:
        owners.append(controller)
    identity = _IdentityMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        creation_timestamp=meta.creation_timestamp,
        owner_references=owners,
    )
    content = {
        "apiVersion": entry.part("apiVersion"),
        "kind": entry.part("kind"),
        "metadata": identity,
    }
    raw = bytes(memoryview(_encode(content)))
    return Entry(entry.namespace, entry.name, raw, entry.version, b"", 0, None, None)


def entry_of_name(key: NamespacedName, uid: str) -> Entry:
    """Return an entry of an object of which nothing else is known, not even its kind."""
    identity = _IdentityMeta(
        name=key.name,
        namespace=key.namespace,
        uid=uid,
        resource_version="",
        creation_timestamp="",
    )
    return Entry(key.namespace, key.name, _encode({"metadata": identity}), 0, b"", 0, None, None)


def _meta_of(wire: _WireMeta) -> Meta:
    return Meta(
        wire.name,
        wire.namespace or "",
        wire.uid,
        wire.resource_version,
        wire.generation or 0,
        wire.creation_timestamp or "",
        wire.deletion_timestamp,
        wire.labels or _NO_STRINGS,
        wire.finalizers or (),
        wire.owner_references or (),
        wire.annotations,
    )


# An apply owns the owner references that it sets, and fieldsV1 identifies an owner reference by its uid. It identifies
# elements of list maps by keys as well (k:{"name":"x"}), and the only container often has the name of the object.


def _without_identity(managers: bytes, meta: Meta) -> bytes:
    """Replace the owners' uids and the object's name by placeholders, so that equal results share the same bytes."""
    if not managers:
        return managers
    for number, reference in enumerate(meta.owner_references[:_MAX_OWNERS]):
        managers = managers.replace(_quoted(reference.uid), _UID_PLACEHOLDER % number)
    managers = managers.replace(_quoted(meta.name), _NAME_PLACEHOLDER)
    if len(managers) > _MAX_SHARED_BYTES:
        return managers
    return _shared(managers)


def _quoted(name: str) -> bytes:
    """Return a name as the keys of fieldsV1 contain it: in quotes that are escaped, because a key is a JSON string."""
    return b'\\"%s\\"' % name.encode()


def _with_identity(managers: bytes, entry: Entry) -> bytes:
    """Insert the name and the owners' uids again: the steps of :func:`_without_identity` in reverse order."""
    managers = managers.replace(_NAME_PLACEHOLDER, _quoted(entry.name))
    if _UID_PLACEHOLDER[:1] not in managers:
        return managers
    owners = enumerate(entry.meta.owner_references[:_MAX_OWNERS])
    for number, reference in reversed(list(owners)):
        managers = managers.replace(_UID_PLACEHOLDER % number, _quoted(reference.uid))
    return managers


@lru_cache(maxsize=1024)
def _shared(managers: bytes) -> bytes:
    """Return the first of the equal arguments, which the cache keeps."""
    return managers
