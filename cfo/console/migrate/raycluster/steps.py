"""The steps of a migration: what ``plan`` prints, ``apply`` executes, and the undo file records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from itertools import groupby
from textwrap import wrap
from typing import Final

from cfo.runtime import Object, key_of, name_of, namespace_of
from cfo.runtime.process import printable


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


_HEADER: Final = ("OBJECT", "HAS", "PLAN", "DOWNTIME")
_WIDTHS: Final = (32, 26, 62, 8)


def table(plans: Iterable[ObjectPlan]) -> Iterator[str]:
    """Yield the lines of a table with one row of several lines for each plan."""
    yield _line(_HEADER)
    for plan in plans:
        obj = plan.object
        cells = (
            [f"{obj['kind']} {key_of(obj)}"],
            [", ".join(plan.has) or "-"],
            list(_planned(plan)) or ["nothing to do"],
            [str(plan.downtime)],
        )
        columns = [
            [line for text in texts for line in _wrapped(text, width)]
            for texts, width in zip(cells, _WIDTHS, strict=True)
        ]
        for at in range(max(map(len, columns))):
            yield _line([column[at] if at < len(column) else "" for column in columns])


def _planned(plan: ObjectPlan) -> Iterator[str]:
    yield from (f"BLOCKED: {text}" for text in plan.blockers)
    for deletes, steps in groupby(plan.steps, lambda step: step.action is Action.DELETE):
        if deletes:
            kinds = Counter(step.object["kind"] for step in steps)
            yield f"delete {', '.join(f'{count} {kind}' for kind, count in kinds.items())}"
        else:
            yield from (step.text for step in steps)
    yield from (f"keep {text}" for text in plan.kept)
    yield from (f"({text})" for text in plan.notes)


def _line(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a cell; options and names are not broken at hyphens, so that they can be copied."""
    return wrap(printable(text, 10_000), width, subsequent_indent=" ", break_on_hyphens=False)


def document(plans: Iterable[ObjectPlan], target: str, obstacles: Sequence[str]) -> str:
    """Return the plans as a JSON document.

    ``obstacles`` are the operators and webhooks that have to be stopped or removed before the migration.
    """
    objects = [
        {
            "kind": plan.object["kind"],
            "namespace": namespace_of(plan.object),
            "name": name_of(plan.object),
            **{
                name: getattr(plan, name)
                for name in ("has", "downtime", "blockers", "kept", "notes")
            },
            "steps": [step.text for step in plan.steps],
        }
        for plan in plans
    ]
    return json.dumps(
        {"target": target, "obstacles": list(obstacles), "objects": objects}, indent=2
    )
