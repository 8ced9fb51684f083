"""Versions of other components."""

from __future__ import annotations

from cfo.checks.components import parse_version


def test_version_is_bounded() -> None:
    assert parse_version("v1.36.2") == (1, 36, 2)
    for text in ("1" * 5000, f"v1.{'2' * 5000}", f"{'1' * 5000}.2"):
        assert parse_version(text) is None or max(parse_version(text) or ()) < 10**9
