"""Fault points: where in an operator's work which fault happens, and the plan of all of them.

Everything here is pure. A point names its place by the request itself (``the second update of this object in step 1``)
and not by a running number, so that it means the same in each run, even if concurrent requests change their order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

__all__ = [
    "KINDS",
    "WRITE_KINDS",
    "FaultPoint",
    "StepRecord",
    "Target",
    "Write",
    "parse_point",
    "plan",
]

WRITE_KINDS: Final[Mapping[str, str]] = {
    "crash": "the operator is killed after the write took effect, before it receives the response",
    "conflict": "another client changes the object, and the write fails with 409 Conflict",
    "throttle": "the write fails with 429 and Retry-After of one second",
    "error": "the write fails with 500 and has no effect",
    "timeout": "the write takes effect, but the response is 504",
    "reset": "the write takes effect, but the connection breaks before the response",
}
"""The faults of one write."""

_STEP_KINDS: Final[Mapping[str, str]] = {
    "stale": "watches of the resource are held back until the operator is quiet",
    "rewind": "the operator is killed and restarts with a cache from before the step",
    "unobserved": "the operator cannot see the state between this step and the next one",
    "expired": "all watches end, and the next ones fail with 410",
    "disconnect": "all watches end",
    "outage": "all watches end, and all requests fail with 503 for one second",
}

KINDS: Final[Mapping[str, str]] = {**WRITE_KINDS, **_STEP_KINDS}
"""All kinds of faults by name, with a sentence for reports."""

_CONFLICTING: Final = frozenset({"update", "patch"})
"""The verbs that fail with 409 Conflict in normal operation; 409 of a create means that the object exists."""


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """What a request writes. ``resource`` is ``widgets.example.com/status``; ``name`` is empty for creates.

    The changing part of a generated name is ``*``.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {'/'.join(filter(None, (self.namespace, self.name)))}".rstrip()


@dataclass(frozen=True, slots=True)
class Write:
    """A write of the reference run; ``succeeded`` is whether it had a code below 300."""

    target: Target
    succeeded: bool = True


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What the operator did in one step of the reference run: its writes in order, and the resources that it watches.

    Step 0 is the start of the operator on the prepared state.
    """

    writes: Sequence[Write] = ()
    watched: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class FaultPoint:
    """One fault in one run.

    ``target`` and ``occurrence`` name the write for a kind of :data:`WRITE_KINDS`; ``resource`` is the plural whose
    watches are held back for ``stale``.
    """

    kind: str
    step: int
    target: Target | None = None
    occurrence: int = 1
    resource: str = ""

    @property
    def id(self) -> str:
        """The name of the point, which :func:`parse_point` reads."""
        if self.target is not None:
            target = self.target
            place = f"{target.namespace}/{target.name}"
            return (
                f"{self.kind}@{self.step}.{self.occurrence}.{target.verb}.{target.resource}:{place}"
            )
        return f"{self.kind}@{self.step}" + (f".{self.resource}" if self.resource else "")

    def describe(self) -> str:
        """Return the fault and its place as text."""
        place = f"step {self.step}"
        if self.target is not None:
            times = f", occurrence {self.occurrence}" if self.occurrence > 1 else ""
            place = f"{self.target} in {place}{times}"
        elif self.resource:
            place = f"{self.resource} in {place}"
        return f"{KINDS[self.kind]}: {place}"


def parse_point(text: str) -> FaultPoint:
    """Return the point of an ``id``. Raises ValueError."""
    kind, _, place = text.partition("@")
    first, _, rest = place.partition(".")
    if kind not in KINDS or not (first.isascii() and first.isdigit()):
        raise ValueError(
            f"fault {text!r}: must be KIND@STEP..., where KIND is one of {', '.join(KINDS)}"
        )
    step = int(first[:6])
    if kind not in WRITE_KINDS:
        if bool(rest) != (kind == "stale"):
            raise ValueError(f"fault {text!r}: only stale names a resource after the step")
        return FaultPoint(kind, step, resource=rest)
    occurrence, _, rest = rest.partition(".")
    verb, _, rest = rest.partition(".")
    resource, _, key = rest.partition(":")
    namespace, _, name = key.partition("/")
    if not (occurrence.isascii() and occurrence.isdigit() and verb and resource):
        raise ValueError(
            f"fault {text!r}: must be {kind}@STEP.OCCURRENCE.VERB.RESOURCE:NAMESPACE/NAME"
        )
    return FaultPoint(kind, step, Target(verb, resource, namespace, name), int(occurrence[:6]))


@dataclass(slots=True)
class _Plan:
    """The points of each kind, in the order of the steps."""

    points: dict[str, list[FaultPoint]] = field(default_factory=dict)

    def add(self, point: FaultPoint) -> None:
        self.points.setdefault(point.kind, []).append(point)


def plan(
    steps: Sequence[StepRecord], kinds: Iterable[str] = KINDS, *, seed: int = 0
) -> list[FaultPoint]:
    """Return the fault points of a reference run, in the order in which to try them.

    The kinds alternate, so that the first points are a sample of all. A ``seed`` other than 0 shuffles the points of
    each kind.
    """
    wanted = set(kinds)
    found = _Plan()
    for number, step in enumerate(steps):
        _plan_writes(found, number, step, wanted)
        if number > 0:
            _plan_step(found, number, step, wanted, is_last=number == len(steps) - 1)
    if seed:
        for points in found.points.values():
            random.Random(seed).shuffle(points)  # noqa: S311 - an order that can be repeated
    ordered = (found.points.get(kind, []) for kind in KINDS)
    return [point for group in zip_longest(*ordered) for point in group if point is not None]


def _plan_writes(found: _Plan, number: int, step: StepRecord, wanted: Collection[str]) -> None:
    counts: Counter[Target] = Counter()
    for write in step.writes:
        counts[write.target] += 1
        if not write.succeeded:
            continue
        for kind in WRITE_KINDS:
            if kind in wanted and (kind != "conflict" or write.target.verb in _CONFLICTING):
                found.add(FaultPoint(kind, number, write.target, counts[write.target]))


def _plan_step(
    found: _Plan, number: int, step: StepRecord, wanted: Collection[str], *, is_last: bool
) -> None:
    for resource in sorted(step.watched):
        if "stale" in wanted:
            found.add(FaultPoint("stale", number, resource=resource))
    for kind in _STEP_KINDS:
        if kind in wanted and kind != "stale" and not (kind == "unobserved" and is_last):
            found.add(FaultPoint(kind, number))
