"""Requests that are relayed to another server, and its responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

from envtest.http_server.html_links import rewrite_links
from envtest.http_server.responses import Sender, StreamResponse

if TYPE_CHECKING:
    import aiohttp

__all__ = ["relay_response", "relayed_headers"]

MAX_PAGE_BYTES: Final = 1024 * 1024
"""The size of a page whose links are changed, for at most 0.3 s; larger ones are sent as they are."""
_OWN_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection, and credentials, which are not relayed."""
_IDENTITY: Final = ("x-remote-", "impersonate-")
_RESPONSE_HEADERS: Final = frozenset(
    {"connection", "content-length", "date", "keep-alive", "transfer-encoding"}
)


def relayed_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers of a relayed request: without credentials and without those that name a user."""
    relayed = [
        (name, value)
        for name, value in headers
        if name.lower() not in _OWN_HEADERS and not name.lower().startswith(_IDENTITY)
    ]
    return [*relayed, ("Accept-Encoding", "identity")]


async def relay_response(
    opened: AbstractAsyncContextManager[aiohttp.ClientResponse],
    connection: Sender,
    failure: type[Exception],
    rewrite: Callable[[str], str] | None = None,
) -> StreamResponse:
    """Send the response of another server as it arrives. ``rewrite`` changes its links: redirects, and those in HTML.

    Raises ``failure``, which ``opened`` raises, if no part of it was sent; otherwise ConnectionError.
    """
    sent: StreamResponse | None = None
    connection.end_with_client()
    try:
        async with opened as response:
            if response.status < 200:
                raise failure(f"unexpected status {response.status}")  # noqa: TRY301 (the client would leave HTTP)
            shown = [
                (name, value)
                for name, value in response.headers.items()
                if name.lower() not in _RESPONSE_HEADERS
            ]
            length = response.content_length
            page = b""
            if rewrite is not None:
                shown = [
                    (name, rewrite(value) if name.lower() == "location" else value)
                    for name, value in shown
                ]
                is_page = (
                    response.content_type == "text/html"
                    and "Content-Encoding" not in response.headers
                )
                if is_page and length is not None and length <= MAX_PAGE_BYTES:
                    text = (await response.read()).decode(errors="surrogateescape")
                    page = rewrite_links(text, rewrite).encode(errors="surrogateescape")
            sent = StreamResponse(response.status, shown)
            sent.content_length = 0 if response.status in (204, 304) else len(page) or length
            await sent.prepare(connection)
            # which has no body, so no end of one
            sent.is_chunked = sent.is_chunked and response.method != "HEAD"
            await sent.write(page)
            async for chunk in response.content.iter_any():
                await sent.write(chunk)
            await sent.write_eof()
            return sent
    except failure as error:
        if sent is None:
            raise
        raise ConnectionError(str(error)) from error
