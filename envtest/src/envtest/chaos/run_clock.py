"""The clock of one run: it stands still while the run and its operator get no CPU.

A machine that is ten times as busy does the same work in ten times the time. The kernel counts for each thread how long
it could have run but had to wait for a CPU; this time says nothing about the operator.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

__all__ = ["LoopUsers", "RunClock", "process_group"]

_SLOWEST: Final = 0.05
"""The clock advances by at least this share of the real time, so that each wait ends."""
_SLICE: Final = 0.2
"""Real seconds after which a wait measures again."""
_SHORTEST: Final = 0.001
_MAX_THREADS: Final = 1000
"""How many threads of an operator are measured."""
_PROC: Final = Path("/proc")
_NANOSECOND: Final = 1e-9


@dataclass(slots=True)
class LoopUsers:
    """How many runs share the event loop."""

    count: int = 0


class RunClock:
    """Seconds in which the run could make progress.

    Not counted is the time for which the event loop's thread, or the operator's ``processes``, waited for a CPU, and
    the CPU time that the loop spent on other runs. On an idle machine, and on systems that do not count the waiting
    (other than Linux), this is real time.

    Use it only in the thread of the event loop, and close it at the end.
    """

    def __init__(
        self,
        users: LoopUsers | None = None,
        processes: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self._users = users or LoopUsers()
        self._users.count += 1
        self._processes = processes
        self._time = 0.0
        self._debt = 0.0
        """The seconds that are not to be counted, but are longer than the time since the last call."""
        self._threads: dict[Path, float] = {}
        self._own = _OwnThread()
        self._real = time.monotonic()
        self._measured = self._real

    def close(self) -> None:
        """Count the run as ended."""
        self._users.count -= 1
        self._own.close()

    def now(self) -> float:
        """Return the time. What the operator waited since the last wait on this clock is not known yet."""
        real = time.monotonic()
        elapsed = real - self._real
        self._real = real
        owed = self._debt + self._own.lost(self._users.count)
        advance = max(elapsed * _SLOWEST, elapsed - owed)
        # bounded, because the clock would go on to stand still when the machine is idle again
        self._debt = min(owed - (elapsed - advance), _SLICE)
        self._time += advance
        return self._time

    def _measure(self) -> float:
        """Return the time, without what the operator waited for a CPU."""
        real = time.monotonic()
        waited = 0.0
        threads: dict[Path, float] = {}
        for thread in islice(_threads(self._processes()), _MAX_THREADS):
            total = _waited(thread / "schedstat")
            waited += max(0.0, total - self._threads.get(thread, 0.0))
            threads[thread] = total
        self._threads = threads
        self._debt += min(waited, real - self._measured)  # threads also wait side by side
        self._measured = real
        return self.now()

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds`` of this clock."""
        end = self._measure() + seconds
        await self.wait_until(lambda: end, math.inf)

    async def wait_until(self, condition: Callable[[], float], deadline: float) -> bool:
        """Wait until the time is ``condition()``, which may move; return false at ``deadline``."""
        while (remaining := condition() - (now := self._measure())) > 0:
            if now >= deadline:
                return False
            await asyncio.sleep(_slice(min(remaining, deadline - now)))
        return True

    async def wait_for(self, event: asyncio.Event, deadline: float) -> bool:
        """Wait until ``event`` is set; return false at ``deadline``."""
        while not event.is_set():
            remaining = deadline - self._measure()
            if remaining <= 0:
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), _slice(remaining))
        return True


class _OwnThread:
    """The thread that created this object: how long it waited for a CPU, and its CPU time."""

    def __init__(self) -> None:
        try:
            self._file = os.open(_PROC / "thread-self" / "schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1
        self._waited = self._total_waited()
        self._worked = time.thread_time()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _total_waited(self) -> float:
        return _waiting_time(os.pread(self._file, 100, 0)) if self._file >= 0 else 0.0

    def lost(self, users: int) -> float:
        """Return the seconds since the last call in which the thread could not work for one of ``users``."""
        waited = self._total_waited()
        worked = time.thread_time()
        for_others = (worked - self._worked) * (1 - 1 / max(1, users))
        lost = waited - self._waited + for_others
        self._waited = waited
        self._worked = worked
        return max(0.0, lost)


def process_group(group: int) -> list[int]:
    """Return the processes of a process group; none on systems without ``/proc``."""
    if not _PROC.is_dir():
        return []
    processes = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())
    return [process for process in processes if _is_member(process, group)]


def _is_member(process: int, group: int) -> bool:
    try:
        return os.getpgid(process) == group
    except OSError:
        return False  # it has ended


def _threads(processes: Iterable[int]) -> Iterable[Path]:
    for process in processes:
        with suppress(OSError):  # it has ended
            yield from (_PROC / str(process) / "task").iterdir()


def _waited(path: Path) -> float:
    try:
        return _waiting_time(path.read_bytes())
    except OSError:
        return 0.0  # it has ended


def _waiting_time(statistics: bytes) -> float:
    """Return the second number of a ``schedstat``, as seconds."""
    return int(statistics.split()[1]) * _NANOSECOND


def _slice(remaining: float) -> float:
    return min(max(remaining, _SHORTEST), _SLICE)
