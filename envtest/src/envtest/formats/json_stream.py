"""Splits a file of JSON values, one after another, as kubectl reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

__all__ = ["error_line", "error_position", "is_json", "split_values"]

_REST_OF_SPACE: Final = re.compile(r"[ \t\r\n]*+")
# Numbers remain strings: the length of the integers that Python converts is limited
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


def is_json(data: bytes) -> bool:
    """Return whether kubectl reads a file as JSON: it begins with a brace. All others are YAML, whatever their name."""
    return data.lstrip().startswith(b"{")


def split_values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the values of a file, each with the line on which it starts; the first line is 1.

    The last one is the rest of the file if it is not valid JSON.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        yield 1, data
        return
    line = 1
    end = 0
    while True:
        start = _end_of_space(text, end)
        line += text.count("\n", end, start)
        if start == len(text):
            return
        try:
            _, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = len(text)
        yield line, text[start:end].encode()
        line += text.count("\n", start, end)


def _end_of_space(text: str, start: int) -> int:
    match = _REST_OF_SPACE.match(text, start)
    return match.end() if match is not None else start


def error_position(error: json.JSONDecodeError) -> int:
    """Return where a value is not valid JSON for Go's decoder, and for Python before 3.13.

    Python 3.13 reports a trailing comma; the others report the bracket after it.
    """
    if error.msg.startswith("Illegal trailing comma"):
        return _end_of_space(error.doc, error.pos + 1)
    return error.pos


def error_line(data: bytes) -> int:
    """Return the line of the syntax error in a value that is not valid JSON; 1 if it is unknown."""
    try:
        _DECODER.decode(data.decode())
    except json.JSONDecodeError as error:
        return error.doc.count("\n", 0, error_position(error)) + 1
    except (ValueError, RecursionError):
        return 1
    return 1
