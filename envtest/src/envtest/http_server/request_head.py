"""The request line and the headers of HTTP/1.1 requests (RFC 9112), as strictly as Go's ``net/http``.

llhttp (Node.js' parser, by httptools) parses them. It differs from ``net/http`` in three points, which are added here:
it accepts only registered methods, several spaces in a request line and other protocols (RTSP), and encodings in front
of ``chunked``. Each head has a parser of its own, because a parser cannot be reset and one that has seen the end of a
request continues with the next.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from multidict import CIMultiDict, MultiDict

__all__ = ["HeadError", "RequestHead", "origin_form", "parse_head"]

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_UNKNOWN_VERSION: Final = "Invalid HTTP version"
_UNKNOWN_ENCODING: Final = "`Transfer-Encoding`"


class HeadError(Exception):
    """Raised for a request that cannot be read; it has the ``code`` and the text of the response."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class RequestHead(NamedTuple):
    """A request without its body.

    ``content_length`` is ``None`` for a chunked body, and 0 without a body.
    """

    method: str
    target: str
    path: str
    query: MultiDict[str]
    headers: CIMultiDict[str]
    content_length: int | None
    keep_alive: bool
    is_current: bool
    """Whether the client speaks HTTP/1.1, not HTTP/1.0."""
    expects_continue: bool


class _Head:
    """What the parser has found."""

    __slots__ = ("headers", "keep_alive", "parser", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[str, str]] = []
        self.keep_alive: bool | None = None
        self.parser: HttpRequestParser | None = HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        self.target = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode(), value.decode("utf-8", "replace").rstrip(" \t")))

    def on_headers_complete(self) -> None:
        assert self.parser is not None
        self.keep_alive = self.parser.should_keep_alive()

    def feed(self, data: bytes) -> str:
        """Parse everything; return the version. Raises HttpParserError."""
        parser = self.parser
        assert parser is not None
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # the caller decides whether the connection leaves HTTP
        finally:
            self.parser = None  # a cycle would keep both until the next garbage collection
        return parser.get_http_version()


def parse_head(data: bytes) -> RequestHead:
    """Parse a request up to its first empty line, which is included. Raises HeadError."""
    method, _, rest = data.partition(b" ")
    if not _TOKEN(method):
        raise HeadError(400, "400 Bad Request")
    found = _Head()
    try:
        version = found.feed(b"POST " + rest)
    except HttpParserError as error:
        raise _refusal(str(error)) from None
    if found.keep_alive is None or not rest.startswith(
        b"%b HTTP/%b\r\n" % (found.target, version.encode())
    ):
        raise HeadError(400, "400 Bad Request")
    if version not in {"1.0", "1.1"}:
        raise _refusal(_UNKNOWN_VERSION)
    is_current = version == "1.1"
    headers = CIMultiDict(found.headers)
    if is_current and len(headers.getall("Host", ())) != 1:
        problem = "too many Host headers" if "Host" in headers else "missing required Host header"
        raise HeadError(400, f"400 Bad Request: {problem}")
    target = found.target.decode()
    path, query = _split(target)
    return RequestHead(
        method.decode(),
        target,
        path,
        query,
        headers,
        _content_length(headers),
        found.keep_alive,
        is_current,
        headers.get("Expect", "").lower() == "100-continue",
    )


def _refusal(reason: str) -> HeadError:
    """Return the response to what the parser has refused for ``reason``."""
    if reason == _UNKNOWN_VERSION:
        return HeadError(505, "505 HTTP Version Not Supported: unsupported protocol version")
    if _UNKNOWN_ENCODING in reason:
        return HeadError(501, "501 Not Implemented: unsupported transfer encoding")
    return HeadError(400, "400 Bad Request")


def origin_form(target: str) -> str:
    """Return path and query of a request target, which may be a whole URL. Raises HeadError."""
    if not target.startswith("/"):
        _, found, rest = target.partition("://")
        if not found:
            raise HeadError(400, "400 Bad Request")
        target = f"/{rest.partition('/')[2]}"
    return target.partition("#")[0]


def _split(target: str) -> tuple[str, MultiDict[str]]:
    """Return the decoded path and the parameters of a request target. Raises HeadError."""
    raw_path, _, raw_query = origin_form(target).partition("?")
    if "%" in raw_path:
        if _BAD_ESCAPE(raw_path):
            raise HeadError(400, "400 Bad Request")
        raw_path = unquote(raw_path)
    if not raw_query:
        return raw_path, MultiDict()
    return raw_path, MultiDict(parse_qsl(raw_query, keep_blank_values=True))


def _content_length(headers: CIMultiDict[str]) -> int | None:
    """Return the length of the body, which the parser has validated; ``None`` if it is chunked. Raises HeadError."""
    if "Transfer-Encoding" in headers:
        if [value.lower() for value in headers.getall("Transfer-Encoding")] != ["chunked"]:
            raise _refusal(_UNKNOWN_ENCODING)
        return None
    return int(headers.get("Content-Length", 0))
