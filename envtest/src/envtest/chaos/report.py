"""The report: what was tried, what went wrong, and how to repeat it, as text and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from envtest.chaos.execution import Problem, Result
from envtest.chaos.points import KINDS, FaultPoint

__all__ = ["Finding", "Report", "group_findings"]

EXPLANATIONS: Final = {
    "missing": "the object does not exist, although it does without the fault",
    "different": "the object differs from that of the run without faults",
    "duplicate": "the object exists once more than without the fault",
    "orphan": "the object is left over: its owner does not exist, or the operator deletes it without the fault",
    "unexpected": "the object does not exist without the fault",
    "hot loop": "the operator repeats a request without a pause",
    "writes at rest": "the operator goes on writing when there is nothing left to do",
    "step failed": "a step of the scenario cannot be executed, although it can without the fault",
    "exits": "the operator does not keep running",
}
"""The kinds of problems."""


@dataclass(slots=True)
class Finding:
    """A problem, and the faults that lead to it, the shortest run first; no faults: it happens without any.

    ``result`` is the shortest run. ``repeated`` is whether a second run of the same fault had the problem again,
    ``None`` if there was none.
    """

    problem: Problem
    points: list[FaultPoint]
    result: Result
    repeated: bool | None = None


@dataclass(slots=True)
class Report:
    """The outcome of an exploration. ``command`` are the arguments that repeat it, without the fault.

    ``planned`` and ``run`` are numbers of faults; ``run`` counts only those that happened. ``not_run`` are those for
    which the budget was too short, ``interrupted`` those of them that it ended, ``not_reached`` those whose place the
    operator did not reach, ``failed_without_fault`` those of them whose run had a problem, which no fault has caused.
    ``expects_faults`` is whether any fault was asked for, ``expects_all`` whether each planned one was, by its id.
    ``unstable`` are fields that differ between two runs without faults, and are not compared.
    """

    findings: list[Finding] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    writes: int = 0
    unchanged_writes: int = 0
    planned: int = 0
    run: int = 0
    not_run: list[FaultPoint] = field(default_factory=list)
    interrupted: list[FaultPoint] = field(default_factory=list)
    not_reached: list[FaultPoint] = field(default_factory=list)
    failed_without_fault: list[FaultPoint] = field(default_factory=list)
    expects_faults: bool = True
    expects_all: bool = False
    exits: list[FaultPoint] = field(default_factory=list)
    unstable: list[str] = field(default_factory=list)
    seconds: float = 0.0
    seed: int = 0
    command: tuple[Sequence[str], Sequence[str]] = ((), ())

    @property
    def passed(self) -> bool:
        """Whether there are no findings, and the exploration is complete."""
        return not self.findings and not self.gaps

    @property
    def gaps(self) -> list[str]:
        """Why the absence of findings says little: the budget was too short, or faults did not happen."""
        found = []
        if self.not_run:
            during = ", ".join(point.id for point in self.interrupted)
            when = f" during {during}" if during else ""
            found.append(f"Budget used up{when}, {_faults(len(self.not_run))} not run")
        if self.failed_without_fault:
            ids = ", ".join(point.id for point in self.failed_without_fault)
            found.append(
                f"Not passed: problems although the fault was not reached: {ids}: the operator may be slower than"
                " --ready or --quiet, use more seconds"
            )
        if self.findings:
            return found
        if self.expects_all and self.not_reached:
            found.append(f"Not passed: {_faults(len(self.not_reached))} of --only not reached")
        elif self.expects_faults and not self.run and not self.not_run:
            found.append("Not passed: no fault was reached")
        return found

    def assert_passed(self) -> None:
        """Raise AssertionError with the report if there are findings, or the exploration is not complete."""
        if not self.passed:
            raise AssertionError(self.text())

    def repeat(self, point: FaultPoint | None) -> str:
        """Return the command line that runs exactly one fault."""
        options, command = self.command
        only = ["--only", point.id] if point is not None else ["--explore", "none"]
        words = ["envtest", "chaos", *options, *only, "--seed", str(self.seed), "--", *command]
        return shlex.join(words) if command else f"only={[point.id] if point is not None else []!r}"

    def text(self) -> str:
        """Return the report as text."""
        lines = [
            f"Without faults: {len(self.steps)} steps, {self.writes} writes, {self.unchanged_writes} of them unchanged",
            f"With faults: {self.run} of {self.planned} run in {self.seconds:.1f} s",
        ]
        if not self.writes and not self.findings:
            lines.append("The operator wrote nothing: its writes have no faults")
        if self.not_reached:
            lines.append(f"Not reached: {', '.join(point.id for point in self.not_reached)}")
        if self.exits:
            lines.append(
                f"The operator exited and was restarted: {', '.join(point.id for point in self.exits)}"
            )
        if self.unstable:
            lines.append(
                f"Not compared, because they differ without faults, too: {', '.join(self.unstable)}"
            )
        for number, finding in enumerate(self.findings, 1):
            lines += ["", *self._finding(number, finding)]
        lines += ["", self._count(), *self.gaps]
        return "\n".join(lines)

    def _count(self) -> str:
        match len(self.findings):
            case 0:
                return "No findings"
            case 1:
                return "1 finding"
            case count:
                return f"{count} findings"

    def _finding(self, number: int, finding: Finding) -> list[str]:
        problem = finding.problem
        point = finding.points[0] if finding.points else None
        lines = [
            f"{number}. {problem.kind}: {problem.subject}",
            f"   {EXPLANATIONS[problem.kind]}",
            *(f"     {line}" for line in problem.lines),
            f"   In step {problem.step}: {self._step(problem.step)}",
            *_hints(finding),
        ]
        if point is None:
            lines.append("   Fault: none")
        else:
            lines += [f"   Fault: {point.id}", f"     {point.describe()}"]
            if len(finding.points) > 1:
                others = ", ".join(each.id for each in finding.points[1:6])
                more = len(finding.points) - 6
                lines.append(f"   Also: {others}" + (f" and {more} more" if more > 0 else ""))
            if finding.repeated is not None:
                lines.append(f"   In a second run: {'again' if finding.repeated else 'not again'}")
        if finding.result.writes:
            title = "Writes in this step" if point is None else "Writes since the step of the fault"
            lines += [f"   {title}:", *(f"     {line}" for line in finding.result.writes)]
        if finding.result.output and problem.kind == "exits":
            lines += [
                "   Output:",
                *(f"     {line}" for line in finding.result.output.splitlines()[-20:]),
            ]
        return [*lines, f"   Repeat: {self.repeat(point)}"]

    def _step(self, number: int) -> str:
        return self.steps[number] if number < len(self.steps) else ""

    def json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "passed": self.passed,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "steps": self.steps,
            "writes": self.writes,
            "unchangedWrites": self.unchanged_writes,
            "faults": {
                "planned": self.planned,
                "run": self.run,
                "notRun": [point.id for point in self.not_run],
                "interrupted": [point.id for point in self.interrupted],
                "notReached": [point.id for point in self.not_reached],
                "failedWithoutFault": [point.id for point in self.failed_without_fault],
                "exited": [point.id for point in self.exits],
            },
            "unstableFields": self.unstable,
            "findings": [self._finding_json(finding) for finding in self.findings],
        }

    def _finding_json(self, finding: Finding) -> dict[str, Any]:
        problem = finding.problem
        point = finding.points[0] if finding.points else None
        return {
            "kind": problem.kind,
            "subject": problem.subject,
            "step": problem.step,
            "details": list(problem.lines),
            "fault": None if point is None else {"id": point.id, "description": KINDS[point.kind]},
            "otherFaults": [each.id for each in finding.points[1:]],
            "repeated": finding.repeated,
            "writes": finding.result.writes,
            "output": finding.result.output,
            "command": self.repeat(point),
        }


def group_findings(results: Sequence[Result]) -> list[Finding]:
    """Return one finding for each problem: the same problem of several faults is one, with the shortest run first."""
    groups: dict[tuple[str, str], list[tuple[Problem, Result]]] = {}
    for result in results:
        for problem in result.problems:
            groups.setdefault((problem.kind, _object(problem.subject)), []).append(
                (problem, result)
            )
    findings = []
    for found in groups.values():
        found.sort(key=lambda each: (each[0].step, each[1].requests))
        points = dict.fromkeys(result.point for _, result in found if result.point is not None)
        findings.append(Finding(found[0][0], list(points), found[0][1]))
    return findings


def _hints(finding: Finding) -> list[str]:
    """Return a hint if the writes at rest may be late writes of a step that ended without any."""
    if finding.problem.kind != "writes at rest" or finding.points:
        return []
    steps = finding.result.steps
    first = 1 if len(steps) > 1 else 0  # at the start there is often nothing to write
    silent = [str(number) for number in range(first, len(steps)) if not steps[number].writes]
    if not silent:
        return []
    noun = "step" if len(silent) == 1 else "steps"
    return [
        f"   No writes before, in {noun} {', '.join(silent)}: the operator may be slower than --quiet or --ready"
    ]


def _faults(count: int) -> str:
    return "1 fault" if count == 1 else f"{count} faults"


def _object(subject: str) -> str:
    """Return the subject without the random end of a generated name, so that equal problems are one finding."""
    head, dash, end = subject.rpartition("-")
    return head if dash and len(end) == 5 and end.isalnum() else subject
