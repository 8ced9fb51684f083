"""Runs one program of the real control plane, and ends it when the process that started this one has ended.

``supervisor.py FOLDER PROGRAM [ARGUMENT...]``. Standard input is a pipe from the process that started it: ``s`` ends
the program with SIGTERM, ``k`` with SIGKILL. When the pipe closes, its owner has ended, in any way: the program is
killed, and ``FOLDER``, which contains the files of the control plane, is removed. The exit code is that of the program,
or 128 and the number of the signal that ended it.

Uses only the standard library, and imports nothing of envtest: it starts quickly, wherever envtest is installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading

__all__ = ["KILL", "STOP", "main"]

STOP = b"s"
KILL = b"k"
_STDIN = 0


def _ignore(*_: object) -> None:
    """Handle SIGTERM and SIGINT: only the pipe ends the program. A handler, unlike SIG_IGN, is not inherited."""


def _follow_owner(process: subprocess.Popen[bytes], is_orphaned: threading.Event) -> None:
    while request := os.read(_STDIN, 1):
        if request == STOP:
            process.terminate()
        elif request == KILL:
            process.kill()
    is_orphaned.set()
    process.kill()


def main(folder: str, command: list[str]) -> int:
    """Run the program until it ends; return its exit code."""
    signal.signal(signal.SIGTERM, _ignore)
    signal.signal(signal.SIGINT, _ignore)
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - programs of $KUBEBUILDER_ASSETS
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 127
    is_orphaned = threading.Event()
    threading.Thread(target=_follow_owner, args=(process, is_orphaned), daemon=True).start()
    code = process.wait()
    if is_orphaned.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
