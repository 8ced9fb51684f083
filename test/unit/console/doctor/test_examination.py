"""Checks are isolated from each other."""

from __future__ import annotations

from collections.abc import Iterable

from cfo.checks.findings import CheckStatus, Finding, ok
from cfo.console.doctor.examination import _run


async def test_unexpected_error_of_a_check_is_one_finding() -> None:
    async def broken() -> Iterable[Finding]:
        raise AttributeError("'str' object\x1b has no attribute 'get'" + "x" * 100_000)

    async def working() -> Iterable[Finding]:
        return [ok("fine")]

    ((first,), (second,)) = (await _run({"broken": broken, "working": working})).values()
    assert (first.status, second.status) == (CheckStatus.FAIL, CheckStatus.OK)
    assert first.message.isprintable()
    assert len(first.message) <= 10_000
