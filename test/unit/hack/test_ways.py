"""Tests of the comparison of a run with the ways that are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack import ways

RECORDED = {"an event": ["cfo.a", "cfo.b", "cfo.c"]}


def test_equal_way_has_no_difference() -> None:
    assert ways.difference("an event", ["cfo.a", "cfo.b", "cfo.c"], RECORDED) == ""


@pytest.mark.parametrize(
    ("entered", "lines"),
    [
        (["cfo.a", "cfo.c"], ["-cfo.b"]),
        (["cfo.a", "cfo.b", "cfo.d", "cfo.c"], ["+cfo.d"]),
        (["cfo.a", "cfo.c", "cfo.b"], ["+cfo.c", "-cfo.c"]),
        ([], ["-cfo.a", "-cfo.b", "-cfo.c"]),
    ],
    ids=["less", "more", "order", "nothing"],
)
def test_difference_shows_the_modules_and_the_command(entered: list[str], lines: list[str]) -> None:
    difference = ways.difference("an event", entered, RECORDED)
    changes = [line for line in difference.splitlines()[3:] if line[0] in "+-"]
    assert changes == lines
    assert "python -m hack.trace" in difference.splitlines()[0]


def test_written_way_is_read_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hack/generate").mkdir(parents=True)
    monkeypatch.setattr(ways, "ROOT", tmp_path)
    ways.write("an event", ["cfo.a"])
    ways.write("a review", ["cfo.b"])
    assert ways.read() == {"an event": ["cfo.a"], "a review": ["cfo.b"]}
