"""Lists in pages, whose objects are decoded one by one: what a tenant creates can be large, and in any number."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from anyio import to_thread
from anyio.lowlevel import checkpoint

from cfo.runtime.client.errors import Expired, ResponseTooLarge
from cfo.runtime.client.page_size import PageSize
from cfo.runtime.client.transport import APIRequest, Transport
from cfo.runtime.process.nested_json import (
    UNREADABLE,
    decode_without_managed_fields,
    split_items,
    split_members,
    with_reserved_depth,
)

METADATA_LIST: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)
"""The media types for a list of only the metadata of objects."""

_MAX_PAGE_BYTES: Final = 16 << 20
"""More than one object: API servers store 1.5 MiB, of which JSON makes at most six times more."""

_LARGE_BYTES: Final = 64 << 10
"""The size from which others run before the next object is decoded: small values of one object can take 50 ms."""


class _PageMeta(msgspec.Struct, gc=False):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, gc=False):
    metadata: _PageMeta = msgspec.field(default_factory=_PageMeta)
    items: list[msgspec.Raw] | None = None


class Page(msgspec.Struct, frozen=True, gc=False):
    """The encoded objects of one page, and the position of the next one; empty for the last page."""

    items: Sequence[msgspec.Raw | bytes]
    position: str


_pages = msgspec.json.Decoder(_Page)
_page_meta = msgspec.json.Decoder(_PageMeta)


async def read_page(body: bytes) -> Page:
    """Return a page, whose objects are to be decoded with :func:`.decode_object`."""
    try:
        page = with_reserved_depth(_pages.decode, body)
    except UNREADABLE as error:
        return await _read_nested_page(body, error)
    return Page(page.items or [], page.metadata.continue_)


async def _read_nested_page(body: bytes, error: Exception) -> Page:
    """Return a page that cannot be decoded because of ``error``, which is raised if the body is not valid JSON."""
    try:
        page = await decode_without_managed_fields(_pages.decode, body)
    except RecursionError:
        if not isinstance(error, RecursionError):
            raise error from None
        members = await to_thread.run_sync(split_members, body)
        items = await to_thread.run_sync(split_items, members.get("items", b"null"))
        return Page(items, _page_meta.decode(members.get("metadata", b"{}")).continue_)
    return Page(page.items or [], page.metadata.continue_)


async def listed_items(
    transport: Transport, request: APIRequest, page_size: int
) -> AsyncIterator[bytes]:
    """Yield the encoded objects that ``request`` lists, to be decoded with :func:`.decode_object`.

    At most ``page_size`` of them, and 16 MiB, are in memory. If the continue token expires, the remaining objects are
    those that exist then. Raises the errors of API requests, and
    :class:`~cfo.runtime.client.errors.ResponseTooLarge` for an object that does not fit into a page.
    """
    size = PageSize(page_size)
    position = ""
    while True:
        params = {**request.params, "limit": str(size.current)}
        if position:
            params["continue"] = position
        try:
            response = await transport.request(
                replace(request, params=params, max_response_bytes=_MAX_PAGE_BYTES)
            )
        except ResponseTooLarge as error:
            size.reduce(error)
            continue
        except Expired as error:
            remaining = (error.status.get("metadata") or {}).get("continue")
            if not position or not remaining or remaining == position:
                raise
            position = remaining
            continue
        size.count_page()
        page = await read_page(response.body)
        for item in page.items:
            yield bytes(item)
            if len(memoryview(item)) > _LARGE_BYTES:
                await checkpoint()
        position = page.position
        if not position:
            return
