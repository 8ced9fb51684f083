"""CEL's ``format`` library: ``format.dns1123Label().validate(text)`` tells what is wrong with a text, if anything.

The result is an optional list, which functions written in Python cannot return. So such a call is rewritten, before it
is compiled, to one that returns a list, within ``optional.ofNonZeroValue``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from envtest.metadata import (
    dns_1035_label,
    dns_label,
    dns_subdomain,
    label_value,
    mask_trailing_dash,
    qualified_name,
)
from envtest.schema.formats import FORMATS

__all__ = ["format_problems", "with_formats"]

_CALL = re.compile(r"""format\.(?:(\w+)\(\)|named\((["'])(\w+)\2\)\.value\(\))\.validate\(""")
_QUOTED = re.compile(r"""\"(?:\\.|[^"\\])*\"|'(?:\\.|[^'\\])*'""")


def _known(name: str, problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if FORMATS[name](text) else [problem]


_RULES: Final[dict[str, Callable[[str], list[str]]]] = {
    "byte": _known("byte", "invalid base64"),
    "date": _known("date", "invalid date"),
    "datetime": _known("datetime", "invalid datetime"),
    "dns1035Label": dns_1035_label,
    "dns1035LabelPrefix": lambda text: dns_1035_label(mask_trailing_dash(text)),
    "dns1123Label": dns_label,
    "dns1123LabelPrefix": lambda text: dns_label(mask_trailing_dash(text)),
    "dns1123Subdomain": dns_subdomain,
    "dns1123SubdomainPrefix": lambda text: dns_subdomain(mask_trailing_dash(text)),
    "labelValue": label_value,
    "qualifiedName": qualified_name,
    "uri": _known("uri", "invalid URI"),
    "uuid": _known("uuid", "does not match the UUID format"),
}


def format_problems(name: str, text: str) -> list[str]:
    """What keeps ``text`` from having the format ``name``."""
    return _RULES[name](text)


def with_formats(source: str) -> str:
    """``source`` with its calls of formats rewritten; formats that do not exist stay, for the compiler to refuse."""
    match = _CALL.search(source)
    while match is not None:
        name = match.group(1) or match.group(3)
        end = _closing(source, match.end())
        if name not in _RULES or end is None:
            match = _CALL.search(source, match.end())
            continue
        argument = source[match.end() : end]
        call = f'optional.ofNonZeroValue(format.validate("{name}", {argument}))'
        source = source[: match.start()] + call + source[end + 1 :]
        match = _CALL.search(source, match.start())
    return source


def _closing(source: str, position: int) -> int | None:
    """The position of the parenthesis that closes the one before ``position``."""
    depth = 1
    while position < len(source):
        quoted = _QUOTED.match(source, position)
        if quoted is not None:
            position = quoted.end()
            continue
        depth += {"(": 1, ")": -1}.get(source[position], 0)
        if depth == 0:
            return position
        position += 1
    return None
