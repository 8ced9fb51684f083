"""What ``cfo doctor`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from cfo.checks.findings import (
    APPLY,
    MANIFESTS,
    CheckStatus,
    Finding,
    skip,
)

Findings = Mapping[str, Sequence[Finding]]
"""The findings by the name of their check."""


def with_options(findings: Findings, options: str, unread: Sequence[str] = ()) -> Findings:
    """Add ``options`` to the command ``cfo manifests`` in all remedies, and name what could not be read of them."""
    command = f"{MANIFESTS} {options}"
    hint = ""
    if unread:
        hint = f" (add your options for {', '.join(unread)}, which you are not allowed to read)"
    changed: dict[str, list[Finding]] = {}
    for check, found in findings.items():
        changed[check] = []
        for finding in found:
            remedy = finding.remedy
            if MANIFESTS in remedy:
                remedy = remedy.replace(MANIFESTS, command) + hint
            changed[check].append(replace(finding, remedy=remedy))
    return changed


def with_text(findings: Findings, part: str, text: str) -> Findings:
    """Put ``text`` where remedies have ``part``, such as :data:`APPLY`: this installation needs other words there."""
    return {
        check: [replace(finding, remedy=finding.remedy.replace(part, text)) for finding in found]
        for check, found in findings.items()
    }


def without_manifests(findings: Findings, remedy: str) -> Findings:
    """Replace all remedies that apply manifests, which would install a second operator, by ``remedy``."""
    return {
        check: [
            replace(finding, remedy=remedy) if APPLY in finding.remedy else finding
            for finding in found
        ]
        for check, found in findings.items()
    }


def assuming_defaults(findings: Findings, dependent: Collection[str], cause: str) -> Findings:
    """Say of the ``dependent`` checks that they assumed the default configuration, and why: the ``cause``.

    What is right with the defaults, warned of, or not needed, need not be so with the configuration that the user
    corrects or restores.
    """
    changed = dict(findings)
    suffix = f"(with the default configuration, because {cause})"
    for check in dependent:
        found: list[Finding] = []
        for finding in findings[check]:
            depends = finding.status in (CheckStatus.OK, CheckStatus.WARN)
            if depends or not finding.is_needed:
                found.append(skip(f"{finding.message} {suffix}"))
            else:
                found.append(finding)
        changed[check] = found
    return changed


def has_failed(findings: Findings) -> bool:
    """Return whether a check failed; a warning is not a failure."""
    return _counts(findings)[CheckStatus.FAIL] > 0


def has_warned_or_skipped(findings: Findings) -> bool:
    """Return whether a check warned, or could not be done."""
    return _counts(findings)[CheckStatus.WARN] > 0 or bool(_needed_skips(findings))


def _needed_skips(findings: Findings) -> list[str]:
    """Return the checks that could not be done, although they are needed."""
    return [
        check
        for check, found in findings.items()
        if any(finding.status is CheckStatus.SKIP and finding.is_needed for finding in found)
    ]


def lines(findings: Findings) -> Iterator[str]:
    """Yield the text output: one line for each finding, its remedy below it, and a summary.

    Successive findings with the same remedy have it once, below the last of them. The summary names the checks that
    were skipped although they are needed.
    """
    width = max(map(len, findings), default=0)
    for check, found in findings.items():
        if not found:
            continue
        following = [*(finding.remedy for finding in found[1:]), ""]
        for finding, next_remedy in zip(found, following, strict=True):
            yield f"{finding.status:4}  {check:{width}}  {finding.message}"
            if finding.remedy and finding.remedy != next_remedy:
                yield f"{'':4}  {'':{width}}  -> {finding.remedy}"
    counts = _counts(findings)
    summary = ", ".join(f"{counts[status]} {status}" for status in CheckStatus)
    needed = _needed_skips(findings)
    if needed:
        summary += f" (needed: {', '.join(needed)})"
    yield summary


def document(findings: Findings) -> dict[str, Any]:
    """Return the JSON output."""
    checks: list[dict[str, Any]] = []
    for check, found in findings.items():
        checks += ({"check": check, **asdict(finding)} for finding in found)
    counts = _counts(findings)
    summary = {str(status): counts[status] for status in CheckStatus}
    return {"checks": checks, "summary": summary}


def _counts(findings: Findings) -> Counter[CheckStatus]:
    counts: Counter[CheckStatus] = Counter()
    for found in findings.values():
        counts.update(finding.status for finding in found)
    return counts
