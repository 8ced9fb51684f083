"""Plays sequences on two servers, finds the first difference of each, and the fewest steps that show it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from test.differential.exchanges import Answer, Server
from test.differential.sequences import Sequence
from test.differential.steps import Step

__all__ = ["Difference", "Result", "compare", "differences"]

MAX_TEXT = 400
"""How many characters of a value a report shows."""


class Difference(msgspec.Struct, frozen=True):
    """A step that two servers answer differently, after the steps before it, with the lines that differ."""

    label: str
    index: int
    step: Step
    lines: list[str]

    @property
    def kind(self) -> str:
        """A key by which reports group differences: the kind and the first line that differs, without numbers."""
        first = self.lines[0].partition(": ")
        return f"{self.label} {first[0]}"


class Result(msgspec.Struct):
    """How many exchanges were compared, and which differ."""

    exchanges: int = 0
    found: list[Difference] = []

    @property
    def share(self) -> float:
        """The share of equal exchanges, as a percentage."""
        return 100.0 * (1 - len(self.found) / max(1, self.exchanges))

    def kinds(self) -> list[tuple[str, int]]:
        """Return the kinds of differences with their number, the most frequent first."""
        return Counter(each.kind for each in self.found).most_common()


async def compare(ours: Server, real: Server, sequence: Sequence) -> list[Difference]:
    """Play a sequence on both servers, and return the steps that they answer differently."""
    actual, expected = await asyncio.gather(ours.play(sequence), real.play(sequence))
    found = []
    for index, step in enumerate(sequence.steps):
        lines = list(_lines(expected[index], actual[index]))
        if lines:
            found.append(Difference(sequence.label, index, step, lines))
    return found


async def minimized(
    ours: Server, real: Server, sequence: Sequence, difference: Difference
) -> list[Step]:
    """Return the fewest steps, in order, whose last one is still answered differently.

    Each attempt leaves out one step and plays the rest in a namespace of its own.
    """
    steps = list(sequence.steps[: difference.index + 1])
    for position in range(len(steps) - 2, -1, -1):
        shorter = [*steps[:position], *steps[position + 1 :]]
        found = await compare(ours, real, _renamed(sequence, shorter, position))
        if any(each.index == len(shorter) - 1 for each in found):
            steps = shorter
    return steps


def _renamed(sequence: Sequence, steps: list[Step], number: int) -> Sequence:
    """Return a sequence with other steps, whose namespace and object names are new."""
    changed = msgspec.structs.replace(sequence, steps=steps)
    text = msgspec.json.encode(changed).decode()
    name = sequence.namespace
    return msgspec.json.decode(text.replace(name, f"{name}-{number}"), type=Sequence)


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each value that two JSON documents do not share."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in expected | actual:
            place = f"{path}.{key}"
            if key not in actual:
                yield f"{place}: missing, expected {_shown(expected[key])}"
            elif key not in expected:
                yield f"{place}: unexpected {_shown(actual[key])}"
            else:
                yield from differences(expected[key], actual[key], place)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, value in enumerate(expected):
            yield from differences(value, actual[index], f"{path}[{index}]")
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{path}: expected {_shown(expected)}, got {_shown(actual)}"


def _lines(expected: Answer, actual: Answer) -> Iterator[str]:
    yield from differences(expected.code, actual.code, "code")
    yield from differences(expected.warnings, actual.warnings, "warnings")
    yield from differences(expected.body, actual.body, "body")


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
