"""Integers as Go parses and writes them."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from envtest.apimachinery.field_errors import go_quote

__all__ = ["as_int64", "is_int64", "parse_int64"]

_INTEGER: Final = re.compile(r"([+-]?)([0-9]+)")
_MAX_DIGITS: Final = 19
_LEAST: Final = -(2**63)
_LIMIT: Final = 2**63
_LEAST_WITH_EXPONENT: Final = 1e21
"""The least float that Go's JSON encoder writes with an exponent."""


def parse_int64(text: str) -> int:
    """Return a decimal integer of 64 bits. Raises ValueError with the message of ``strconv.ParseInt``."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    sign = match[1]
    digits = match[2].lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS or not is_int64(int(sign + digits)):
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return int(sign + digits)


def is_int64(number: float) -> bool:
    """Return whether an integer has at most 64 bits."""
    return _LEAST <= number < _LIMIT


def as_int64(number: float) -> int | None:
    """Return the integer that is read where Go wrote a float as JSON; ``None`` if it is read as a float.

    Go writes the shortest digits that mean the float, and then zeros: 2**63 is ``9223372036854776000``, which has more
    than 64 bits.
    """
    if not math.isfinite(number) or not number.is_integer() or abs(number) >= _LEAST_WITH_EXPONENT:
        return None
    digits = int(Decimal(repr(number)))
    return digits if is_int64(digits) else None
