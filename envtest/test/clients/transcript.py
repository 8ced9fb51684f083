"""Transcripts of shell commands with their expected output.

A line ``$ COMMAND`` is a command, the lines up to the next one are its output, a line ``[N]`` after them its exit code
(otherwise 0). Before the first command, lines that start with ``#`` are comments. Runs of spaces are equal. ``...``
matches any text within a line, and as a line of its own any number of lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Step", "matches", "parse"]


@dataclass
class Step:
    """One command, the lines that it must print to standard output and error, and its exit code."""

    command: str
    output: list[str] = field(default_factory=list)
    code: int = 0


def parse(text: str) -> Iterator[Step]:
    """Yield the steps of a transcript; raises ``ValueError`` for output without a command."""
    step = None
    for line in text.splitlines():
        if line.startswith("$ "):
            if step:
                yield step
            step = Step(line.removeprefix("$ "))
        elif step is None:
            if line.strip() and not line.startswith("#"):
                raise ValueError(f"output without a command: {line!r}")
        elif line.strip():
            if code := re.fullmatch(r"\[(\d+)\]", line):
                step.code = int(code[1])
            else:
                step.output.append(line)
    if step:
        yield step


def matches(expected: list[str], actual: list[str]) -> bool:
    """Compare the lines of an output with those of a transcript; empty lines do not count."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?"
        if line == "..."
        else re.escape(_squeeze(line)).replace(r"\.\.\.", "[^\n]*") + "\n"
        for line in expected
    )
    return (
        re.fullmatch(pattern, "".join(f"{_squeeze(line)}\n" for line in actual if line.strip()))
        is not None
    )


def _squeeze(line: str) -> str:
    return re.sub(r"\s+", " ", line).strip()
