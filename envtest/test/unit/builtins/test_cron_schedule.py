"""Cron schedules, by the rules of robfig/cron."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from envtest.builtins.cron_schedule import ScheduleError, parse_schedule

NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00"),
        ("* * * * *", "2026-01-01T00:00:59Z", "2026-01-01T00:01:00"),
        ("*/15 * * * *", "2026-01-01T00:46:00Z", "2026-01-01T01:00:00"),
        ("5/20 * * * *", "2026-01-01T00:26:00Z", "2026-01-01T00:45:00"),
        ("0 9-17/4 * * *", "2026-01-01T13:00:00Z", "2026-01-01T17:00:00"),
        ("0 0 31 * *", "2026-02-01T00:00:00Z", "2026-03-31T00:00:00"),
        ("0 0 29 feb ?", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00"),
        ("0 0 13 * FRI", "2026-02-07T00:00:00Z", "2026-02-13T00:00:00"),
        ("0 0 1 * mon-tue", "2026-01-01T00:00:00Z", "2026-01-05T00:00:00"),
        ("0 0 */2 * 1", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00"),
        ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00"),
        ("@every 90s", "2026-01-01T00:00:10.5Z", "2026-01-01T00:01:40"),
        ("@every 1h30m", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00"),
        ("@every 10ms", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01"),
        ("59 23 31 2 *", "2026-01-01T00:00:00Z", None),
    ],
)
def test_next_time(schedule: str, after: str, expected: str | None) -> None:
    found = parse_schedule(schedule).next(datetime.fromisoformat(after))
    assert (found and found.isoformat().removesuffix("+00:00")) == expected


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("0 12 * * *", "2026-01-01T12:00:00-05:00", "2026-01-02T12:00:00-05:00"),
        (
            "30 2 * * *",
            "2026-03-07T12:00:00-05:00",
            "2026-03-09T02:30:00-04:00",
        ),  # 02:30 is skipped on 8 March
        (
            "30 1 * * *",
            "2026-11-01T01:30:00-04:00",
            "2026-11-01T01:30:00-05:00",
        ),  # 01:30 happens twice
        ("0 * * * *", "2026-03-08T01:00:00-05:00", "2026-03-08T03:00:00-04:00"),
    ],
)
def test_next_time_in_a_time_zone(schedule: str, after: str, expected: str) -> None:
    found = parse_schedule(schedule).next(datetime.fromisoformat(after), NEW_YORK)
    assert found == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("@soon", "unrecognized descriptor: @soon"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        ("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
        (
            "@every 5d",
            'failed to parse duration @every 5d: time: unknown unit "d" in duration "5d"',
        ),
    ],
)
def test_invalid_schedule(schedule: str, message: str) -> None:
    with pytest.raises(ScheduleError) as raised:
        parse_schedule(schedule)
    assert str(raised.value) == message
