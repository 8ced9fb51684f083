"""Checks are isolated from each other."""

from __future__ import annotations

from collections.abc import Iterable

from cfo.checks.findings import Finding, Status, ok, parse_version
from cfo.console.doctor.examination import _run


async def test_unexpected_error_of_a_check_is_one_finding() -> None:
    async def broken() -> Iterable[Finding]:
        raise AttributeError("'str' object\x1b has no attribute 'get'" + "x" * 100_000)

    async def working() -> Iterable[Finding]:
        return [ok("fine")]

    ((first,), (second,)) = (await _run({"broken": broken, "working": working})).values()
    assert (first.status, second.status) == (Status.FAIL, Status.OK)
    assert first.message.isprintable()
    assert len(first.message) <= 10_000


def test_version_is_bounded() -> None:
    assert parse_version("v1.36.2") == (1, 36, 2)
    for text in ("1" * 5000, f"v1.{'2' * 5000}", f"{'1' * 5000}.2"):
        assert parse_version(text) is None or max(parse_version(text) or ()) < 10**9
