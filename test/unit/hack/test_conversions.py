"""Tests of ``hack.conversions``: what may be text is found, numbers are not."""

from __future__ import annotations

import pytest

from hack import ROOT
from hack.conversions import ALLOWED, findings


@pytest.mark.parametrize(
    "code",
    [
        "int(text)",
        "float(annotations['a'])",
        "Decimal(str(value))",
        "datetime.fromisoformat(spec.get('renewTime'))",
        "datetime.datetime.fromisoformat(str(status['at']))",
        "int(metadata.get('annotations') or 0)",
        "int('%s' % text)",
    ],
)
def test_text_is_found(code: str) -> None:
    assert [line for line, _ in findings(f"\nx = {code}")] == [2]


@pytest.mark.parametrize(
    "code",
    [
        "int()",
        "int(2.5)",
        "int(len(x))",
        "float(a > b)",
        "int(metadata.get('generation') or MAX)",
        "int(x['maxSize'])",
    ],
)
def test_numbers_are_accepted(code: str) -> None:
    assert not list(findings(f"x = {code}"))


def test_allowed_files_convert_something() -> None:
    assert [name for name in ALLOWED if not list(findings((ROOT / name).read_text()))] == []
