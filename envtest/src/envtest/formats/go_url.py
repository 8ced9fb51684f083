"""Why Go's ``net/url`` cannot parse a URL."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final

from envtest.apimachinery.field_errors import go_quote

__all__ = ["url_problem"]

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)?:")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_HOST_ESCAPE: Final = re.compile(r"%(?:(?!25)[0-7].|(?![0-9A-Fa-f]{2}).{0,2})", re.DOTALL)
_NOT_IN_HOST: Final = re.compile(r"""[^A-Za-z0-9!$&'()*+,;=:\[\]<>"_.~%\x80-\U0010ffff-]""")
_USER: Final = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")


def url_problem(text: str) -> str:
    """Return the message of ``url.Parse`` about a URL that it rejects, otherwise an empty string."""
    url, _, fragment = text.partition("#")
    problem = _problem(url)
    if problem:
        return f"parse {go_quote(url)}: {problem}"
    escape = _bad_escape(fragment)
    return f"parse {go_quote(text)}: {escape}" if escape else ""


def _problem(url: str) -> str:
    if _CONTROL.search(url):
        return "net/url: invalid control character in URL"
    scheme = _SCHEME.match(url)
    if scheme is not None and not scheme[1]:
        return "missing protocol scheme"
    rest = url[scheme.end() :] if scheme is not None else url
    rest = rest.partition("?")[0]
    if not rest.startswith("/"):
        if scheme is None and ":" in rest.partition("/")[0]:
            return "first path segment in URL cannot contain colon"
        return "" if scheme is not None else _bad_escape(rest)
    path = rest
    if rest.startswith("//") and (scheme is not None or not rest.startswith("///")):
        authority, _, path = rest[2:].partition("/")
        user, _, host = authority.rpartition("@")
        problem = _host_problem(host) or _user_problem(user)
        if problem:
            return problem
    return _bad_escape(path)


def _host_problem(host: str) -> str:
    name = host
    if host.startswith("["):
        address, bracket, port = host[1:].rpartition("]")
        if not bracket:
            return "missing ']' in host"
        name, _, zone = address.partition("%25")
        problem = _port_problem(port) or _bad_escape(zone)
        if problem:
            return problem
    elif ":" in host:
        name, colon, port = host.partition(":")
        problem = _port_problem(colon + port)
        if problem:
            return problem
    escape = _HOST_ESCAPE.search(name)
    if escape is not None:
        return f"invalid URL escape {go_quote(escape[0])}"
    wrong = _NOT_IN_HOST.search(name)
    if wrong is not None:
        return f"invalid character {go_quote(wrong[0])} in host name"
    return _address_problem(name) if host.startswith("[") else ""


def _port_problem(port: str) -> str:
    return "" if _PORT.fullmatch(port) else f"invalid port {go_quote(port)} after host"


def _address_problem(address: str) -> str:
    try:
        IPv6Address(address)
    except ValueError:
        return f"invalid host: ParseAddr({go_quote(address)}): unable to parse IP"
    return ""


def _user_problem(user: str) -> str:
    return _bad_escape(user) if _USER.fullmatch(user) else "net/url: invalid userinfo"


def _bad_escape(text: str) -> str:
    found = _ESCAPE.search(text)
    return f"invalid URL escape {go_quote(found[0])}" if found is not None else ""
