"""Reads the JSON report of Ginkgo that ``e2e.test`` writes, and compares it with the list of specs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from test.conformance.specs import Spec, without_tags

__all__ = ["Outcome", "Summary", "outcomes", "summary"]

NOT_RUN = frozenset({"skipped", "pending"})
REASON_LENGTH = 300


class Outcome(NamedTuple):
    """What happened to a spec; ``reason`` is empty if it passed."""

    name: str
    passed: bool
    reason: str


class Summary(NamedTuple):
    """A report compared with the list: lines to print, and the specs that should have passed and did not."""

    lines: list[str]
    unexpected: list[str]


def outcomes(reports: Iterable[Mapping[str, Any]]) -> list[Outcome]:
    """Return the outcomes of the specs that ran, by the decoded JSON report."""
    found = []
    for report in reports:
        for spec in report.get("SpecReports") or ():
            if spec["LeafNodeType"] != "It":
                if spec["State"] not in ("passed", *NOT_RUN):
                    found.append(Outcome(f"[{spec['LeafNodeType']}]", False, _reason(spec)))
            elif spec["State"] not in NOT_RUN:
                name = " ".join(
                    [*(spec.get("ContainerHierarchyTexts") or ()), spec["LeafNodeText"]]
                )
                passed = spec["State"] == "passed"
                found.append(Outcome(without_tags(name), passed, "" if passed else _reason(spec)))
    return found


def _reason(spec: Mapping[str, Any]) -> str:
    failure = spec.get("Failure") or {}
    message = " ".join((failure.get("ForwardedPanic") or failure.get("Message") or "").split())
    place = failure.get("Location") or {}
    where = str(place.get("FileName") or "").partition("/test/e2e/")[2]
    shown = message if len(message) <= REASON_LENGTH else f"{message[:REASON_LENGTH]}..."
    suffix = f" ({where}:{place.get('LineNumber')})" if where else ""
    return f"{spec['State']}: {shown}{suffix}" if shown else f"{spec['State']}{suffix}"


def summary(specs: Iterable[Spec], results: Iterable[Outcome]) -> Summary:
    """Compare the outcomes with the list of specs."""
    states = {spec.name: spec for spec in specs}
    results = list(results)
    passed = [each for each in results if each.passed]
    failed = [each for each in results if not each.passed]
    lines = []
    for each in failed:
        listed = states.get(each.name)
        lines.append(
            f"FAILED {each.name} [{listed.envtest if listed else 'not in the list'}]\n    {each.reason}"
        )
    for each in passed:
        if not (listed := states.get(each.name)) or not listed.passes:
            lines.append(f"PASSED {each.name} [{listed.envtest if listed else 'not in the list'}]")
    expected = {name for name, spec in states.items() if spec.passes}
    absent = sorted(expected - {each.name for each in results})
    lines += [f"NOT RUN {name}" for name in absent]
    lines.append(
        f"{len(passed)} passed, {len(failed)} failed, {len(absent)} expected specs did not run"
    )
    known_failures = [
        each.name for each in failed if each.name in states and not states[each.name].passes
    ]
    return Summary(
        lines, [each.name for each in failed if each.name not in known_failures] + absent
    )
