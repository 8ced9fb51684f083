"""Error messages for times, as Go's ``time.Parse`` reports them."""

import pytest

from envtest.formats.go_time import MICRO, RFC3339, time_problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-01-02T03:04:05Z", ""),
        ("2026-01-02T03:04:05.123+01:30", ""),
        ("2024-02-29T03:04:05Z", ""),
        ("", 'parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
        (
            "soon",
            'parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"',
        ),
        (
            "2026-01-02",
            'parsing time "2026-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"',
        ),
        ("2026-13-02T03:04:05Z", 'parsing time "2026-13-02T03:04:05Z": month out of range'),
        ("2025-02-29T03:04:05Z", 'parsing time "2025-02-29T03:04:05Z": day out of range'),
        ("2026-01-02T24:04:05Z", 'parsing time "2026-01-02T24:04:05Z": hour out of range'),
        (
            "2026-01-02T03:04:05",
            'parsing time "2026-01-02T03:04:05" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"',
        ),
        ("2026-01-02T03:04:05Zulu", 'parsing time "2026-01-02T03:04:05Zulu": extra text: "ulu"'),
        (
            "2026-01-02T03:04:05+25:00",
            'parsing time "2026-01-02T03:04:05+25:00": time zone offset hour out of range',
        ),
        (
            'ä"',
            'parsing time "\\xc3\\xa4\\"" as "2006-01-02T15:04:05Z07:00": cannot parse "\\xc3\\xa4\\"" as "2006"',
        ),
    ],
)
def test_invalid_times_are_reported_as_in_go(text: str, problem: str) -> None:
    assert time_problem(text, RFC3339) == problem


def test_micro_time_requires_six_digits() -> None:
    assert time_problem("2026-01-02T03:04:05.123456Z", MICRO) == ""
    assert time_problem("2026-01-02T03:04:05Z", MICRO) == (
        'parsing time "2026-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"'
    )
