"""Runs an operator twice without faults, and then once for each fault point."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from envtest.chaos.execution import Expectation, Result, Timing, run_scenario
from envtest.chaos.injection import IGNORED
from envtest.chaos.names import Names
from envtest.chaos.normal_form import mask, normalize, reference_names, unstable_fields
from envtest.chaos.operators import Operator, StartError
from envtest.chaos.points import KINDS, FaultPoint, StepRecord, plan
from envtest.chaos.readiness import Readiness
from envtest.chaos.report import Finding, Report, group_findings
from envtest.chaos.run_clock import LoopUsers
from envtest.chaos.session import Session
from envtest.chaos.steps import Scenario
from envtest.planes.embedded import EmbeddedServer
from envtest.storage import Store

__all__ = ["Settings", "explore_plane"]

_REVISIONS: Final = 100_000
"""How many revisions later the second run without faults begins: values that depend on revisions then differ."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to explore, and for how long.

    ``kinds`` are kinds of faults, ``only`` are ids of single faults instead. ``seed`` other than 0 shuffles the faults.
    ``budget`` is the time for all runs in seconds; the faults that are left are not run. ``jobs`` runs are made at the
    same time. ``ignored`` are resources, ``ignored_fields`` fields (``status.attempts``, ``spec.items[*].name``) that
    are not compared.
    """

    kinds: Collection[str] = tuple(KINDS)
    only: Sequence[FaultPoint] = ()
    seed: int = 0
    budget: float = 600.0
    jobs: int = 1
    timing: Timing = field(default_factory=Timing)
    readiness: Readiness = field(default_factory=Readiness)
    ignored: Collection[str] = IGNORED
    ignored_fields: Collection[str] = ()


async def explore_plane(
    plane: EmbeddedServer, operator: Operator, scenario: Scenario, settings: Settings
) -> Report:
    """Run ``operator`` on copies of ``plane``, which runs and is not changed, and report what went wrong.

    Raises StartError or OperatorExited if the operator does not run even without faults, ScenarioError if a step fails.
    """
    return await _Exploration(plane, operator, scenario, settings).run()


class _Exploration:
    def __init__(
        self, plane: EmbeddedServer, operator: Operator, scenario: Scenario, settings: Settings
    ) -> None:
        self._plane = plane
        self._base: Store = plane.store.fork()
        self._operator = operator
        self._scenario = scenario
        self._settings = settings
        self._users = LoopUsers()
        self._running: set[FaultPoint] = set()
        """The faults that are being run; after the budget, those that it interrupted."""

    async def run(self) -> Report:
        started = time.monotonic()
        scenario = self._scenario
        settings = self._settings
        report = Report(seed=settings.seed)
        report.expects_all = bool(settings.only)
        report.expects_faults = bool(settings.only or settings.kinds)
        report.steps = [scenario.describe(number) for number in range(len(scenario.steps) + 1)]
        first = await self._run(None, None)
        report.writes = sum(len(step.writes) for step in first.steps)
        report.unchanged_writes = first.unchanged
        if first.problems:
            report.findings = group_findings([first])
            report.seconds = time.monotonic() - started
            return report
        second = await self._run(None, None, revisions=_REVISIONS)
        expected = self._expectation(first, second)
        report.unstable = sorted(
            f"{resource} {path}".strip() for resource, path in expected.unstable
        )
        points = list(settings.only) or plan(
            _canonical(first.steps, expected.names), settings.kinds, seed=settings.seed
        )
        report.planned = len(points)
        results = await self._run_all(points, expected, started + settings.budget)
        reached = [each for each in results if each.reached]
        report.run = len(reached)
        tried = {each.point for each in results}
        report.not_run = [point for point in points if point not in tried]
        report.interrupted = sorted(self._running, key=points.index)
        report.not_reached = [
            each.point for each in results if each.point is not None and not each.reached
        ]
        report.failed_without_fault = [
            each.point
            for each in results
            if each.point is not None and not each.reached and each.problems
        ]
        report.exits = [each.point for each in results if each.point is not None and each.exits]
        report.findings = group_findings(reached)
        for finding in report.findings:
            await self._confirm(finding, expected, started + settings.budget)
        report.seconds = time.monotonic() - started
        return report

    def _expectation(self, first: Result, second: Result) -> Expectation:
        """Return what both runs without faults have in common."""
        plain = [
            [normalize(each, Names()) for each in result.snapshots] for result in (first, second)
        ]
        names = reference_names(*plain)
        ours = [normalize(each, names) for each in first.snapshots]
        theirs = [normalize(each, names) for each in second.snapshots]
        unstable = {("*", name) for name in self._settings.ignored_fields}
        for one, other in zip(ours, theirs, strict=False):
            unstable |= unstable_fields(one, other)
        return Expectation([mask(state, unstable) for state in ours], names, frozenset(unstable))

    async def _run_all(
        self, points: Sequence[FaultPoint], expected: Expectation, deadline: float
    ) -> list[Result]:
        """Run the points in order, ``jobs`` at a time, until ``deadline``; what has not ended by then is left out."""
        results: dict[int, Result] = {}
        waiting = iter(enumerate(points))

        async def work() -> None:
            for number, point in waiting:
                if time.monotonic() >= deadline:
                    return
                self._running.add(point)
                results[number] = await self._run(point, expected)
                self._running.remove(point)

        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                try:
                    async with asyncio.TaskGroup() as tasks:
                        for _ in range(self._settings.jobs):
                            tasks.create_task(work())
                except* StartError as errors:
                    raise errors.exceptions[0] from None
        return [results[number] for number in sorted(results)]

    async def _confirm(self, finding: Finding, expected: Expectation, deadline: float) -> None:
        """Run the first fault of a finding again, if there is time."""
        if not finding.points or time.monotonic() + finding.result.seconds >= deadline:
            return
        again = await self._run(finding.points[0], expected)
        has_problem = any(each.kind == finding.problem.kind for each in again.problems)
        finding.repeated = again.reached and has_problem

    async def _run(
        self, point: FaultPoint | None, expected: Expectation | None, *, revisions: int = 0
    ) -> Result:
        settings = self._settings
        options: dict[str, Any] = {} if expected is None else {"names": expected.names}
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="envtest-chaos-")))
            copy = self._plane.fork()
            copy.skip_revisions(revisions)
            session = Session(
                copy,
                self._operator,
                folder,
                base=self._base,
                ignored=settings.ignored,
                readiness=settings.readiness,
                point=point,
                startup=settings.timing.startup,
                users=self._users,
                **options,
            )
            await stack.enter_async_context(session)
            return await run_scenario(session, self._scenario, settings.timing, point, expected)


def _canonical(steps: Sequence[StepRecord], names: Names) -> list[StepRecord]:
    """Return the steps with canonical names of the objects that were written."""
    found = []
    for step in steps:
        writes = []
        for write in step.writes:
            target = write.target
            key = (target.resource.partition("/")[0], target.namespace, target.name)
            writes.append(
                replace(write, target=replace(target, name=target.name and names.canonical(key)))
            )
        found.append(StepRecord(writes, step.watched))
    return found
