"""The steps of a migration: what ``cfo migrate`` prints, and executes with ``--apply``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from cfo.runtime import Object, key_of


class Action(Enum):
    """The action of one step."""

    UPDATE = "update"
    """Replace an object by :attr:`Step.change` of its current state."""
    UPDATE_STATUS = "update status"
    """Like :attr:`UPDATE`, of the object's status."""
    DELETE = "delete"
    RELEASE = "release"
    """Like :attr:`UPDATE`; removes the finalizer, after a check that no ClusterRoleBinding that it guards exists."""
    WAIT_FOR_PODS = "wait"
    """Wait until the object has no pods."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ``object`` is the object as it was observed, which is changed only while it has the same uid.

    ``change`` of the actions that update is a pure function that returns the new state of the object, which must not be
    modified; returning an equal object means that nothing is left to do.
    """

    action: Action
    object: Object
    text: str
    change: Callable[[Object], Object] | None = None


@dataclass(slots=True)
class ObjectPlan:
    """The plan for one RayCluster.

    ``has``: what was found. ``steps``: what will happen, in this order; empty if ``blockers`` are the reasons why
    nothing can happen. ``prevented``: the texts of the steps that would follow if options accepted all blockers.
    ``restarts``: whether all its pods are deleted and created again, which loses its jobs and their state. ``kept``:
    what is left for another run. ``notes``: what the owner has to know.
    """

    object: Object
    has: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    restarts: bool = False
    blockers: list[str] = field(default_factory=list)
    prevented: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_incomplete(self) -> bool:
        """Whether something is left to do, for this command or for the administrator."""
        return bool(self.steps or self.blockers or self.kept)

    @property
    def waits(self) -> bool:
        """Whether a step waits for the deletion of pods."""
        return any(step.action == Action.WAIT_FOR_PODS for step in self.steps)

    def block(self, reason: str) -> None:
        """Let none of the steps happen."""
        self.blockers.append(reason)
        self.prevented = [step.text for step in self.steps]
        self.steps = []
        self.kept = []


@dataclass(slots=True)
class Totals:
    """How many RayClusters there are, and in which state; their plans are not kept, because they contain objects."""

    clusters: int = 0
    changes: int = 0
    blocked: int = 0
    restarts: int = 0
    kept: int = 0

    @property
    def is_incomplete(self) -> bool:
        """Whether something is left to do for at least one RayCluster."""
        return bool(self.changes or self.blocked or self.kept)

    def add(self, plan: ObjectPlan) -> None:
        """Count the plan for one RayCluster."""
        self.clusters += 1
        self.changes += bool(plan.steps)
        self.blocked += bool(plan.blockers)
        self.restarts += plan.restarts
        self.kept += bool(plan.kept)


def plan_lines(plan: ObjectPlan) -> Iterator[str]:
    """Yield the lines that describe ``plan``; they can contain text of users, which has to be escaped."""
    title = f"RayCluster {key_of(plan.object)}"
    if plan.has:
        title += f" ({', '.join(plan.has)})"
    if plan.restarts:
        title += ": restarts all pods"
    yield title
    for blocker in plan.blockers:
        yield f"  BLOCKED: {blocker}"
    for text in plan.prevented:
        yield f"  then: {text}"
    for step in plan.steps:
        yield f"  {step.text}"
    for text in plan.kept:
        yield f"  keep {text}"
    for note in plan.notes:
        yield f"  note: {note}"
    if not (plan.is_incomplete or plan.notes):
        yield "  nothing to do"
