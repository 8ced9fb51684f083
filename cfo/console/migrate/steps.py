"""The steps of a migration, and their results: what ``plan`` prints, ``apply`` executes, and the undo file records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from cfo.runtime import Object


class Action(Enum):
    """The action of one step."""

    UPDATE = "update"
    """Replace an object by :attr:`Step.change` of its current state."""
    DELETE = "delete"
    CREATE = "create"
    RELEASE = "release"
    """Like :attr:`UPDATE`; removes the finalizer, after a check that no ClusterRoleBinding that it guards exists."""
    WAIT_FOR_PODS = "wait"
    """Wait until the object has no pods."""


class Downtime(StrEnum):
    """What a plan means for the pods of an object."""

    NONE = "none"
    RESTART = "restart"
    """All pods are deleted and created again: jobs and their state are lost."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ``object`` is the object as it was observed, which is changed only while it has the same uid.

    ``change`` of :attr:`Action.UPDATE` is a pure function that returns the new state of the object, which must not be
    modified; returning an equal object means that nothing is left to do.
    """

    action: Action
    object: Object
    text: str
    change: Callable[[Object], Object] | None = None


@dataclass(slots=True)
class ObjectPlan:
    """The plan for one object.

    ``has``: what was found. ``steps``: what will happen, in this order; empty if ``blockers`` are the reasons why
    nothing can happen. ``kept``: what is left for another run. ``notes``: what the owner has to know.
    """

    object: Object
    has: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    downtime: Downtime = Downtime.NONE
    blockers: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
