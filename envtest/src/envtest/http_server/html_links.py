"""Links in HTML that is relayed from a pod or a Service, which must go through the proxy as well.

Follows ``k8s.io/apimachinery/pkg/util/proxy/transport.go``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit, urlunsplit

__all__ = ["rewrite_links", "rewritten_url"]

_LINKS: Final = (
    "action",
    "background",
    "cite",
    "classid",
    "codebase",
    "data",
    "formaction",
    "href",
    "icon",
    "longdesc",
    "manifest",
    "poster",
    "profile",
    "src",
    "usemap",
)
"""The attributes whose value is an URL."""
_TAG: Final = re.compile(r"<[a-zA-Z][^<>]{0,4096}>")
_ATTRIBUTE: Final = re.compile(
    rf"""(\s(?:{"|".join(_LINKS)})=)(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE
)


def rewritten_url(url: str, prefix: str, hosts: tuple[str, ...]) -> str:
    """Return an absolute path, or an URL of one of ``hosts``, below ``prefix`` (a path); other URLs as they are."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if (parts.netloc and parts.netloc not in hosts) or not parts.path.startswith("/"):
        return url
    path = parts.path
    if not path.startswith(prefix):
        path = posixpath.normpath(f"{prefix}/{path.lstrip('/')}") + (
            "/" if path.endswith("/") else ""
        )
    return urlunsplit(("", "", path, parts.query, parts.fragment))


def rewrite_links(html: str, rewrite: Callable[[str], str]) -> str:
    """Return HTML whose links are changed by ``rewrite``."""

    def link(found: re.Match[str]) -> str:
        value = found[2] if found[2] is not None else found[3]
        return f'{found[1]}"{rewrite(value)}"'

    return _TAG.sub(lambda tag: _ATTRIBUTE.sub(link, tag[0]), html)
