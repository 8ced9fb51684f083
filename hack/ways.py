"""The ways through cfo that real runs of the operator have traced, in ``hack/generate/ways.json``.

A way is a list of the modules of ``cfo`` in the order in which the run first enters them. Tests compare their runs with
the file; ``docs/images/ways.svg`` is drawn from it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from hack import ROOT

FILE: Final = "hack/generate/ways.json"

EVENT_WAY: Final = "a watch line of a RayCluster to the request that creates its NetworkPolicy"
REVIEW_WAY: Final = "a review of a new RayCluster to its response"

WRITE_OPTION: Final = "--write-ways"
"""The option of pytest with which the tests write the file instead of comparing with it."""


def read() -> dict[str, list[str]]:
    """Return the modules of each way."""
    path = ROOT / FILE
    if not path.exists():
        return {}
    ways: dict[str, list[str]] = json.loads(path.read_text())
    return ways


def difference(way: str, entered: Sequence[str], ways: Mapping[str, Sequence[str]]) -> str:
    """Return how the modules that a run has ``entered`` differ from ``ways``, and what to do; empty if they do not."""
    recorded = ways.get(way, ())
    if list(entered) == list(recorded):
        return ""
    lines = difflib.unified_diff(recorded, entered, FILE, "this run", n=2, lineterm="")
    report = "\n".join(lines)
    return f"The way from {way} has changed; to record it, run `python -m hack.trace`.\n{report}"


def write(way: str, entered: Sequence[str]) -> None:
    """Write the modules of one way to the file."""
    ways = {**read(), way: list(entered)}
    (ROOT / FILE).write_text(json.dumps(ways, indent=2, sort_keys=True) + "\n")
