"""Decodes list items and the objects of watch events, and reports each object that must be skipped once."""

from __future__ import annotations

from typing import Final

import msgspec
import structlog
from anyio import to_thread

from cfo.runtime.cache.entry import Entry, EntryDecoder
from cfo.runtime.cache.nesting import object_without_nesting, with_reserved_depth
from cfo.runtime.cache.selectors import Selection

__all__ = ["ItemDecoder"]

_log = structlog.get_logger(__name__)

_UNDECODABLE: Final = "Failed to decode object, skipping it"
_TOO_LARGE: Final = "Object is too large, skipping it"

_MAX_REPORTED: Final = 1000
"""The number of skipped objects that a decoder remembers, in order to report each only once."""


class ItemDecoder:
    """Decodes the objects of a list and its watch; ``resource`` is the name of the collection in log messages."""

    def __init__(self, decoder: EntryDecoder, selection: Selection, resource: str) -> None:
        self._decoder = decoder
        self._selection = selection
        self._resource = resource
        self._reported: dict[object, None] = {}

    def decode(self, raw: bytes | msgspec.Raw) -> Entry | None:
        """Return the entry of one object, or ``None`` if its metadata is invalid, which is reported."""
        try:
            entry = self._decoder.decode(raw)
        except (msgspec.MsgspecError, ValueError) as error:
            self._report(_UNDECODABLE, hash(bytes(raw)), error=str(error))
            return None
        if not self._selection.fits(len(entry.raw)):
            self._report(_TOO_LARGE, entry.meta.uid or entry.key, object=str(entry.key), bytes=len(entry.raw))
        return entry

    async def decode_nested(self, raw: bytes) -> Entry | None:
        """Like :meth:`decode`, for an object that may be nested too deeply, which is reported."""
        try:
            return with_reserved_depth(self.decode, raw)
        except RecursionError:
            entry = await self.decode_without_nesting(raw)
            if entry is not None and not self._selection.metadata_only:
                self.report_nesting(entry)
                return None
            return entry

    async def decode_without_nesting(self, raw: bytes) -> Entry | None:
        """Return an entry with only the metadata of an object that is nested too deeply."""
        return self.decode(await to_thread.run_sync(object_without_nesting, raw))

    def report_nesting(self, entry: Entry) -> None:
        """Log that an object is skipped because it is nested too deeply."""
        self._report(_UNDECODABLE, entry.meta.uid or entry.key, object=str(entry.key), error="nested too deeply")

    def _report(self, message: str, identity: object, **fields: object) -> None:
        """Log that an object is skipped, unless that was reported before."""
        if identity in self._reported:
            return
        if len(self._reported) >= _MAX_REPORTED:
            del self._reported[next(iter(self._reported))]
        self._reported[identity] = None
        _log.error(message, resource=self._resource, **fields)
