"""Results of specs on both control planes: a file with a line for each, which a later run continues."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from test.conformance.report import Outcome
from test.conformance.specs import EMBEDDED, PASSED, REAL, Spec

__all__ = ["CUT", "EMBEDDED", "REAL", "Result", "Results", "compare", "load", "updated"]

CUT = ("interrupted", "timedout", "wrote no report")
"""How the reason of a spec begins that did not end in its time."""

_NO_NODES = ("no ready, schedulable nodes", "invalid argument to Intn")
"""What specs report that list the nodes, or choose one of none."""


class Result(NamedTuple):
    """What happened to a spec on a control plane.

    ``word`` is ``passed``, ``failed``, ``timeout``, ``needs nodes`` (a pod waited for one, or the spec found none) or
    ``absent`` (the program does not contain it, or the spec skips itself).
    """

    plane: str
    name: str
    word: str
    reason: str
    seconds: int

    @classmethod
    def of(
        cls, plane: str, spec: Spec, outcome: Outcome | None, seconds: float, pod: str = ""
    ) -> Self:
        """Return the result with an outcome; ``pod`` is the name of a pod that waited for a node."""
        if outcome is None:
            return cls(plane, spec.name, "absent", "", round(seconds))
        if outcome.passed:
            return cls(plane, spec.name, PASSED, "", round(seconds))
        if pod or any(text in outcome.reason for text in _NO_NODES):
            reason = f"pod {pod}" if pod else outcome.reason
            return cls(plane, spec.name, "needs nodes", reason, round(seconds))
        word = "timeout" if outcome.reason.startswith(CUT) else "failed"
        return cls(plane, spec.name, word, outcome.reason, round(seconds))

    def outcome(self) -> Outcome:
        """Return what the spec reported."""
        return Outcome(self.name, self.word == PASSED, self.reason)

    def line(self) -> str:
        """Return the line of a file of results."""
        return json.dumps(self._asdict())


Results = Mapping[tuple[str, str], Result]
"""The last result of each control plane and spec."""


def load(path: Path) -> dict[tuple[str, str], Result]:
    """Return the results in a file; later lines replace earlier ones. A missing file has none."""
    if not path.exists():
        return {}
    results = [Result(**json.loads(line)) for line in path.read_text().splitlines()]
    return {(result.plane, result.name): result for result in results}


def updated(specs: Iterable[Spec], results: Results) -> list[Spec]:
    """Return the specs with their new results; a spec without one keeps what the list has."""
    found: list[Spec] = []
    for spec in specs:
        here = results.get((EMBEDDED, spec.name))
        there = results.get((REAL, spec.name))
        if here is not None:
            spec = spec._replace(envtest=here.word)
        if there is not None:
            spec = spec._replace(real=there.word)
        found.append(spec)
    return found


def compare(results: Iterable[Result]) -> list[str]:
    """Return the lines of a table with the results on both control planes."""
    words: dict[str, dict[str, str]] = {}
    for result in results:
        words.setdefault(result.name, {})[result.plane] = result.word
    lines = [f"{REAL:14}  {EMBEDDED:11}  spec"]
    for name, on in sorted(words.items()):
        lines.append(f"{on.get(REAL, '-'):14}  {on.get(EMBEDDED, '-'):11}  {name}")
    for plane in (REAL, EMBEDDED):
        passed = sum(on.get(plane) == PASSED for on in words.values())
        lines.append(f"{plane}: {passed} of {len(words)} passed")
    return lines
