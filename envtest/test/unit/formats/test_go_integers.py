"""Integers as ``strconv.ParseInt`` parses them."""

from __future__ import annotations

import pytest

from envtest.formats.go_integers import parse_int64


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-007", -7), ("+5", 5), ("0" * 30 + "1", 1), ("-9223372036854775808", -(2**63))],
)
def test_integer(text: str, number: int) -> None:
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid syntax"),
        ("1_0", "invalid syntax"),
        ("٣", "invalid syntax"),
        ("9223372036854775808", "value out of range"),
    ],
)
def test_text_that_is_no_integer(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f'parsing "{text}": {problem}'):
        parse_int64(text)
