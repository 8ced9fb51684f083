"""Parses the request line and the headers of HTTP/1.1 requests (RFC 9112), as strictly as Go's ``net/http``."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from multidict import CIMultiDict, MultiDict

__all__ = ["HeadError", "RequestHead", "parse_head"]

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n").search
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_LENGTH: Final = re.compile(r"[0-9]{1,18}").fullmatch
_VERSIONS: Final = {"HTTP/1.1": True, "HTTP/1.0": False}


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


def parse_head(data: bytes) -> RequestHead:
    """Parse everything before the empty line. Raises HeadError."""
    text = data.decode("utf-8", "replace")
    if _FORBIDDEN(text):
        raise HeadError(400, "400 Bad Request")
    first, *lines = text.split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not _TOKEN(parts[0]):
        raise HeadError(400, "400 Bad Request")
    method, target, version = parts
    if version not in _VERSIONS:
        raise HeadError(505, "505 HTTP Version Not Supported: unsupported protocol version")
    is_current = _VERSIONS[version]
    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN(name):
            raise HeadError(400, "400 Bad Request")
        headers.add(name, value.strip(" \t"))
    if is_current and len(headers.getall("Host", ())) != 1:
        problem = "too many Host headers" if "Host" in headers else "missing required Host header"
        raise HeadError(400, f"400 Bad Request: {problem}")
    path, query = _split(target)
    connection = headers.get("Connection", "").lower()
    return RequestHead(
        method,
        target,
        path,
        query,
        headers,
        _content_length(headers),
        _keeps_alive(connection, is_current=is_current),
        is_current,
        headers.get("Expect", "").lower() == "100-continue",
    )


def _split(target: str) -> tuple[str, MultiDict[str]]:
    """Return the decoded path and the parameters of a request target. Raises HeadError."""
    if not target.startswith("/"):
        _, found, rest = target.partition("://")
        if not found:
            raise HeadError(400, "400 Bad Request")
        target = f"/{rest.partition('/')[2]}"
    raw_path, _, raw_query = target.partition("#")[0].partition("?")
    if "%" in raw_path:
        if _BAD_ESCAPE(raw_path):
            raise HeadError(400, "400 Bad Request")
        raw_path = unquote(raw_path)
    return raw_path, MultiDict(parse_qsl(raw_query, keep_blank_values=True) if raw_query else ())


def _content_length(headers: CIMultiDict[str]) -> int | None:
    """Return the length of the body, ``None`` if it is chunked. Raises HeadError if headers contradict each other."""
    if "Transfer-Encoding" in headers:
        if [value.lower() for value in headers.getall("Transfer-Encoding")] != ["chunked"]:
            raise HeadError(501, "501 Not Implemented: unsupported transfer encoding")
        if "Content-Length" in headers:
            raise HeadError(400, "400 Bad Request")
        return None
    lengths = set(headers.getall("Content-Length", ()))
    if not lengths:
        return 0
    length = lengths.pop()
    if lengths or not _LENGTH(length):
        raise HeadError(400, "400 Bad Request")
    return int(length)


def _keeps_alive(connection: str, *, is_current: bool) -> bool:
    if not connection:
        return is_current
    options = [option.strip() for option in connection.split(",")]
    return "close" not in options and (is_current or "keep-alive" in options)
