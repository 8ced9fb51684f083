"""Times and durations in CEL, as the protobuf messages that the CEL library reads.

The library does not accept Python's own types inside objects, and they have no nanoseconds. Times are in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from envtest.apimachinery.field_errors import go_quote
from envtest.schema.formats import parse_duration, parse_format_duration

__all__ = [
    "FUNCTIONS",
    "add",
    "as_messages",
    "new_timestamp",
    "parse_day",
    "parse_interval",
    "parse_time",
    "subtract",
    "to_int",
    "to_text",
]

_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_TIME_WITHOUT_ZONE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_DAYS_OF_400_YEARS: Final = 146_097
_SECOND: Final = 10**9
"""The nanoseconds of a second."""

_FIRST_SECOND: Final = -62_135_596_800
"""The first second of the year 1."""

_LAST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999."""

_MAX_NANOSECONDS: Final = 2**63 - 1
_MAX_ZONE_HOURS: Final = 24
_MAX_ZONE_MINUTES: Final = 60
_NO_OVERLOAD: Final = "no such overload"


def parse_time(text: str) -> Any:
    """Return a time in the format of RFC 3339. Raises ValueError with Go's words."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(_parse_error(text))
    day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = match.groups()
    hours, minutes, seconds = int(hour), int(minute), int(second)
    zone = (int(zone_hours or 0), int(zone_minutes or 0))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(_parse_error(text))
    if zone > (_MAX_ZONE_HOURS, _MAX_ZONE_MINUTES) or zone[1] > _MAX_ZONE_MINUTES:
        raise ValueError(_parse_error(text))
    offset = zone[0] * 3600 + zone[1] * 60
    total = _day_number(day) * 86_400 + hours * 3600 + minutes * 60 + seconds
    total -= -offset if sign == "-" else offset
    return Timestamp(seconds=total, nanos=int((fraction or "")[:9].ljust(9, "0")))


def _parse_error(text: str) -> str:
    """Return Go's error for a string that is not a time; its last attempt is a time without a zone."""
    start = f"parsing time {go_quote(text)}"
    local = _TIME_WITHOUT_ZONE.match(text)
    if local is not None:
        return f"{start}: extra text: {go_quote(text[local.end() :])}"
    day = re.match(r"\d{4}-\d\d-\d\d", text, re.ASCII)
    rest, expected = (text[day.end() :], "T") if day else (text, "2006")
    return f'{start} as "2006-01-02T15:04:05": cannot parse {go_quote(rest)} as "{expected}"'


def parse_day(text: str) -> Any:
    """Return the time at which a day begins. Raises ValueError."""
    try:
        return Timestamp(seconds=_day_number(text) * 86_400)
    except ValueError:
        quoted = go_quote(text)
        why = f'parsing time {quoted} as "2006-01-02": cannot parse {quoted} as "2006"'
        raise ValueError(why) from None


def _day_number(text: str) -> int:
    """Return the days from 1970 until a date. Raises ValueError."""
    # the calendar of year 0, which Python does not have, is that of year 400
    is_year_zero = text.startswith("0000")
    day = date.fromisoformat(f"0400{text[4:]}" if is_year_zero else text)
    number = day.toordinal() - _EPOCH_DAY
    return number - _DAYS_OF_400_YEARS if is_year_zero else number


def parse_interval(text: str) -> Any:
    """Return the duration of a string with the format ``duration``. Raises ValueError."""
    nanoseconds = parse_format_duration(text)
    if nanoseconds is None:
        raise ValueError(f"unable to parse {text} as duration")
    return _new_duration(nanoseconds)


def _new_duration(nanoseconds: int) -> Any:
    """Return a duration. Raises ValueError if it does not fit into 64 bits."""
    if abs(nanoseconds) > _MAX_NANOSECONDS:
        raise ValueError("duration overflow")
    seconds, nanos = divmod(abs(nanoseconds), _SECOND)
    sign = -1 if nanoseconds < 0 else 1
    return Duration(seconds=sign * seconds, nanos=sign * nanos)


def _is_in_range(time: Any) -> bool:
    """Report whether a time is in the years that CEL supports."""
    return bool(_FIRST_SECOND <= time.seconds <= _LAST_SECOND)


