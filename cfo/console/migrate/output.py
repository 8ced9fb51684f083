"""The table and the JSON document that ``cfo migrate`` prints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Final

from cfo.console.migrate.steps import Action, ObjectPlan
from cfo.runtime import key_of, name_of, namespace_of

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
    return wrap(_printable(text), width, subsequent_indent=" ", break_on_hyphens=False)


def _printable(text: str) -> str:
    """Replace control characters: users choose the names of containers."""
    return "".join(character if character.isprintable() else "?" for character in text)


def document(plans: Iterable[ObjectPlan], target: str, obstacles: Sequence[str]) -> str:
    """Return the plans as a JSON document.

    ``obstacles`` are the operators and webhooks that have to be stopped or removed before the migration.
    """
    objects = [
        {
            "kind": plan.object["kind"],
            "namespace": namespace_of(plan.object),
            "name": name_of(plan.object),
            "has": plan.has,
            "steps": [step.text for step in plan.steps],
            "downtime": str(plan.downtime),
            "blockers": plan.blockers,
            "kept": plan.kept,
            "notes": plan.notes,
        }
        for plan in plans
    ]
    return json.dumps({"target": target, "obstacles": list(obstacles), "objects": objects}, indent=2)
