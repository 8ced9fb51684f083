"""What ``cfo run --embedded`` prints, and the table of ``cfo status --watch`` on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CLEAR = b"\x1b[2J\x1b[1;1H"
SETTLED = "✓ All applied workloads have settled (1)\n"


def start(
    *arguments: str,
    directory: Path,
    stdout: int,
    stderr: int,
) -> subprocess.Popen[str]:
    """Start the command line in ``directory``."""
    path = f"{ROOT}{os.pathsep}{ROOT / 'envtest' / 'src'}"
    return subprocess.Popen(
        [sys.executable, "-m", "cfo", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path, "TERM": "xterm"},
        stdout=stdout,
        stderr=stderr,
        text=True,
    )


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Let programs receive SIGINT, which a shell lets its background jobs ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def table_on_a_terminal(directory: Path) -> bytes:
    """Return what ``cfo status --watch`` has written to a terminal when it shows the RayCluster; then end it."""
    ours, terminal = pty.openpty()
    kubeconfig = str(directory / "cfo.kubeconfig")
    command = ["status", "-A", "--watch", "--kubeconfig", kubeconfig]
    output = b""
    with start(
        *command, directory=directory, stdout=terminal, stderr=subprocess.DEVNULL
    ) as process:
        os.close(terminal)
        try:
            while b"interactive" not in output or b" in all namespaces at " not in output:
                output += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            with suppress(OSError):  # at the end; a program whose output is not read waits
                while os.read(ours, 65536):
                    pass
            assert process.wait(60) == 130
        finally:
            process.kill()
            os.close(ours)
    return output


def test_lines_of_changes_and_the_log_are_separate(tmp_path: Path) -> None:
    sample = ROOT / "config/samples/raycluster-interactive.yaml"
    log = tmp_path / "log"
    command = ["run", "--embedded", "--log-format", "json", "--apply", str(sample)]
    with (
        log.open("w") as errors,
        start(
            *command, directory=tmp_path, stdout=subprocess.PIPE, stderr=errors.fileno()
        ) as process,
    ):
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            while not lines[-1].endswith(SETTLED):
                assert lines[-1], [*lines, log.read_text()]
                lines.append(process.stdout.readline())
            assert process.stdout.readline() == lines[3], "the address is printed again"
            kubeconfig = tmp_path / "cfo.kubeconfig"
            assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
            assert yaml.safe_load(kubeconfig.read_text())["kind"] == "Config"
            table = table_on_a_terminal(tmp_path)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert not kubeconfig.exists()
        finally:
            process.kill()
    assert lines[0].startswith("control plane: https://127.0.0.1:")
    assert lines[1].endswith(f"export KUBECONFIG={kubeconfig}\n")
    assert lines[2].startswith("simulated: KubeRay and pods")
    assert lines[3].startswith("dashboard: http://127.0.0.1:")
    assert any("RayCluster default/interactive is ready (1/1): https://" in line for line in lines)
    assert table.startswith(CLEAR)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"Starting workers", "Stopping"} <= {entry["msg"] for entry in entries}
