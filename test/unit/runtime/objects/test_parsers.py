"""Parsers of strings that tenants choose: bounded before they are matched, and never an exception but ValueError."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfo.api.builtin_types import type_problems
from cfo.api.quantity import canonical_quantity
from cfo.config.appwrapper import FaultToleranceConfiguration
from cfo.config.appwrapper_settings import Settings
from cfo.runtime.objects import (
    is_host_name,
    is_quantity,
    parse_duration,
    parse_quantity,
    split_list,
)
from cfo.runtime.objects.parsers import MAX_LENGTH

# Overlapping repetitions need time in proportion to the square of the length: more than 20 s.
DIGITS = "1" * 60_000


@pytest.mark.parametrize(
    "text", [f"{DIGITS}x", f"{DIGITS}e1.5", f"{DIGITS}.{DIGITS}", "1" * (MAX_LENGTH + 1)]
)
def test_long_quantity_is_refused_before_it_is_matched(text: str) -> None:
    began = time.thread_time()
    assert not is_quantity(text)
    assert canonical_quantity(text) == text
    problems = list(type_problems({"requests": {"cpu": text}}, "ResourceRequirements"))
    with pytest.raises(ValueError, match="is not a valid quantity") as caught:
        parse_quantity(text)
    assert time.thread_time() - began < 5
    assert problems
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", [DIGITS, f"{DIGITS}x", f"{DIGITS}s", "1s" * 40_000])
def test_long_duration_is_refused_before_it_is_matched(text: str) -> None:
    began = time.thread_time()
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)
    annotations = {"workload.codeflare.dev.appwrapper/warmupGracePeriodDuration": text}
    settings = Settings.of(
        {"metadata": {"annotations": annotations}}, FaultToleranceConfiguration()
    )
    assert time.thread_time() - began < 5
    assert settings.warmup_grace == FaultToleranceConfiguration().warmup_grace_period
    assert len(settings.problems) == 1
    assert len(settings.problems[0]) < 300


def test_durations_that_go_accepts() -> None:
    for text, seconds in (
        ("0", 0),
        ("90s", 90),
        ("1h30m", 5400),
        ("-1.5h", -5400),
        ("+.5s", 0.5),
        ("1.ms", 0.001),
    ):
        assert parse_duration(text) == timedelta(seconds=seconds), text
    for text in ("", "5", "1d", "s", "1 s", "\u0661s", "9" * 60 + "h", "1..s"):
        with pytest.raises(ValueError, match="must be a duration"):
            parse_duration(text)


@pytest.mark.parametrize("parse", [parse_quantity, parse_duration])
@given(text=st.text("0123456789.+-eEimKskGn_ \x1b\u202e\u0661", max_size=80))
def test_parsers_raise_only_value_errors(parse: Callable[[str], Any], text: str) -> None:
    try:
        parse(text)
    except ValueError as error:
        message = str(error)
    else:
        return
    assert len(message) < 400
    assert message.isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b-c.example", True),
        ("", False),
        ("A", False),
        ("-a", False),
        ("a.", False),
        ("a\n", False),
        ("$(x)", False),
    ],
)
def test_host_names(text: str, expected: bool) -> None:
    assert is_host_name(text) is expected
    assert not is_host_name("a" * 254)
    assert not is_host_name("a-" * 5_000_000)


def test_lists_are_split_up_to_a_number_of_items() -> None:
    assert split_list("3, x,") == (["3", " x", ""], False)
    hundred = list(map(str, range(100)))
    assert split_list(",".join(hundred)) == (hundred, False)
    assert split_list(",".join(hundred) + ",") == (hundred, False), "an empty rest is not reported"
    items, has_more = split_list("," * 1_000_000 + "x")
    assert (len(items), has_more) == (100, True)
