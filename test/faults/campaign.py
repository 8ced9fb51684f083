"""Runs a fault on an installation, and compares what was seen with what is promised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from envtest import ControlPlane
from test.faults.trial import CONTROLLERS, CRDS, Trial, start_trial
from test.faults.writes import CREATED, created_twice, expected_writes, repeated

__all__ = ["Fault", "Outcome", "Scale", "embedded_plane", "real_plane", "run_faults"]


_SHOWN: Final = 3
"""How many repeated writes are shown."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work there is: ``tenants`` before and during a fault, and how long faults and silence last, in seconds.

    ``election`` replaces durations of the leader election.
    """

    tenants: int
    storm_seconds: float
    down_seconds: float
    quiet_seconds: float
    election: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Seen:
    """What a fault showed: ``facts`` for the table, ``problems`` that break the promise.

    ``repeats`` are how many writes may be repeated, because their response was lost.
    """

    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    repeats: int = 0

    def expect(self, holds: bool, problem: str) -> None:
        """Record ``problem`` unless ``holds``."""
        if not holds:
            self.problems.append(problem)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: how it is caused, what is promised, and after how many seconds all work must be complete.

    ``inject`` adds tenants, causes the fault, and returns when it is over; ``prepare`` changes the replicas before they
    start, and ``election`` durations of the leader election. With ``needs_programs`` it runs on the real control plane
    only.
    """

    name: str
    promise: str
    bound: float
    inject: Callable[[Trial, Scale, Seen], Awaitable[None]]
    prepare: Callable[[Trial], None] | None = None
    needs_programs: bool = False
    election: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a fault. ``seconds``: from its end until all work was complete."""

    fault: Fault
    seconds: float
    facts: list[str]
    problems: list[str]

    @property
    def passed(self) -> bool:
        """Whether the promise was kept."""
        return not self.problems


def real_plane(audit: Path) -> ControlPlane:
    """Return the control plane of ``$KUBEBUILDER_ASSETS``, with an audit log."""
    return ControlPlane.real(crds=CRDS, controllers=CONTROLLERS, audit_log=audit)


def embedded_plane(audit: Path) -> ControlPlane:
    """Return the embedded control plane, with an audit log."""
    return ControlPlane.embedded(crds=CRDS, controllers=CONTROLLERS, audit_log=audit)


async def run_faults(
    faults: Sequence[Fault],
    new_plane: Callable[[Path], ControlPlane],
    folder: Path,
    scale: Scale,
) -> list[Outcome]:
    """Install the operator, let it do the work of one tenant undisturbed, then cause each fault in turn.

    All failures are problems of the outcome of the fault that they end.
    """
    outcomes: list[Outcome] = []
    election: dict[str, Any] = {}
    for fault in faults:
        election |= fault.election
    election |= scale.election
    try:
        async with start_trial(new_plane, folder, election) as trial:
            for fault in faults:
                if fault.prepare is not None:
                    fault.prepare(trial)
            trial.start(trial.one)
            await trial.one.ready()
            # An AppWrapper that was created in the second in which its webhook was registered counts as not validated,
            # because creation times have no fractions.
            await anyio.sleep(1.0)
            undisturbed = await trial.add_tenant()
            await trial.complete(60.0)
            await trial.quiet(scale.quiet_seconds, 60.0)
            trial.expected = expected_writes(trial.writes(), undisturbed)
            for fault in faults:
                outcomes.append(await _run(fault, trial, scale))
    except* (AssertionError, TimeoutError) as failed:
        problems = [str(error) for error in _leaves(failed)]
        outcomes.append(Outcome(faults[len(outcomes)], 0.0, [], problems))
    return outcomes


async def _run(fault: Fault, trial: Trial, scale: Scale) -> Outcome:
    """Cause one fault, wait until all work is complete, and compare what was seen with the promise."""
    seen = Seen()
    await fault.inject(trial, scale, seen)
    seconds = await trial.complete(fault.bound)
    await trial.quiet(scale.quiet_seconds, 60.0)
    trial.allowed_repeats += seen.repeats
    writes = trial.tenant_writes()
    created = sum(write.code == CREATED for write in writes)
    twice = created_twice(writes, trial.deleted)
    seen.facts.append(f"{created} objects created, {len(twice)} of them twice")
    seen.expect(not twice, f"created twice: {', '.join(twice)}")
    repeats = repeated(writes, trial.expected, trial.deleted)
    count = sum(repeats.values())
    seen.facts.append(f"{count} repeated writes")
    if repeats:
        seen.facts.append(", ".join(list(repeats)[:_SHOWN]))
    allowed = trial.allowed_repeats
    seen.expect(count <= allowed, f"at most {allowed} repeated writes are allowed")
    return Outcome(fault, seconds, seen.facts, seen.problems)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += _leaves(error)
        else:
            found.append(error)
    return found
