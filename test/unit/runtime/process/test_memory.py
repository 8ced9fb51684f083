"""The memory limit of a container is read from the files of its cgroup."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfo.runtime.process import memory_limit


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        ("536870912\n", 536_870_912),
        ("max\n", None),
        ("9223372036854771712\n", None),
        ("", None),
        ("-1\n", None),
        ("\u0661\n", None),
    ],
)
def test_limit_is_a_number_of_bytes(tmp_path: Path, content: str, limit: int | None) -> None:
    file = tmp_path / "memory.max"
    file.write_text(content, encoding="utf-8")
    assert memory_limit([tmp_path / "missing", file]) == limit


def test_first_file_that_can_be_read_counts(tmp_path: Path) -> None:
    first = tmp_path / "memory.max"
    first.write_text("1000")
    second = tmp_path / "memory.limit_in_bytes"
    second.write_text("2000")
    assert memory_limit([first, second]) == 1000


def test_without_files_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit([tmp_path / "missing"]) is None
