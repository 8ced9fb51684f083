"""CEL's ``format`` library: ``format.dns1123Label().validate(text)`` returns the errors of a string, if any.

The result is an optional list, a type that functions implemented in Python cannot return. Each such call is therefore
rewritten before compilation to a function that returns a list, inside ``optional.ofNonZeroValue``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from envtest.apimachinery.name_rules import (
    dns_1035_label,
    dns_label,
    dns_subdomain,
    label_value,
    mask_trailing_dash,
    qualified_name,
)
from envtest.schema.formats import FORMATS

__all__ = ["format_errors", "rewrite_formats"]

_CALL = re.compile(r"""format\.(?:(\w+)\(\)|named\((["'])(\w+)\2\)\.value\(\))\.validate\(""")
_QUOTED = re.compile(r"""\"(?:\\.|[^"\\])*\"|'(?:\\.|[^'\\])*'""")


def _format_rule(name: str, problem: str) -> Callable[[str], list[str]]:
    def problems(text: str) -> list[str]:
        return [] if FORMATS[name](text) else [problem]

    return problems


_RULES: Final[dict[str, Callable[[str], list[str]]]] = {
    "byte": _format_rule("byte", "invalid base64"),
    "date": _format_rule("date", "invalid date"),
    "datetime": _format_rule("datetime", "invalid datetime"),
    "dns1035Label": dns_1035_label,
    "dns1035LabelPrefix": lambda text: dns_1035_label(mask_trailing_dash(text)),
    "dns1123Label": dns_label,
    "dns1123LabelPrefix": lambda text: dns_label(mask_trailing_dash(text)),
    "dns1123Subdomain": dns_subdomain,
    "dns1123SubdomainPrefix": lambda text: dns_subdomain(mask_trailing_dash(text)),
    "labelValue": label_value,
    "qualifiedName": qualified_name,
    "uri": _format_rule("uri", "invalid URI"),
    "uuid": _format_rule("uuid", "does not match the UUID format"),
}


def format_errors(name: str, text: str) -> list[str]:
    """Return why ``text`` does not have the format ``name``; empty when it does."""
    return _RULES[name](text)


def rewrite_formats(source: str) -> str:
    """Rewrite the format calls in ``source``. Unknown formats are unchanged, so that the compiler rejects them."""
    match = _CALL.search(source)
    while match is not None:
        name = match.group(1) or match.group(3)
        end = _closing_parenthesis(source, match.end())
        if name not in _RULES or end is None:
            match = _CALL.search(source, match.end())
            continue
        argument = source[match.end() : end]
        call = f'optional.ofNonZeroValue(format.validate("{name}", {argument}))'
        source = source[: match.start()] + call + source[end + 1 :]
        match = _CALL.search(source, match.start())
    return source


def _closing_parenthesis(source: str, position: int) -> int | None:
    """Return the position of the parenthesis that closes the one before ``position``."""
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
