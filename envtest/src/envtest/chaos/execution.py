"""The steps of one run, the fault at its point, and the result."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from envtest.chaos.activity import hot_loops, writes_at_rest
from envtest.chaos.comparison import compare
from envtest.chaos.names import Key, Names
from envtest.chaos.normal_form import Path, Snapshot, State, mask, normalize
from envtest.chaos.operators import StartError
from envtest.chaos.points import FaultPoint, StepRecord, Write
from envtest.chaos.session import OperatorExited, Session
from envtest.chaos.steps import Scenario, ScenarioError, Step
from envtest.planes.trace import TracedRequest

__all__ = ["Expectation", "Problem", "Result", "Timing", "run_scenario"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a RunClock: ``quiet`` without writes ends a step; after ``timeout`` a step has failed.

    ``rest`` is how long the run without faults is observed after its last step. The operator must be ready ``startup``
    seconds after it was started.
    """

    quiet: float = 1.0
    timeout: float = 30.0
    rest: float = 3.0
    startup: float = 60.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: its ``kind``, the ``subject`` (an object or a request), the step, and details."""

    kind: str
    step: int
    subject: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expectation:
    """The states after each step of the run without faults, without the ``unstable`` fields."""

    states: Sequence[State]
    names: Names
    unstable: Collection[Path] = frozenset()

    def earlier(self, step: int) -> set[Key]:
        """Return the keys of the objects that existed before ``step``."""
        return {
            key
            for state in self.states[:step]
            for key, items in state.objects.items()
            if any(item.content is not None for item in items)
        }


@dataclass(slots=True)
class Result:
    """What came of a run. ``steps`` and ``snapshots`` have one item for each completed step, with step 0.

    ``reached`` is whether the fault happened. ``writes`` are the writes of the last step, or since the step of the
    fault, as text; ``unchanged`` is the number of all successful writes that changed nothing. ``output`` is the end of
    what the operator printed, if there are problems.
    """

    point: FaultPoint | None
    problems: list[Problem] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    reached: bool = False
    writes: list[str] = field(default_factory=list)
    output: str = ""
    exits: list[str] = field(default_factory=list)
    crashes: int = 0
    requests: int = 0
    unchanged: int = 0
    seconds: float = 0.0


async def run_scenario(
    session: Session,
    scenario: Scenario,
    timing: Timing,
    point: FaultPoint | None,
    expected: Expectation | None,
) -> Result:
    """Run the steps in a started session; stop after the first step that has problems.

    Without ``expected`` this is a run without faults, which records the states. Raises StartError, ScenarioError, and
    OperatorExited if a run without faults cannot be completed.
    """
    return await _Run(session, scenario, timing, point, expected).run()


class _Run:
    def __init__(
        self,
        session: Session,
        scenario: Scenario,
        timing: Timing,
        point: FaultPoint | None,
        expected: Expectation | None,
    ) -> None:
        self._session = session
        self._injector = session.injector
        self._clock = session.clock
        self._scenario = scenario
        self._timing = timing
        self._point = point
        self._expected = expected
        self._result = Result(point)
        self._step = 0
        self._seen = 0
        self._writes: list[TracedRequest] = []
        self._skipped = False

    async def run(self) -> Result:
        started = time.monotonic()
        result = self._result
        session = self._session
        try:
            await self._steps()
        except (OperatorExited, StartError) as error:
            if self._expected is None:
                raise
            lines = tuple(str(error).splitlines()[:1])
            result.problems.append(Problem("exits", self._step, "operator", lines))
        except ScenarioError as error:
            if self._expected is None:
                raise
            self._skipped = point_hides_step(self._point, self._step)
            if not self._skipped:
                result.problems.append(
                    Problem("step failed", self._step, "scenario", (str(error),))
                )
        sent = session.sent()
        result.problems += [
            Problem("hot loop", self._step, str(loop.target), (str(loop),))
            for loop in hot_loops(sent)
        ]
        result.exits = session.exits
        result.crashes = session.crashes
        result.requests = len(sent)
        result.unchanged = sum(
            1 for each in sent if each.is_write and each.code < 300 and not each.changed
        )
        result.reached = (result.reached or self._injector.reached) and not self._skipped
        if result.problems:
            result.output = session.output()
        result.seconds = time.monotonic() - started
        return result

    async def _steps(self) -> None:
        session = self._session
        result = self._result
        if not await session.wait_ready():
            raise session.not_ready()
        last = len(self._scenario.steps)
        while self._step <= last and not result.problems:
            self._injector.step = self._step
            self._seen = len(session.requests()) if self._step else 0
            if await self._act():
                await self._settle()
            self._record()
            self._step += 1
        self._step = min(self._step, last)
        if self._expected is None and not result.problems:
            await self._observe_rest()

    async def _act(self) -> bool:
        """Execute the action of the step with the fault of the point; return whether to wait until it has settled."""
        point = self._point
        injector = self._injector
        faults = self._session.plane.faults
        kind = (
            point.kind
            if point is not None and point.step == self._step and point.target is None
            else ""
        )
        self._result.reached = self._result.reached or bool(kind)
        if kind == "unobserved":
            faults.pause()
            injector.close_watches()
            await self._apply()
            return False
        if (
            self._point is not None
            and self._point.kind == "unobserved"
            and self._point.step + 1 == self._step
        ):
            await self._apply()
            injector.expire_watches()
            faults.resume()
            return True
        revision = self._session.plane.store.revision
        if kind == "stale":
            assert point is not None
            faults.hold_watches(point.resource)
        elif kind == "expired":
            injector.expire_watches()
        elif kind == "disconnect":
            injector.close_watches()
        elif kind == "outage":
            injector.begin_outage()
        await self._apply()
        if kind in ("stale", "rewind"):
            deadline = self._clock.now() + self._timing.timeout
            await injector.wait_quiet(self._timing.quiet, deadline)
            if kind == "rewind":
                faults.hold_watches()
                self._session.crash(rewind_to=revision)
                await self._session.wait_ready()
                await injector.wait_quiet(self._timing.quiet, deadline)
            self._session.catch_up()
        return True

    async def _apply(self) -> None:
        if self._step > 0:
            await self._run_step(self._scenario.steps[self._step - 1])
        self._injector.touch()

    async def _run_step(self, step: Step) -> None:
        """Execute a step; repeat it after a fault, as users do if a webhook of the operator does not respond."""
        deadline = self._clock.now() + self._timing.timeout
        while True:
            try:
                return await step.run(self._session.plane)
            except ScenarioError:
                hidden = self._expected is None or point_hides_step(self._point, self._step)
                if hidden or self._clock.now() >= deadline:
                    raise
            await self._clock.sleep(_RETRY)

    async def _settle(self) -> None:
        """Wait until the operator is quiet, and the state is the expected one."""
        started = time.monotonic()
        deadline = self._clock.now() + self._timing.timeout
        while True:
            quiet = await self._injector.wait_quiet(self._timing.quiet, deadline)
            self._session.check()
            if not self._session.is_ready:
                if not await self._session.wait_ready():
                    raise self._session.not_ready()
                # each instance gets the whole time
                started = time.monotonic()
                deadline = self._clock.now() + self._timing.timeout
                continue
            problems = self._differences()
            if quiet and not problems:
                return
            if self._clock.now() >= deadline:
                second_half = (started + time.monotonic()) / 2
                self._result.problems += problems or [self._at_rest(second_half)]
                return
            await self._injector.wait_activity(deadline)

    def _differences(self) -> list[Problem]:
        expected = self._expected
        if expected is None:
            return []
        found = mask(normalize(self._session.snapshot(), expected.names), expected.unstable)
        differences = compare(
            expected.states[self._step], found, earlier=expected.earlier(self._step)
        )
        return [Problem(each.kind, self._step, each.object, each.lines) for each in differences]

    def _at_rest(self, since: float) -> Problem:
        lines = tuple(writes_at_rest(self._session.sent(self._seen), since))
        return Problem("writes at rest", self._step, "operator", lines)

    async def _observe_rest(self) -> None:
        """Report writes after the last step of a run without faults, when there is nothing left to do."""
        since = time.monotonic()
        end = self._clock.now() + self._timing.rest
        await self._injector.wait_quiet(self._timing.rest, end)
        problem = self._at_rest(since)
        if problem.lines:
            self._result.problems.append(problem)

    def _record(self) -> None:
        requests = self._session.requests(self._seen)
        writes = [request for request in requests if request.is_write]
        self._result.steps.append(
            StepRecord(
                [Write(self._session.target(each), succeeded=each.code < 300) for each in writes],
                tuple(self._injector.watched),
            )
        )
        self._result.snapshots.append(self._session.snapshot())
        if self._point is None or self._step >= self._point.step:
            self._writes = writes if self._point is None else [*self._writes, *writes]
        self._result.writes = _lines(self._writes)


def point_hides_step(point: FaultPoint | None, step: int) -> bool:
    """Return whether a step cannot be executed because the operator could not react to the step before it."""
    return point is not None and point.kind == "unobserved" and step == point.step + 1


_MAX_LINES = 40
_RETRY = 0.2
"""Seconds between attempts to execute a step."""


def _lines(writes: Sequence[TracedRequest]) -> list[str]:
    lines = [line for request in writes for line in request.lines()]
    more = len(lines) - _MAX_LINES
    return lines[:_MAX_LINES] + ([f"... {more} more lines"] if more > 0 else [])
