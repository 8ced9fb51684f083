"""The output formats of ``envtest validate``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from envtest.manifest_check.checker import Finding

__all__ = ["Summary", "github", "json_report", "skipped_lines", "summary_line", "text"]

_NAMED = 3


class Summary(NamedTuple):
    """What was checked."""

    files: int
    objects: int
    skipped: Mapping[str, str]
    """The reason for each file that was skipped."""


def text(findings: Iterable[Finding]) -> str:
    """Return one line for each problem: ``file:line: path: message``."""
    return "".join(
        f"{each.file}:{each.line}: {_message(each, with_level=True)}\n" for each in findings
    )


def _message(finding: Finding, *, with_level: bool) -> str:
    level = f"{finding.level}: " if with_level and finding.level != "error" else ""
    path = f"{finding.path}: " if finding.path else ""
    return level + path + " ".join(finding.message.split())


def json_report(findings: Sequence[Finding], summary: Summary) -> str:
    """Return a JSON document with all problems."""
    document = {
        "files": summary.files,
        "objects": summary.objects,
        "skipped": [{"file": file, "reason": reason} for file, reason in summary.skipped.items()],
        "problems": [
            {
                "file": each.file,
                "line": each.line,
                "level": each.level,
                "path": each.path,
                "message": each.message,
                "apiVersion": each.api_version,
                "kind": each.kind,
                "namespace": each.namespace,
                "name": each.name,
            }
            for each in findings
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


def github(findings: Iterable[Finding]) -> str:
    """Return workflow commands of GitHub Actions, which show each problem at its line."""
    lines = []
    for each in findings:
        title = f"{each.kind} {each.name}".strip()
        properties = {
            "file": each.file,
            "line": str(each.line),
            **({"title": title} if title else {}),
        }
        shown = ",".join(
            f"{name}={_escaped(value, property_value=True)}" for name, value in properties.items()
        )
        lines.append(f"::{each.level} {shown}::{_escaped(_message(each, with_level=False))}\n")
    return "".join(lines)


def _escaped(value: str, *, property_value: bool = False) -> str:
    value = value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return value.replace(":", "%3A").replace(",", "%2C") if property_value else value


def summary_line(findings: Iterable[Finding], summary: Summary) -> str:
    """Return a sentence about the whole run."""
    levels = [each.level for each in findings]
    counts = ", ".join(_plural(levels.count(level), level) for level in ("error", "warning"))
    return f"{_plural(summary.objects, 'object')} in {_plural(summary.files, 'file')}: {counts}"


def skipped_lines(summary: Summary) -> Iterator[str]:
    """Yield a sentence for each reason for which files were skipped."""
    by_reason: dict[str, list[str]] = {}
    for file, reason in summary.skipped.items():
        by_reason.setdefault(reason, []).append(file)
    for reason, files in by_reason.items():
        more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
        yield f"skipped {', '.join(files[:_NAMED])}{more}: {reason}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
