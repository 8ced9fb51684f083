"""JSON values as text: how a client wrote them, and how kube-apiserver writes them.

The ``test`` operation of a JSON patch compares these texts, so that ``1`` differs from ``1.0``. kube-apiserver writes
``<``, ``>``, ``&`` and two line separators with ``\\u``, as clients in Go do; clients that write the characters
themselves, or others with ``\\u``, get the answer that the values differ.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

import orjson

__all__ = ["Number", "has_text", "texts_of"]

_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_HTML: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
_LEAST_PLAIN: Final = 1e-6
_LIMIT_PLAIN: Final = 1e21


class Number(str):
    """The text of a number."""

    __slots__ = ()


def texts_of(data: bytes) -> Any:
    """Return valid JSON in which each string has the text between its quotes, and each number is a :class:`Number`."""
    text = _ESCAPE.sub(_escaped, data.decode(errors="replace"))
    return json.loads(text, parse_int=Number, parse_float=Number)


def _escaped(match: re.Match[str]) -> str:
    """Return an escape sequence so that it is decoded to itself."""
    character = match[1]
    return f"\\\\\\{character}" if character in '"\\' else f"\\\\{character}"


def has_text(value: Any, text: Any) -> bool:
    """Return whether kube-apiserver writes ``value`` as in ``text``, a result of :func:`texts_of`."""
    if isinstance(value, dict):
        return isinstance(text, dict) and _has_fields(value, text)
    if isinstance(value, list):
        is_equal_list = isinstance(text, list) and len(text) == len(value)
        return is_equal_list and all(map(has_text, value, text))
    if isinstance(value, bool) or value is None:
        return text is value
    if isinstance(value, str):
        return not isinstance(text, Number) and text == _string(value)
    return isinstance(text, Number) and text == _number(value)


def _has_fields(value: dict[str, Any], text: dict[str, Any]) -> bool:
    named = {json.loads(f'"{name}"'): item for name, item in text.items()}
    return named.keys() == value.keys() and all(
        has_text(item, named[name]) for name, item in value.items()
    )


def _string(value: str) -> str:
    return orjson.dumps(value).decode()[1:-1].translate(_HTML)


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < _LIMIT_PLAIN:
        return f"{Decimal(repr(value)):.0f}"
    if _LEAST_PLAIN <= abs(value) < _LIMIT_PLAIN:
        return f"{Decimal(repr(value)):f}"
    digits, _, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent):+d}"
