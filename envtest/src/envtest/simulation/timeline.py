"""When a container runs, ends, waits and restarts: a pure function of its runs and of the time.

A container that ended restarts at once, then after 10, 20, 40 ... 300 seconds, as the kubelet does; a run of ten
minutes makes it start from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from envtest.simulation.model import Run

__all__ = ["FIRST_BACKOFF", "MAX_BACKOFF", "Progress", "progress"]

FIRST_BACKOFF: Final = 10.0
MAX_BACKOFF: Final = 300.0
_RESET_SECONDS: Final = 600.0


class Progress(NamedTuple):
    """The state of a container at one time; times are in seconds since its first start.

    ``backoff`` is the delay before the next start, if it waits for that. ``ended`` are begin, end and data of the last
    run that ended. ``is_final``: it does not start again. ``next_change`` is ``None`` if it stays like this.
    """

    started: float
    is_running: bool
    restarts: int
    backoff: float
    ended: tuple[float, float, Run] | None
    is_final: bool
    next_change: float | None


def progress(
    runs: Sequence[Run], restarts_after: Callable[[int], bool], elapsed: float
) -> Progress:
    """Return the state after ``elapsed`` seconds; ``restarts_after`` says whether an exit code causes a restart."""
    start = 0.0
    backoff = 0.0
    number = 0
    ended: tuple[float, float, Run] | None = None
    while True:
        run = runs[min(number, len(runs) - 1)]
        if run.after is None or elapsed < start + run.after:
            end = None if run.after is None else start + run.after
            return Progress(start, True, number, 0.0, ended, False, end)
        end = start + run.after
        ended = (start, end, run)
        if not restarts_after(run.exit_code):
            return Progress(start, False, number, 0.0, ended, True, None)
        if run.after >= _RESET_SECONDS:
            backoff = 0.0
        if elapsed < end + backoff:
            return Progress(start, False, number, backoff, ended, False, end + backoff)
        cycle = run.after + backoff
        is_steady = number >= len(runs) - 1 and (
            backoff == MAX_BACKOFF or run.after >= _RESET_SECONDS
        )
        skipped = max(0, int((elapsed - start) // cycle) - 1) if is_steady else 0
        if skipped:
            start += skipped * cycle
            number += skipped
            end = start + run.after
            ended = (start, end, run)
        start = end + backoff
        number += 1
        backoff = min(backoff * 2, MAX_BACKOFF) if backoff else FIRST_BACKOFF
