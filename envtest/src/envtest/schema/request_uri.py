"""The format ``uri``: what ``url.ParseRequestURI`` of Go accepts, an absolute URI or an absolute path.

A ``#`` has no meaning in such a URI, and the part behind a scheme that does not begin with ``/`` is not checked.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

__all__ = ["is_request_uri"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_INVALID_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_HOST = re.compile(
    r"(?:[A-Za-z0-9!$&'()*+,;=:\[\]<>\"._~-]|[^\x00-\x7f]|%25|%[89A-Fa-f][0-9A-Fa-f])*"
)
_ZONE_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_PORT = re.compile(r"(?::[0-9]*)?")


def is_request_uri(text: str) -> bool:
    """Report whether the string is a URI, as it may be in a request."""
    if not text or _CONTROL.search(text):
        return False
    if text == "*":
        return True
    scheme = _SCHEME.match(text)
    if scheme is None and text.startswith(":"):
        return False
    start = 0
    if scheme is not None:
        start = scheme.end()
    rest = text[start:].partition("?")[0]
    if not rest.startswith("/"):
        return scheme is not None
    if scheme is not None and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        return _is_authority(authority) and not _INVALID_ESCAPE.search(slash + path)
    return not _INVALID_ESCAPE.search(rest)


def _is_authority(authority: str) -> bool:
    user, _, host = authority.rpartition("@")
    if not _USER.fullmatch(user) or _INVALID_ESCAPE.search(user):
        return False
    if "[" in host:
        return _is_bracketed(host)
    _, colon, port = host.partition(":")
    return bool(_PORT.fullmatch(colon + port)) and bool(_HOST.fullmatch(host))


def _is_bracketed(host: str) -> bool:
    """Report whether a host is an IPv6 address in brackets, with an optional zone and port."""
    inner, bracket, port = host.rpartition("]")
    if not bracket or not inner.startswith("[") or not _PORT.fullmatch(port):
        return False
    address, percent, zone = inner[1:].partition("%25")
    if percent and not _is_zone(zone):
        return False
    try:
        IPv6Address(address)
    except ValueError:
        return False
    return "%" not in address


def _is_zone(text: str) -> bool:
    """Report whether a zone has a name, in which escaped characters are ``%``, spaces, or allowed in hosts."""
    escaped = {chr(int(code, 16)) for code in _ZONE_ESCAPE.findall(text)} - {"%", " "}
    if not all(character.isascii() and _HOST.fullmatch(character) for character in escaped):
        return False
    unescaped = _ZONE_ESCAPE.sub("", text)
    return text != "" and "[" not in unescaped and bool(_HOST.fullmatch(unescaped))
