"""The clock of a run counts only the time in which the run could make progress."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envtest.chaos import run_clock
from envtest.chaos.run_clock import LoopUsers, RunClock, process_group

OPERATOR = 77


class Machine:
    """What the kernel says: the real time, the CPU time of this thread, and how long each thread waited."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.real = 1000.0
        self.worked = 5.0
        self.wait("thread-self", 0.0)

    def monotonic(self) -> float:
        return self.real

    def thread_time(self) -> float:
        return self.worked

    def wait(self, thread: str, seconds: float) -> None:
        """Set the seconds for which a thread has waited for a CPU since it started."""
        folder = self._folder / thread
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"123 {round(seconds * 1e9)} 4\n")

    def operator_waits(self, seconds: float, thread: int = OPERATOR) -> None:
        self.wait(f"{OPERATOR}/task/{thread}", seconds)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setattr(run_clock, "time", machine)
    monkeypatch.setattr(run_clock, "_PROC", tmp_path)
    return machine


async def after_wait(clock: RunClock) -> float:
    """Return the time after a wait, which measures the operator."""
    await clock.wait_until(lambda: -math.inf, math.inf)
    return clock.now()


def test_clock_shows_real_time_on_an_idle_machine(machine: Machine) -> None:
    clock = RunClock()
    machine.real += 3
    assert clock.now() == pytest.approx(3)


def test_time_in_which_the_loop_waits_for_a_cpu_does_not_count(machine: Machine) -> None:
    clock = RunClock()
    machine.real += 3
    machine.wait("thread-self", 2.5)
    assert clock.now() == pytest.approx(0.5)
    machine.real += 1
    assert clock.now() == pytest.approx(1.5)


def test_work_for_other_runs_does_not_count(machine: Machine) -> None:
    users = LoopUsers()
    clock = RunClock(users)
    other = RunClock(users)
    machine.real += 4
    machine.worked += 2
    assert clock.now() == pytest.approx(3)
    other.close()
    machine.real += 4
    machine.worked += 2
    assert clock.now() == pytest.approx(7)


async def test_time_in_which_the_operator_waits_for_a_cpu_does_not_count(machine: Machine) -> None:
    machine.operator_waits(1.0)
    clock = RunClock(processes=lambda: [OPERATOR])
    machine.real += 2
    assert await after_wait(clock) == pytest.approx(1)
    machine.real += 2
    machine.operator_waits(1.5)
    assert await after_wait(clock) == pytest.approx(2.5)


async def test_threads_of_the_operator_that_wait_side_by_side_count_once(machine: Machine) -> None:
    clock = RunClock(processes=lambda: [OPERATOR])
    for thread in range(10):
        machine.operator_waits(2.0, thread)
    machine.real += 2
    assert await after_wait(clock) == pytest.approx(0.1)
    machine.real += 2
    # the clock advanced by 0.1 s nevertheless, and makes up for it
    assert await after_wait(clock) == pytest.approx(2)


async def test_operator_that_has_ended_is_not_measured(machine: Machine) -> None:
    clock = RunClock(processes=lambda: [OPERATOR])
    machine.real += 2
    assert await after_wait(clock) == pytest.approx(2)


async def test_each_wait_ends_on_a_machine_without_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = RunClock()
    slices: list[float] = []

    async def starve(seconds: float) -> None:
        slices.append(seconds)
        machine.real += seconds
        machine.wait("thread-self", sum(slices))

    monkeypatch.setattr(asyncio, "sleep", starve)
    await clock.sleep(1.0)
    assert sum(slices) == pytest.approx(20, rel=0.01)
    assert not await clock.wait_until(lambda: math.inf, clock.now() + 1.0)


async def test_event_that_was_set_for_a_moment_is_not_set() -> None:
    """As a crash does that follows the readiness of the operator at once."""
    clock = RunClock()
    event = asyncio.Event()
    waiting = asyncio.create_task(clock.wait_for(event, clock.now() + 60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    event.set()
    event.clear()
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    event.set()
    assert await waiting
    clock.close()


def test_system_that_does_not_count_the_waiting_has_real_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_clock, "_PROC", tmp_path / "missing")
    clock = RunClock(processes=lambda: [OPERATOR])
    assert clock.now() >= 0
    assert process_group(os.getpgid(0)) == []
    clock.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_children_of_the_operator_are_in_its_process_group() -> None:
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert sorted(process_group(process.pid)) == sorted([process.pid, child])
        finally:
            os.killpg(process.pid, 9)
