"""Formats values as Go's ``fmt`` package does, for error messages of kube-apiserver that contain such values."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

import orjson

__all__ = ["go_float", "go_syntax", "go_text", "go_type"]


_LEAST_EXPONENT: Final = -4
_LARGEST_EXPONENT: Final = 5
"""The exponents of the floats that ``%v`` prints without one; see :func:`go_float`."""


def go_float(value: float) -> str:
    """Format as ``%v``: the shortest digits, with an exponent if it is below -4 or above 5."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    number = Decimal(repr(value)).normalize()
    exponent = number.adjusted()
    if not value or _LEAST_EXPONENT <= exponent <= _LARGEST_EXPONENT:
        return f"{number:f}"
    digits = "".join(map(str, number.as_tuple().digits))
    fraction = f".{digits[1:]}" if digits[1:] else ""
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}{fraction}e{exponent:+03d}"


def go_text(value: Any) -> str:
    """Format as ``%v``: ``map[a:1 b:[x y]]``, ``<nil>``."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{go_text(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    return str(value)


def go_syntax(value: Any) -> str:
    """Format as ``%#v``: ``map[string]interface {}{"a":1}``."""
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, str):
        return orjson.dumps(value).decode()
    if isinstance(value, dict):
        items = ", ".join(
            f"{orjson.dumps(name).decode()}:{go_syntax(value[name])}" for name in sorted(value)
        )
        return f"map[string]interface {{}}{{{items}}}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(go_syntax, value)) + "}"
    return go_text(value)


def go_type(value: Any) -> str:
    """Return ``%T`` of a decoded JSON value."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, str):
        return "string"
    return "map[string]interface {}" if isinstance(value, dict) else "[]interface {}"
