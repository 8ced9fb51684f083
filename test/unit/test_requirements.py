"""docs/requirements.md: each requirement has a test or a command, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/requirements.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| requirement ")
]
TARGETS = "".join(
    path.read_text() for path in (ROOT / "Makefile", *sorted((ROOT / "hack").glob("*.mk")))
)
TESTS = {
    name
    for path in sorted((ROOT / "test").rglob("test_*.py"))
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
}


def test_requirements_of_all_documents_are_listed() -> None:
    assert len(ROWS) > 45  # some name several requirements with the same answer


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_requirement_names_existing_tests_and_files(row: list[str]) -> None:
    _, built, tested, missing = row
    assert built or missing
    for path in re.findall(r"`([^`]+)`", built):
        assert (ROOT / path).exists(), path
    names = re.findall(r"`([^`]+)`", tested)
    assert names
    for name in names:
        target = name.removeprefix("make ")
        assert name in TESTS or (
            target != name and re.search(rf"^{target}:", TARGETS, re.MULTILINE)
        ), name
