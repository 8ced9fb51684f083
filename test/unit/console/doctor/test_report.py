"""What ``cfo doctor`` prints."""

from __future__ import annotations

import pytest

from cfo.checks.findings import Finding, fail, not_needed, ok, skip, warn
from cfo.console.doctor.report import (
    assuming_defaults,
    document,
    has_failed,
    has_warned_or_skipped,
    lines,
)


def test_output_has_one_line_for_each_finding_and_the_remedy_below() -> None:
    findings = {"clock": [ok("fine")], "webhooks": [fail("a\nb\x1b[0m", "do\nit")]}
    assert list(lines(findings)) == [
        "ok    clock     fine",
        "fail  webhooks  a b\\x1b[0m",
        "                -> do it",
        "1 ok, 0 warn, 1 fail, 0 skip",
    ]
    assert document(findings)["summary"] == {"ok": 1, "warn": 0, "fail": 1, "skip": 0}
    assert document(findings)["checks"][0] == {
        "status": "ok",
        "check": "clock",
        "message": "fine",
        "remedy": "",
        "is_needed": True,
    }
    assert has_failed(findings)
    assert list(lines({"a": [fail("x", "do"), fail("y", "do")]}))[:3] == [
        "fail  a  x",
        "fail  a  y",
        "         -> do",
    ]
    assert not has_failed({"clock": [warn("x", "y")]})


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (ok("fine"), False),
        (warn("x", "y"), True),
        (skip("not allowed"), True),
        (not_needed("disabled"), False),
    ],
    ids=["ok", "warned", "skipped", "not needed"],
)
def test_strict_counts_warnings_and_needed_checks_that_were_skipped(
    finding: Finding, expected: bool
) -> None:
    findings = {"clock": [ok("fine"), finding]}
    assert has_warned_or_skipped(findings) is expected
    *_, summary = lines(findings)
    assert ("(needed: clock)" in summary) is (expected and finding.status == "skip")


def test_nothing_is_right_that_depends_on_an_invalid_configuration() -> None:
    suffix = "(with the default configuration, because the ConfigMap is invalid)"
    refused = skip("not allowed", "grant it")
    broken = fail("missing", "apply")
    found = [ok("all"), warn("few", "more"), not_needed("x"), refused, broken]
    findings = {"clock": [ok("fine")], "permissions": found}
    assert assuming_defaults(findings, ["permissions"], "the ConfigMap is invalid") == {
        "clock": [ok("fine")],
        "permissions": [
            *(skip(f"{message} {suffix}") for message in ("all", "few", "x")),
            refused,
            broken,
        ],
    }
