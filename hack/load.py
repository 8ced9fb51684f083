"""Runs a command under load: ``python -m hack.load [PROCESSES] COMMAND...``, for example ``hack.load 12 make test``.

Tests wait for conditions and compare counts and orders, so they also pass on a slow machine. This makes one: each
process uses a whole core, and all of them end with the command, whose exit code is that of this program.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

DEFAULT = 12
_LOOP = "while True: pass"


def run(processes: int, command: list[str]) -> int:
    """Run ``command`` alongside ``processes`` that use a core each, and return its exit code."""
    with ExitStack() as stack:
        for _ in range(processes):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", _LOOP]))
            stack.callback(process.kill)
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    given = sys.argv[1:]
    number = DEFAULT
    if given and given[0].isdigit():
        number = int(given.pop(0))
    if not given:
        sys.exit("usage: python -m hack.load [PROCESSES] COMMAND...")
    sys.exit(run(number, given))
