"""The load lasts as long as the command."""

from __future__ import annotations

import subprocess
import sys

import psutil

_COUNT = """
import os, sys, psutil
others = psutil.Process(os.getppid()).children()
print(*(process.pid for process in others if process.pid != os.getpid()))
sys.exit(3)
"""


def test_command_runs_with_the_load_and_its_exit_code_is_returned() -> None:
    command = [sys.executable, "-m", "hack.load", "2", sys.executable, "-c", _COUNT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)
