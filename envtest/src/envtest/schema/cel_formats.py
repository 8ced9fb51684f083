"""CEL's ``format`` library: ``format.dns1123Label().validate(text)`` returns the errors of a string, if any.

``format.named`` and ``validate`` return optional values, a type that functions implemented in Python cannot return.
They return an empty map or list for no value here, and before compilation, each call is put into
``optional.ofNonZeroValue``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from envtest.apimachinery.name_rules import (
    dns_1035_label,
    dns_label,
    dns_subdomain,
    label_value,
    mask_trailing_dash,
    qualified_name,
)
from envtest.schema.cel_tokens import Token, tokens
from envtest.schema.formats import FORMATS

__all__ = ["FORMAT_NAMES", "OPTIONAL_CALLS", "find_format", "format_errors", "rewrite_formats"]

OPTIONAL_CALLS: Final = frozenset({"format.named", "validate"})
"""The functions that return optional values."""

_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")


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
FORMAT_NAMES: Final = tuple(_RULES)
"""The names of all formats."""


def find_format(name: str) -> dict[str, str]:
    """Return the format ``name``; empty when there is none."""
    return {"format": name} if name in _RULES else {}


def format_errors(named: Mapping[str, str], text: str) -> list[str]:
    """Return why ``text`` does not have a format; empty when it does. Raises ValueError for a map that is no format."""
    rule = _RULES.get(named.get("format", ""))
    if rule is None:
        raise ValueError("no such overload")
    return rule(text)


def rewrite_formats(source: str) -> str:
    """Put the calls of ``source`` that return optional values into ``optional.ofNonZeroValue``, in linear time."""
    parts = list(tokens(source))
    firsts = _first_tokens(parts)
    insertions: list[tuple[int, str]] = []
    calls: list[
        int | None
    ] = []  # of each open bracket, where its call begins if the call is wrapped
    for index, token in enumerate(parts):
        if token.mark in _OPENING:
            is_wrapped = token.mark == "(" and _returns_optional(parts, firsts, index)
            calls.append(parts[firsts[index]].start if is_wrapped else None)
        elif token.mark in _CLOSING and calls:
            start = calls.pop()
            if start is not None:
                insertions += ((start, "optional.ofNonZeroValue("), (token.end, ")"))
    return _inserted(source, insertions)


def _returns_optional(parts: Sequence[Token], firsts: Sequence[int], index: int) -> bool:
    """Report whether the parenthesis at ``index`` begins the arguments of ``x.validate`` or ``format.named``."""
    if index < 3 or parts[index - 2].mark != ".":
        return False
    name = parts[index - 1].word
    if name == "named":
        name = f"{parts[index - 3].word}.named" if firsts[index] == index - 3 else ""
    return name in OPTIONAL_CALLS


def _first_tokens(parts: Sequence[Token]) -> list[int]:
    """Return for each token the first one of the operand that ends with it: for ``)`` of ``a.b(c)`` that is ``a``."""
    firsts: list[int] = []
    open_brackets: list[int] = []
    for index, token in enumerate(parts):
        if token.mark in _CLOSING and open_brackets:
            firsts.append(firsts[open_brackets.pop()])
            continue
        if token.mark in _OPENING:
            open_brackets.append(index)
        is_continued = index > 0 and _continues(parts[index - 1], token)
        firsts.append(firsts[index - 1] if is_continued else index)
    return firsts


def _continues(previous: Token, token: Token) -> bool:
    """Report whether a token continues the operand that ends with the previous one: a field, a call or an index."""
    is_name = bool(previous.word) and previous.word != "in"
    is_text = not previous.word and not previous.mark
    if token.word:
        return previous.mark == "."
    if token.mark in ("(", "{"):
        return is_name
    if token.mark in (".", "["):
        return is_name or is_text or previous.mark in _CLOSING
    return False


def _inserted(source: str, insertions: Sequence[tuple[int, str]]) -> str:
    pieces: list[str] = []
    position = 0
    for place, text in sorted(insertions, key=lambda insertion: insertion[0]):
        pieces += (source[position:place], text)
        position = place
    pieces.append(source[position:])
    return "".join(pieces)
