"""Cron schedules with the rules and error messages of robfig/cron, which CronJobs use.

A schedule has five fields (minute, hour, day of the month, month, day of the week), or is ``@hourly`` and the like, or
``@every 1h30m``. It applies in a time zone: a time that a clock change skips does not happen, and one that it repeats
happens twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from math import floor
from typing import Final, NamedTuple

__all__ = ["Schedule", "ScheduleError", "parse_schedule"]


class ScheduleError(ValueError):
    """Raised for a schedule that cannot be parsed; the message is the one of robfig/cron."""


class _Bounds(NamedTuple):
    low: int
    high: int
    names: Mapping[str, int]


def _numbered(names: str, first: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), first)}


_MONTHS: Final = _numbered("jan feb mar apr may jun jul aug sep oct nov dec", 1)
_DAYS: Final = _numbered("sun mon tue wed thu fri sat", 0)
_BOUNDS: Final = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, _MONTHS),
    _Bounds(0, 6, _DAYS),
)
_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_DURATION_PART: Final = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")
_MAX_SECONDS: Final = (2**63 - 1) / 1e9
_YEARS_AHEAD: Final = 5


@dataclass(frozen=True, slots=True)
class Schedule:
    """The numbers that each field allows, or ``every``, the time between two runs."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = False
    """Whether one of the fields for days is ``*``: then a day must match both of them, otherwise one of them."""
    every: timedelta | None = None

    def next(self, after: datetime, zone: tzinfo = UTC) -> datetime | None:
        """Return the next time after ``after``, in UTC; ``None`` if there is none within five years."""
        if self.every is not None:
            try:
                return after.astimezone(UTC).replace(microsecond=0) + self.every
            except OverflowError:
                return None
        moment = after.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        last_year = moment.astimezone(zone).year + _YEARS_AHEAD
        local = moment.astimezone(zone)
        while local.year <= last_year:
            step = self._step(local)
            if step is None:
                return moment
            moment = max(step.astimezone(UTC), moment + timedelta(minutes=1))
            local = moment.astimezone(zone)
        return None

    def _step(self, local: datetime) -> datetime | None:
        """Return the earliest later time that may match; ``None`` if ``local`` matches."""
        midnight = local.replace(hour=0, minute=0, fold=0)
        if local.month not in self.months:
            return (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
        if not self._matches_day(local):
            return midnight + timedelta(days=1)
        if local.hour not in self.hours:
            return local.astimezone(UTC) + timedelta(minutes=60 - local.minute)
        if local.minute not in self.minutes:
            later = min((minute for minute in self.minutes if minute > local.minute), default=60)
            return local.astimezone(UTC) + timedelta(minutes=later - local.minute)
        return None

    def _matches_day(self, local: datetime) -> bool:
        matches = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return all(matches) if self.any_day else any(matches)


def parse_schedule(text: str) -> Schedule:
    """Parse a schedule. Raises ScheduleError."""
    if text.startswith("@every "):
        return Schedule(every=_interval(text))
    if text.startswith("@") and text not in _DESCRIPTORS:
        raise ScheduleError(f"unrecognized descriptor: {text}")
    fields = _DESCRIPTORS.get(text, text).split()
    if len(fields) != len(_BOUNDS):
        raise ScheduleError(
            f"expected exactly {len(_BOUNDS)} fields, found {len(fields)}: [{' '.join(fields)}]"
        )
    minutes, hours, days, months, weekdays = map(_field, fields, _BOUNDS)
    any_day = days[1] or weekdays[1]
    return Schedule(minutes[0], hours[0], days[0], months[0], weekdays[0], any_day)


def _field(field: str, bounds: _Bounds) -> tuple[frozenset[int], bool]:
    """Return the numbers of a field, and whether it allows all of them by ``*``."""
    numbers: set[int] = set()
    is_any = False
    for part in filter(None, field.split(",")):
        allowed, star = _part(part, bounds)
        numbers.update(allowed)
        is_any |= star
    return frozenset(numbers), is_any


def _part(part: str, bounds: _Bounds) -> tuple[range, bool]:
    span, *steps = part.split("/")
    words = span.split("-")
    star = words[0] in ("*", "?")
    if star:
        low = bounds.low
        high = bounds.high
    else:
        low = _number(words[0], bounds.names)
        high = low
        if len(words) == 2:
            high = _number(words[1], bounds.names)
        elif len(words) > 2:
            raise ScheduleError(f"too many hyphens: {part}")
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {part}")
    step = _number(steps[0], {}) if steps else 1
    if steps and len(words) == 1:
        high = bounds.high
    if low < bounds.low:
        raise ScheduleError(f"beginning of range ({low}) below minimum ({bounds.low}): {part}")
    if high > bounds.high:
        raise ScheduleError(f"end of range ({high}) above maximum ({bounds.high}): {part}")
    if low > high:
        raise ScheduleError(f"beginning of range ({low}) beyond end of range ({high}): {part}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {part}")
    return range(low, high + 1, step), star and step == 1


def _number(word: str, names: Mapping[str, int]) -> int:
    named = names.get(word.lower())
    if named is not None:
        return named
    digits = word.removeprefix("-") if word.startswith("-") else word.removeprefix("+")
    if not (digits.isascii() and digits.isdecimal()):
        raise ScheduleError(
            f'failed to parse int from {word}: strconv.Atoi: parsing "{word}": invalid syntax'
        )
    if len(digits.lstrip("0")) > 18:
        raise ScheduleError(
            f'failed to parse int from {word}: strconv.Atoi: parsing "{word}": value out of range'
        )
    if word.startswith("-") and int(digits):
        raise ScheduleError(f"negative number ({int(word)}) not allowed: {word}")
    return int(digits)


def _interval(text: str) -> timedelta:
    """Return the time of ``@every``: whole seconds, at least one."""
    duration = text.removeprefix("@every ")
    try:
        seconds = _go_duration(duration)
    except ScheduleError as error:
        raise ScheduleError(f"failed to parse duration {text}: {error}") from None
    try:
        return timedelta(seconds=max(1, floor(seconds)))
    except OverflowError:
        # longer than Python can count; the next run is beyond its calendar in any case
        return timedelta.max


def _go_duration(text: str) -> float:
    """Return the seconds of a Go duration, such as ``1h30m``."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    invalid = ScheduleError(f'time: invalid duration "{text}"')
    if not rest:
        raise invalid
    seconds = 0.0
    while rest:
        match = _DURATION_PART.match(rest)
        assert match is not None
        whole, fraction, unit = match.groups()
        if not whole and not (fraction or "").strip("."):
            raise invalid
        if not unit:
            raise ScheduleError(f'time: missing unit in duration "{text}"')
        if unit not in _UNITS:
            raise ScheduleError(f'time: unknown unit "{unit}" in duration "{text}"')
        if len(whole) > 19:
            raise invalid
        number = float(f"{whole or 0}{fraction or ''}")
        seconds += number * _UNITS[unit]
        if seconds > _MAX_SECONDS:
            raise invalid
        rest = rest[match.end() :]
    return -seconds if text.startswith("-") else seconds
