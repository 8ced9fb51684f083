"""The format ``email``: what ``mail.ParseAddress`` of Go accepts, one address of RFC 5322 with an optional name.

A group of one address counts as this address. Each character is read once or twice, so the time is linear.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, ip_address

__all__ = ["is_email_address"]

_SPACE = re.compile(r"[ \t]*")
_ATOM = re.compile(r"(?:[!#$%&'*+./0-9=?A-Z^_`a-z{|}~-]|[^\x00-\x7f])+")
_QUOTED = re.compile(r'"((?:[^\x00-\x08\x0a-\x1f\x7f"\\]|\\[^\x00-\x08\x0a-\x1f\x7f])*)"')
_LITERAL = re.compile(r"\[([0-9A-Za-z.:]*)\]")
_ENCODED_WORD = re.compile(r"=\?([^?]+)\?([^?])\?([^?]*)\?=")
_Q_CONTENT = re.compile(r"(?:[\t\n\r -<>-~]|=[0-9A-Fa-f]{2})*")
_B_CONTENT = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_CHARSETS = ("utf-8", "iso-8859-1", "us-ascii")
"""The character sets of encoded words that Go decodes; another one is an error."""


class _NotAnAddress(Exception):
    """Raised for text that is not an address."""


def is_email_address(text: str) -> bool:
    """Report whether the string is one address."""
    reader = _Reader(text)
    try:
        reader.read_address(may_be_group=True)
        reader.skip_comments()
    except _NotAnAddress:
        return False
    return reader.is_at_end


class _Reader:
    """Reads the parts of an address from the position in ``text``."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._text)

    def read_address(self, *, may_be_group: bool) -> None:
        self._skip_space()
        start = self._position
        try:
            self._read_specification()
        except _NotAnAddress:
            self._position = start
        else:
            self._skip_space()
            if self._peek() == "(":
                self._check_words(self._read_comment())
            return
        if self._peek() != "<":
            self._read_phrase()
        self._skip_space()
        if may_be_group and self._take(":"):
            self._read_group()
            return
        self._require("<")
        self._read_specification()
        self._require(">")

    def skip_comments(self) -> None:
        self._skip_space()
        while self._peek() == "(":
            self._read_comment()
            self._skip_space()

    def _read_specification(self) -> None:
        """Read the part before the ``@`` and the domain; spaces may only be in front of each."""
        self._skip_space()
        if self._peek() == '"':
            if not self._read(_QUOTED)[1]:
                raise _NotAnAddress
        else:
            self._read_dotted_atom()
        self._require("@")
        self._skip_space()
        if self._peek() == "[":
            _check_literal(self._read(_LITERAL)[1])
        else:
            self._read_dotted_atom()

    def _read_dotted_atom(self) -> None:
        atom = self._read(_ATOM)[0]
        if atom.startswith(".") or atom.endswith(".") or ".." in atom:
            raise _NotAnAddress

    def _read_phrase(self) -> None:
        """Read the name in front of an address: at least one word, with comments between words."""
        has_word = False
        while True:
            if has_word:
                self.skip_comments()
            self._skip_space()
            if self.is_at_end:
                break
            try:
                if self._peek() == '"':
                    self._read(_QUOTED)
                else:
                    _check_word(self._read(_ATOM)[0])
            except _NotAnAddress:
                break
            has_word = True
        if not has_word:
            raise _NotAnAddress

    def _read_group(self) -> None:
        """Read the rest of a group of one address."""
        self.read_address(may_be_group=False)
        self.skip_comments()
        self._require(";")

    def _read_comment(self) -> str:
        """Read a comment, which can contain others; return its content."""
        start = self._position
        depth = 0
        while not self.is_at_end:
            character = self._text[self._position]
            if character == "\\" and self._position + 1 < len(self._text):
                self._position += 1
            elif character == "(":
                depth += 1
            elif character == ")":
                depth -= 1
            self._position += 1
            if depth == 0:
                return self._text[start + 1 : self._position - 1]
        raise _NotAnAddress

    def _check_words(self, comment: str) -> None:
        for word in re.split(r"[ \t]+", comment):
            _check_word(word)

    def _skip_space(self) -> None:
        self._read(_SPACE)

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._position += 1
        return True

    def _require(self, character: str) -> None:
        if not self._take(character):
            raise _NotAnAddress

    def _read(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._position)
        if found is None:
            raise _NotAnAddress
        self._position = found.end()
        return found


def _check_word(word: str) -> None:
    """Refuse an encoded word in a character set that Go does not know; one that cannot be decoded is plain text."""
    found = _ENCODED_WORD.fullmatch(word)
    if found is None:
        return
    charset, encoding, content = found.groups()
    contents = {"q": _Q_CONTENT, "b": _B_CONTENT}
    pattern = contents.get(encoding.lower())
    is_decodable = pattern is not None and pattern.fullmatch(content) is not None
    if is_decodable and charset.lower() not in _CHARSETS:
        raise _NotAnAddress


def _check_literal(text: str) -> None:
    """Refuse a domain in brackets that is not an IP address."""
    try:
        if text.startswith("IPv6:"):
            ip_address(text.removeprefix("IPv6:"))
        else:
            IPv4Address(text)
    except ValueError:
        raise _NotAnAddress from None
