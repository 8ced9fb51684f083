"""The JSON of list pages and watch lines, of which only the outer structure is decoded."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from cfo.runtime.cache.nesting import split_items, split_members

__all__ = [
    "BrokenStreamError",
    "LineSplitter",
    "ListMeta",
    "Page",
    "SplitPage",
    "WatchEvent",
    "decode_bookmark",
    "decode_event",
    "decode_page",
    "decode_status",
    "split_page",
]

MAX_LINE_BYTES: Final = 64 << 20
"""The longest accepted watch line; an object in etcd has at most 1.5 MB, its JSON up to about three times as much."""


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
    """A watch line; the object is not decoded."""

    type: str
    object: msgspec.Raw


class _BookmarkObject(msgspec.Struct):
    metadata: ListMeta


decode_page: Final = msgspec.json.Decoder(Page).decode
decode_event: Final = msgspec.json.Decoder(WatchEvent).decode
_list_meta: Final = msgspec.json.Decoder(ListMeta)
_bookmark: Final = msgspec.json.Decoder(_BookmarkObject)
_status: Final = msgspec.json.Decoder(dict)


def decode_bookmark(raw: msgspec.Raw) -> ListMeta:
    """Return the metadata of the object of a BOOKMARK event."""
    return _bookmark.decode(raw).metadata


def decode_status(raw: msgspec.Raw) -> dict[str, Any]:
    """Return the Status of an ERROR event."""
    return _status.decode(raw)


def split_page(body: bytes) -> SplitPage:
    """Return a page of which some items are nested too deeply."""
    parts = split_members(body)
    return SplitPage(_list_meta.decode(parts.get("metadata", b"{}")), split_items(parts.get("items", b"null")))


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
            self._pending, self._size = [], 0
        if rest:
            self._pending.append(rest)
            self._size += len(rest)
            if self._size > MAX_LINE_BYTES:
                raise BrokenStreamError(f"a watch line is longer than {MAX_LINE_BYTES} bytes")
        return [line for line in complete if line.strip()]
