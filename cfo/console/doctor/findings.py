"""The results of checks, and how they are printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

APPLY: Final = "apply the manifests: cfo manifests | kubectl apply --server-side -f -"
"""A remedy."""


class Status(StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the result: ``check`` is the name of the check; ``remedy`` is empty if there is nothing to do."""

    status: Status
    check: str
    message: str
    remedy: str = ""


def ok(check: str, message: str) -> Finding:
    """Return a finding that everything is as it should be."""
    return Finding(Status.OK, check, message)


def warn(check: str, message: str, remedy: str) -> Finding:
    """Return a finding that something can fail, or soon will."""
    return Finding(Status.WARN, check, message, remedy)


def fail(check: str, message: str, remedy: str) -> Finding:
    """Return a finding that something does not work."""
    return Finding(Status.FAIL, check, message, remedy)


def skip(check: str, message: str, remedy: str = "") -> Finding:
    """Return a finding that something could not be checked, or does not have to be."""
    return Finding(Status.SKIP, check, message, remedy)


def has_failed(findings: Sequence[Finding]) -> bool:
    """Return whether a check failed; a warning is not a failure."""
    return any(finding.status is Status.FAIL for finding in findings)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the text output: one line for each finding, its remedy below it, and a summary."""
    width = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        yield f"{finding.status:4}  {finding.check:{width}}  {_one_line(finding.message)}"
        if finding.remedy:
            yield f"{'':4}  {'':{width}}  -> {_one_line(finding.remedy)}"
    counts = Counter(finding.status for finding in findings)
    yield ", ".join(f"{counts[status]} {status}" for status in Status)


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the JSON output."""
    counts = Counter(finding.status for finding in findings)
    return {
        "checks": [asdict(finding) for finding in findings],
        "summary": {str(status): counts[status] for status in Status},
    }


def _one_line(text: str) -> str:
    """Return ``text``, which a cluster may have sent, as one line without control characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
