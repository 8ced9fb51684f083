"""The tokens of a CEL expression."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Token", "quoted_fields", "tokens"]

_TOKEN: Final = re.compile(
    r"(?P<skip>\s+|//[^\n]*)"
    r"|(?P<text>(?:[bB][rR]?|[rR][bB]?)?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'))"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<mark>.)",
    re.DOTALL | re.ASCII,
)
_RAW: Final = re.compile(
    r"(?:[bB][rR]|[rR][bB]?)(?:\"{3}.*?\"{3}|'{3}.*?'{3}|\"[^\"\n]*\"|'[^'\n]*')", re.DOTALL
)

_QUOTED_NAME: Final = re.compile(r"`[\w./ -]+`", re.ASCII)


class Token(NamedTuple):
    """A token of an expression: a ``word``, a ``mark`` of one character, or a string literal, which has neither."""

    start: int
    end: int
    word: str
    mark: str


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens of an expression, without spaces and comments."""
    position = 0
    while position < len(source):
        match = _RAW.match(source, position) or _TOKEN.match(source, position)
        if match is None:
            return
        groups = match.groupdict() if match.re is _TOKEN else {}
        if not groups.get("skip"):
            yield Token(
                match.start(), match.end(), groups.get("word") or "", groups.get("mark") or ""
            )
        position = match.end()


def quoted_fields(source: str) -> Iterator[int]:
    """Yield the positions of the names in backticks that an expression selects: a.`b`, a.?`b`."""
    previous = ""
    for token in tokens(source):
        is_selected = previous in (".", ".?")
        if is_selected and token.mark == "`" and _QUOTED_NAME.match(source, token.start):
            yield token.start
        previous = ".?" if previous == "." and token.mark == "?" else token.mark
