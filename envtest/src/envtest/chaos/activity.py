"""Detects clients that do not come to rest: the same request again and again, and writes without a reason."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from envtest.chaos.points import Target

__all__ = ["HotLoop", "Sent", "hot_loops", "writes_at_rest"]

LIMIT: Final = 20
"""The number of equal requests within :data:`WINDOW` that make a hot loop."""
WINDOW: Final = 2.0
"""Seconds."""
_START: Final = re.compile(r"(?:resourceVersion|timeoutSeconds)=\d*&?")


@dataclass(frozen=True, slots=True)
class Sent:
    """A finished request: ``at`` in seconds of real time, ``changed`` is whether it changed an object."""

    at: float
    target: Target
    code: int
    changed: bool = False
    is_write: bool = True
    uri: str = ""


@dataclass(frozen=True, slots=True)
class HotLoop:
    """A request that was repeated ``count`` times in one window; ``unchanged`` of them were writes without effect.

    ``at`` is when the window began.
    """

    target: Target
    count: int
    unchanged: int
    at: float = 0.0

    def __str__(self) -> str:
        text = f"{self.count} times in {WINDOW:g} s"
        return text + (f", {self.unchanged} of them without a change" if self.unchanged else "")


def hot_loops(requests: Iterable[Sent]) -> list[HotLoop]:
    """Return the requests that were repeated at least :data:`LIMIT` times within :data:`WINDOW`; creates are distinct.

    Of each request the busiest window is returned. Requests are the same if they have the same URI; the revision at
    which a watch starts does not count.
    """
    windows: dict[tuple[Target, str], deque[Sent]] = {}
    worst: dict[Target, HotLoop] = {}
    for request in sorted(requests, key=lambda each: each.at):
        window = windows.setdefault((request.target, _START.sub("", request.uri)), deque())
        window.append(request)
        while window[0].at < request.at - WINDOW:
            window.popleft()
        if request.target.verb == "create" and request.changed:
            window.pop()
        found = worst.get(request.target)
        if len(window) >= LIMIT and (found is None or found.count < len(window)):
            unchanged = sum(
                1 for each in window if each.is_write and not each.changed and each.code < 300
            )
            worst[request.target] = HotLoop(request.target, len(window), unchanged, window[0].at)
    return sorted(worst.values(), key=lambda loop: -loop.count)


def writes_at_rest(requests: Sequence[Sent], since: float) -> list[str]:
    """Return the writes after ``since`` as text, with how many of them changed nothing."""
    counts: Counter[Target] = Counter()
    unchanged: Counter[Target] = Counter()
    for request in requests:
        if request.is_write and request.at >= since:
            counts[request.target] += 1
            unchanged[request.target] += not request.changed
    return [
        f"{target}: {count} writes"
        + (f", {unchanged[target]} without a change" if unchanged[target] else "")
        for target, count in counts.most_common(20)
    ]
