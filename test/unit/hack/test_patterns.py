"""Tests of ``hack.patterns``: it finds slow patterns, whatever precedes the repetition, and accepts linear ones."""

from __future__ import annotations

import re

import pytest

from hack.patterns import LIMIT_SECONDS, slowest, uses


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"([+-]?(?:\d+\.?\d*|\.\d+))(n|u|m)?", "fullmatch"),
        (r"[-+]?(0|((\d+\.?\d*|\.\d+)(ns|us|ms|s))+)", "fullmatch"),
        (r"(?m)^(\s*access_token:\s*)(\S.*)$", "sub"),
        (r"begin: (a+)+end", "match"),
        (r"\s+$", "search"),
        (r"x[0-9]+[0-9a-f]+y", "fullmatch"),
        (r"foo.*bar", "search"),
        (r".*foo.*bar", "fullmatch"),
        (r"<(\w+)>.*</b>", "findall"),
    ],
)
def test_slow_pattern_is_found(pattern: str, method: str) -> None:
    seconds, attack = slowest(re.compile(pattern), method)
    assert seconds > LIMIT_SECONDS
    assert "characters" in attack


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", "fullmatch"),
        (r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k)?", "fullmatch"),
        (r"(?m)^([ \t]*+access_token:[ \t]*+)(\S.*)$", "sub"),
    ],
)
def test_linear_pattern_is_accepted(pattern: str, method: str) -> None:
    assert slowest(re.compile(pattern), method)[0] <= LIMIT_SECONDS


def test_patterns_of_both_distributions_are_found() -> None:
    parsers, quantity = "cfo/runtime/objects/parsers.py", "envtest/src/envtest/schema/quantity.py"
    argument_of_matching = "cfo/config/authentication.py"
    found = {
        use.where.rpartition(":")[0]: use for use in uses(parsers, quantity, argument_of_matching)
    }
    assert found.keys() == {parsers, quantity, argument_of_matching}
    assert "fullmatch" in found[parsers].methods
