"""Integers as Go's ``strconv`` parses them."""

from __future__ import annotations

import re
from typing import Final

from envtest.apimachinery.field_errors import go_quote

__all__ = ["parse_int64"]

_INTEGER: Final = re.compile(r"([+-]?)([0-9]+)")
_MAX_DIGITS: Final = 19


def parse_int64(text: str) -> int:
    """Return a decimal integer of 64 bits. Raises ValueError with the message of ``strconv.ParseInt``."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    sign = match[1]
    digits = match[2].lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS or not -(2**63) <= int(sign + digits) < 2**63:
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return int(sign + digits)
