"""``cfo run --embedded --overview`` on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import stat
import struct
import subprocess
import sys
import termios
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FULL_SCREEN = b"\x1b[?1049h"


def read_until(terminal: int, wanted: bytes, output: bytes = b"") -> bytes:
    """Read the terminal until ``wanted`` is in its output."""
    while wanted not in output:
        output += os.read(terminal, 65536)
    return output


def test_kubeconfig_is_shown_in_the_view_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 220, 0, 0))
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'envtest' / 'src'}",
        "TERM": "xterm-256color",
    }
    command = [sys.executable, "-m", "cfo", "run", "--embedded", "--overview"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    ) as process:
        os.close(terminal)
        try:
            read_until(ours, FULL_SCREEN)
            read_until(ours, f"export KUBECONFIG={tmp_path / 'cfo.kubeconfig'}".encode())
            kubeconfig = tmp_path / "cfo.kubeconfig"
            assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
            assert yaml.safe_load(kubeconfig.read_text())["kind"] == "Config"
            os.write(ours, b"q")
            while process.poll() is None:
                try:
                    os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
            assert process.wait(60) == 0
            assert not kubeconfig.exists()
        finally:
            process.kill()
            os.close(ours)
