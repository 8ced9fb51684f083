"""``/manager`` in the image accepts the arguments of the Go operator's Deployment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "image" / "manager"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], []),
        (
            ["--config", "mine", "--log-level", "debug"],
            ["--config", "mine", "--log-level", "debug"],
        ),
        (["-config=mine", "-kubeconfig", "a b"], ["--config=mine", "--kubeconfig", "a b"]),
        (["--zap-log-level=debug"], ["--log-level=debug"]),
        (["-zap-log-level", "5", "--config", "mine"], ["--log-level=debug", "--config", "mine"]),
        (
            ["--zap-log-level=error", "--zap-encoder=json"],
            ["--log-level=error", "--log-format=json"],
        ),
        (
            ["--zap-devel", "--zap-devel=false", "--webhook-cert-dir", ""],
            ["--webhook-cert-dir", ""],
        ),
        (["--zap-stacktrace-level", "panic", "--zap-time-encoding=iso8601", "--x"], ["--x"]),
        (["--zap-log-level"], []),
    ],
)
def test_arguments_of_the_go_operator_are_translated(
    tmp_path: Path, arguments: list[str], expected: list[str]
) -> None:
    program = tmp_path / "bin" / "cfo"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "manager"
    script.write_text(SCRIPT.read_text().replace("/opt/cfo", str(tmp_path)))
    result = subprocess.run(
        ["sh", str(script), *arguments], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines() == ["run", *expected]
