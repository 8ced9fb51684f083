"""Regular expressions: what Go accepts, its errors and its matches."""

from __future__ import annotations

import sys

import pytest

from envtest.schema import patterns
from envtest.schema.patterns import PatternError, compile_pattern, find_all
from envtest.schema.schema_node import Schema
from envtest.schema.validation import compile_validator, validate

_LARGE = ".{1000}" * 80


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^a$", "a\n", False),
        ("(?m)^a$", "a\n", True),
        (r"^[[:alpha:]_]+\z", "ab_", True),
        (r"^\p{Lu}", "A", True),
        (r"^[]x]$", "]", True),
        (r"^\d+$", "٣", False),
        (r"^\s$", "\v", False),
        ("(?i)abc", "xABCx", True),
        ("(?i)^s$", "ſ", True),
        (r"[$]", "$", True),
        ("^(?i)[a-z]+$", "ABC", True),
        ("a(?i)b|c", "AB", False),
        ("a(?i)b|c", "C", True),
        ("(a(?i)b)c", "aBC", False),
        ("^(?<letter>a)$", "a", True),
        ("(?P<n>a)(?P<n>b)", "ab", True),
        (r"^[\p{L}\p{S}-]+$", "aé-€", True),
        (r"^[\p{L}]+$", "a1", False),
        (r"^\P{L}$", "1", True),
        (r"^\p{Greek}+$", "αβ", True),
        ("^[(|)]+$", "(|)", True),
        (r"^\Qa.\E$", "a.", True),
        (r"^\Q\C\E$", r"\C", True),
        (r"^\\C$", r"\C", True),
        (r"^\x{1F600}$", "\U0001f600", True),
        (r"^[\d-z]$", "-", True),
        (r"[^\x00-\x{10FFFF}]", "a", False),
        ("^(?U)a*$", "aa", True),
        ("^*a", "a", True),
        ("^a{,2}$", "a{,2}", True),
    ],
)
def test_pattern_matches_as_in_go(pattern: str, text: str, matches: bool) -> None:
    assert compile_pattern(pattern)(text) == matches


def test_matching_takes_linear_time() -> None:
    assert not compile_pattern("^(a|a|aa)+$")("a" * 100_000 + "b")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?>a)b", "invalid or unsupported Perl syntax: `(?>`"),
        ("(?#c)", "invalid or unsupported Perl syntax: `(?#`"),
        ("(?P<n>a)(?P=n)", "invalid or unsupported Perl syntax: `(?P`"),
        ("(?<!a)b", "invalid named capture: `(?<!a)b`"),
        ("(?<=a>b)c", "invalid named capture: `(?<=a>`"),
        ("(?P<n-x>a)", "invalid named capture: `(?P<n-x>`"),
        ("(?P<é>a)", "invalid named capture: `(?P<é>`"),
        ("(?<é>a)", "invalid named capture: `(?<é>`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"a\Z", r"invalid escape sequence: `\Z`"),
        (r"\u0041", r"invalid escape sequence: `\u`"),
        (r"a\\\C", r"invalid escape sequence: `\C`"),
        (r"[\b]", r"invalid escape sequence: `\b`"),
        ("\\x{", "invalid escape sequence: `\\x{`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a++", "invalid nested repetition operator: `++`"),
        ("a{2000}", "invalid repeat count: `{2000}`"),
        ("(a{100}){100}", "invalid repeat count: `{100}`"),
    ],
)
def test_pattern_that_go_rejects_is_rejected(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert str(caught.value) == f"error parsing regexp: {reason}"


def test_large_pattern_can_take_more_memory() -> None:
    matches = compile_pattern(f"^{_LARGE}$")
    assert matches("a" * 80_000)
    assert not matches("a" * 79_999)


def test_pattern_that_needs_too_much_memory_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_MEMORY_OF_LARGE_PATTERN", patterns._MEMORY)
    with pytest.raises(PatternError, match="error parsing regexp: expression too large: "):
        compile_pattern(f"{_LARGE}$")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a*", "baaab", ["", "aaa", ""]),
        ("x*", "é€", ["", "", ""]),
        ("^a", "aa", ["a"]),
        ("(?s).", "😀\n", ["😀", "\n"]),
        ("b", "a", []),
    ],
)
def test_all_matches_are_found_as_in_go(pattern: str, text: str, found: list[str]) -> None:
    assert list(find_all(pattern, text)) == found


def test_value_that_does_not_match_is_an_error() -> None:
    check = compile_validator(Schema({"type": "string", "pattern": "^a+$"}))
    assert [str(error) for error in validate(check, "b")] == [
        "<nil>: Invalid value: \"b\":  in body should match '^a+$'"
    ]
    assert validate(check, "a") == []


def test_patterns_are_rejected_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns._re2.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "re2", None)
            with pytest.raises(PatternError, match="patterns need the package google-re2"):
                compile_pattern("missing library")
    finally:
        patterns._re2.cache_clear()
