"""The formats of strings, compared with what kube-apiserver 1.36 accepted and rejected (``formats.json``)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envtest.schema.formats import FORMATS, format_check, parse_format_duration

RECORDED: dict[str, dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("formats.json").read_text(encoding="utf-8")
)
SECOND = 10**9
HOUR = 3600 * SECOND


@pytest.mark.parametrize("name", RECORDED)
def test_format_accepts_and_rejects_what_kube_apiserver_does(name: str) -> None:
    check = format_check(name)
    assert check is not None
    recorded = RECORDED[name]
    assert [value for value in recorded["accepted"] if not check(value)] == []
    assert [value for value in recorded["rejected"] if check(value)] == []


def test_all_formats_were_recorded() -> None:
    assert set(FORMATS) == {name.replace("-", "") for name in RECORDED}


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1h30m", 90 * 60 * SECOND),
        ("-5s", -5 * SECOND),
        ("PT30S", 30 * SECOND),
        ("-PT5S", 5 * SECOND),  # as in kube-apiserver, which adds only the numbers with a unit
        ("P1DT2H", 2 * HOUR),
        ("2 weeks", 2 * 7 * 24 * HOUR),
        ("1 day 2 hours", 26 * HOUR),
        ("P1Y", None),
        (f"{'9' * 100_000}s x", None),
    ],
)
def test_duration_is_the_sum_of_the_numbers_with_a_unit(text: str, nanoseconds: int | None) -> None:
    assert parse_format_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "(" * 200_000,
        "a" * 200_000,
        "a " * 100_000,
        '"' * 200_000,
        "(a)" * 70_000 + "<",
        "1" * 200_000,
        "1 " * 100_000,
        "[" * 200_000,
        "http://" + "[" * 200_000,
        "http://[::1%25" + "%" * 200_000,
        "00:" * 70_000,
        "0." * 100_000,
        "-" * 200_000,
    ],
)
def test_long_values_of_all_formats_take_linear_time(text: str) -> None:
    """They would take minutes if the time was quadratic, so that the limit of a test ends this one."""
    for check in FORMATS.values():
        check(text)
