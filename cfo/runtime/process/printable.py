"""Text for people: what a cluster sends is printed only after :func:`printable` has escaped and shortened it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_NAMED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Characters that are printable in Unicode, and that a terminal shows as nothing or as a space.

With many of them, text after them would begin a line of its own, because a terminal breaks long lines.
"""


def printable(text: str, limit: int = 1000) -> str:
    r"""Return ``text`` as one line of printable characters, at most ``limit``; the rest is replaced with ``…``.

    Other characters are escaped as Go does (``\n``, ``\x1b``, ``\u202e``): a terminal interprets control characters,
    and bidirectional marks change the order of the text after them.
    """
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    if text.isprintable() and (text.isascii() or _BLANK.isdisjoint(text)):
        return text
    escaped = replace_characters(text, escape)
    if len(escaped) > limit:
        return f"{escaped[: limit - 1]}…"
    return escaped


def described(error: BaseException) -> str:
    """Return the type and the text of an error, also of one whose ``__str__`` fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - it must not become the error of what reports it
        return f"{type(error).__name__}: its text cannot be read"


def printable_lines(text: str) -> str:
    """Return ``text`` with its line breaks and tabs; other characters that are not printable are escaped."""
    if text.isprintable() and (text.isascii() or _BLANK.isdisjoint(text)):
        return text
    return replace_characters(text, _escape_within_lines)


def _escape_within_lines(character: str) -> str:
    if character in "\n\t":
        return character
    return escape(character)


def replace_characters(text: str, replacement: Callable[[str], str]) -> str:
    """Return ``text`` with each character replaced; ``replacement`` is called only once for each distinct one."""
    return text.translate({ord(character): replacement(character) for character in set(text)})


def escape(character: str) -> str:
    """Return ``character`` if it is printable, otherwise its escape sequence in Go."""
    if character.isprintable() and character not in _BLANK:
        return character
    code = ord(character)
    if code < 0x80:
        return _NAMED.get(character) or f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
