"""The error messages of Go's ``time.Parse`` for invalid times."""

from __future__ import annotations

import re
from calendar import monthrange
from typing import Final, NamedTuple

__all__ = ["MICRO", "RFC3339", "time_problem"]

RFC3339: Final = "2006-01-02T15:04:05Z07:00"
MICRO: Final = "2006-01-02T15:04:05.000000Z07:00"


class _LayoutPart(NamedTuple):
    name: str
    layout: str
    pattern: re.Pattern[str]
    range: range | None = None


_TWO: Final = re.compile(r"[0-9]{2}")
_PARTS: Final = (
    _LayoutPart("year", "2006", re.compile(r"[0-9]{4}")),
    _LayoutPart("", "-", re.compile("-")),
    _LayoutPart("month", "01", _TWO, range(1, 13)),
    _LayoutPart("", "-", re.compile("-")),
    _LayoutPart("day", "02", _TWO),
    _LayoutPart("", "T", re.compile("T")),
    _LayoutPart("hour", "15", re.compile(r"[0-9]{1,2}"), range(24)),
    _LayoutPart("", ":", re.compile(":")),
    _LayoutPart("minute", "04", _TWO, range(60)),
    _LayoutPart("", ":", re.compile(":")),
    _LayoutPart("second", "05", _TWO, range(60)),
)
_FRACTION: Final = re.compile(r"([.,][0-9]+)?")
_MICROSECONDS: Final = re.compile(r"[.,][0-9]{6}")
_ZONE: Final = re.compile(r"Z|[+-]([0-9]{2}):([0-9]{2})")


def _quote(text: str) -> str:
    return '"' + "".join(map(_shown, text.encode())) + '"'


def _shown(byte: int) -> str:
    if 32 <= byte < 127:
        return f"\\{byte:c}" if byte in b'"\\' else chr(byte)
    return f"\\x{byte:02x}"


def time_problem(text: str, layout: str = RFC3339) -> str:
    """Return why ``text`` is not a time of the layout, or an empty string."""
    start = f"parsing time {_quote(text)}"

    def mismatch(rest: str, element: str) -> str:
        return f"{start} as {_quote(layout)}: cannot parse {_quote(rest)} as {_quote(element)}"

    rest = text
    values: dict[str, int] = {}
    for part in _PARTS:
        match = part.pattern.match(rest)
        if match is None:
            return mismatch(rest, part.layout)
        rest = rest[match.end() :]
        if part.name:
            values[part.name] = int(match[0])
        if part.range is not None and values[part.name] not in part.range:
            return f"{start}: {part.name} out of range"
    fraction = (_MICROSECONDS if layout == MICRO else _FRACTION).match(rest)
    if fraction is None:
        return mismatch(rest, ".000000")
    rest = rest[fraction.end() :]
    zone = _ZONE.match(rest)
    if zone is None:
        return mismatch(rest, "Z07:00")
    for number, limit, unit in ((zone[1], 24, "hour"), (zone[2], 60, "minute")):
        if int(number or 0) > limit:
            return f"{start}: time zone offset {unit} out of range"
    rest = rest[zone.end() :]
    if rest:
        return f"{start}: extra text: {_quote(rest)}"
    days = monthrange(values["year"] or 4, values["month"])[1]
    return "" if 1 <= values["day"] <= days else f"{start}: day out of range"
