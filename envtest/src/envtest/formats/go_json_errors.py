"""The words of Go's JSON decoder (Go 1.27) for data that is not JSON, or has another type than the decoder wants."""

from __future__ import annotations

import re
from typing import Final

from envtest.apimachinery.field_errors import go_quote

__all__ = ["IDENTITY", "find_syntax_error", "json_type", "syntax_error"]

IDENTITY: Final = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
"""The Go type into which kube-apiserver decodes the version and kind of an object."""

_MAX_DEPTH: Final = 1000
"""The depth that decoders in Python accept."""

_END: Final = "unexpected end of JSON input"
_BLANKS: Final = re.compile(rb"[ \t\n\r]*+")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*+')
_ESCAPE: Final = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_DIGITS: Final = re.compile(rb"[0-9]*+")
_LITERALS: Final = {b"n": b"null", b"t": b"true", b"f": b"false"}


class _SyntaxError(Exception):
    """The first error of the data."""


def json_type(value: object) -> str:
    """Return the name of a JSON type in the messages of Go's decoder."""
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number"


def find_syntax_error(data: bytes) -> str:
    """Return Go's message for the first syntax error of data that should be JSON; an empty string if it is JSON."""
    try:
        _Scanner(data).read_document()
    except _SyntaxError as error:
        return str(error)
    return ""


def syntax_error(data: bytes) -> str:
    """Return Go's message for data that a decoder did not accept: the first syntax error, or what it cannot hold."""
    scanner = _Scanner(data)
    try:
        scanner.read_document()
    except _SyntaxError as error:
        return str(error)
    if scanner.depth > _MAX_DEPTH:
        return "exceeded max depth"
    return "json: cannot unmarshal number into Go value of type float64"


class _Scanner:
    """Reads JSON until its first error, without recursion. ``depth`` is that of the deepest value so far."""

    def __init__(self, data: bytes) -> None:
        self.depth = 0
        self._data = data
        self._at = 0

    def read_document(self) -> None:
        """Read all data. Raises _SyntaxError."""
        open_brackets: list[bytes] = []
        self._read_value(open_brackets)
        while open_brackets:
            self.depth = max(self.depth, len(open_brackets))
            self._read_next_item(open_brackets)
        if self._next():
            self._fail("after top-level value")

    def _read_value(self, open_brackets: list[bytes]) -> None:
        """Read a scalar, or the opening bracket of an object or array and its first key or item."""
        while True:
            character = self._next()
            if character == b"{":
                self._at += 1
                if self._next() == b"}":
                    self._at += 1
                    return
                open_brackets.append(character)
                self._read_key()
            elif character == b"[":
                self._at += 1
                if self._next() == b"]":
                    self._at += 1
                    return
                open_brackets.append(character)
            else:
                self._read_scalar(character)
                return

    def _read_next_item(self, open_brackets: list[bytes]) -> None:
        """Read what follows a value in an object or array: its end, or a comma and the next value."""
        is_object = open_brackets[-1] == b"{"
        character = self._next()
        if character == (b"}" if is_object else b"]"):
            self._at += 1
            open_brackets.pop()
            return
        if character != b",":
            self._fail("after object key:value pair" if is_object else "after array element")
        self._at += 1
        if is_object:
            self._read_key()
        self._read_value(open_brackets)

    def _read_key(self) -> None:
        if self._next() != b'"':
            self._fail("looking for beginning of object key string")
        self._read_string()
        if self._next() != b":":
            self._fail("after object key")
        self._at += 1

    def _read_scalar(self, character: bytes) -> None:
        if character == b'"':
            self._read_string()
        elif character in _LITERALS:
            self._read_literal(_LITERALS[character])
        elif character == b"-" or character.isdigit():
            self._read_number()
        else:
            self._fail("looking for beginning of value")

    def _read_string(self) -> None:
        self._at += 1
        while True:
            self._skip(_PLAIN)
            character = self._character()
            if character == b'"':
                self._at += 1
                return
            if character != b"\\":
                self._fail("in string")
            escape = _ESCAPE.match(self._data, self._at)
            if escape is None:
                self._fail_escape()
            else:
                self._at = escape.end()

    def _fail_escape(self) -> None:
        length = 6 if self._data[self._at + 1 : self._at + 2] == b"u" else 2
        escape = self._data[self._at : self._at + length]
        if len(escape) < 2 or re.fullmatch(rb"\\u[0-9a-fA-F]{0,3}", escape):
            raise _SyntaxError(_END)
        raise _SyntaxError(f"invalid escape sequence `{escape.decode(errors='replace')}` in string")

    def _read_literal(self, word: bytes) -> None:
        for expected in word:
            if self._character() != bytes([expected]):
                self._fail(f"in literal {word.decode()} (expecting {chr(expected)!r})")
            self._at += 1

    def _read_number(self) -> None:
        if self._character() == b"-":
            self._at += 1
        if self._character() == b"0":
            self._at += 1
        else:
            self._read_digits()
        if self._character() == b".":
            self._at += 1
            self._read_digits()
        if self._character() in (b"e", b"E"):
            self._at += 1
            if self._character() in (b"+", b"-"):
                self._at += 1
            self._read_digits()

    def _read_digits(self) -> None:
        if not self._character().isdigit():
            self._fail("in numeric literal")
        self._skip(_DIGITS)

    def _next(self) -> bytes:
        """Return the character after blanks; an empty string at the end."""
        self._skip(_BLANKS)
        return self._character()

    def _character(self) -> bytes:
        return self._data[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[bytes]) -> None:
        found = pattern.match(self._data, self._at)
        assert found is not None  # each pattern matches an empty string
        self._at = found.end()

    def _fail(self, context: str) -> None:
        """Raise the error of the current character."""
        if not self._character():
            raise _SyntaxError(_END)
        raise _SyntaxError(f"invalid character {self._quoted()} {context}")

    def _quoted(self) -> str:
        """Return the current character as Go quotes it."""
        text = self._data[self._at : self._at + 4].decode(errors="surrogateescape")
        character = text[0]
        if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8
            return f"'\\x{ord(character) - 0xDC00:02x}'"
        if character == "'":
            return r"'\''"
        return f"'{character}'" if character == '"' else f"'{go_quote(character)[1:-1]}'"
