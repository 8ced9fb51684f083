"""Plain scalars of YAML, as sigs.k8s.io/yaml resolves and writes them."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.formats.yaml_codec import YAMLError, dump, load


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (word, True)
            for word in ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
        ),
        *(
            (word, False)
            for word in ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
        ),
        *((word, None) for word in ("", "~", "null", "Null", "NULL")),
        *(
            (word, word)
            for word in (
                "yEs",
                "tRUE",
                "oN",
                "nULL",
                "=",
                "-x",
                "+",
                ".",
                "..",
                "a:1",
                "1e400",
                "_1",
            )
        ),
        *(
            (word, word)
            for word in (
                "12:30:45",
                "1:2",
                "190:20:30",
                "1:2.5",
                "2026-01-02",
                "2026-01-02T03:04:05Z",
            )
        ),
        *(
            (word, word)
            for word in (
                "0x",
                "0b2",
                "0o8",
                "0xffffffffffffffffff",
                "._5",
                "1.2.3",
                "1e",
                "5m",
                "1Gi",
            )
        ),
        ("0o7", 7),
        ("07", 7),
        ("0_7", 7),
        ("08", 8),
        ("-010", -8),
        ("0x1F", 31),
        ("-0XfF", -255),
        ("0b11", 3),
        ("-0b11", -3),
        ("1_000", 1000),
        ("+12", 12),
        ("1e3", 1000),
        ("1E+2", 100),
        ("+.5", 0.5),
        (".5", 0.5),
        ("-1.5e-1", -0.15),
        ("2.", 2),
        ("1_000.5", 1000.5),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        ('"y"', "y"),
        ("'1'", "1"),
    ],
)
def test_plain_scalars(text: str, expected: Any) -> None:
    found = load(f"a: {text}".encode())["a"]
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("text", [".inf", "-.Inf", "+.INF", ".nan"])
def test_values_without_json_are_rejected(text: str) -> None:
    with pytest.raises(YAMLError, match="unsupported value"):
        load(f"a: {text}".encode())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("a: b\n c: d", "yaml: line 2: mapping values are not allowed in this context"),
        ("a:\n\t- b", "yaml: line 2: found character that cannot start any token"),
        ("- a\nb: c", "yaml: line 1: did not find expected '-' indicator"),
        ("a:\n  b: c\n d: e", "yaml: line 2: did not find expected key"),
        ("{", "yaml: line 1: did not find expected node content"),
        ("a: *x", "yaml: unknown anchor 'x' referenced"),
        ("a: !!binary x", "yaml: !!binary value contains invalid base64 data"),
        ("a: \x01", "yaml: control characters are not allowed"),
        ("a: .inf", "json: unsupported value: +Inf"),
        ("[a]: b", "yaml: invalid map key: must not be a list or a map"),
    ],
)
def test_error_is_that_of_go(text: str, error: str) -> None:
    with pytest.raises(YAMLError) as failed:
        load(text.encode())
    assert str(failed.value) == error


def test_tags_without_a_meaning_are_ignored() -> None:
    assert load(b"{a: !x y, b: !y [1], c: !!set {d}}") == {"a": "y", "b": [1], "c": {"d": None}}


@pytest.mark.parametrize("text", ["!!int x", "!!bool maybe", "!!float 1:2"])
def test_tags_that_contradict_the_scalar_are_rejected(text: str) -> None:
    with pytest.raises(YAMLError, match="cannot decode !!str"):
        load(f"a: {text}".encode())


def test_keys_become_strings() -> None:
    assert load(b"{y: 1, 0o7: 2, 1.5: 3, ~x: 4}") == {"true": 1, "7": 2, "1.5": 3, "~x": 4}


def test_merge_keys_are_applied() -> None:
    assert load(b"a: &a {x: 1}\nb: {<<: *a, z: 2}") == {"a": {"x": 1}, "b": {"x": 1, "z": 2}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (word, f'"{word}"')
            for word in ("y", "No", "null", "~", "0o7", "08", "1e3", "+.5", "12:30", "2026-01-02")
        ),
        *((word, word) for word in ("=", "yEs", "5m", "1.2.3", "a")),
    ],
)
def test_strings_that_are_not_strings_without_quotes_are_quoted(text: str, expected: str) -> None:
    assert dump({"k": text}) == f"k: {expected}\n"
    assert load(dump({"k": text}).encode()) == {"k": text}
