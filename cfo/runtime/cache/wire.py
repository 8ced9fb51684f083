"""The JSON of list pages and watch lines, with only the outer structure and the objects' metadata decoded.

The decoders raise :class:`RecursionError` for objects that are nested too deeply. Such an object is found in a list
page or watch line without recursion, and is read without managedFields (:mod:`~cfo.runtime.process.nested_json`). A
custom resource can be nested as deeply in free-form fields; of such a one, only the metadata is read.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import structlog
from anyio import to_thread

from cfo.runtime.cache.entry import Entry, EntryDecoder, Parts
from cfo.runtime.process.nested_json import (
    UnreadableObject,
    join_members,
    readable_object,
    split_items,
    split_members,
    with_reserved_depth,
)

_log = structlog.get_logger(__name__)

MAX_LINE_BYTES: Final = 64 << 20
"""The longest accepted watch line; an object in etcd has at most 1.5 MB, its JSON up to about three times as much."""

_UNDECODABLE: Final = "Failed to decode object, skipping it"

_MAX_REPORTED: Final = 1000
"""The number of skipped objects that a decoder remembers, in order to report each only once."""


class BrokenStreamError(Exception):
    """A list or watch that cannot be continued because its content is invalid."""


class ListMeta(msgspec.Struct, rename="camel"):
    """The metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """A page of a list; the items are not decoded."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class SplitPage(msgspec.Struct):
    """A page of which some items are nested too deeply; all items are bytes."""

    metadata: ListMeta
    items: list[bytes]


class WatchEvent(msgspec.Struct):
    """A watch line; of the object, only the top-level fields are found."""

    type: str
    object: Parts


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


INVALID: Final = (msgspec.MsgspecError, ValueError)
"""What decoders raise for invalid JSON, invalid UTF-8 and values of another type."""

decode_page: Final = msgspec.json.Decoder(Page).decode
_event: Final = msgspec.json.Decoder(WatchEvent)
_raw_event: Final = msgspec.json.Decoder(_RawEvent)
_list_meta: Final = msgspec.json.Decoder(ListMeta)
_value: Final = msgspec.json.Decoder()


def decode_event(line: bytes) -> WatchEvent:
    """Return the event of a watch line; an invalid object has no parts. Raises the errors in :data:`INVALID`."""
    try:
        return _event.decode(line)
    except INVALID:
        return WatchEvent(_raw_event.decode(line).type, {})


def decode_bookmark(parts: Parts) -> ListMeta:
    """Return the metadata of the object of a BOOKMARK event."""
    return _list_meta.decode(parts.get("metadata", b"{}"))


def decode_status(parts: Parts) -> dict[str, Any]:
    """Return the Status of an ERROR event."""
    return {field: _value.decode(part) for field, part in parts.items()}


def split_page(body: bytes) -> SplitPage:
    """Return a page of which some items are nested too deeply."""
    parts = split_members(body)
    metadata = _list_meta.decode(parts.get("metadata", b"{}"))
    items = split_items(parts.get("items", b"null"))
    return SplitPage(metadata, items)


class LineSplitter:
    """Splits a stream into lines of any length, across chunks.

    The bytes after the last line break are a partial event and are dropped at the end: the next watch sends it again.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._size = 0

    def split(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes, except for empty lines; raises :class:`BrokenStreamError`."""
        *complete, rest = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join((*self._pending, complete[0]))
            self._pending = []
            self._size = 0
        if rest:
            self._pending.append(rest)
            self._size += len(rest)
            if self._size > MAX_LINE_BYTES:
                raise BrokenStreamError(f"a watch line is longer than {MAX_LINE_BYTES} bytes")
        return [line for line in complete if line.strip()]


class ItemDecoder:
    """Decodes the objects of a list and its watch, and reports each object that must be skipped once.

    ``resource`` is the name of the collection in log messages.
    """

    def __init__(self, decoder: EntryDecoder, resource: str, *, metadata_only: bool) -> None:
        self._decoder = decoder
        self._resource = resource
        self.metadata_only = metadata_only
        self._reported: dict[object, None] = {}

    def decode(self, content: bytes | msgspec.Raw | Parts) -> Entry | None:
        """Return the entry of one object, or ``None`` if its metadata is invalid, which is reported."""
        try:
            return self._decoder.decode(content)
        except INVALID as error:
            self._report(_UNDECODABLE, hash(msgspec.json.encode(content)), error=str(error))
            return None

    async def decode_nested(self, raw: bytes) -> Entry | None:
        """Like :meth:`decode`, for an object that may be nested too deeply, which is reported.

        If only its managedFields are nested too deeply, it is decoded without them.
        """
        try:
            return with_reserved_depth(self.decode, await readable_object(raw))
        except (RecursionError, UnreadableObject):
            entry = await self.decode_without_nesting(raw)
            if entry is not None and not self.metadata_only:
                self._report_nesting(entry)
                return None
            return entry

    async def decode_without_nesting(self, raw: bytes) -> Entry | None:
        """Return an entry with only the metadata of an object that is nested too deeply."""
        return self.decode(await to_thread.run_sync(object_without_nesting, raw))

    def _report_nesting(self, entry: Entry) -> None:
        self._report(
            _UNDECODABLE,
            entry.meta.uid or entry.key,
            object=str(entry.key),
            error="nested too deeply",
        )

    def _report(self, message: str, identity: object, **fields: object) -> None:
        """Log that an object is skipped, unless that was reported before."""
        if identity in self._reported:
            return  # the object is listed again after each interruption
        if len(self._reported) >= _MAX_REPORTED:
            oldest = next(iter(self._reported))
            del self._reported[oldest]
        self._reported[identity] = None
        _log.error(message, resource=self._resource, **fields)


def object_without_nesting(raw: bytes) -> bytes:
    """Return an object's apiVersion, kind and metadata without managedFields: all other fields can be nested."""
    parts = split_members(raw)
    metadata = split_members(parts.get("metadata", b"{}"))
    metadata.pop("managedFields", None)
    kept = {"metadata": join_members(metadata)}
    for field in ("apiVersion", "kind"):
        if field in parts:
            kept[field] = parts[field]
    return join_members(kept)