def as_messages(value: Any) -> Any:
    """Return a result of the library with messages instead of Python's times and durations."""
    if isinstance(value, datetime):
        since = value - _EPOCH
        seconds = since.days * 86_400 + since.seconds
        return Timestamp(seconds=seconds, nanos=since.microseconds * 1000)
    if isinstance(value, timedelta):
        return _new_duration(value // timedelta(microseconds=1) * 1000)
    if isinstance(value, list):
        return [as_messages(item) for item in value]
    if isinstance(value, dict):
        return {key: as_messages(item) for key, item in value.items()}
    return value


def _nanoseconds(value: Any) -> int:
    return int(value.seconds * _SECOND + value.nanos)


def _moved(time: Any, nanoseconds: int) -> Any:
    seconds, nanos = divmod(_nanoseconds(time) + nanoseconds, _SECOND)
    moved = Timestamp(seconds=seconds, nanos=nanos)
    if not _is_in_range(moved):
        raise ValueError("timestamp overflow")
    return moved


def add(first: Any, second: Any) -> Any:
    """Return the sum of a time and a duration, or of two durations. Raises TypeError or ValueError."""
    if isinstance(second, Timestamp):
        first, second = second, first
    if not isinstance(second, Duration):
        raise TypeError(_NO_OVERLOAD)
    if isinstance(first, Timestamp):
        return _moved(first, _nanoseconds(second))
    if isinstance(first, Duration):
        return _new_duration(_nanoseconds(first) + _nanoseconds(second))
    raise TypeError(_NO_OVERLOAD)


def subtract(first: Any, second: Any) -> Any:
    """Return the difference of two times or durations, or of a time and a duration. Raises TypeError or ValueError."""
    if isinstance(first, Timestamp) and isinstance(second, Duration):
        return _moved(first, -_nanoseconds(second))
    if type(first) is not type(second) or not isinstance(first, (Timestamp, Duration)):
        raise TypeError(_NO_OVERLOAD)
    return _new_duration(_nanoseconds(first) - _nanoseconds(second))


def to_int(value: Any) -> int:
    """Return the seconds of a time since 1970, or the nanoseconds of a duration. Raises TypeError."""
    if isinstance(value, Timestamp):
        return int(value.seconds)
    if isinstance(value, Duration):
        return _nanoseconds(value)
    raise TypeError(_NO_OVERLOAD)


def to_text(value: Any) -> str:
    """Return a time or duration as cel-go writes it: ``2024-01-02T03:04:05Z``, ``90.5s``. Raises TypeError."""
    if isinstance(value, Timestamp):
        moment = _moment(value).replace(tzinfo=None).isoformat()
        fraction = f".{value.nanos:09d}".rstrip("0") if value.nanos else ""
        return f"{moment}{fraction}Z"
    if isinstance(value, Duration):
        seconds = value.seconds + value.nanos / _SECOND
        return f"{Decimal(repr(seconds)):f}".removesuffix(".0") + "s"
    raise TypeError(_NO_OVERLOAD)


def _moment(time: Any) -> datetime:
    """Return the second of a time. Raises OverflowError outside of the years from 1 to 9999."""
    return _EPOCH + timedelta(seconds=time.seconds)


# Functions


def new_timestamp(value: Any) -> Any:
    """Return the time that a string, seconds since 1970 or a time mean. Raises TypeError or ValueError."""
    if isinstance(value, Timestamp):
        return value
    if type(value) is int:
        time = Timestamp(seconds=value)
    elif isinstance(value, str):
        time = parse_time(value)
    else:
        raise TypeError(_NO_OVERLOAD)
    if not _is_in_range(time):
        raise ValueError("timestamp overflow")
    return time


def _duration(value: Any) -> Any:
    if isinstance(value, Duration):
        return value
    nanoseconds = parse_duration(value) if isinstance(value, str) else None
    if nanoseconds is None:
        raise ValueError("invalid duration")
    return _new_duration(nanoseconds)


_Part: TypeAlias = Callable[[datetime], int]


def _part_of_time(part: _Part) -> Callable[[Any], int]:
    """Return the function for a part of a time in UTC. The library knows the other time zones."""

    def function(value: Any) -> int:
        if not isinstance(value, Timestamp):
            raise TypeError(_NO_OVERLOAD)
        return part(_moment(value))

    return function


def _part_or_whole(part: Callable[[Any], int], unit: int) -> Callable[[Any], int]:
    """Return the function for a part of a time, or how many whole units (in nanoseconds) a duration has."""

    def function(value: Any) -> int:
        if not isinstance(value, Duration):
            return part(value)
        nanoseconds = _nanoseconds(value)
        whole = abs(nanoseconds) // unit
        return -whole if nanoseconds < 0 else whole

    return function


def _milliseconds(value: Any) -> int:
    if not isinstance(value, Timestamp):
        raise TypeError(_NO_OVERLOAD)
    return int(value.nanos // 1_000_000)


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "duration": _duration,
    "getDate": _part_of_time(lambda moment: moment.day),
    "getDayOfMonth": _part_of_time(lambda moment: moment.day - 1),
    "getDayOfWeek": _part_of_time(lambda moment: moment.isoweekday() % 7),
    "getDayOfYear": _part_of_time(lambda moment: moment.timetuple().tm_yday - 1),
    "getFullYear": _part_of_time(lambda moment: moment.year),
    "getHours": _part_or_whole(_part_of_time(lambda moment: moment.hour), 3600 * _SECOND),
    "getMilliseconds": _part_or_whole(_milliseconds, _SECOND // 1000),
    "getMinutes": _part_or_whole(_part_of_time(lambda moment: moment.minute), 60 * _SECOND),
    "getMonth": _part_of_time(lambda moment: moment.month - 1),
    "getSeconds": _part_or_whole(_part_of_time(lambda moment: moment.second), _SECOND),
    "timestamp": new_timestamp,
}
"""The functions of CEL that only times and durations have.

They raise ArithmeticError, TypeError or ValueError if the library has to find the error.
"""
